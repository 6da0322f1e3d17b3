"""What the README shows works, and the README stays short."""

from __future__ import annotations

import contextlib
import json
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gossamer import commands
from gossamer.config import command_line, composing

TEXT = (Path(__file__).parents[1] / "README.md").read_text()
SHOWN = [line.partition(" #")[0].strip() for line in TEXT.splitlines() if line.startswith("gossamer ")]
TRAINED = [line for line in SHOWN if line.startswith("gossamer train") and "Hopper" not in line]  # needs [mujoco]


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", TEXT, flags=re.MULTILINE | re.DOTALL)


def test_the_readme_is_short() -> None:
    lines = TEXT.splitlines()
    assert len(lines) <= 120
    assert [line for line in lines if len(line) > 120 and not line.startswith("|")] == []


@pytest.mark.parametrize("line", TRAINED)
def test_a_training_that_is_shown_has_options_that_exist(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = shlex.split(line)[2:]
    with contextlib.suppress(SystemExit):
        commands.run("train", [*words, "--help"])
    known = set(re.findall(r"--[\w-]+", capsys.readouterr().out))
    assert {word for word in words if word.startswith("--")} <= known
    assert "--run-dir" in known


def test_every_command_that_is_shown_exists() -> None:
    done = subprocess.run([sys.executable, "-m", "gossamer.cli", "--help"], capture_output=True, text=True, check=True)
    assert len(SHOWN) > 15
    assert {line.split()[1] for line in SHOWN} <= set(re.findall(r"\w+", done.stdout))


class Parsed(Exception):
    """A command's words are accepted."""


@pytest.mark.parametrize("line", [line for line in SHOWN if not line.startswith("gossamer train")])
def test_a_command_that_is_shown_has_all_words_that_it_needs(line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def then(real: Callable[..., Any]) -> Callable[..., Any]:
        def called(*given: Any, **more: Any) -> Any:
            real(*given, **more)
            raise Parsed

        return called

    monkeypatch.setattr(composing, "compose", then(composing.compose))
    for module in (commands, commands.measuring, commands.searching, commands.studying, commands.training):
        monkeypatch.setattr(module, "parse", then(command_line.parse))
    _, name, *words = shlex.split(line)
    with pytest.raises(Parsed):
        commands.run(name, words)


def test_an_environment_of_one_s_own_trains_as_shown(tmp_path: Path) -> None:
    (snippet,) = [block for block in blocks("python") if block.startswith("# my_env.py")]
    (tmp_path / "my_env.py").write_text(snippet)
    line = snippet.splitlines()[0].partition("then: gossamer ")[2]
    assert "--steps" in line
    words = [sys.executable, "-m", "gossamer.cli", *shlex.split(line), "--run-dir", "run"]
    subprocess.run(words, cwd=tmp_path, check=True, capture_output=True, timeout=300)
    assert json.loads((tmp_path / "run" / "result.json").read_text())["mean_return"] >= 100  # of 200; random play: 20
    python = next(block for block in blocks("python") if "gossamer.train(" in block)
    shorter = python.replace("steps=100_000", "steps=1_000").replace("episodes=30", "episodes=2")
    assert shorter != python
    done = subprocess.run(
        [sys.executable, "-c", shorter], cwd=tmp_path, check=True, capture_output=True, text=True, timeout=300
    )
    assert float(done.stdout.splitlines()[-1]) >= 8  # whole games of CartPole, which no policy ends sooner
