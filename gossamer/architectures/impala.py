"""IMPALA: actors and learners apart (Espeholt et al. 2018, fig. 1)."""

from __future__ import annotations

from dataclasses import replace

from gossamer.exchange import AllReduce, Alone, Broadcast, Gradients, Parameters, fetch
from gossamer.experience import (
    ActorQueue,
    Batching,
    LearnerQueue,
    NextBatch,
    RemoteActorQueue,
    Replaying,
    TrajectoryQueue,
)
from gossamer.experience import options as shared
from gossamer.experience.workers import beat, watch
from gossamer.loops import Envs, Loop, act, learn, load
from gossamer.options import option, options
from gossamer.policy import Replica
from gossamer.program import Program, copy_name
from gossamer.task import Task


def impala(
    task: Task,
    *,
    hosts: int = 0,
    learners: int = 1,
    actors: int = 2,
    num_envs: int = 32,
    env_workers: int = 0,
    batch_rollouts: int = 0,
    depth: int = 2,
    reuse: int = 1,
    replay_share: float = 0.0,
    replay_size: int = 1000,
    parallel_loading: bool = False,
    gpus: float = 0,
    name: str = "impala",
    loops: tuple[Loop, ...] = (act, learn, load),
) -> Program:
    """`learners` threads that average their gradients, and for each of them `actors` threads on each of `hosts` hosts
    (0: on the learners'), each with an equal part of the host's `num_envs` environments. With `parallel_loading`, a
    thread for each learner assembles its next batch. `loops`: of actors, learners, and these.

    Before each rollout an actor takes the newest parameters. A learner trains on batches of `batch_rollouts` rollouts
    (0: one of each), while actors fill the next ones, at most `depth` at a time. Lag: at most depth - 1 batches, also
    between hosts: there an actor waits until its host's copy of the parameters is new enough."""
    p, crew, each = Program(name), actors * max(1, hosts), num_envs // (actors * learners)
    batching, cpus = Batching(each, batch_rollouts or crew, depth), learners * actors * max(1, env_workers)
    replaying, envs = Replaying(replay_share, replay_size), Envs(each, env_workers)
    home = {"cpus": learners + (0 if hosts else cpus), "gpus": gpus}
    with p.host("learner", **home):
        newest = [p.service(Parameters)() for _ in range(learners)]
        average = AllReduce(p.service(Gradients)(learners)) if learners > 1 else Alone()
    copies = []  # of the newest parameters, on each host of actors
    for h in range(hosts):
        with p.host(f"actors{h}", cpus=cpus):
            copies.append(p.service(Parameters)(learners * actors))
            p.worker(fetch)(newest[0], copies[h])
    for rank in range(learners):
        with p.host("learner", **home):
            named = {copy_name(loops[0], r, learners * crew): r for r in range(rank * crew, (rank + 1) * crew)}
            queue = p.service(TrajectoryQueue)(actors=named, batching=batching)
            exchange = Broadcast(newest[rank], average, recovers=rank == 0, elsewhere=hosts > 0)
            batches = LearnerQueue(queue, batching, reuse, replaying)
            if parallel_loading:
                learner, loader = (copy_name(loop, rank, learners) for loop in loops[1:])
                batches = replace(batches, next_batch=p.service(NextBatch)(queue, loader=loader, learner=learner))
                p.worker(loops[2])(task, queue, batches.next_batch, replaying)
            p.worker(loops[1], saved=True)(task, batches, exchange)
            if hosts:
                p.worker(watch)(queue)
            else:
                p.worker(loops[0], copies=actors)(task, Replica(newest[rank]), ActorQueue(queue), envs=envs)
        for h in range(hosts):
            with p.host(f"actors{h}", cpus=cpus):
                first, on_cpu = rank * crew + h * actors, replace(task, device="cpu")
                rollouts = RemoteActorQueue(queue, copies[h])
                p.worker(loops[0], copies=actors)(on_cpu, Replica(copies[h]), rollouts, envs=envs)
                p.worker(beat)(queue, copies[h], range(first, first + actors))
    return p


@options
class IMPALA:
    """Options of IMPALA."""

    hosts: int = option(shared.HOSTS, 0, least=0, most=1024)
    learners: int = option(shared.LEARNERS, 1, least=1, most=1024)
    actors: int = option(shared.ACTORS, 0, least=0, most=1024)
    num_envs: int = option(shared.NUM_ENVS, 32, least=1, most=16_384)
    env_workers: int = option(shared.ENV_WORKERS, 0, least=0, most=1024)
    batch_rollouts: int = option(shared.BATCH_ROLLOUTS, 0, least=0, most=16_384)
    depth: int = option(shared.DEPTH, 2, least=1, most=1024, measure="batches")
    reuse: int = option(shared.REUSE, 1, least=1, most=1000)
    replay_share: float = option(shared.REPLAY_SHARE, 0.0, least=0, below=1)
    replay_size: int = option(shared.REPLAY_SIZE, 1000, least=1, most=10**7, measure="trajectories")
    parallel_loading: bool = option(shared.PARALLEL_LOADING, False)

    def program(self, task: Task) -> Program:
        return impala(task, **shared.arguments(self, task))
