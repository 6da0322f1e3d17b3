"""IMPALA: actors and learners apart (Espeholt et al. 2018, fig. 1)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any, ClassVar

from gossamer.architectures.replaying import keep_rollouts
from gossamer.architectures.serving import policies_of
from gossamer.exchange import (
    AllReduce,
    Alone,
    Between,
    Broadcast,
    Exchange,
    Gradients,
    Group,
    Learners,
    Parameters,
    keep,
)
from gossamer.experience import (
    ActorQueue,
    Batching,
    LearnerQueue,
    NextBatch,
    RemoteActorQueue,
    Replaying,
    ReplayShard,
    TrajectoryQueue,
)
from gossamer.experience.queue import options as shared
from gossamer.experience.queue.workers import beat, watch
from gossamer.loops import Envs, act, learn, load
from gossamer.policy.served import options as serving
from gossamer.presets.layers import Layer
from gossamer.presets.rules import actors_for
from gossamer.program import Program, copy_name
from gossamer.system.errors import UserError
from gossamer.system.options import options
from gossamer.system.processes import cores
from gossamer.task import Task


def loading_in_parallel(values: Mapping[str, Any], given: Collection[str]) -> dict[str, Any]:
    """A worker assembles batches where something has to be copied: old trajectories, or rollouts of other hosts. With
    --depth 1 the learner would wait for it."""
    return {"parallel_loading": bool(values["replay_share"] or values["hosts"]) and values["depth"] > 1}


LOADING = Layer(
    "batches are assembled ahead where something has to be copied", rules=(loading_in_parallel,), preset=None
)


@options
class IMPALA:
    """`learners` threads that average their gradients, and for each of them `actors` threads on each of `hosts` hosts
    (0: on the learners'), each with an equal part of the host's `num_envs` environments. With `parallel_loading`, a
    thread for each learner assembles its next batch. `learner_hosts` have so many learners each, which all average
    their gradients; the hosts of actors are shared out among them.

    Before each rollout an actor takes the newest parameters. A learner trains on batches of `batch_rollouts` rollouts
    (0: one of each), while actors fill the next ones, at most `depth` at a time. Lag: at most depth - 1 batches, also
    between hosts: there an actor waits until its host's copy of the parameters is new enough."""

    hosts: int = shared.HOSTS(0)
    learners: int = shared.LEARNERS(1)
    learner_hosts: int = shared.LEARNER_HOSTS(1)
    actors: int = shared.ACTORS(0)
    num_envs: int = shared.NUM_ENVS(32)
    env_workers: int = shared.ENV_WORKERS(0)
    batch_rollouts: int = shared.BATCH_ROLLOUTS(0)
    depth: int = shared.DEPTH(2)
    reuse: int = shared.REUSE(1)
    replay_share: float = shared.REPLAY_SHARE(0.0)
    replay_size: int = shared.REPLAY_SIZE(1000)
    parallel_loading: bool = shared.PARALLEL_LOADING(False)
    policy: serving.PolicyKind = serving.POLICY("replica")
    predictors: int = serving.PREDICTORS(1)
    min_batch: int = serving.MIN_BATCH(1)
    max_batch: int = serving.MAX_BATCH(0)
    batch_timeout: float = serving.BATCH_TIMEOUT(0.01)

    algorithms: ClassVar[tuple[str, ...]] = ("vtrace", "appo")

    def program(self, task: Task) -> Program:
        self._check(task)
        p = Program(type(self).__name__.lower())
        groups = []
        for g in range(self.learner_hosts if self.learner_hosts > 1 else 0):
            with self._home(p, task, g):
                groups.append(p.service(Group)(g, self.learner_hosts))
        for g in range(self.learner_hosts):
            self._add_learners(p, task, g, tuple(groups))
        return p

    def _home(self, p: Program, task: Task, g: int) -> AbstractContextManager[None]:
        """The host of learners with this number. On a GPU learners and predictors keep no core busy."""
        predictors = self.predictors if self.policy == "served" else 0
        busy = 0 if task.gpus else self.learners * (1 + predictors)
        cpus = max(1, busy + (0 if self.hosts else self._actor_cpus(task)))
        name = "learner" if self.learner_hosts == 1 else f"learner{g}"
        return p.host(name, cpus=cpus, gpus=task.gpus)

    @property
    def _actors(self) -> int:
        """Of each learner on each host."""
        return self.actors or actors_for(self.num_envs, self.learners, cores())

    def _env_workers(self, task: Task) -> int:
        """Of each actor."""
        return self.env_workers or (0 if self.hosts else shared.threads_beside(task, self.learners, self._actors))

    def _actor_cpus(self, task: Task) -> int:
        """Of the actors of one host."""
        return self.learners * self._actors * max(1, self._env_workers(task))

    def _add_learners(self, p: Program, task: Task, g: int, groups: tuple[Group, ...]) -> None:
        """Add a host of learners, with its actors."""
        learners, actors, here = self.learners, self._actors, self.hosts // self.learner_hosts
        crew, each = actors * max(1, here), self.num_envs // (actors * learners)
        batching = Batching(each, self.batch_rollouts or crew, self.depth)
        envs = Envs(each, self._env_workers(task))
        policies, all_learners = policies_of(self, task, actors=crew, envs=each), learners * self.learner_hosts
        with self._home(p, task, g):
            newest = [p.service(Parameters)() for _ in range(learners)]
            average: Exchange = Alone()
            if all_learners > 1:
                between = Between(groups, g) if groups else None
                average = AllReduce(p.service(Gradients)(learners, g * learners), between=between)
            if groups:
                p.worker(keep)(groups, Learners.of(learn, self.learner_hosts, learners), host=g)
        copies, memories = [], list[ReplayShard]()  # on each host of actors
        for h in range(here):
            with p.host(f"actors{g * here + h}", cpus=self._actor_cpus(task)):
                begins = [(g * learners + number) * crew + h * actors for number in range(learners)]
                ranks = [begin + i for begin in begins for i in range(actors)]
                names = [copy_name(act, rank, all_learners * crew) for rank in ranks]
                copies.append(policies.add_copy(p, newest[0], names))
                if self.replay_share:
                    filling = dict.fromkeys(ranks, each)
                    memories.append(keep_rollouts(p, task, self.replay_size, filling, g * here + h))
        replaying = Replaying(self.replay_share, self.replay_size, tuple(memories) if memories else None)
        for number in range(learners):
            rank, at = g * learners + number, replace(task, gpu=number)
            with self._home(p, task, g):
                first, total = rank * crew, all_learners * crew
                named = {copy_name(act, r, total): r for r in range(first, first + crew)}
                queue = p.service(TrajectoryQueue)(actors=named, batching=batching)
                requests = policies.add_predictors(p, at, newest[number], named)
                copied = here > 0 and requests is None
                exchange = Broadcast(newest[number], average, recovers=number == 0, elsewhere=copied)
                batches = LearnerQueue(queue, batching, self.reuse, replaying)
                if self.parallel_loading:
                    learner, loader = (copy_name(loop, rank, all_learners) for loop in (learn, load))
                    following = p.service(NextBatch)(queue, loader=loader, learner=learner)
                    p.worker(load)(at, queue, following, replaying)
                    drawn = replace(replaying, hosts=() if memories else None)  # by the loader
                    batches = replace(batches, next_batch=following, replaying=drawn)
                p.worker(learn, saved=True)(at, batches, exchange)
                if here:
                    p.worker(watch)(queue)
                else:
                    policy = policies.here(newest[number], requests)
                    p.worker(act, copies=actors)(at, policy, ActorQueue(queue), envs=envs)
            for h, copy in enumerate(copies):
                with p.host(f"actors{g * here + h}", cpus=self._actor_cpus(task)):
                    own, on_cpu = range(first + h * actors, first + (h + 1) * actors), replace(task, device="cpu")
                    policy = policies.elsewhere(copy, requests)
                    rollouts = RemoteActorQueue(queue, copy, memories[h] if memories else None)
                    p.worker(act, copies=actors)(on_cpu, policy, rollouts, envs=envs)
                    p.worker(beat)(queue, copy, own)

    def _check(self, task: Task) -> None:
        shared.check_envs(self.num_envs, self.learners, self.actors)
        shared.check_reuse(self.reuse, self.depth)
        if self.hosts % self.learner_hosts:
            raise UserError(
                f"--hosts {self.hosts}: must be a multiple of --learner-hosts {self.learner_hosts}, each of which has "
                "actors of its own; with 0 they are on the learners' hosts"
            )
        if self.replay_share and self.hosts > 0 and self.replay_size < self.num_envs:
            raise UserError(
                f"--replay-size {self.replay_size}: must be --num-envs {self.num_envs} or more: each of --hosts keeps "
                "so many trajectories, and at least one of each environment"
            )
        shared.check_off_policy(task.algorithm)

    presets: ClassVar[tuple[Layer, ...]] = (
        LOADING,
        Layer("tuned on Pong: batches of 160 steps", {"num_envs": 16}, kind="pixels", beside=("vtrace",)),
        Layer("the environments of appo", {"num_envs": 16, "env_workers": 1}, kind="pixels", beside=("appo",)),
        Layer("small environments: by the actor's own process", {"env_workers": 0}, kind="not atari", beside=("appo",)),
        Layer(
            "IMPALA's settings for Atari games (table G.1), shallow network; the loss is a sum over 32 x 20 steps",
            {
                "steps": 50_000_000,
                "rollout_length": 20,
                "preprocessing": "impala",
                "num_envs": 32,
                "gae_lambda": 1.0,
                "value_coef": 0.25,
                "entropy_coef": 0.01,
                "loss_scale": 640.0,
                "network": "nips",
                "input": "unit",
                "optimizer": "rmsprop-tf",
                "decay": 0.99,
                "epsilon": 0.01,
                "learning_rate": 6e-4,
                "anneal_steps": 50_000_000,
                "final_fraction": 0.0,
                "max_grad_norm": 40.0,
            },
            preset="paper",
            beside=("vtrace",),
        ),
    )
