"""What the worker loops consist of: a learner in a program, an actor in a program, or both in one thread."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch

from gossamer.algorithms.base import initial_state
from gossamer.algorithms.target import targets
from gossamer.data import Batch, Rollout, Trajectory, Tree, Updated, Version, numpy_dtype, on_host
from gossamer.envs.base import VectorEnv
from gossamer.envs.random_play import background
from gossamer.exchange import Exchange
from gossamer.experience import Kept
from gossamer.nn.inputs import centre_on
from gossamer.policy import ActorPolicy, OwnNetwork, Policy, Source, life
from gossamer.runtime import Context
from gossamer.spaces import Spec
from gossamer.system.machine import HostInfo, flush_denormals, host_info, settle, use_gpu, use_threads
from gossamer.task import Activity, Note, Task, WorkerReport
from gossamer.workers.actor import Actor, alternate
from gossamer.workers.clock import Clock
from gossamer.workers.learner import Learner
from gossamer.workers.making import await_made


def prepared(ctx: Context, task: Task) -> Task:
    """Resolve the task on this machine, and set up torch for the calling worker."""
    task = task.resolved().placed(ctx.rank)
    if task.threads:
        use_threads(task.threads)  # each worker has its own
    flush_denormals()
    use_gpu(task.device)
    if task.device.startswith("cuda") and ctx.copies > 1:  # the thread's own: workers on one GPU run side by side
        torch.cuda.set_stream(torch.cuda.Stream(task.device))  # type: ignore[no-untyped-call]
    return task


def _here(task: Task, spec: Spec) -> HostInfo:
    """What this worker computes with, or if workers go round over the GPUs, what all of them do."""
    device = "cuda" if task.around else task.device
    return host_info(device=device, dtype=task.dtype(pictures=spec.pixels), threads=torch.get_num_threads())


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

    num_envs = 0  # it does not act

    def __init__(self, ctx: Context, task: Task, spec: Spec, exchange: Exchange, saved: Tree | None) -> None:
        """`task`: see `prepared`. `saved`: the state to continue from."""
        self.task, self.spec, self.clock, self._tell = task, spec, Clock(), ctx.report
        self.learner = Learner(task, spec, rank=ctx.rank)
        ctx.report(_here(task, spec))
        self._begin(ctx, saved)
        self._group = exchange.group
        self.link = exchange.join(ctx, self.learner, None if saved is None else saved.get("exchange", {}))
        self._updates = self.learner.updates  # at the last report
        self._metrics = list[dict[str, float]]()  # of the updates since the last report
        self._fresh = self._reused = 0  # steps learned from since the last report, for the first time and again
        self._rollouts = list[Rollout]()  # of other workers, learned from for the first time since the last report
        self._drawn = 0  # steps drawn from replay memories since the last report
        self._failure = ""  # of recording updates, as last told

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
            for target in targets(self.learner.model):
                target.age.zero_()  # versions begin anew

    def slot(self, num_envs: int) -> Trajectory:
        """An empty trajectory of so many environments."""
        return empty(self.task, self.spec, num_envs, initial_state(self.learner.model, num_envs))

    def version(self) -> Version:
        """Version of the parameters."""
        return self.link.refresh()

    def update(self, batch: Batch) -> Updated:
        """Train on a batch."""
        before = self.learner.waited
        with self.clock("update"):
            updated = self.learner.update(batch.data, self.link, batch.position, own=batch.own)
        if waited := self.learner.waited - before:
            self.clock.add("update", -waited)
            self.clock.add("gradients_wait", waited)
        recorded = self.learner.recorded
        if recorded is not None and recorded.failure != self._failure:
            self._failure = recorded.failure
            self._tell(Note(f"updates cannot be recorded as CUDA graphs, and are slower without: {self._failure}"))
        self._metrics.append(updated.metrics)
        self._fresh += batch.fresh
        self._rollouts += batch.rollouts
        self._drawn += 0 if batch.windows is None else len(batch.windows) * batch.data.reward.shape[0]
        self._reused += max(0, batch.data.steps - batch.fresh)
        return updated

    def report(self, waiting: int | None = None) -> WorkerReport:
        """What has been learned since the last report. `waiting`: full batches in the queue behind a new one."""
        updates, self._updates = self.learner.updates - self._updates, self.learner.updates
        metrics, self._metrics = means(self._metrics), []
        fresh, reused, self._fresh, self._reused = self._fresh, self._reused, 0, 0
        drawn, self._drawn = self._drawn, 0
        rollouts, self._rollouts = tuple(self._rollouts), []
        staleness, dropped = self.learner.take_gradients()
        return WorkerReport(
            steps=0,
            learned=fresh,
            updates=updates,
            metrics=metrics,
            seconds=self.clock.take(),
            exchange=self.link.take(),
            reused=reused,
            lag=self.learner.take_lag(),
            waiting=waiting,
            version=self.link.version,
            staleness=staleness,
            dropped=dropped,
            drawn=drawn,
            learned_of=rollouts,
        )

    def close(self) -> None:
        """Leave the others."""
        self.link.leave()

    def state_dict(self) -> Tree:
        """Everything that learning depends on: parameters, optimizer, random stream, exchange. `group`: see
        `Exchange`."""
        self.link.refresh()  # a server has the learner's last updates
        state = {"learner": self.learner.state_dict(), "exchange": self.link.state_dict(), "group": self._group}
        return on_host(state)


class Player:
    """Acts in the environments of a worker: an actor with its policy for each group of them."""

    def __init__(
        self,
        ctx: Context,
        task: Task,
        groups: Sequence[VectorEnv],
        policy: Policy,
        own: Trainer | None = None,
        saved: Tree | None = None,
    ) -> None:
        """`task`: see `prepared`. Waits for the first parameters. `groups`: `task.groups` of environments, equally many
        in each; `own`: the learner in the same worker; `saved`: the state to continue from."""
        self.task, self.spec, self.num_envs = task, groups[0].spec, sum(env.num_envs for env in groups)
        self.clock, self._apart = Clock() if own is None else own.clock, own is None
        if own is None:
            ctx.report(_here(task, self.spec))
        await_made(ctx, groups)
        network: Source | None = None if own is None else OwnNetwork(own.learner.model, own.link)
        whole = saved if saved is not None and "learner" in saved else None
        states = [None] * len(groups) if whole is None else whole.get("groups", [whole])
        self.policies, self.actors, first = list[ActorPolicy](), list[Actor](), 0
        for group, (env, state) in enumerate(zip(groups, states, strict=True)):
            acting = policy.join(ctx, task, env.spec, env.num_envs, network, state, group=group)
            network = acting.beside()
            began = life(ctx, acting.version) or " 0" if own is None else f" {own.learner.steps}{life(ctx)}"
            actor = Actor(
                env,
                acting,
                gamma=task.algorithm.gamma,
                seed=task.stream(f"env{began}", task.group_number(ctx.rank, group)),
                clock=self.clock,
                name=task.env.name,
                first=first,
                ahead=len(groups) > 1,
            )
            first += env.num_envs
            self.policies.append(acting)
            self.actors.append(actor)
            if state is not None:
                actor.load_state_dict(state["actor"])
        self._acted = 0  # environment steps since the last report
        if any(state is not None and not state["actor"] for state in states):
            ctx.report(Note(f"{task.env.name} cannot give its state: new episodes begin, all else goes on exactly"))

    @property
    def rollout_steps(self) -> int:
        """Environment steps of a rollout."""
        return self.task.rollout_length * self.num_envs

    def slot(self, num_envs: int) -> Trajectory:
        """An empty trajectory of so many environments."""
        acting = self.policies[0]
        return empty(self.task, self.spec, num_envs, acting.recorded(acting.initial_state(num_envs)))

    def version(self) -> Version:
        """Version of the parameters that it acts with."""
        return self.policies[0].version

    def unroll(self, slot: Trajectory, position: int) -> None:
        """Act for T steps into `slot`, which a learner in another thread may read. `position`: environment steps in the
        run's budget before them."""
        if len(self.actors) == 1:
            self.actors[0].unroll(slot, position)
        else:
            alternate(self.actors, slot, position)
        self._acted += slot.steps
        if self._apart:
            settle(self.task.device)

    def report(self, kept: Kept) -> WorkerReport:
        """What has been acted since the last report. `kept`: what has become of it."""
        acted, self._acted = self._acted, 0
        return WorkerReport(
            acted,
            episodes=tuple(episode for actor in self.actors for episode in actor.episodes()),
            seconds=self.clock.take(),
            failures=tuple(error for actor in self.actors for error in actor.failures()),
            stored=kept.stored,
            lost=kept.lost,
            held=kept.held,
            handed_over=kept.handed_over,
            refused=kept.refused,
        )

    def close(self) -> None:
        """Leave the policy, with the environments at rest."""
        for actor in self.actors:
            actor.close()
        for policy in self.policies:
            policy.close()

    def state_dict(self, *, acting: bool) -> Tree:
        """What the next actions depend on besides parameters, and with `acting` the environments."""
        states = [
            on_host({**policy.state_dict(), "actor": actor.state_dict() if acting else {}})
            for policy, actor in zip(self.policies, self.actors, strict=True)
        ]
        return states[0] if len(states) == 1 else {"groups": states}


class Member:
    """One actor-learner: an actor and a learner in one thread."""

    def __init__(
        self, ctx: Context, task: Task, groups: Sequence[VectorEnv], policy: Policy, exchange: Exchange
    ) -> None:
        """`groups`: see `Player`."""
        task, saved = prepared(ctx, task), ctx.restored()
        self.trainer = Trainer(ctx, task, groups[0].spec, exchange, saved)
        self.player = Player(ctx, task, groups, policy, self.trainer, saved)
        self.task, self.spec, self.num_envs = task, self.player.spec, self.player.num_envs
        self.learner, self.link, self.clock = self.trainer.learner, self.trainer.link, self.trainer.clock
        self.rollout_steps = self.player.rollout_steps
        self.slot, self.version, self.update = self.trainer.slot, self.trainer.version, self.trainer.update

    def unroll(self, slot: Trajectory, position: int) -> None:
        """Act for T steps into `slot`. `position`: environment steps in the run's budget before them."""
        self.player.unroll(slot, position)

    def report(self, kept: Kept) -> WorkerReport:
        """What has happened since the last report. `kept`: what has become of what was acted."""
        acted, learned = self.player.report(kept), self.trainer.report()
        seconds = {**acted.seconds, **learned.seconds}  # they share a clock
        of_actor = ("steps", "episodes", "failures", "stored", "lost", "held", "handed_over", "refused")
        return replace(learned, **{name: getattr(acted, name) for name in of_actor}, seconds=seconds)

    def close(self) -> None:
        """Leave the others."""
        self.player.close()
        self.trainer.close()

    def state_dict(self, *, acting: bool = True) -> Tree:
        """Everything the future depends on: parameters, optimizer, random streams, exchange, environments (without
        `acting` not these: they have failed in the middle of a step)."""
        return {**self.trainer.state_dict(), **self.player.state_dict(acting=acting)}


def means(rows: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """The mean of each metric over the updates that have it."""
    names = dict.fromkeys(name for row in rows for name in row)
    values = {name: [row[name] for row in rows if name in row] for name in names}
    return {name: sum(each) / len(each) for name, each in values.items()}
