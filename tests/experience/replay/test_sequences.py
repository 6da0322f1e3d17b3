"""Sequences read from replay line up: observation, action, reward, state, episode borders and the mask."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from gossamer.algorithms.base import ReplayPlan
from gossamer.data import Action, Trajectory, Tree, first_episode
from gossamer.envs.toy import Counter
from gossamer.experience.replay.store import ReplayStore
from gossamer.workers.actor import Actor
from gossamer.workers.clock import Clock

GAMMA, LENGTH, ROLLOUT, EPISODE = 0.5, 8, 4, 7


@dataclass
class Counts:
    """A policy that counts its steps in its state. The action is the age mod 2, the value 100 + the count."""

    version: int = 0

    def refresh(self, position: int) -> int:
        return self.version

    def state_dict(self) -> Tree:
        return {}

    def close(self) -> None: ...

    def initial_state(self, num_envs: int) -> Tree:
        return {"count": torch.zeros(num_envs, 1)}

    def __call__(self, obs: Tensor, state: Tree) -> tuple[Action, Tree]:
        value = self.value(obs, state)
        return Action(obs[:, 0].long() % 2, value * 0, obs, value), {"count": state["count"] + 1}

    def recorded(self, state: Tree) -> Tree:
        return state

    def value(self, obs: Tensor, state: Tree) -> Tensor:
        return 100.0 + state["count"][:, 0]


def counted(rollouts: int, *, truncate: bool) -> ReplayStore:
    """So many rollouts of 4 steps on Counter(7), two environments, in sequences of 8 steps."""
    env, policy = Counter(EPISODE, truncate=truncate).make(2), Counts()
    actor = Actor(env, policy, gamma=GAMMA, seed=0, clock=Clock())
    slot = Trajectory.empty(ROLLOUT, 2, env.spec.obs_shape, torch.float32, state=policy.initial_state(2))
    store = ReplayStore(env.spec, ReplayPlan(200, 16, LENGTH, 1.0, 1, sequences=True), {0: 2}, 200)
    for _ in range(rollouts):
        actor.unroll(slot)
        store.add(0, slot)
    return store


@pytest.mark.parametrize("truncate", [False, True], ids=["terminated", "truncated"])
def test_everything_stands_at_its_time_in_a_sequence(truncate: bool) -> None:
    data = counted(10, truncate=truncate).draw(400, torch.Generator().manual_seed(0)).data
    age, episode = data.obs[..., 0], data.obs[..., 1]  # [T+1, W]
    time = episode * EPISODE + age
    assert_close(time, time[0] + torch.arange(LENGTH + 1.0).unsqueeze(1).expand_as(time))
    assert torch.equal(data.action, age[:-1].long() % 2)
    assert torch.equal(data.begins, age == 0)
    assert torch.equal(data.discount, GAMMA * (age[1:] != 0))
    assert torch.equal(data.value, 100 + age)
    reward = data.reward.clone()
    for final in data.finals:
        assert final.obs.tolist()[:2] == [EPISODE, episode[final.t, final.b]]
        assert final.state["count"].tolist() == [EPISODE]  # after seven steps
        assert final.value == GAMMA * (100 + EPISODE)
        reward[final.t, final.b] -= final.value
    assert torch.equal(reward, age[:-1])  # Counter pays the age
    assert (len(data.finals) > 0) is truncate
    assert torch.equal(data.state["count"][:, 0], age[0])  # the count before x_0 is its age, whatever starts there
    assert data.mask is not None
    assert torch.equal(data.mask, episode[:-1] == episode[0])  # the steps of the first episode


def test_sequences_start_with_rollouts_and_episodes_and_cover_every_step() -> None:
    """40 steps: rollouts start at 0, 4, .. and episodes at 0, 7, ..; the last start of a whole sequence is 32."""
    store = counted(10, truncate=False)
    drawn = store.draw(400, torch.Generator().manual_seed(0))
    assert store.windows == 2 * len({*range(0, 33, 4), *range(0, 33, 7)})
    for env in range(2):
        of = drawn.keys % 2 == env
        firsts = (drawn.keys[of] // 2).tolist()
        assert {*firsts} == {*range(0, 33, 4), *range(0, 33, 7)}
        assert drawn.data.mask is not None
        lengths = drawn.data.mask[:, of].sum(0).tolist()
        learned = {first + t for first, length in zip(firsts, lengths, strict=True) for t in range(length)}
        # The first episode of the last sequences, 28 and 32 on, ends with step 34: the rest is not yet whole
        assert learned == set(range(35))


def test_the_mask_ends_before_the_first_episode_that_begins_within() -> None:
    """Three windows of four steps: no episode begins, one begins with the third step, and one with the first."""
    begins = torch.tensor([[0, 0, 1], [0, 0, 0], [0, 1, 0], [0, 0, 1]], dtype=torch.bool)
    assert first_episode(begins).int().tolist() == [[1, 1, 1], [1, 1, 1], [1, 0, 1], [1, 0, 0]]
