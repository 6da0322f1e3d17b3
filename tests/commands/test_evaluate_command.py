"""What `gossamer evaluate` prints beside the score of an Atari game."""

from __future__ import annotations

import errno
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from some_runs import trained

from gossamer.commands.playing import Evaluate, of_games
from gossamer.config.file import to_dict
from gossamer.config.resolve import configure
from gossamer.envs.base import MissingExtra
from gossamer.evaluation import evaluate as module
from gossamer.evaluation.evaluate import Evaluation
from gossamer.system.errors import UserError


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


def test_several_games_are_told_each_with_the_mean_and_median_of_human_normalised_scores() -> None:
    # Random play and a human: Pong -20.7 and 14.6, Boxing 0.1 and 12.1, Breakout 1.7 and 30.5
    games = {"pong": 14.6, "boxing": 6.1, "breakout": 1.7}
    told = list(of_games({game: {"mean_return": mean, "std_return": 0.25} for game, mean in games.items()}))
    assert told == [
        "pong           14.60 +- 0.25   human = 1: 1.00",
        "boxing          6.10 +- 0.25   human = 1: 0.50",
        "breakout        1.70 +- 0.25   human = 1: 0.00",
        "human-normalised mean 0.50, median 0.50",
    ]
    assert "human" not in "".join(of_games({"catch": {"mean_return": 1.0, "std_return": 0.0}}))


def test_each_run_of_a_folder_is_evaluated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def played(directory: Path, **given: Any) -> Evaluation:
        if directory.name == "seed-2":
            raise MissingExtra(f"no checkpoint in {directory}")
        games = {"catch": {"mean_return": 2.0, "std_return": 0.5}} if directory.name == "seed-3" else {}
        result = Evaluation(3.0, 0.0, 5, "plain", [3.0] * 5, 80, "step_80", greedy=False, metrics={"is_success": 0.25})
        return replace(result, games=games)

    for name in ("seed-1", "seed-2", "seed-3"):
        (tmp_path / "paac" / name).mkdir(parents=True)
        (tmp_path / "paac" / name / "config.json").write_text(json.dumps(to_dict(configure("paac", env="catch"))))
    monkeypatch.setattr(module, "evaluate", played)
    Evaluate(tmp_path)()
    place = tmp_path / "paac"
    told = "mean return 3.00, standard deviation 0.00, is_success 0.25, 5 episodes, protocol plain, sampled actions"
    assert capsys.readouterr().out.splitlines() == [
        f"{place / 'seed-1'}: {told}, step_80",
        f"{place / 'seed-2'}: left out: no checkpoint in {place / 'seed-2'}",
        f"{place / 'seed-3'}: {told}, step_80",
        "    catch        2.00 +- 0.50",
    ]
    Evaluate(tmp_path, json=True)()
    found = json.loads(capsys.readouterr().out)
    assert [each["directory"] for each in found["runs"]] == [str(place / "seed-1"), str(place / "seed-3")]
    assert found["left_out"] == [
        {"directory": str(place / "seed-2"), "reason": f"no checkpoint in {place / 'seed-2'}"},
    ]
    with pytest.raises(UserError, match="paac/seed-2"):
        Evaluate(place / "seed-2")()
    (place / "seed-1" / "config.json").unlink()
    (place / "seed-3" / "config.json").unlink()
    with pytest.raises(UserError, match="none of its 1 runs could be evaluated"):
        Evaluate(tmp_path)()


@pytest.mark.parametrize("folder", [False, True])
def test_a_result_that_cannot_be_written_is_printed_and_no_success(
    folder: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(file: Path, content: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    run = trained(tmp_path / "runs" / "one", env="counter").directory
    assert Evaluate(run, episodes=1)() == 0
    monkeypatch.setattr(module, "write_json", full)
    assert Evaluate(tmp_path / "runs" if folder else run, episodes=1)() == 2
    out, err = capsys.readouterr()
    assert out.splitlines()[-1].endswith("step_000000000080")
    assert err.splitlines()[-1] == f"cannot write {run / 'evaluation-plain.json'}: No space left on device"
