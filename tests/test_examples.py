"""The examples run as a reader would run them, and learn."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from gossamer import commands

EXAMPLES = Path(__file__).parents[1] / "examples"


ENOUGH = {
    "own_environment.py": 0.85,
    "own_network.py": 0.8,
    "reinforce.py": 0.8,
    "averaging.py": 0.8,
    "early_stopping.py": 0.8,
    "custom_metric.py": 0.85,
}


@pytest.mark.parametrize(("script", "enough"), ENOUGH.items())
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
    assert {path.name for path in EXAMPLES.glob("*.py")} == set(ENOUGH)


def test_examples_are_short() -> None:
    assert all(len(path.read_text().splitlines()) < 60 for path in EXAMPLES.glob("*.py"))


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        (("paac", "--algorithm", "reinforce:Reinforce"), "Weight of the baseline's loss. [at least 0] (default: 0.1)"),
        (("averaging:averaging",), "--every INT (default: 100)"),
    ],
)
def test_options_of_a_user_s_own_part_are_in_the_help(
    words: tuple[str, ...], shown: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(EXAMPLES)
    with pytest.raises(SystemExit):
        commands.run("train", [*words, "--env", "catch", "--help"])
    out = " ".join(line.strip("│ ") for line in capsys.readouterr().out.splitlines())
    assert shown in " ".join(out.split())
