"""Architectures on Ray, as the command line runs them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from some_parts import Watcher as Counting
from some_runs import learned

from gossamer.config.build import program as build
from gossamer.config.names import ARCHITECTURES
from gossamer.config.resolve import configure
from gossamer.launch.ray.launcher import Ray
from gossamer.launch.threads import threads
from gossamer.task import WorkerReport

cloudpickle = pytest.importorskip("ray", reason="Ray is not installed (the extra `ray`)").cloudpickle
pytestmark = pytest.mark.ray
ENVS = Path(__file__).parents[2] / "envs"  # environments of a user's
SHORT = ("gala", "apex")  # one host, and several; `pala` is below, actors on hosts of their own are in other tests
QUICK = Ray(call_seconds=20.0, stop_seconds=2.0)


@pytest.mark.parametrize(
    ("architecture", "given"),
    [
        *((name, {}) for name in SHORT),
        *(pytest.param(name, {}, marks=pytest.mark.long) for name in ARCHITECTURES if name not in SHORT),
        ("a3c", {"hosts": 2, "learners": 1}),  # processes that map one file
        ("sarsa", {"hosts": 2, "learners": 2, "interval": 2}),
        ("pala", {"algorithm": "ppo", "rollout_length": 5, "memory": "lstm", "env": "more_envs:nested"}),
    ],
    ids=str,
)
def test_every_architecture_runs_unchanged(
    architecture: str, given: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(ENVS))
    config = configure(architecture, **{"env": "catch", "num_envs": 4, "steps": 200, "threads": 1, **given})
    program, watcher = build(config), Counting(steps=200)
    QUICK(program, watcher)
    reports = [record for record in watcher.records if isinstance(record, WorkerReport)]
    assert sum(report.steps for report in reports) == watcher.budget.acted >= 200
    assert program.saved_workers <= set(watcher.saved)


def test_every_architecture_runs_from_what_is_sent_to_hosts() -> None:
    """Each host gets the program as bytes. Here it is run from them in this process."""
    for architecture in ARCHITECTURES:
        sent = cloudpickle.dumps(build(configure(architecture, env="catch", num_envs=4, steps=200, threads=1)))
        program, watcher = cloudpickle.loads(sent), Counting(steps=200)
        threads(program, watcher)
        assert sum(report.steps for report in watcher.records) == watcher.budget.acted >= 200, architecture
        assert program.saved_workers <= set(watcher.saved), architecture


@pytest.mark.parametrize(
    ("architecture", "memory"), [pytest.param("impala", "none", marks=pytest.mark.long), ("appo", "lstm")]
)
def test_actors_of_other_hosts_and_their_learner_go_on_after_a_resume(architecture: str, memory: str) -> None:
    # Actors have no state and begin at once, the learner's host receives its own first: they may reach its queue
    # before that has a clock.
    given: dict[str, Any] = {"hosts": 2, "num_envs": 4, "threads": 1, "memory": memory}
    config = configure(architecture, env="catch", steps=200, **given)
    first = Counting(steps=200)
    QUICK(build(config), first)
    second = Counting(first.saved, steps=400, acted=first.budget.acted)
    QUICK(build(config), second)
    assert second.budget.acted >= 400
    assert sum(report.learned for report in second.records) >= 200 - 40


@pytest.mark.long
@pytest.mark.parametrize(
    "architecture", ["paac", "gala", "pala", "a3c", "sarsa", "dqn", "ga3c", "r2d2"]
)  # others: test_actors_and_learners
def test_catch_is_learned_with_the_default_settings(architecture: str, tmp_path: Path) -> None:
    learned(tmp_path, architecture, steps=150_000, cluster="auto")
