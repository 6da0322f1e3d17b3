"""The parts of a program: environments, inference and updates, each measured alone."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import cycle
from typing import Any

import numpy as np
import torch

from gossamer.algorithms.base import FromReplay
from gossamer.config.build import task
from gossamer.config.config import Config
from gossamer.data import Array, Step, Trajectory
from gossamer.envs.base import VectorEnv, threads_of
from gossamer.envs.random_play import random_actions
from gossamer.envs.watchdog import Watchdog, complain
from gossamer.exchange import Alone
from gossamer.experience import ReplayStore
from gossamer.loops import Envs, role
from gossamer.policy import Replica
from gossamer.program import Program
from gossamer.runtime import Context
from gossamer.spaces.observations import MASK
from gossamer.system.errors import UserError
from gossamer.system.usage import CPUClock
from gossamer.task import Activity, Task
from gossamer.workers.member import Member
from gossamer.workers.stepping import InTurn

FEW = 4  # environments that give the observations, where they are not measured


@dataclass(frozen=True)
class Crew:
    """The workers of a program, as far as its speed depends on them."""

    actors: int  # workers that act
    num_envs: int  # environments of each of them
    env_workers: int  # threads or processes that step these; 0: a share of the cores, or what suits them
    learners: int  # workers that learn
    columns: int  # environments of the rollouts in a batch, or windows that are drawn for one
    window: int  # steps of each window; 0: batches are rollouts
    passes: float  # updates with each step, or windows drawn for each; passes inside an update (PPO's) count as one
    apart: bool  # whether actors and learners run at the same time

    @classmethod
    def of(cls, wired: Program) -> Crew:
        """The workers of a program."""
        roles = [role(copy.node) for copy in wired.crew]
        acting = [each.envs for each in roles if each.envs is not None]
        learning = [each.demand for each in roles if each.demand is not None]
        if not acting or not learning:
            raise UserError("bench: the architecture has no worker that acts in `Envs`, or none that learns")
        return cls(
            actors=len(acting),
            num_envs=acting[0].count,
            env_workers=acting[0].workers,
            learners=len(learning),
            columns=learning[0].batch_envs,
            window=learning[0].window,
            passes=learning[0].passes,
            apart=not any(each.envs and each.demand for each in roles),
        )


class Replayed:
    """Environments that repeat recorded steps, without computing."""

    def __init__(self, env: VectorEnv, steps: Sequence[Step]) -> None:
        self.spec, self.num_envs = env.spec, env.num_envs
        self._steps = cycle(steps)
        self.reset, self.frames, self.close = env.reset, env.frames, env.close

    def step(self, action: Array) -> Step:
        return next(self._steps)


class Repeated:
    """Environments that show what a few of them do, again and again: for programs that do not measure them."""

    def __init__(self, env: VectorEnv, num_envs: int) -> None:
        self.spec, self.num_envs, self._env = env.spec, num_envs, env
        self.frames, self.close = env.frames, env.close

    def reset(self, seed: int) -> Array:
        return self._wide(self._env.reset(seed))

    def step(self, action: Array) -> Step:
        step = self._env.step(action[: self._env.num_envs])
        return Step(
            obs=self._wide(step.obs),
            reward=self._wide(step.reward),
            score=self._wide(step.score),
            terminated=self._wide(step.terminated),
            truncated=self._wide(step.truncated),
            over=self._wide(step.over),
            final_obs=None if step.final_obs is None else self._wide(step.final_obs),
        )

    def _wide(self, array: Array) -> Array:
        """[B, ...] of [K, ...], with K <= B"""
        return np.take(array, np.arange(self.num_envs) % len(array), axis=0)


class RandomPlay:
    """Random actions: drawn in advance, or at each step if only some are valid."""

    def __init__(self, env: VectorEnv, obs: Array) -> None:
        """`obs` [B, *O]: of the environments now."""
        self._env, self._rng, self._obs = env, np.random.default_rng(0), obs
        self._masked = MASK in {part.name for part in env.spec.parts}
        self._drawn = cycle([random_actions(env.spec, self._rng, self._obs) for _ in range(64)])

    def step(self) -> Step:
        """Step the environments."""
        masked = self._masked
        step = self._env.step(random_actions(self._env.spec, self._rng, self._obs) if masked else next(self._drawn))
        self._obs = step.obs
        return step


def programs(config: Config, crew: Crew, seconds: float) -> Iterator[Program]:
    """The programs that measure the parts, to be run one after the other: all in one, or acting and learning each with
    its workers. They report records like {"env": steps per second, "env cores": busy cores}."""
    for copies, num_envs, which in _measured(crew):
        made = Program("parts")
        sharing = copies if crew.apart else 1
        envs = Envs(num_envs, crew.env_workers)
        drawn = crew.columns if crew.window else None
        given: dict[str, Any] = {"sharing": sharing, "seconds": seconds, "which": which, "drawn": drawn}
        made.worker(parts, copies=copies)(replace(task(config), groups=1), envs=envs, **given)
        yield made


def _measured(crew: Crew) -> Iterator[tuple[int, int, tuple[str, ...]]]:
    """(workers, environments of each, parts). Those that need few environments come first: many take long to make."""
    if not crew.apart:
        yield crew.learners, crew.num_envs, ("update", "inference")
        yield crew.learners, crew.num_envs, ("env",)
        return
    yield crew.learners, crew.columns, ("update",)
    yield crew.actors, crew.num_envs, ("inference",)
    yield crew.actors, crew.num_envs, ("env",)


def parts(
    ctx: Context,
    task: Task,
    *,
    envs: Envs,
    sharing: int,
    seconds: float,
    which: Sequence[str],
    drawn: int | None = None,
) -> None:
    """Replaces the loops: times parts separately, with the same objects and shapes. All copies run in parallel, as in
    training. `drawn`: the number of windows of a batch that is drawn from a replay memory; the time of drawing them is
    part of an update, whose rate is then that of windows.

    `inference` is acting in environments that repeat recorded steps. It includes the last forward pass of a rollout,
    for the bootstrap value, and the cast of new parameters if the network computes in bfloat16."""
    workers = envs.workers or threads_of(task.env, sharing)
    made = envs.count if "env" in which else min(envs.count, FEW)
    ctx.report(Activity(f"starting {made} environments"))
    with (
        Watchdog(task.env.name, complain) as watchdog,
        closing(watchdog.watch(task.env.make(made, workers=workers))) as env,
    ):
        env = env if made == envs.count else Repeated(env, envs.count)
        member = Member(ctx, task, [env], Replica(), Alone())
        slot = _slot(member)
        member.unroll(slot, 0)
        playing = RandomPlay(env, slot.obs[-1].cpu().numpy())
        steps = [playing.step() for _ in range(8)]

        def act() -> None:
            with torch.no_grad():
                next(member.learner.model.parameters()).mul_(1.0)  # counts as new parameters
            member.unroll(slot, 0)

        update = _update(member, slot) if drawn is None else _drawn_update(member, slot, drawn)
        names = {"env": "environments", "update": "updates", "inference": "inference"}
        learned = drawn or slot.steps
        calls = {"env": (playing.step, envs.count), "update": (update, learned), "inference": (act, slot.steps)}
        for part in which:
            if part != "env":
                member.player.actors[0].stepping = InTurn(Replayed(env, steps))
            ctx.report(Activity(f"{names[part]} alone"))
            rate, busy = _rate(*calls[part], seconds)
            ctx.report({part: rate, **({f"{part} cores": busy} if ctx.rank == 0 else {})})


def _slot(member: Member) -> Trajectory:
    """A slot with all that the algorithm learns from."""
    slot, algorithm = member.slot(member.num_envs), member.task.algorithm
    wants_values = isinstance(algorithm, FromReplay) and algorithm.replay_plan().priority is not None
    return slot.with_chosen() if wants_values else slot


def _update(member: Member, slot: Trajectory) -> Callable[[], object]:
    """A function that learns from the rollout in `slot`."""
    return lambda: member.learner.update(slot, member.link, 0)


def _drawn_update(member: Member, slot: Trajectory, count: int) -> Callable[[], object]:
    """A function that learns from `count` windows of a replay memory of rollouts like that in `slot`."""
    algorithm, rng = member.task.algorithm, torch.Generator().manual_seed(0)
    assert isinstance(algorithm, FromReplay)
    plan = algorithm.replay_plan()
    rollouts = 4 + plan.window // slot.reward.shape[0]
    store = ReplayStore(member.spec, plan, {0: slot.num_envs}, rollouts * slot.steps)
    for _ in range(rollouts):
        store.add(0, slot)

    def update() -> None:
        drawn = store.draw(count, rng)
        data = drawn.weighted(plan.priority, store.mass, store.windows).to(member.task.device)
        updated = member.learner.update(data, member.link, 0)
        if updated.priority is not None:
            store.update(drawn.keys, updated.priority)

    return update


def _rate(call: Callable[[], object], steps: int, seconds: float) -> tuple[float, float]:
    """Steps per second of a call that makes `steps` steps, and the busy cores of this process meanwhile."""
    for _ in range(3):
        call()
    used, count = CPUClock(), 0
    start = time.perf_counter()
    while (passed := time.perf_counter() - start) < seconds:
        call()
        count += 1
    return count * steps / passed, used.cores()
