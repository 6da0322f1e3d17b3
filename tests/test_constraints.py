"""`constraints.txt`, `constraints-sinks.txt` and `constraints-envs.txt`, which pin what is installed for tests."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
EXTRAS = {
    # of `make test`, `make test-page` and `make docs`
    "constraints.txt": ("atari", "gym", "ray", "onnx", "dev", "browser", "docs"),
    "constraints-sinks.txt": ("atari", "gym", "dev", "wandb", "trackio", "mlflow"),  # of `make test-sinks`
    "constraints-envs.txt": ("atari", "gym", "dev", "envpool"),  # of `make test-envs`
}
OWN = "gossamer"


def name_of(requirement: str) -> str:
    """The normalised name: `Box2D==2.3` -> `box2d`."""
    return re.sub(r"[-_.]+", "-", re.split(r"[^\w.-]", requirement)[0]).lower()


@pytest.mark.parametrize("file", EXTRAS)
def test_every_direct_dependency_is_pinned(file: str) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = [project["optional-dependencies"][name] for name in EXTRAS[file]]
    needed = {name_of(each) for part in (project["dependencies"], *extras) for each in part} - {OWN}
    pinned = {name_of(line) for line in (ROOT / file).read_text().splitlines() if "==" in line}
    assert len(needed) > 15
    assert needed <= pinned
