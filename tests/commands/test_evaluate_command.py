"""What `gossamer evaluate` prints beside the score of an Atari game."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gossamer.commands.playing import Evaluate
from gossamer.config.file import to_dict
from gossamer.config.resolve import configure
from gossamer.evaluation import evaluate as module
from gossamer.evaluation.evaluate import Evaluation


@pytest.fixture
def played(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Evaluates a run of an environment that has the mean return 15.2."""

    def run(env: str, **options: Any) -> None:
        if env == "pong":
            pytest.importorskip("ale_py", reason="ale-py is not installed (the extra `atari`)")
        (tmp_path / "config.json").write_text(json.dumps(to_dict(configure("dqn", env=env))))
        protocol = "noop" if env == "pong" else "plain"
        made = Evaluation(15.2, 0.5, 30, protocol, [15.2] * 30, 80, "step_80", greedy=False, epsilon=0.05)
        monkeypatch.setattr(module, "evaluate", lambda *args, **more: made)
        Evaluate(tmp_path, **options)()

    return run


def test_published_scores_follow_the_score_of_an_atari_game(played: Any, capsys: pytest.CaptureFixture[str]) -> None:
    played("pong")
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == ("mean return 15.20, standard deviation 0.50, 30 episodes, protocol noop, epsilon 0.05, step_80")
    assert len(lines) == 1 + 12
    assert "DQN           18.9       1.12  no-op starts, 5 min, epsilon 0.05, 30 games" in lines
    assert "this run      15.2       1.02  no-op starts, 30 min, epsilon 0.05, 30 games" in lines
    assert "Different: 5-minute cap (DQN, Gorila), best score in training (Ape-X), human starts (A3C)." in lines[-1]


def test_json_has_them_too(played: Any, capsys: pytest.CaptureFixture[str]) -> None:
    played("pong", json=True)
    found = json.loads(capsys.readouterr().out)
    assert (found["mean_return"], found["epsilon"]) == (15.2, 0.05)
    assert {each["agent"] for each in found["published"]} >= {"random", "human", "DQN", "Gorila", "Ape-X", "R2D2"}


def test_other_environments_print_nothing_more(played: Any, capsys: pytest.CaptureFixture[str]) -> None:
    played("catch")
    assert len(capsys.readouterr().out.splitlines()) == 1
    played("catch", json=True)
    assert "published" not in json.loads(capsys.readouterr().out)
