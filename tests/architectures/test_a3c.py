"""A3C: one learner is the serial algorithm to the bit, for all four methods; learners, processes and shards fail; what
is refused."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from some_parts import Watcher, a_task, differences

from gossamer.algorithms import A2C, Algorithm, NStepQ, OneStepQ, Sarsa
from gossamer.architectures import A3C, PAAC
from gossamer.envs.toy import Catch
from gossamer.launch.threads import threads
from gossamer.task import Task

METHODS: dict[str, Algorithm] = {
    "a2c": A2C(),
    "nstep-q": NStepQ(target_period=10, epsilon_steps=400),
    "one-step-q": OneStepQ(target_period=10, epsilon_steps=400),
    "sarsa": Sarsa(target_period=10, epsilon_steps=400),
}
ONE = {"learners": 1, "num_envs": 4, "env_workers": 0}
STEPS = 960  # 60 updates of 16 steps


def a_method(method: str, **given: Any) -> Task:
    return a_task(Catch(), METHODS[method], **{"optimizer": "rmsprop-a3c", "anneal_steps": STEPS, **given})


def member_of(watcher: Watcher, name: str = "act_and_learn") -> dict[str, Any]:
    """What a learner has saved, without the time of the copy of its target network, which updates may be counted in."""
    learner: dict[str, Any] = watcher.saved[name]["learner"]
    return learner


@pytest.mark.parametrize(
    ("method", "changed", "form"),
    [
        *((method, {}, form) for method in METHODS for form in ({}, {"statistics": "own"}, {"shards": 2})),
        ("a2c", {"optimizer": "adam"}, {}),
        ("a2c", {"memory": "lstm"}, {}),
        ("sarsa", {"dtype": torch.bfloat16}, {}),
    ],
    ids=str,
)
def test_one_learner_is_the_serial_algorithm_to_the_bit(
    method: str, changed: dict[str, Any], form: dict[str, Any]
) -> None:
    alone, one = Watcher(steps=STEPS), Watcher(steps=STEPS)
    threads(PAAC(num_envs=4, env_workers=0).program(a_method(method, **changed)), alone)
    threads(A3C(**ONE, **form).program(a_method(method, **changed)), one)
    expected, found = member_of(alone), member_of(one)
    kept = ["model", "rng", "steps", "updates", *(["optimizer"] if "shards" not in form else [])]
    assert [differences(expected[name], found[name]) for name in kept] == [[]] * len(kept)
    assert expected["updates"] == 60
    assert {stale for report in one.records for stale in report.staleness} == {0}
