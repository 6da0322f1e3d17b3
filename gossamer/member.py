"""A member that acts and learns: its environments, its network, and all that must be saved of them."""

from __future__ import annotations

import torch

from gossamer.actor import Actor, Clock, background
from gossamer.data import Trajectory, Tree, numpy_dtype, on_host
from gossamer.envs.base import VectorEnv
from gossamer.exchange import Exchange
from gossamer.learner import Learner
from gossamer.networks import centre_on
from gossamer.policy import Replica
from gossamer.program import Context
from gossamer.task import Note, Report, Task

BACKGROUND_OBSERVATIONS = 8_000  # of random play, two seconds of it; not counted as steps of training


class Member:
    """One synchronous actor-learner: the actor acts with the very network that learns."""

    def __init__(self, ctx: Context, task: Task, env: VectorEnv, exchange: Exchange) -> None:
        if task.threads:
            torch.set_num_threads(task.threads)  # counts for the calling thread: each member has its own
        self.task, self.exchange, self.env, self.clock = task, exchange, env, Clock()
        if task.device.startswith("cuda") and ctx.copies > 1:  # the thread's own: members on one GPU run side by side
            torch.cuda.set_stream(torch.cuda.Stream(task.device))  # type: ignore[no-untyped-call]
        self.learner = Learner(task, env.spec, rank=ctx.rank, copies=ctx.copies)
        self._rng = task.generator("act", ctx.rank)
        saved = ctx.restored()
        if saved is None and task.network.centre:
            seed = task.stream("background")  # without the rank: all members see the same background
            centre_on(self.learner.model, background(env, seed=seed, observations=BACKGROUND_OBSERVATIONS))
        if saved is not None:
            self.learner.load_state_dict(saved["learner"])
            self._rng.set_state(saved["rng"])
        self._skipped = 0 if saved is None else int(saved["skipped"])
        before = self.learner.steps
        exchange.join(ctx, self.learner)  # who rejoins goes on where its neighbours are
        self._skipped += self.learner.steps - before
        policy = Replica(self.learner.model, task.algorithm, exchange, self._rng)
        seed = task.stream(f"env {self.steps}", ctx.rank)
        self.actor = Actor(env, policy, gamma=task.algorithm.gamma, seed=seed, clock=self.clock, name=task.env.name)
        if saved is not None:
            self.actor.load_state_dict(saved["actor"])
        if saved is not None and not saved["actor"]:
            ctx.report(Note(f"{task.env.name} cannot give its state: new episodes begin, all else goes on exactly"))

    @property
    def steps(self) -> int:
        """How far it is: environment steps learned from, and those that it has skipped because neighbours took them."""
        return self.learner.steps

    def slot(self) -> Trajectory:
        """An empty trajectory of the task's shapes, on its device."""
        spec, task = self.env.spec, self.task
        return Trajectory.empty(
            task.rollout_length,
            self.env.num_envs,
            spec.obs_shape,
            numpy_dtype(spec.obs_dtype),
            spec.actions,
            task.device,
        )

    def unroll(self, slot: Trajectory) -> None:
        """Act for T steps into `slot`."""
        self.actor.unroll(slot)

    def update(self, batch: Trajectory) -> dict[str, float]:
        """Learn from a batch; the means of what its losses report."""
        with self.clock("update"):
            return self.learner.update(batch, self.exchange)

    def report(self, metrics: dict[str, float]) -> Report:
        """What has happened since the last report."""
        learner = self.learner
        episodes, exchange = self.actor.episodes(), self.exchange.take()
        steps = learner.steps - self._skipped  # its own
        failures = self.actor.failures()
        return Report(steps, learner.updates, episodes, metrics, self.clock.take(), exchange, failures)

    def close(self) -> None:
        """Leave the others."""
        self.exchange.leave()

    def state_dict(self, *, envs: bool = True) -> Tree:
        """Everything the future depends on: parameters, optimiser, random streams, counters, environments (without
        `envs` not these: they have failed in the middle of a step)."""
        return on_host(
            {
                "learner": self.learner.state_dict(),
                "rng": self._rng.get_state(),
                "actor": self.actor.state_dict() if envs else {},
                "skipped": self._skipped,
            }
        )
