"""What the worker loops consist of: a learner in a program, an actor in a program, or both in one thread."""

from __future__ import annotations

from dataclasses import replace

import torch

from gossamer.actor import Actor, Clock
from gossamer.algorithms.base import initial_state
from gossamer.data import Batch, Trajectory, Tree, Version, numpy_dtype, on_host
from gossamer.envs.base import VectorEnv
from gossamer.exchange import Broadcast, Exchange
from gossamer.inputs import centre_on
from gossamer.learner import Learner, build
from gossamer.machine import flush_denormals, host_info, settle
from gossamer.policy import Replica
from gossamer.random_play import background
from gossamer.runtime import Context
from gossamer.spaces import Spec
from gossamer.task import Activity, Note, Report, Task


def prepared(ctx: Context, task: Task) -> Task:
    """Resolve the task on this machine, and set up torch for the calling worker."""
    task = task.resolved()
    if task.threads:
        torch.set_num_threads(task.threads)  # counts for the calling thread: each worker has its own
    flush_denormals()
    if task.device.startswith("cuda") and ctx.copies > 1:  # the thread's own: workers on one GPU run side by side
        torch.cuda.set_stream(torch.cuda.Stream(task.device))  # type: ignore[no-untyped-call]
    return task


def empty(task: Task, spec: Spec, num_envs: int, state: Tree) -> Trajectory:
    """An empty trajectory of the task's shapes, on its device. `state`: the network's initial state."""
    return Trajectory.empty(
        task.rollout_length,
        num_envs,
        spec.obs_shape,
        numpy_dtype(spec.obs_dtype),
        spec.actions.shape,
        numpy_dtype(spec.actions.dtype),
        task.device,
        state,
    )


class Trainer:
    """A learner with its exchange, and all that must be saved of them."""

    def __init__(self, ctx: Context, task: Task, spec: Spec, exchange: Exchange, saved: Tree | None) -> None:
        """`task`: see `prepared`. `saved`: the state to continue from."""
        self.task, self.spec, self.clock = task, spec, Clock()
        self.learner = Learner(task, spec, rank=ctx.rank)
        ctx.report(host_info(device=task.device, dtype=task.network.dtype, threads=torch.get_num_threads()))
        self._begin(ctx, saved)
        self._equal = exchange.equal
        self.link = exchange.join(ctx, self.learner, None if saved is None else saved.get("exchange", {}))
        self._reported = (self.learner.steps, self.learner.updates)  # at the last report
        self._fresh = 0  # steps learned from for the first time, since the last report

    def _begin(self, ctx: Context, saved: Tree | None) -> None:
        """Load what was saved: everything, or nothing but the parameters of other members."""
        if saved is None and self.task.network.centre:
            ctx.report(Activity("measuring the background (random play)"))
            seed = self.task.stream("background")  # without the rank: all members see the same background
            centre_on(self.learner.model, background(self.task.env, seed, ctx.report))
        elif saved is not None and "learner" in saved:
            self.learner.load_state_dict(saved["learner"])
        elif saved is not None:
            given, known = saved["parameters"], self.learner.model.state_dict()  # only one may have a target network
            self.learner.model.load_state_dict({name: given.get(name, known[name]) for name in known})

    def slot(self, num_envs: int) -> Trajectory:
        """An empty trajectory of so many environments."""
        return empty(self.task, self.spec, num_envs, initial_state(self.learner.model, num_envs))

    def version(self) -> Version:
        """Version of the parameters."""
        return self.link.refresh(self.learner.model)

    def update(self, batch: Batch) -> dict[str, float]:
        """Train on a batch. Return the means of the metrics that its losses report."""
        before = self.learner.waited
        with self.clock("update"):
            metrics = self.learner.update(batch.data, self.link, batch.position)
        if waited := self.learner.waited - before:
            self.clock.add("update", -waited)
            self.clock.add("gradients_wait", waited)
        self._fresh += batch.fresh
        return metrics

    def report(self, metrics: dict[str, float], waiting: int | None = None) -> Report:
        """What has been learned since the last report. `waiting`: full batches in the queue behind a new one."""
        now = (self.learner.steps, self.learner.updates)
        learned, updates = (n - before for n, before in zip(now, self._reported, strict=True))
        self._reported, fresh, self._fresh = now, self._fresh, 0
        return Report(
            steps=0,
            learned=fresh,
            updates=updates,
            metrics=metrics,
            seconds=self.clock.take(),
            exchange=self.link.take(),
            reused=learned - fresh,
            lag=self.learner.take_lag(),
            waiting=waiting,
            version=self.version(),
        )

    def close(self) -> None:
        """Leave the others."""
        self.link.leave()

    def state_dict(self) -> Tree:
        """Everything that learning depends on: parameters, optimizer, random stream, exchange. `equal`: see
        `Exchange`."""
        state = {"learner": self.learner.state_dict(), "exchange": self.link.state_dict(), "equal": self._equal}
        return on_host(state)


class Player:
    """An actor with a network of its own, which follows the learner's."""

    def __init__(self, ctx: Context, task: Task, env: VectorEnv, exchange: Broadcast) -> None:
        """`task`: see `prepared`. Waits for the learner's first parameters."""
        self.task, self.env, self.clock = task, env, Clock()
        ctx.report(host_info(device=task.device, dtype=task.network.dtype, threads=torch.get_num_threads()))
        self.model = model = build(task, env.spec)
        self._source = source = exchange.follow(model)
        when = f" {source.version}" if source.version else ""  # actors of a resumed run act anew
        when += f" {ctx.restarts}" * bool(ctx.restarts)  # and so do those of a restarted host
        policy = Replica(model, task.algorithm, source, task.generator(f"act{when}", ctx.rank))
        seed = task.stream(f"env{when or ' 0'}", ctx.rank)
        self.actor = Actor(env, policy, gamma=task.algorithm.gamma, seed=seed, clock=self.clock, name=task.env.name)

    def slot(self) -> Trajectory:
        """An empty trajectory of the task's shapes."""
        return empty(self.task, self.env.spec, self.env.num_envs, initial_state(self.model, self.env.num_envs))

    def close(self) -> None:
        """Follow the learner no more."""
        self._source.leave()

    def unroll(self, slot: Trajectory) -> None:
        """Act for T steps into `slot`, for a learner in another thread."""
        self.actor.unroll(slot)
        settle(self.task.device)

    def report(self, steps: int) -> Report:
        """What has been acted since the last report: so many environment steps."""
        episodes, failures = self.actor.episodes(), self.actor.failures()
        return Report(steps, episodes=episodes, seconds=self.clock.take(), failures=failures)


class Member:
    """One synchronous actor-learner: the actor acts with the very network that learns."""

    def __init__(self, ctx: Context, task: Task, env: VectorEnv, exchange: Exchange) -> None:
        task, saved = prepared(ctx, task), ctx.restored()
        self.env, self.trainer = env, Trainer(ctx, task, env.spec, exchange, saved)
        self.learner, self.link, self.clock = self.trainer.learner, self.trainer.link, self.trainer.clock
        again = f" {ctx.restarts}" * bool(ctx.restarts)  # a restarted host plays other episodes than before
        self._rng = task.generator(f"act{again}", ctx.rank)
        policy = Replica(self.learner.model, task.algorithm, self.link, self._rng)
        seed = task.stream(f"env {self.learner.steps}{again}", ctx.rank)
        self.actor = Actor(env, policy, gamma=task.algorithm.gamma, seed=seed, clock=self.clock, name=task.env.name)
        self._acted = 0  # environment steps since the last report
        self._restore(ctx, saved)

    def _restore(self, ctx: Context, saved: Tree | None) -> None:
        if saved is not None and "learner" in saved:
            self.trainer.task.restore(self._rng, saved["rng"], f"act {self.learner.steps}", ctx.rank)
        if saved is not None and saved.get("actor"):
            self.actor.load_state_dict(saved["actor"])
        elif saved is not None and "actor" in saved:
            ctx.report(Note(f"{self.actor.name} cannot give its state: new episodes begin, all else goes on exactly"))

    def slot(self) -> Trajectory:
        """An empty trajectory of the task's shapes, on its device."""
        return self.trainer.slot(self.env.num_envs)

    def unroll(self, slot: Trajectory) -> None:
        """Act for T steps into `slot`."""
        self.actor.unroll(slot)
        self._acted += slot.steps

    def update(self, batch: Batch) -> dict[str, float]:
        """Train on a batch. Return the means of the metrics that its losses report."""
        return self.trainer.update(batch)

    def report(self, metrics: dict[str, float]) -> Report:
        """What has happened since the last report."""
        acted, self._acted = self._acted, 0
        episodes, failures = self.actor.episodes(), self.actor.failures()
        return replace(self.trainer.report(metrics), steps=acted, episodes=episodes, failures=failures)

    def close(self) -> None:
        """Leave the others."""
        self.trainer.close()

    def state_dict(self, *, acting: bool = True) -> Tree:
        """Everything the future depends on: parameters, optimizer, random streams, exchange, environments (without
        `acting` not these: they have failed in the middle of a step)."""
        actor = self.actor.state_dict() if acting else {}
        return {**self.trainer.state_dict(), **on_host({"rng": self._rng.get_state(), "actor": actor})}
