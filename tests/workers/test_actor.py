"""Time lines up: what was seen, done and earned at t stands at t, across rollouts, ends and cuts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

import numpy as np
import pytest
import torch
from torch import Tensor

from gossamer.data import Action, Array, Step, Trajectory, Tree
from gossamer.envs.base import EnvFactory, VectorEnv
from gossamer.envs.gym import Gym
from gossamer.envs.toy import Catch, Counter, Identity
from gossamer.spaces import Discrete, Spec
from gossamer.task import Episode
from gossamer.workers.actor import Actor
from gossamer.workers.clock import Clock

GAMMA = 0.5


@dataclass
class Reads:
    """A policy on Counter's observations [age, episode, environment]: the value of one is 100 + age, the action is the
    environment's number, its log-probability is the age. The version goes up with every rollout."""

    version: int = 0
    asked: list[Tensor] = field(default_factory=list)

    def refresh(self, position: int) -> int:
        self.version += 1
        return self.version

    def __call__(self, obs: Tensor, state: Tree) -> tuple[Action, Tree]:
        self.asked.append(obs.clone())
        return Action(obs[:, 2].long(), obs[:, 0], obs, self.value(obs, state)), state

    def initial_state(self, num_envs: int) -> Tree:
        return {}

    def recorded(self, state: Tree) -> Tree:
        return state

    def value(self, obs: Tensor, state: Tree) -> Tensor:
        return 100.0 + obs[:, 0]

    def state_dict(self) -> Tree:
        return {}

    def close(self) -> None: ...


def actor(env: VectorEnv, policy: Reads | None = None) -> Actor:
    return Actor(env, policy or Reads(), gamma=GAMMA, seed=0, clock=Clock())


class Chooses(Reads):
    """`Reads`, which says that the value of an action is 1000 + age."""

    def __call__(self, obs: Tensor, state: Tree) -> tuple[Action, Tree]:
        answer, state = super().__call__(obs, state)
        return replace(answer, chosen=1000.0 + obs[:, 0]), state


def slot_for(env: VectorEnv, rollout_length: int) -> Trajectory:
    return Trajectory.empty(rollout_length, env.num_envs, env.spec.obs_shape, torch.float32)


def rollouts(env: VectorEnv, count: int, steps: int) -> list[Trajectory]:
    """So many in turn, each in memory of its own."""
    acting, found = actor(env), []
    for _ in range(count):
        slot = slot_for(env, steps)
        acting.unroll(slot)
        found.append(slot)
    return found


def test_values_of_chosen_actions_are_written_where_they_are_wanted() -> None:
    env = Counter(3).make(2)
    plain, slot = slot_for(env, 5), slot_for(env, 5).with_chosen()
    acting = actor(env, Chooses())
    acting.unroll(plain)
    acting.unroll(slot)
    assert plain.chosen is None
    assert slot.chosen is not None
    assert slot.chosen[:, 0].tolist() == [1002, 1000, 1001, 1002, 1000]
    with pytest.raises(AssertionError, match="wants action values, which this policy has not"):
        actor(env).unroll(slot)


def test_everything_stands_at_its_time() -> None:
    # Episodes of 3 steps, rollouts of 5: ages 0 1 2 0 1 | 2 0 1 2 0 | 1 ..
    first, second = rollouts(Counter(3).make(2), 2, 5)
    assert first.obs[:, 0, 0].tolist() == [0, 1, 2, 0, 1, 2]
    assert first.obs[:, 0, 1].tolist() == [0, 0, 0, 1, 1, 1]  # the episode's number
    assert second.obs[:, 0, 0].tolist() == [2, 0, 1, 2, 0, 1]
    for slot in (first, second):
        age = slot.obs[:-1, :, 0]
        assert torch.equal(slot.reward, age)  # the reward at age t is t
        assert torch.equal(slot.discount, torch.where(age == 2, 0.0, GAMMA))
        assert torch.equal(slot.value, 100 + slot.obs[:, :, 0])
        assert torch.equal(slot.behaviour, age)
        assert slot.action.tolist() == [[0, 1]] * 5


def test_time_0_of_a_rollout_is_time_t_of_the_last() -> None:
    slots = rollouts(Counter(3).make(4), 6, 4)
    for before, after in pairwise(slots):
        assert torch.equal(before.obs[-1], after.obs[0])
        assert torch.equal(before.value[-1], after.value[0])


def test_rollouts_of_any_length_are_pieces_of_one_story() -> None:
    whole = rollouts(Counter(7).make(3), 1, 24)[0]
    for steps in (1, 2, 3, 8, 12):
        parts = rollouts(Counter(7).make(3), 24 // steps, steps)
        assert torch.equal(torch.cat([p.obs[:-1] for p in parts]), whole.obs[:-1])
        assert torch.equal(torch.cat([p.reward for p in parts]), whole.reward)
        assert torch.equal(torch.cat([p.discount for p in parts]), whole.discount)


def test_a_slot_may_change_its_length() -> None:
    env = Counter(7).make(2)
    acting = actor(env)
    for steps, rewards in ((3, [0, 1, 2]), (2, [3, 4]), (4, [5, 6, 0, 1])):
        slot = slot_for(env, steps)
        acting.unroll(slot)
        assert slot.reward[:, 0].tolist() == rewards


def test_what_is_cut_short_keeps_the_value_of_its_final_observation() -> None:
    # At age 2 the third step is rewarded 2 and ends at [3, ..], worth 103: 2 + 103 / 2 = 53.5, and nothing follows
    (slot,) = rollouts(Counter(3, truncate=True).make(2), 1, 5)
    assert slot.reward[:, 0].tolist() == [0, 1, 53.5, 0, 1]
    assert slot.discount[:, 0].tolist() == [GAMMA, GAMMA, 0, GAMMA, GAMMA]
    assert slot.obs[:, 0, 0].tolist() == [0, 1, 2, 0, 1, 2]  # the next observation is the new episode's all the same


def test_the_version_is_of_the_parameters_that_acted() -> None:
    versions = [slot.version.tolist() for slot in rollouts(Counter(3).make(2), 1, 2)]
    assert versions == [[[1, 1]] * 2]
    env, policy = Counter(3).make(2), Reads()
    acting, slot = actor(env, policy), slot_for(env, 2)
    for expected in (1, 2, 3):
        acting.unroll(slot)
        assert slot.version.tolist() == [[expected, expected]] * len(slot.version)


class Served(Reads):
    """A policy whose parameters change at every step, as those of a server may."""

    def __call__(self, obs: Tensor, state: Tree) -> tuple[Action, Tree]:
        answer, state = super().__call__(obs, state)
        return replace(answer, version=torch.tensor([10, 20]) + len(self.asked)), state


def test_a_policy_whose_version_changes_within_a_rollout_gives_one_for_each_step() -> None:
    env = Counter(3).make(2)
    slot = slot_for(env, 3)
    actor(env, Served()).unroll(slot)
    assert slot.version.tolist() == [[11, 21], [12, 22], [13, 23]]


def test_one_forward_pass_answers_all_environments_at_each_step() -> None:
    env, policy = Counter(3).make(4), Reads()
    slot = slot_for(env, 5)
    actor(env, policy).unroll(slot)
    assert torch.equal(torch.stack(policy.asked), slot.obs[:-1])


class Scripted:
    """Steps as they are given, of two environments whose observation says how many steps were made."""

    spec = Spec((3,), np.dtype(np.float32), Discrete(3))
    num_envs = 2

    def __init__(self, steps: Sequence[Step]) -> None:
        self._steps, self._count = steps, 0

    def reset(self, seed: int) -> Array:
        return np.zeros((2, 3), np.float32)

    def step(self, action: Array) -> Step:
        self._count += 1
        return self._steps[self._count - 1]

    def frames(self) -> Array:
        raise RuntimeError("blind")

    def close(self) -> None: ...


def step(
    *,
    score: tuple[float, float] = (1, 1),
    terminated: tuple[bool, bool] = (False, False),
    truncated: tuple[bool, bool] = (False, False),
    over: tuple[bool, bool] | None = None,
    final: float | None = None,
) -> Step:
    """Rewards are scores clipped to 1; `final` is the age of both final observations."""
    scores, ended, cut = np.array(score, np.float32), np.array(terminated), np.array(truncated)
    final_obs = None if final is None else np.full((2, 3), final, np.float32)
    whole = ended | cut if over is None else np.array(over)
    return Step(np.zeros((2, 3), np.float32), np.minimum(scores, 1), scores, ended, cut, whole, final_obs)


def unrolled(*steps: Step) -> tuple[Trajectory, tuple[Episode, ...]]:
    env = Scripted(steps)
    acting, slot = actor(env), slot_for(env, len(steps))
    acting.unroll(slot)
    return slot, acting.episodes()


def test_a_lost_life_terminates_but_the_game_goes_on() -> None:
    slot, episodes = unrolled(
        step(score=(5, 0)),
        step(score=(3, 0), terminated=(True, False), over=(False, False)),
        step(score=(2, 0), terminated=(True, True), over=(True, False)),
        step(score=(1, 7), terminated=(False, True), over=(False, True)),
    )
    assert slot.discount.tolist() == [[GAMMA, GAMMA], [0, GAMMA], [0, 0], [GAMMA, 0]]
    assert slot.reward.tolist() == [[1, 0], [1, 0], [1, 0], [1, 1]]
    # 5 + 3 + 2, unclipped, over both lives of the first; the second's life was lost just when that game was over
    assert episodes == (Episode(score=10, steps=3, index=0), Episode(score=7, steps=4, index=1))


def test_environments_end_each_for_itself() -> None:
    slot, episodes = unrolled(
        step(score=(1, 2)),
        step(score=(1, 2), terminated=(True, False)),
        step(score=(1, 2), truncated=(False, True), final=7),
        step(score=(1, 2), terminated=(True, False)),
    )
    # only the second is cut, and bootstraps: 1 + 107 / 2; where the first goes on, nothing is added
    assert slot.reward.tolist() == [[1, 1], [1, 1], [1, 54.5], [1, 1]]
    assert slot.discount.tolist() == [[GAMMA, GAMMA], [0, GAMMA], [GAMMA, 0], [0, GAMMA]]
    assert episodes == (Episode(2, 2, index=0), Episode(6, 3, index=1), Episode(2, 2, index=0))


def test_an_environment_that_cuts_without_a_final_observation_is_refused() -> None:
    with pytest.raises(RuntimeError, match="no final observation"):
        unrolled(step(truncated=(True, False)))


def test_episodes_are_reported_once_and_run_on_across_rollouts() -> None:
    env = Counter(3).make(1)
    acting, slot = actor(env), slot_for(env, 2)
    seen = []
    for _ in range(3):
        acting.unroll(slot)
        seen.append(acting.episodes())
    # 6 steps, episodes of 3: one ends in the second rollout, one in the third; each scores 0 + 1 + 2
    assert seen == [(), (Episode(3, 3),), (Episode(3, 3),)]
    assert acting.episodes() == ()


def test_episodes_say_which_environment_they_are_of() -> None:
    env = Counter(2).make(3)
    acting = Actor(env, Reads(), gamma=GAMMA, seed=0, clock=Clock(), name="counter")
    acting.unroll(slot_for(env, 2))
    assert [(episode.env, episode.index) for episode in acting.episodes()] == [("counter", b) for b in range(3)]


@pytest.mark.parametrize("toy", [Counter(5), Counter(5, truncate=True), Catch(), Identity()], ids=lambda toy: toy.name)
def test_it_goes_on_where_it_was_saved(toy: EnvFactory) -> None:
    def run(acting: Actor, env: VectorEnv) -> list[object]:
        slot = slot_for(env, 3)
        acting.unroll(slot)
        return [slot.obs.tolist(), slot.reward.tolist(), slot.discount.tolist(), acting.episodes()]

    env, other = toy.make(2), toy.make(2)
    acting = actor(env)
    run(acting, env)
    saved = acting.state_dict()
    straight = [run(acting, env) for _ in range(4)]
    later = actor(other)
    later.load_state_dict(saved)
    for expected in straight:
        assert run(later, other) == expected


def test_an_environment_that_cannot_be_saved_starts_new_episodes() -> None:
    env = Gym("CartPole-v1").make(2)
    acting = actor(env)
    assert acting.state_dict() == {}
    acting.unroll(slot_for(env, 2))
    acting.load_state_dict({})
    slot = slot_for(env, 2)
    acting.unroll(slot)
    assert slot.obs.isfinite().all()
    env.close()


def test_a_clock_says_what_was_spent_since_it_was_last_asked() -> None:
    clock = Clock()
    for what in ("env", "update", "env"):
        with clock(what):
            pass
    taken = clock.take()
    assert list(taken) == ["env", "update"]
    assert all(seconds >= 0 for seconds in taken.values())
    assert clock.take() == {}


def test_time_is_told_apart_by_what_it_was_spent_on() -> None:
    env = Counter(3).make(2)
    acting = actor(env)
    acting.unroll(slot_for(env, 2))
    assert set(acting.clock.take()) == {"env", "inference"}
