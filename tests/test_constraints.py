"""`constraints.txt`, which pins what is installed for tests."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parent.parent
EXTRAS = ("atari", "gym", "ray", "onnx", "dev")  # of `make install`
OWN = "gossamer"


def name_of(requirement: str) -> str:
    """The normalised name: `Box2D==2.3` -> `box2d`."""
    return re.sub(r"[-_.]+", "-", re.split(r"[^\w.-]", requirement)[0]).lower()


def test_every_direct_dependency_is_pinned() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    needed = {name_of(each) for part in (project["dependencies"], *map(extras.get, EXTRAS)) for each in part} - {OWN}
    pinned = {name_of(line) for line in (ROOT / "constraints.txt").read_text().splitlines() if "==" in line}
    assert len(needed) > 15
    assert needed <= pinned
