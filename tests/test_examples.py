"""The examples run as a reader would run them, and learn."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"


@pytest.mark.parametrize(("script", "enough"), [("own_environment.py", 0.85), ("own_network.py", 0.8)])
def test_example_learns(script: str, enough: float, tmp_path: Path) -> None:
    finished = subprocess.run(
        [sys.executable, EXAMPLES / script, tmp_path / "run"],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert finished.returncode == 0, finished.stderr
    found = re.search(r"mean return (-?[\d.]+)", finished.stdout)
    assert found
    assert float(found[1]) >= enough


def test_every_example_is_run() -> None:
    ran = {"own_environment.py", "own_network.py"}
    assert {path.name for path in EXAMPLES.glob("*.py")} == ran
