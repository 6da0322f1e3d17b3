"""What algorithms that learn action values share: masks, and what they do not work with."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from some_masks import ENVS
from some_parts import a_trajectory

import gossamer
from gossamer.algorithms import DQN, PQN, NStepQ, SarsaLambda
from gossamer.algorithms.target import target_by_version
from gossamer.envs.gym import Custom
from gossamer.envs.random_play import play
from gossamer.experience.replay.store import ReplayStore
from gossamer.nn.networks import Network, QNetwork
from gossamer.nn.torsos import mlp
from gossamer.spaces import Box, Discrete, Spec
from gossamer.spaces.observations import MASK
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
    if name in ("nstep-q", "pqn"):
        algorithm.check(SPEC, replace(Network(mlp), memory="lstm"), "some-env")
    else:
        told = refused(algorithm, memory="lstm")
        assert told.startswith(f"--memory lstm: {name} has none; stack pictures (--frame-stack), or use pqn, nstep-q")
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


@pytest.mark.parametrize("double", [False, True])
def test_targets_of_replayed_steps_count_open_doors_only(double: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The network gives the doors 0 to 4 the values 0, 1, 2, 3, 4, the target network 40, 30, 20, 10, 0. The best open
    door of the next observation is the first one for the target network; with --double the last one, for the other."""
    monkeypatch.syspath_prepend(ENVS)
    specs, seen = zip(*play(Custom("more_envs:doors", masks=True), 2, 1, 40, print), strict=True)
    spec, algorithm = specs[0], DQN(double=double, huber=False, buffer_size=100, batch_size=64, learning_starts=1)
    rollout = a_trajectory(spec, 40, 2)
    rollout.obs.copy_(torch.from_numpy(np.stack(seen)))
    rollout.action.copy_(spec.layout.part(rollout.obs[:-1], MASK).int().argmax(-1))  # an open one
    store = ReplayStore(spec, algorithm.replay_plan(), {0: 2}, 100)
    store.add(0, rollout)
    batch = store.draw(64, torch.Generator().manual_seed(0)).data

    model = algorithm.model(spec, Network(mlp))
    target = target_by_version(model, algorithm.target_period)  # copied here, and not again
    for network, values in ((model, [0.0, 1.0, 2.0, 3.0, 4.0]), (target, [40.0, 30.0, 20.0, 10.0, 0.0])):
        assert isinstance(network, QNetwork)
        with torch.no_grad():
            network.advantage.weight.zero_()
            network.advantage.bias.copy_(torch.tensor(values))
    (loss,) = algorithm.losses(model, batch, torch.Generator())
    open_next = spec.layout.part(batch.obs[-1], MASK).int()
    first, last = open_next.argmax(-1), 4 - open_next.flip(-1).argmax(-1)
    assert (first > 0).any()  # where masks did not count, it would always be door 0
    assert (last < 4).any()
    expected = batch.reward[0] + 0.9 * (40 - 10 * (last if double else first))
    torch.testing.assert_close(loss.priority, (expected - batch.action[0]).abs())
