"""Checks of the rollouts that reach a learner."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import torch
from some_parts import Watcher, sharpen
from torch import nn
from torch.testing import assert_close

from gossamer import loops
from gossamer.algorithms import PPO, VTrace
from gossamer.algorithms.base import evaluate_to_end, own_rewards
from gossamer.algorithms.losses import Loss
from gossamer.data import Array, Step, Trajectory
from gossamer.envs import toy
from gossamer.envs.base import VectorEnv
from gossamer.nn.networks import Network
from gossamer.program import Program
from gossamer.runtime import Answer, Context
from gossamer.spaces import Spec
from gossamer.task import Task

Seen = tuple[int, int, int]  # (environment, episode, age): a step of Counter


@dataclass(frozen=True)
class Checked(VTrace):
    """V-trace on Counter, which checks every batch before it learns from it. The learning rate must be 0: then actors
    and learner have equal parameters at all times."""

    seen: ClassVar[list[Seen]] = []  # by the learners of this process, in the order of the updates
    file: Path | None = None  # where learners of other processes write what they see

    def model(self, spec: Spec, network: Network) -> nn.Module:
        """A policy that depends on observation and memory."""
        model = super().model(spec, network)
        sharpen(model)
        return model

    def losses(self, model: nn.Module, batch: Trajectory, rng: torch.Generator) -> Iterator[Loss]:
        found = checked(model, batch, self.gamma)
        self.seen.extend(found)
        if self.file is not None:
            with open(self.file, "a") as file:
                file.writelines(f"{env} {episode} {age}\n" for env, episode, age in found)
        yield from super().losses(model, batch, rng)


@dataclass(frozen=True)
class Recorded(VTrace):
    """V-trace that counts the rollouts of single environments that it learns from, by all that they have."""

    rollouts: ClassVar[Counter[tuple[bytes, ...]]] = Counter()  # of the learners of this process

    def model(self, spec: Spec, network: Network) -> nn.Module:
        """See `Checked`."""
        model = super().model(spec, network)
        sharpen(model)
        return model

    def losses(self, model: nn.Module, batch: Trajectory, rng: torch.Generator) -> Iterator[Loss]:
        parts = (batch.obs, batch.action, batch.reward, batch.behaviour, batch.value)
        for b in range(batch.num_envs):
            self.rollouts[tuple(part[:, b].contiguous().numpy().tobytes() for part in parts)] += 1
        yield from super().losses(model, batch, rng)


def recorded(launch: Any, program: Program, rollouts: int) -> Counter[tuple[bytes, ...]]:
    """The rollouts of all environments of a program that learns by `Recorded`, so many of each actor."""
    Recorded.rollouts.clear()
    launch(program, Uneven({copy.name: rollouts for copy in program.crew if copy.name.startswith("act")}))
    return Counter(Recorded.rollouts)


@dataclass(frozen=True)
class Echoed(Checked):
    """`Checked` on `some_envs:box`, which observes its last action within bounds."""

    def losses(self, model: nn.Module, batch: Trajectory, rng: torch.Generator) -> Iterator[Loss]:
        bounds = torch.tensor([1.0, 2.0, 1.0, 2.0])
        assert batch.action.dtype == torch.float32
        assert batch.action.shape == (*batch.reward.shape, 4)
        assert torch.equal(batch.obs[1:], batch.action.clamp(-bounds, bounds))
        check_policy(model, batch, self.gamma)
        return VTrace.losses(self, model, batch, rng)


@dataclass(frozen=True)
class CheckedMembers(PPO):
    """PPO on Counter, which checks every rollout of every member before it learns from it. The learning rate must be 0:
    then all members have equal parameters at all times, and pi = mu in every minibatch."""

    seen: ClassVar[dict[int, list[Seen]]] = {}  # as in `Checked`, by the `id` of the member's network

    def model(self, spec: Spec, network: Network) -> nn.Module:
        """A policy that depends on observation and memory."""
        model = super().model(spec, network)
        sharpen(model)
        return model

    def losses(self, model: nn.Module, batch: Trajectory, rng: torch.Generator) -> Iterator[Loss]:
        self.seen.setdefault(id(model), []).extend(checked(model, batch, self.gamma))
        yield from super().losses(model, batch, rng)


def checked(model: nn.Module, batch: Trajectory, gamma: float) -> list[Seen]:
    """Check a batch, and return its steps."""
    check_steps(batch, gamma)
    check_policy(model, batch, gamma)
    return steps_of(batch)


def steps_of(batch: Trajectory) -> list[Seen]:
    """(environment, episode, age) of each step on Counter, one environment after the other."""
    return [(int(env), int(episode), int(age)) for b in batch.obs[:-1].unbind(1) for age, episode, env in b]


def written(file: Path) -> list[Seen]:
    """What learners of other processes have seen."""
    return [(int(env), int(episode), int(age)) for env, episode, age in map(str.split, file.read_text().splitlines())]


def assert_complete(seen: Sequence[Seen], steps: Sequence[int]) -> None:
    """Of each environment its first steps, so many, have been seen once each, in episodes of 7."""
    for env, count in enumerate(steps):
        assert sorted(where for each, *where in seen if each == env) == [list(divmod(i, 7)) for i in range(count)]
    assert len(seen) == sum(steps)


class Uneven(Watcher):
    """Gives each actor a number of rollouts of its own."""

    def __init__(self, rollouts: Mapping[str, int]) -> None:
        super().__init__(steps=10**6)
        self.left = dict(rollouts)

    def claim(self, worker: str, steps: int, *, idle: bool = True) -> int | Answer:
        if steps and worker in self.left:
            if not self.left[worker]:
                return Answer.END
            self.left[worker] -= 1
        return super().claim(worker, steps, idle=idle)


def act_numbered(ctx: Context, task: Task, *given: Any, **more: Any) -> None:
    """The loop of an actor on Counter, with the environments of all actors numbered through."""
    loops.act(ctx, replace(task, env=Numbered(ctx.rank)), *given, **more)


@dataclass(frozen=True)
class Numbered:
    """Counter(7) with truncated episodes. Its environments are numbered after those of the actors of lower rank."""

    rank: int
    name: str = "counter"

    def make(self, num_envs: int, *, workers: int = 0, render: bool = False) -> VectorEnv:
        return NumberedVector(toy.Counter(7, truncate=True).make(num_envs), first=self.rank * num_envs)


class NumberedVector:
    def __init__(self, inner: VectorEnv, first: int) -> None:
        self.spec, self.num_envs = inner.spec, inner.num_envs
        self._inner, self._first = inner, first

    def reset(self, seed: int) -> Array:
        return self._numbered(self._inner.reset(seed))

    def step(self, action: Array) -> Step:
        step = self._inner.step(action)
        final = None if step.final_obs is None else self._numbered(step.final_obs)
        return replace(step, obs=self._numbered(step.obs), final_obs=final)

    def frames(self) -> Array:
        return self._inner.frames()

    def close(self) -> None:
        self._inner.close()

    def _numbered(self, obs: Array) -> Array:
        obs = obs.copy()
        obs[:, 2] += self._first
        return obs


def check_steps(batch: Trajectory, gamma: float) -> None:
    """Each trajectory must be one piece of the episodes of Counter(7), which all its observations number."""
    age, episode = batch.obs[..., 0], batch.obs[..., 1]  # [T+1, B]
    begins = batch.begins
    assert torch.equal(begins, age == 0)
    assert torch.equal(batch.discount, gamma * ~begins[1:])
    follows = ~begins[1:]
    assert torch.equal(age[1:][follows], (age[:-1] + 1)[follows])
    assert torch.equal(episode[1:], episode[:-1] + begins[1:])
    reward = batch.reward.clone()
    for final in batch.finals:  # of an episode that was cut off after seven steps
        reward[final.t, final.b] -= final.value
        assert final.obs.tolist() == [7, episode[final.t, final.b], batch.obs[0, final.b, 2]]
    assert_close(reward, age[:-1])  # Counter pays the age


@torch.no_grad()
def check_policy(model: nn.Module, batch: Trajectory, gamma: float) -> None:
    """The learner's network must give the actor's probabilities and values: for its actions, from its state."""
    policy, value = evaluate_to_end(model, batch)
    assert_close(value, batch.value)
    assert_close(policy.log_prob(batch.action.flatten(0, 1)).view_as(batch.behaviour), batch.behaviour)
    assert_close(own_rewards(VTrace(gamma=gamma), model, batch), batch.reward)
    middle = ~batch.begins[0]  # a rollout that begins within an episode has a state
    for rows in batch.state.values():
        assert torch.equal(rows.abs().sum(1) > 0, middle)
