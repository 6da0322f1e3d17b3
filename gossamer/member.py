"""A member that acts and learns: its environments, its network, and all that must be saved of them."""

from __future__ import annotations

import torch

from gossamer.actor import Actor, Clock
from gossamer.algorithms.base import initial_state
from gossamer.data import Trajectory, Tree, numpy_dtype, on_host
from gossamer.envs.base import VectorEnv
from gossamer.exchange import Exchange
from gossamer.learner import Learner
from gossamer.machine import host_info
from gossamer.networks import centre_on
from gossamer.policy import Replica
from gossamer.program import Context
from gossamer.random_play import background
from gossamer.task import Activity, Note, Report, Task


class Member:
    """One synchronous actor-learner: the actor acts with the very network that learns."""

    def __init__(self, ctx: Context, task: Task, env: VectorEnv, exchange: Exchange) -> None:
        task = task.resolved()
        if task.threads:
            torch.set_num_threads(task.threads)  # counts for the calling thread: each member has its own
        self.task, self.env, self.clock = task, env, Clock()
        if task.device.startswith("cuda") and ctx.copies > 1:  # the thread's own: members on one GPU run side by side
            torch.cuda.set_stream(torch.cuda.Stream(task.device))  # type: ignore[no-untyped-call]
        self.learner = Learner(task, env.spec, rank=ctx.rank)
        self._rng = task.generator("act", ctx.rank)
        saved = ctx.restored()
        ctx.report(host_info(device=task.device, dtype=task.network.dtype, threads=torch.get_num_threads()))
        self._begin(ctx, saved)
        self.link = exchange.join(ctx, self.learner, None if saved is None else saved.get("exchange", {}))
        policy = Replica(self.learner.model, task.algorithm, self.link, self._rng)
        seed = task.stream(f"env {self.learner.steps}", ctx.rank)
        self.actor = Actor(env, policy, gamma=task.algorithm.gamma, seed=seed, clock=self.clock, name=task.env.name)
        if saved is not None and saved.get("actor"):
            self.actor.load_state_dict(saved["actor"])
        elif saved is not None and "actor" in saved:
            ctx.report(Note(f"{task.env.name} cannot give its state: new episodes begin, all else goes on exactly"))
        self._acted = 0  # environment steps
        self._reported = (0, self.learner.steps, self.learner.updates)  # at the last report

    def _begin(self, ctx: Context, saved: Tree | None) -> None:
        """Load what was saved: everything, or nothing but the parameters of other members."""
        if saved is None and self.task.network.centre:
            ctx.report(Activity("measuring the background (random play)"))
            seed = self.task.stream("background")  # without the rank: all members see the same background
            centre_on(self.learner.model, background(self.task.env, seed, ctx.report))
        elif saved is not None and "learner" in saved:
            self.learner.load_state_dict(saved["learner"])
            self._rng.set_state(saved["rng"])
        elif saved is not None:
            self.learner.model.load_state_dict(saved["parameters"])

    def slot(self) -> Trajectory:
        """An empty trajectory of the task's shapes, on its device."""
        spec, task = self.env.spec, self.task
        return Trajectory.empty(
            task.rollout_length,
            self.env.num_envs,
            spec.obs_shape,
            numpy_dtype(spec.obs_dtype),
            spec.actions.shape,
            numpy_dtype(spec.actions.dtype),
            task.device,
            initial_state(self.learner.model, self.env.num_envs),
        )

    def unroll(self, slot: Trajectory) -> None:
        """Act for T steps into `slot`."""
        self.actor.unroll(slot)

    def update(self, batch: Trajectory, position: int) -> dict[str, float]:
        """Learn from a batch acted at this position of the step budget; the means of what its losses report."""
        with self.clock("update"):
            metrics = self.learner.update(batch, self.link, position)
        self._acted += batch.steps
        return metrics

    def report(self, metrics: dict[str, float]) -> Report:
        """What has happened since the last report."""
        learner, before = self.learner, self._reported
        self._reported = now = (self._acted, learner.steps, learner.updates)
        acted, learned, updates = (n - b for n, b in zip(now, before, strict=True))
        episodes, failures = self.actor.episodes(), self.actor.failures()
        return Report(acted, learned, updates, episodes, metrics, self.clock.take(), self.link.take(), failures)

    def close(self) -> None:
        """Leave the others."""
        self.link.leave()

    def state_dict(self, *, acting: bool = True) -> Tree:
        """Everything the future depends on: parameters, optimiser, random streams, exchange, environments (without
        `acting` not these: they have failed in the middle of a step)."""
        return on_host(
            {
                "learner": self.learner.state_dict(),
                "rng": self._rng.get_state(),
                "actor": self.actor.state_dict() if acting else {},
                "exchange": self.link.state_dict(),
            }
        )
