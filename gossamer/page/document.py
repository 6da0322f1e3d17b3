"""The page: one HTML file with its style, its program and uPlot inside. It loads nothing from anywhere."""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from importlib.resources import files
from typing import Any

from gossamer.storage.files import to_json

STYLES = ("uPlot.min.css", "page.css")
SCRIPTS = (
    "uPlot.iife.min.js",
    "format.js",
    "charts.js",
    "members.js",
    "agent.js",
    "panels.js",
    "run.js",
    "sorting.js",
    "searches.js",
    "overview.js",
    "page.js",
)
NO_DATA = "null"


@cache
def _asset(name: str) -> str:
    return (files("gossamer.page") / "assets" / name).read_text(encoding="utf-8")


@cache
def _style() -> str:
    return "\n".join(map(_asset, STYLES))


@cache
def _script() -> str:
    """uPlot with its licence before it, then the page's own program."""
    return "\n".join([f"/*\n{_asset('uPlot.LICENSE').strip()}\n*/", *map(_asset, SCRIPTS)])


def page(data: Any = None) -> str:
    """The HTML file. With `data` (`stream.everything`) it shows these, and asks no server."""
    content = NO_DATA if data is None else to_json(data).replace("<", "\\u003c")  # no tag may end the script
    parts = {"policy": policy(), "style": _style(), "script": _script(), "data": content}
    html = _asset("page.html")
    for name, text in parts.items():
        before, after = html.split(f"@{name}@", 1)
        html = before + text + after
    return html


def policy() -> str:
    """The content security policy: only this style and this script, by their digests; requests only to this server."""
    return (
        f"default-src 'none'; script-src '{_digest(_script())}'; style-src '{_digest(_style())}'; "
        "img-src data:; connect-src 'self'; base-uri 'none'; form-action 'none'"
    )


def _digest(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
