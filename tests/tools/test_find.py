"""The search for the fastest settings climbs, keeps what is given, and ends in time."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from typing import Any

import pytest
import torch

from gossamer import cli
from gossamer.config.resolve import Choices
from gossamer.system.errors import UserError
from gossamer.tools import bench, find

DEFAULTS = {"num_envs": 16, "actors": 1, "env_workers": 1, "alternating": False, "threads": 1, "steps": 100}


@pytest.fixture(autouse=True)
def _four_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(find, "cores", lambda: 4)


def speed(settings: Mapping[str, Any]) -> float:
    """Fastest with 64 environments, 2 actors of 2 threads and one thread of torch."""
    made = {**DEFAULTS, **settings}
    good = {"num_envs": 64, "actors": 2, "env_workers": 2, "alternating": False, "threads": 1}
    return 1000.0 - sum(100.0 * abs(made[name] - value) / max(1, value) for name, value in good.items())


def test_the_climb_finds_the_fastest_and_tries_no_other_options() -> None:
    tried: list[Mapping[str, Any]] = []

    def rate(settings: Mapping[str, Any]) -> float:
        tried.append(settings)
        return speed(settings)

    assert find.search(DEFAULTS, set(), rate, lambda: True) == {"num_envs": 64, "actors": 2, "env_workers": 2}
    assert tried[0] == {}
    assert {name for settings in tried for name in settings} <= set(find.MOVES)
    assert max(settings.get("num_envs", 16) for settings in tried) <= find.MOST_GROWTH * 16


def test_what_is_given_stays_and_small_gains_do_not_count() -> None:
    assert find.search(DEFAULTS, {"num_envs", "actors"}, speed, lambda: True) == {"env_workers": 2}
    barely = lambda settings: 1000.0 + 20 * len(settings)  # noqa: E731  2 % more than before
    assert find.search(DEFAULTS, set(), barely, lambda: True) == {}


def test_settings_that_do_not_go_together_are_left_out_and_time_ends_the_search() -> None:
    def rate(settings: Mapping[str, Any]) -> float:
        return 0.0 if settings.get("num_envs", 16) > 32 else speed(settings)

    assert find.search(DEFAULTS, set(), rate, lambda: True)["num_envs"] == 32
    left = iter([True, False])
    assert find.search(DEFAULTS, set(), speed, lambda: next(left)) == {"num_envs": 32}


def test_the_command_has_all_that_was_chosen() -> None:
    given = {"num_envs": 64, "alternating": True, "parallel_loading": False, "learning_rate": 1e-3}
    assert find.command(Choices("impala", "pong", "vtrace", preset="paper", given=given)) == (
        "gossamer train impala --env pong --algorithm vtrace --preset paper --num-envs 64 --alternating "
        "--no-parallel-loading --learning-rate 0.001"
    )
    given = {"env_kwargs": {"map_name": "8x8"}, "hidden_sizes": (256, 256)}
    assert find.command(Choices("paac", "FrozenLake-v1", given=given)) == (
        """gossamer train paac --env FrozenLake-v1 --env-kwargs '{"map_name": "8x8"}' --hidden-sizes 256,256"""
    )


def test_the_command_line_prints_the_fastest_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(bench, "WARM_UP_SECONDS", 0.02)
    monkeypatch.setattr(find, "MOVES", {"num_envs": lambda value: [2 * value], "threads": lambda value: [3]})
    words = ["gossamer", "bench", "paac", "--env", "catch", "--num-envs", "2", "--seconds", "0.02", "--find", "--json"]
    monkeypatch.setattr("sys.argv", words)
    assert cli.main() == 0
    out, err = capsys.readouterr()
    found = json.loads(out)
    default, other = found["trials"]
    assert (default["settings"], other["settings"]) == ({}, {"threads": 3})
    faster = other["steps_per_second"] > find.GAIN * default["steps_per_second"]
    assert found["steps_per_second"] == (other if faster else default)["steps_per_second"]
    words = ["gossamer", "train", "paac", "--env", "catch", "--num-envs", "2", *["--threads", "3"] * faster]
    assert shlex.split(found["command"]) == words
    assert "steps/s with the defaults" in err.splitlines()[0]


def test_choices_that_cannot_be_are_refused() -> None:
    with pytest.raises(UserError, match="--network nature: does not fit"):
        find.find(Choices("paac", "catch", given={"network": "nature"}), 0.1)


def test_a_trial_that_does_not_fit_into_memory_ends_no_search(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(find, "MOVES", {"num_envs": lambda value: [2 * value], "threads": lambda value: [3]})

    def rate(choices: Choices, seconds: float) -> float:
        if choices.given.get("num_envs", 0) > most:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return 100.0 * choices.given.get("threads", 1)

    monkeypatch.setattr(find, "steps_per_second", rate)
    most = 1
    assert find.find(Choices("paac", "catch"), 0.1)["trials"] == [
        {"settings": {}, "steps_per_second": 100.0},
        {"settings": {"threads": 3}, "steps_per_second": 300.0},
    ]
    with pytest.raises(torch.OutOfMemoryError):  # the defaults do not fit
        find.find(Choices("paac", "catch", given={"num_envs": 2}), 0.1)


def test_settings_that_memory_cannot_hold_have_no_speed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gossamer.config.memory.total_memory", lambda: 100)
    assert find.steps_per_second(Choices("paac", "catch"), 0.1) is None


@pytest.mark.parametrize(
    ("start", "tried"),
    [
        # A trial of 16 environments takes 1 + 4 s, of 32 9 s, of 64 17 s: 31 s. 128 might take 34 s more: past 60.
        (0.25, [16, 32, 64]),
        (2.5, [16]),  # 41 s; twice that would be past the minute
    ],
)
def test_no_trial_begins_that_may_end_after_the_minute(
    start: float, tried: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, seen = 0.0, list[int]()

    def rate(choices: Choices, seconds: float) -> float:
        nonlocal clock
        seen.append(choices.given.get("num_envs", 16))
        clock += seconds + start * seen[-1]
        return float(seen[-1])

    monkeypatch.setattr(find, "MOVES", {"num_envs": find.MOVES["num_envs"]})
    monkeypatch.setattr(find, "steps_per_second", rate)
    find.find(Choices("paac", "catch-pixels", "ppo"), 1.0, now=lambda: clock)
    assert seen == tried
    assert clock <= find.FIND_SECONDS
