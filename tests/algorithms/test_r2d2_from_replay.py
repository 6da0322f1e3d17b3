"""Sequences from an actor to the loss of R2D2: with the parameters that acted, values and priorities are the same."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from some_parts import a_task
from torch.testing import assert_close

from gossamer.algorithms.base import initial_state
from gossamer.algorithms.r2d2 import R2D2
from gossamer.algorithms.rescaling import rescale
from gossamer.algorithms.sequences import trained_steps, unrolled
from gossamer.data import Trajectory
from gossamer.envs.last import LastActionReward
from gossamer.envs.toy import Counter
from gossamer.experience.replay.store import Drawn, ReplayStore
from gossamer.nn.networks import QNetwork
from gossamer.policy import NetworkPolicy, build
from gossamer.workers.actor import Actor
from gossamer.workers.clock import Clock

ROLLOUT, EPISODE, ENVS = 4, 11, 3
ALGORITHM = R2D2(
    gamma=0.9, n_step=3, sequence_length=5, burn_in=3, buffer_size=300, learning_starts=8, double=False, target_period=0
)


def drawn(algorithm: R2D2, *, truncate: bool) -> tuple[QNetwork, Drawn]:
    """A network, and 300 sequences that it acted in Counter(11)."""
    task = a_task(LastActionReward(Counter(EPISODE, truncate=truncate)), algorithm, memory="lstm", memory_units=8)
    env = task.env.make(ENVS)
    model = build(task, env.spec)
    assert isinstance(model, QNetwork)
    policy = NetworkPolicy(model, algorithm, torch.Generator().manual_seed(0))
    actor = Actor(env, policy, gamma=algorithm.gamma, seed=0, clock=Clock())
    empty = Trajectory.empty(ROLLOUT, ENVS, env.spec.obs_shape, torch.uint8, state=initial_state(model, ENVS))
    slot = empty.with_chosen()
    store = ReplayStore(env.spec, algorithm.replay_plan(), {0: ENVS}, algorithm.buffer_size)
    for _ in range(10):
        actor.unroll(slot)
        store.add(0, slot)
    return model, store.draw(300, torch.Generator().manual_seed(0))


@pytest.mark.parametrize("truncate", [False, True], ids=["terminated", "truncated"])
def test_learning_finds_the_values_and_priorities_of_acting_time(truncate: bool) -> None:
    model, sample = drawn(ALGORITHM, truncate=truncate)
    data = sample.data
    assert data.mask is not None
    assert data.chosen is not None
    q = unrolled(model, data, ALGORITHM.burn_in)
    found = q[:-1].gather(2, data.action.unsqueeze(2)).squeeze(2)
    acted = rescale(data.chosen, ALGORITHM.rescaling_epsilon)
    assert_close(found[data.mask], acted[data.mask], rtol=1e-4, atol=1e-5)
    (loss,) = ALGORITHM.losses(model, data, torch.Generator())
    assert loss.priority is not None
    first = (loss.priority.double() + 1e-6) ** ALGORITHM.priority_exponent
    assert_close(sample.mass, first, rtol=1e-3, atol=1e-5)
    begins = data.begins[0]
    assert {*begins.tolist()} == {True, False}  # both kinds of sequences were drawn
    assert (len(data.finals) > 0) is truncate


def test_every_step_is_trained_but_those_after_the_start_of_the_memory_and_before_its_end() -> None:
    """Counter shows the step and the number of the episode: 40 steps of each environment."""
    _, sample = drawn(replace(ALGORITHM, priority_exponent=0.0), truncate=False)
    data = sample.data
    assert data.mask is not None
    trained = trained_steps(data.mask, data.begins[0], ALGORITHM.burn_in)
    numbers = data.obs[:-1, :, : 3 * 4].contiguous().view(torch.float32)  # [T, W, 3]: age, episode, environment
    time = (numbers[..., 1] * EPISODE + numbers[..., 0])[trained]
    assert {*time.long().tolist()} >= set(range(33))
