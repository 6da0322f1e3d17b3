"""How this package was installed: the command that adds one of its extras, and the commit that it comes from."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]  # of a checkout; else the folder of all installed packages
GIT_SECONDS = 5.0  # for an answer of git, which may read a slow network file system


def install(extra: str) -> str:
    """The command that installs an extra (`onnx`) of this package into the environment that runs it."""
    return f"{pip()} install {_source(extra)}"


def pip() -> str:
    """pip of this environment: by its name where a shell finds it under that."""
    found = shutil.which("pip")
    same = found is not None and Path(found).parent == Path(sys.executable).parent
    return "pip" if same else f"{sys.executable} -m pip"


def commit() -> str:
    """The commit of this package, with `-dirty` if tracked files differ from it. Empty if it is unknown, as for a
    package that was installed from an index."""
    if not (ROOT / ".git").exists():  # the folder of packages may lie within another repository
        return str(_origin().get("vcs_info", {}).get("commit_id", ""))[:12]
    words = ["git", "describe", "--always", "--dirty", "--exclude", "*"]
    try:
        found = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=GIT_SECONDS, check=True)
    except (OSError, subprocess.SubprocessError):  # no git, or it refuses the folder of another user
        return ""
    return found.stdout.strip()


def _source(extra: str) -> str:
    """What pip installs, for a shell."""
    if (ROOT / "pyproject.toml").exists():
        return f'-e "{ROOT}[{extra}]"'
    origin = _origin()
    url = str(origin.get("url", ""))
    if vcs := origin.get("vcs_info"):
        url = f"{vcs['vcs']}+{url}@{vcs['commit_id']}"
    return f'"gossamer[{extra}]{url and f" @ {url}"}"'


def _origin() -> dict[str, Any]:
    """What pip wrote down about the source of the package; empty if it came from an index, or is not installed."""
    try:
        found: dict[str, Any] = json.loads(distribution("gossamer").read_text("direct_url.json") or "{}")
    except (PackageNotFoundError, ValueError):
        return {}
    return found
