"""A loaded policy does what `evaluate` does, to the bit, with the environments' own observations and actions."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from some_policies import KINDS, Games, evaluated, played, run_of, with_envs

import gossamer
from gossamer.storage.directory import load_config

STEPS, SEED = 12, 5  # longer than an episode of each of them


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Runs of KINDS, made when asked for."""
    place, made = tmp_path_factory.mktemp("runs"), dict[str, Path]()
    patch = pytest.MonkeyPatch()
    with_envs(place, patch)

    def run(kind: str) -> Path:
        if kind not in made:
            made[kind] = run_of(kind, place / f"run{len(made)}")
        return made[kind]

    yield run
    patch.undo()


Runs = Callable[[str], Path]


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("greedy", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_actions_are_those_of_evaluate(runs: Runs, kind: str, greedy: bool, count: int) -> None:
    directory = runs(kind)
    expected = list(islice(evaluated(directory, count, SEED, greedy=greedy), STEPS))
    policy = gossamer.load(directory, greedy=greedy, seed=SEED)
    last = load_config(directory).network.last_action_reward
    found = list(islice(played(policy, Games(directory, count, SEED), last=last), STEPS))
    # The environments are random or depend on the actions, so equal rewards also mean equal observations.
    rewards = np.array([each for _, each in found], np.float32)
    np.testing.assert_array_equal(rewards, [scores for _, scores in expected])
    to_env = policy.snapshot.description.interface.adapter.action
    for (actions, _), (theirs, _) in zip(found, expected, strict=True):
        given = np.stack([to_env(one) for one in (theirs.tolist() if theirs.ndim == 1 else theirs)])
        np.testing.assert_array_equal(actions, given)
        assert actions.dtype == given.dtype
    if count == 3 and not greedy:
        assert len({actions.tobytes() for actions, _ in found}) > 1  # it does act
