"""The wiring of a replay memory that actors and learners on several hosts share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gossamer.algorithms.base import FromReplay, ReplayPlan
from gossamer.algorithms.replaying import check_ring
from gossamer.experience import ActorReplay, LearnerReplay, Limiter, ReplayShard
from gossamer.experience.replay.workers import pace
from gossamer.loops import act, learn
from gossamer.program import Program, copy_name
from gossamer.system.errors import UserError
from gossamer.system.options import word
from gossamer.task import Task


@dataclass(frozen=True)
class SharedReplay:
    """Shards and their limiter. The actors with rank r, r + shards, .. have shard r."""

    plan: ReplayPlan
    limiter: Limiter
    shards: tuple[ReplayShard, ...]
    actors: int
    learners: int

    def actor(self, rank: int) -> ActorReplay:
        """The experience of an actor."""
        shard = self.shards[rank % len(self.shards)]
        return ActorReplay(self.limiter, shard, self.plan)

    def learner(self) -> LearnerReplay:
        """The experience of a learner."""
        return LearnerReplay(self.limiter, self.shards, self.plan, self.learners)


def plan_of(task: Task, architecture: str) -> ReplayPlan:
    """How the task's algorithm learns from a replay memory. Raises `UserError` if it does not."""
    if isinstance(task.algorithm, FromReplay):
        return task.algorithm.replay_plan()
    raise UserError(
        f"--algorithm {word(type(task.algorithm))}: has no replay memory, from which {architecture} learns; use "
        "--algorithm dqn, or the architecture paac, gala or impala"
    )


def keep_rollouts(p: Program, task: Task, rollouts: int, writers: Mapping[int, int], host: int) -> ReplayShard:
    """Add a memory of so many `rollouts` of one environment, beside the actors that fill it. `writers`: the number of
    environments of each of these, by rank; `host`: the number of their host."""
    envs, steps = sum(writers.values()), task.rollout_length
    capacity = rollouts // envs * envs * steps  # equally many rollouts of each environment
    plan = ReplayPlan(capacity, 0, steps, samples_per_insert=0.0, learning_starts=0, sequences=True, whole=True)
    return p.service(ReplayShard)(plan, writers, capacity, task.stream("old rollouts", host))


def share_replay(
    p: Program,
    task: Task,
    plan: ReplayPlan,
    *,
    shards: int,
    actors: int,
    envs: int,
    learners: int = 1,
    max_ahead: int = 0,
) -> SharedReplay:
    """Add the shards, each on a host of its own, and the limiter, on that of the first one. `actors`: of the program,
    with so many `envs` each; `max_ahead`: see `options.MAX_AHEAD`. Raises `UserError` if it is less than a
    batch, if there are fewer actors than shards, or if the memory is too small for the environments."""
    if actors < shards:
        raise UserError(f"--replay-shards {shards}: there are {actors} actors, each of which has one shard; use fewer")
    if 0 < max_ahead < plan.batch_size:
        raise UserError(
            f"--max-ahead {max_ahead}: must be at least --batch-size {plan.batch_size}: acting and learning would wait "
            "for each other"
        )
    check_ring(plan.capacity, actors * envs, task.rollout_length, plan.window, sequences=plan.sequences)
    ahead = max_ahead or plan.batch_size + plan.samples_per_insert * actors * envs * task.rollout_length
    names = {copy_name(act, rank, actors): rank for rank in range(actors)}
    learning = [copy_name(learn, rank, learners) for rank in range(learners)]
    with p.host("replay0"):
        limiter = p.service(Limiter, saved=plan.saved)(plan, ahead, names, learning)
        p.worker(pace)(limiter)
    made = []
    for shard in range(shards):
        ranks = range(shard, actors, shards)
        with p.host(f"replay{shard}"):
            capacity = plan.capacity * len(ranks) // actors
            writers = dict.fromkeys(ranks, envs)
            made.append(p.service(ReplayShard, saved=plan.saved)(plan, writers, capacity, task.stream("replay", shard)))
    return SharedReplay(plan, limiter, tuple(made), actors, learners)
