"""The last action and reward are those of the step that led to an observation, and zero where an episode begins."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium.spaces import Dict, Discrete
from more_envs import Shows
from some_parts import a_task

from gossamer.data import Array, Step, Trajectory
from gossamer.envs.base import EnvFactory, Restarting, Resumable, UnsupportedSpace, VectorEnv, Watchable
from gossamer.envs.gym import Custom, Gym
from gossamer.envs.last import LastActionReward, LastVector, as_numbers
from gossamer.envs.local import Local
from gossamer.envs.single import EnvSource
from gossamer.envs.toy import Catch, Counter, Identity
from gossamer.policy import NetworkPolicy, build
from gossamer.spaces import Box, MultiBinary, MultiDiscrete, Space
from gossamer.spaces import Discrete as Choice
from gossamer.spaces.observations import Part
from gossamer.workers.actor import Actor
from gossamer.workers.clock import Clock

FLOATS = np.dtype(np.float32)


@pytest.fixture(autouse=True)
def users_modules(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parent))


def part(env: VectorEnv, obs: Array | None, name: str) -> list[Any]:
    assert env.spec.layout is not None
    assert obs is not None
    found: list[Any] = env.spec.layout.array(obs, name).tolist()
    return found


@pytest.mark.parametrize(
    ("space", "actions", "expected"),
    [
        (Choice(3), np.array([2, 0]), [[0, 0, 1], [1, 0, 0]]),
        (MultiDiscrete((2, 3)), np.array([[1, 0], [0, 2]]), [[0, 1, 1, 0, 0], [1, 0, 0, 0, 1]]),
        (MultiBinary(2), np.array([[1, 0], [1, 1]]), [[1, 0], [1, 1]]),
        (Box((-1.0, -1.0), (1.0, 1.0)), np.array([[0.5, -7.0]], np.float32), [[0.5, -7.0]]),
    ],
    ids=str,
)
def test_actions_become_numbers(space: Space, actions: Array, expected: list[list[float]]) -> None:
    found = as_numbers(space, actions)
    assert (found.tolist(), found.dtype) == (expected, FLOATS)


def test_the_parts_are_added_to_those_that_are_there() -> None:
    last = (Part("last_action", (3,), FLOATS), Part("last_reward", (1,), FLOATS))
    picture = LastActionReward(Catch(pixels=True)).make(1).spec
    assert picture.parts == (Part("observation", (1, 42, 42), np.dtype(np.uint8)), *last)
    nested = Custom("more_envs:nested")
    assert LastActionReward(nested).make(1).spec.parts == (*nested.make(1).spec.parts, *last)
    masked = LastActionReward(Custom("more_envs:two_doors", masks=True)).make(1).spec
    assert [one.name for one in masked.parts] == ["observation", "action_mask", "last_action", "last_reward"]
    assert masked.parts[2].shape == (7,)  # 3 + 4 doors


@pytest.mark.parametrize("truncate", [False, True])
def test_last_action_and_reward_follow_the_steps_of_an_episode(truncate: bool) -> None:
    # Counter(3): the reward of step t is t, its observation [t, episode, environment]
    env = LastActionReward(Counter(3, truncate)).make(2)
    obs = env.reset(seed=0)
    ages, rewards, actions, finals = [], [], [], []
    for action in ([0, 1], [1, 1], [1, 0], [0, 0]):
        ages.append(part(env, obs, "observation")[1][0])
        rewards.append(part(env, obs, "last_reward"))
        actions.append(part(env, obs, "last_action"))
        step = env.step(np.array(action))
        obs = step.obs
        if truncate and step.truncated.any():
            finals = [part(env, step.final_obs, name) for name in ("observation", "last_action", "last_reward")]
    assert ages == [0, 1, 2, 0]
    # before the first step of each episode: nothing; then the rewards 0 and 1 of steps 0 and 1; that of step 2 is 2
    assert rewards == [[[0], [0]], [[0], [0]], [[1], [1]], [[0], [0]]]
    nothing = [[0, 0], [0, 0]]
    assert actions == [nothing, [[1, 0], [0, 1]], [[0, 1], [0, 1]], nothing]
    expected = [[[3, 0, 0], [3, 0, 1]], [[0, 1], [1, 0]], [[2], [2]]] if truncate else []
    assert finals == expected
    # after the first step of the second episode
    assert part(env, obs, "last_reward") == [[0], [0]]
    assert part(env, obs, "last_action") == [[1, 0], [1, 0]]


class LosesLives:
    """Terminates at each step without a new episode, as Atari at a lost life."""

    def __init__(self) -> None:
        self.inner = Counter(100).make(1)
        self.spec, self.num_envs = self.inner.spec, 1
        self.reset, self.frames, self.close = self.inner.reset, self.inner.frames, self.inner.close

    def step(self, action: Array) -> Step:
        return replace(self.inner.step(action), terminated=np.ones(1, bool), over=np.zeros(1, bool))


def test_a_lost_life_is_no_new_episode() -> None:
    env = LastVector(LosesLives())
    env.reset(seed=0)
    env.step(np.array([0]))
    assert part(env, env.step(np.array([1])).obs, "last_action") == [[0, 1]]


def test_the_reward_is_the_one_that_is_learned_from() -> None:
    class Clips(LosesLives):
        def step(self, action: Array) -> Step:
            return replace(super().step(action), reward=np.full(1, 0.5, np.float32), score=np.full(1, 9, np.float32))

    env = LastVector(Clips())
    env.reset(seed=0)
    assert part(env, env.step(np.array([0])).obs, "last_reward") == [[0.5]]


def test_trajectories_are_aligned_within_and_across_rollouts() -> None:
    # Episodes of 5 steps and rollouts of 4, so that episodes begin at every place of a rollout
    factory = LastActionReward(Counter(5, truncate=True))
    env = factory.make(3)
    task = a_task(factory)
    policy = NetworkPolicy(build(task, env.spec), task.algorithm, task.generator("act"))
    actor = Actor(env, policy, gamma=1.0, seed=0, clock=Clock())
    layout, before = env.spec.layout, None
    assert layout is not None
    begun = 0
    for _ in range(10):
        slot = Trajectory.empty(4, 3, env.spec.obs_shape, torch.uint8)
        actor.unroll(slot)
        parts = {name: each.numpy() for name, each in layout.split(slot.obs).items()}
        first = slot.begins.numpy()
        np.testing.assert_array_equal(first, parts["observation"][..., 0] == 0)
        one_hot = np.eye(2)[slot.action.numpy()] * ~first[1:, :, None]  # a_t is the last action of x_{t + 1}
        np.testing.assert_array_equal(parts["last_action"][1:], one_hot)
        age = parts["observation"][..., 0]  # the reward of the step before is its age then
        np.testing.assert_array_equal(parts["last_reward"][..., 0], np.maximum(age - 1, 0))
        if before is not None:
            np.testing.assert_array_equal(slot.obs[0].numpy(), before)
        before = slot.obs[4].numpy().copy()
        begun += int(first[:-1].sum())
    assert begun == 3 * 8  # 40 steps of each: at 0, 5, .., 35


@pytest.mark.parametrize(
    ("factory", "protocols"),
    [
        (Identity(), (False, False, True)),
        (Gym("CartPole-v1"), (True, True, False)),
        (Custom("some_envs:Walk"), (True, True, True)),
    ],
)
def test_the_wrapper_is_what_its_environments_are(factory: EnvFactory, protocols: tuple[bool, ...]) -> None:
    env = LastActionReward(factory).make(2)
    assert tuple(isinstance(env, protocol) for protocol in (Watchable, Restarting, Resumable)) == protocols
    assert LastActionReward(factory).name == factory.name


def test_a_wrapped_environment_goes_on_where_it_was_saved() -> None:
    factory = LastActionReward(Custom("some_envs:Walk"))
    env, other = factory.make(2), factory.make(2)
    assert isinstance(env, Resumable)
    assert isinstance(other, Resumable)
    env.reset(seed=1)
    for _ in range(4):
        env.step(np.array([0, 2]))
    other.load_state_dict(env.state_dict())
    for action in ([2, 0], [1, 1], [0, 0], [2, 2]):
        np.testing.assert_equal(vars(env.step(np.array(action))), vars(other.step(np.array(action))))


def test_failures_and_workers_pass_through() -> None:
    factory = LastActionReward(Custom("some_envs:Fails", on_error="restart"))
    for workers in (0, 2):
        env = factory.make(2, workers=workers)
        assert isinstance(env, Restarting)
        env.reset(seed=0)
        before = [env.step(np.ones(2, np.int64)).obs for _ in range(2)][-1]
        step = env.step(np.array([2, 0]))  # the third one fails
        assert step.truncated.all()
        assert len(env.failures()) == 2
        assert part(env, step.final_obs, "observation") == part(env, before, "observation")
        assert part(env, step.final_obs, "last_action") == [[0, 0, 1], [1, 0, 0]]
        assert part(env, step.obs, "last_action") == [[0, 0, 0], [0, 0, 0]]
        env.close()


def test_frames_are_those_of_the_environments() -> None:
    env = LastActionReward(Custom("some_envs:Walk")).make(1, render=True)
    env.reset(seed=0)
    assert env.frames().shape == (1, 4, 6, 3)


def test_a_key_of_the_same_name_is_refused() -> None:
    class Taken:
        name = "mine"

        def make(self, num_envs: int, *, workers: int = 0, render: bool = False) -> VectorEnv:
            return Local(EnvSource("mine", lambda: Shows(Dict({"last_reward": Discrete(2)}))), num_envs)

    with pytest.raises(UnsupportedSpace, match="mine: the observation has a key last_reward; use --no-last-action-rew"):
        LastActionReward(Taken()).make(1)
