"""Groups of environments that act in turn: what each does is what an actor of its own would do, at the same time."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from some_parts import a_task, differences
from some_rollouts import Recorded, recorded
from torch import Tensor

from gossamer.algorithms.dqn import DQN
from gossamer.architectures import IMPALA
from gossamer.data import Action, Array, Batch, Step, Trajectory, Tree
from gossamer.envs.atari import Atari
from gossamer.envs.base import EnvFactory, VectorEnv
from gossamer.envs.gym import Gym
from gossamer.envs.numbered import Numbered
from gossamer.envs.toy import Catch, Counter, Recall
from gossamer.exchange import Alone
from gossamer.experience import Kept
from gossamer.launch.simulation import Simulation
from gossamer.launch.threads import threads
from gossamer.loops.roles import Envs
from gossamer.loops.watched import watched
from gossamer.policy import Replica
from gossamer.system.errors import EnvironmentFailed, UserError
from gossamer.system.machine import HostInfo
from gossamer.task import Activity, Episode, Task
from gossamer.workers.actor import Actor, alternate
from gossamer.workers.clock import Clock
from gossamer.workers.member import Member
from gossamer.workers.stepping import Ahead


class Place:
    """The context of one of so many workers that nobody watches."""

    name, stopped, restarts = "act_and_learn", False, 0

    def __init__(self, rank: int = 0, copies: int = 1, saved: Any = None) -> None:
        self.rank, self.copies, self._saved = rank, copies, saved
        self.told: list[Any] = []

    def restored(self) -> Any | None:
        return self._saved

    def report(self, record: Any) -> None:
        if not isinstance(record, HostInfo | Activity):
            self.told.append(record)


@contextmanager
def acting(task: Task, envs: int, place: Place, workers: int = 0) -> Iterator[Member]:
    with (
        watched(place, task, Envs(envs, workers)) as groups,  # type: ignore[arg-type]
        closing(Member(place, task, groups, Replica(), Alone())) as member,  # type: ignore[arg-type]
    ):
        yield member


def parts_of(slot: Trajectory) -> Tree:
    """All that a trajectory has, to compare it."""
    finals = [(final.t, final.b, final.obs, final.state, final.value) for final in slot.finals]
    return {**vars(slot), "finals": finals}


LSTM = {"memory": "lstm", "memory_units": 8}


@pytest.mark.parametrize(
    ("env", "workers", "given"),
    [
        pytest.param(Catch(), 0, {}, id="catch"),
        pytest.param(Counter(3, truncate=True), 0, {"rollout_length": 5, **LSTM}, id="cut off, with a memory"),
        pytest.param(Catch(), 0, {"algorithm": DQN(exploration="by-environment")}, id="an epsilon for each"),
        pytest.param(Gym("CartPole-v1"), 2, {"rollout_length": 20}, id="worker processes"),
    ],
)
def test_groups_act_as_actors_of_half_the_size(env: EnvFactory, workers: int, given: dict[str, Any]) -> None:
    """A worker with two groups of 4 environments, and two of two workers with 4 each, all with one network."""
    task = a_task(env, **given)
    with ExitStack() as stack:
        whole = stack.enter_context(acting(replace(task, groups=2), 8, Place(), workers))
        halves = [stack.enter_context(acting(task, 4, Place(rank, 2), workers)) for rank in (0, 1)]
        for position in (0, 40, 80):
            slot = whole.slot(8)
            whole.unroll(slot, position)
            parts = [half.slot(4) for half in halves]
            for half, part in zip(halves, parts, strict=True):
                half.unroll(part, position)
            assert differences(parts_of(slot), parts_of(Trajectory.concatenated(parts))) == []
        episodes = whole.report(Kept()).episodes
        first, second = (half.report(Kept()).episodes for half in halves)
        assert episodes == (*first, *(replace(episode, index=4 + episode.index) for episode in second))
        assert not torch.equal(slot.action[:, :4], slot.action[:, 4:])


@pytest.mark.parametrize("memory", ["none", "gru"])
@pytest.mark.parametrize("launch", [threads, Simulation(1)], ids=["threads", "simulation"])
def test_served_groups_act_as_served_actors_of_half_the_size(launch: Any, memory: str) -> None:
    """A predictor takes one request at a time: the size of its batches is the same. The actors of half the size are
    simulated: as a thread, one that begins after an update has other random streams."""
    served: dict[str, Any] = {"num_envs": 8, "env_workers": 0, "policy": "served", "max_batch": 4}
    task = a_task(Catch(), Recorded(), rate=0.0, memory=memory, memory_units=8)
    whole = recorded(launch, IMPALA(actors=1, **served).program(replace(task, groups=2)), rollouts=10)
    halves = recorded(Simulation(1), IMPALA(actors=2, **served).program(task), rollouts=10)
    assert whole == halves
    assert whole.total() == 80


def test_finals_and_episodes_have_the_numbers_of_all_environments() -> None:
    # Counter truncates each third step: t = 2 of a rollout of 4 steps, in each of 2 x 2 environments
    task = replace(a_task(Counter(3, truncate=True)), groups=2)
    with acting(task, 4, Place()) as member:
        slot = member.slot(4)
        member.unroll(slot, 0)
        assert [(final.t, final.b) for final in slot.finals] == [(2, 0), (2, 1), (2, 2), (2, 3)]
        assert member.report(Kept()).episodes == tuple(Episode(3.0, 3, "counter", b) for b in range(4))


@pytest.mark.parametrize("env", [Catch(), Recall(3)], ids=lambda env: env.name)
def test_a_saved_worker_goes_on_bit_for_bit(env: Any) -> None:
    task = replace(a_task(env, **(LSTM if isinstance(env, Recall) else {})), groups=2)

    def once(member: Member) -> None:
        slot = member.slot(4)
        member.unroll(slot, 0)
        member.update(Batch(slot, fresh=slot.steps, position=0))

    with acting(task, 4, Place()) as straight:
        once(straight)
        saved = straight.state_dict()
        place = Place(saved=saved)
        with acting(task, 4, place) as resumed:
            for _ in range(2):
                once(straight)
                once(resumed)
            assert differences(straight.state_dict(), resumed.state_dict()) == []
        assert place.told == []


@pytest.mark.parametrize(("count", "enough"), [(1, "2 are"), (5, "4 or 6 are")])
def test_an_odd_number_of_environments_is_refused(count: int, enough: str) -> None:
    with pytest.raises(UserError, match=f"^--alternating: each actor has {count} of .*; {enough}$"):
        Envs(count).of_group(2)


class Meeting:
    """Environments whose step t ends only when the other group's actions for a step have been computed meanwhile."""

    def __init__(self, env: VectorEnv, chosen: threading.Semaphore) -> None:
        self._env, self.spec, self.num_envs, self._chosen = env, env.spec, env.num_envs, chosen
        self.reset, self.frames, self.close = env.reset, env.frames, env.close
        self.met = 0

    def step(self, action: Array) -> Step:
        self.met += self._chosen.acquire(timeout=10)
        return self._env.step(action)


class Says:
    """A policy that says when it has chosen actions."""

    version = 0

    def __init__(self, chosen: threading.Semaphore) -> None:
        self._chosen = chosen

    def refresh(self, position: int) -> int:
        return 0

    def __call__(self, obs: Tensor, state: Tree) -> tuple[Action, Tree]:
        self._chosen.release()
        return Action(torch.zeros(len(obs), dtype=torch.int64), torch.zeros(len(obs)), obs, obs[:, 0]), state

    def initial_state(self, num_envs: int) -> Tree:
        return {}

    def recorded(self, state: Tree) -> Tree:
        return state

    def value(self, obs: Tensor, state: Tree) -> Tensor:
        return obs[:, 0]

    def state_dict(self) -> Tree:
        return {}

    def beside(self) -> None: ...
    def close(self) -> None: ...


def test_one_group_steps_while_the_actions_of_the_other_are_computed() -> None:
    chosen = [threading.Semaphore(0), threading.Semaphore(0)]
    envs = [Meeting(Counter(9).make(2), chosen[1 - group]) for group in (0, 1)]
    actors = [
        Actor(env, Says(chosen[group]), gamma=0.5, seed=0, clock=Clock(), first=2 * group, ahead=True)
        for group, env in enumerate(envs)
    ]
    slot = Trajectory.empty(6, 4, (3,), torch.float32)
    alternate(actors, slot, 0)
    assert [env.met for env in envs] == [6, 6]  # else each step would have waited in vain
    assert slot.obs[:, :, 0].tolist() == [[age] * 4 for age in range(7)]
    for actor in actors:
        actor.close()


class Brittle:
    """Counter, in which the last environment fails at its third step."""

    def __init__(self) -> None:
        self._env = Counter(9).make(2)
        self.spec, self.num_envs, self.reset = self._env.spec, 2, self._env.reset
        self.frames, self.close, self.steps = self._env.frames, self._env.close, 0

    def step(self, action: Array) -> Step:
        self.steps += 1
        if self.steps == 3:
            raise EnvironmentFailed("brittle", 1, "step() raised OSError: no coal left")
        return self._env.step(action)

    def calls(self) -> list[tuple[int, int]]:
        return [(1, 7), (-1, 3)]

    def failures(self) -> tuple[EnvironmentFailed, ...]:
        return (EnvironmentFailed("brittle", 0, "reset() raised"), EnvironmentFailed("brittle", None, "what"))


def test_the_environments_of_the_second_group_have_numbers_of_their_own() -> None:
    env: Any = Numbered(Brittle(), 4)
    assert env.calls() == [(5, 7), (-1, 3)]  # to a watchdog; -1: none is called
    assert [error.index for error in env.failures()] == [4, None]
    plain: Any = Numbered(Counter(9).make(2), 4)
    assert not hasattr(plain, "calls")
    assert plain.state_dict().keys() == {"rng", "game"}


def test_an_error_of_the_environments_is_that_of_the_worker_and_no_thread_is_left() -> None:
    before = threading.active_count()
    envs: list[Any] = [Counter(9).make(2), Numbered(Brittle(), 2)]
    with ExitStack() as stack:
        policy = Says(threading.Semaphore())
        actors = [Actor(env, policy, gamma=0.5, seed=0, clock=Clock(), ahead=True) for env in envs]
        for actor in actors:
            stack.enter_context(closing(actor))
        with pytest.raises(EnvironmentFailed, match=r"environment 3: .* no coal left") as failed:
            alternate(actors, Trajectory.empty(6, 4, (3,), torch.float32), 0)
    assert failed.value.args[1] == 3  # what crosses processes
    assert threading.active_count() == before


@pytest.mark.parametrize("env", [Catch(), Atari("pong")], ids=lambda env: env.name)  # pong: in native threads
def test_a_step_ahead_is_the_same_step(env: EnvFactory) -> None:
    action = np.zeros(2, np.int64)
    with closing(env.make(2)) as one, closing(env.make(2)) as other, closing(Ahead(one)) as ahead:
        one.reset(1)
        other.reset(1)
        for _ in range(12):
            ahead.send(action)
            assert differences(vars(ahead.receive()), vars(other.step(action))) == []
