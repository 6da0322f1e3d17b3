"""What algorithms that learn action values share: masks, and what they do not work with."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from some_masks import ENVS

import gossamer
from gossamer.algorithms import DQN, PQN, NStepQ, SarsaLambda
from gossamer.nn.networks import Network
from gossamer.nn.torsos import mlp
from gossamer.spaces import Box, Discrete, Spec
from gossamer.system.errors import UserError

SPEC = Spec((1,), np.dtype(np.float32), Discrete(3))

each_algorithm = pytest.mark.parametrize(
    ("name", "algorithm"),
    [("dqn", DQN()), ("nstep-q", NStepQ()), ("pqn", PQN()), ("sarsa-lambda", SarsaLambda())],
    ids=["dqn", "nstep-q", "pqn", "sarsa-lambda"],
)


def refused(algorithm: DQN | NStepQ | PQN | SarsaLambda, spec: Spec = SPEC, **network: Any) -> str:
    with pytest.raises(UserError) as error:
        algorithm.check(spec, replace(Network(mlp), **network), "some-env")
    return str(error.value)


@each_algorithm
def test_what_they_do_not_work_with_is_refused_in_a_line(
    name: str, algorithm: DQN | NStepQ | PQN | SarsaLambda
) -> None:
    box = replace(SPEC, actions=Box((-1.0,), (1.0,)))
    assert refused(algorithm, box).startswith(f"--algorithm {name}: some-env has 1 continuous actions")
    assert refused(algorithm, memory="lstm").startswith(f"--memory lstm: {name} has none")
    for flag in ("normalize-returns", "normalize-observations", "separate-critic"):
        told = refused(algorithm, **{flag.replace("-", "_"): True})
        assert told == f"--{flag}: has no effect with --algorithm {name}; leave it out"


@pytest.mark.parametrize("name", ["nstep-q", "pqn", "sarsa-lambda"])
@pytest.mark.parametrize("architecture", ["impala", "appo"])
def test_batches_of_an_older_policy_are_refused(architecture: str, name: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=f"--algorithm {name}: on-policy, but batches of a queue are older"):
        gossamer.train(architecture, env="catch", algorithm=name, run_dir=tmp_path / "run")


@pytest.mark.parametrize("name", ["nstep-q", "pqn", "sarsa-lambda"])
def test_only_valid_actions_are_taken_and_the_best_of_them_are_learned(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reward is the number of the door, 0 to 4, and a closed one raises. Each is open with probability 0.5 and one
    always: a mean of 2 for any open one, and of 3.39 for the best, over 7 steps."""
    monkeypatch.syspath_prepend(ENVS)
    run = gossamer.train(
        "paac", env="more_envs:doors", algorithm=name, steps=30_000, stop_at_return=20.0, action_masks=True,
        run_dir=tmp_path / "run", log="none",
    )  # fmt: skip
    assert gossamer.evaluate(run.directory, episodes=50, greedy=True).mean_return >= 7 * 2.8
