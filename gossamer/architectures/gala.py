"""GALA: gossip-based actor-learners on one machine (Assran, Romoff, Ballas, Pineau and Rabbat 2019, fig. 1, alg. 1)."""

from __future__ import annotations

import math

from gossamer.exchange import Gossip, Mailboxes
from gossamer.exchange.gossip import options as gossip
from gossamer.exchange.gossip.gossip import PERIOD, WINDOW
from gossamer.exchange.gossip.graphs import RING, Graph
from gossamer.exchange.gossip.mixing import UNIFORM, Mixing
from gossamer.experience import own_experience
from gossamer.loops import ENV_WORKERS, NUM_ENVS, Envs, Loop, act_and_learn
from gossamer.options import option, options
from gossamer.policy import Replica
from gossamer.program import Program
from gossamer.task import Task


def gala(
    task: Task,
    *,
    learners: int = 4,
    num_envs: int = 16,
    env_workers: int = 1,
    gpus: float = 0,
    graph: Graph = RING,
    mixing: Mixing = UNIFORM,
    staleness: float = math.inf,
    lock_step: bool = False,
    interval: int = 1,
    period: int = PERIOD,
    window: int = WINDOW,
    loop: Loop = act_and_learn,
) -> Program:
    """`learners` actor-learners as threads of one process, each with its own `num_envs` environments.

    After every `interval`-th optimizer step, a learner puts its parameters into its neighbours' mailboxes and averages
    its own with those in its mailbox. Nothing is copied or serialised. By default learners do not wait; see `Gossip`
    for `staleness` and `lock_step`.

    All learners start from the same parameters, with separate random streams for actions and environments. On a GPU,
    each learner has its own CUDA stream."""
    p = Program("gala")
    with p.host("machine", cpus=learners * max(1, env_workers), gpus=gpus):
        every = {"newest": not (lock_step or mixing.adds), "adds": mixing.adds and not lock_step}
        post = p.service(Mailboxes, saved=True)(learners, **every)
        exchange = Gossip(post, graph, mixing, staleness, lock_step, interval, period=period, window=window)
        p.worker(loop, copies=learners, saved=True)(
            task, Replica(), own_experience(task.algorithm), exchange, envs=Envs(num_envs, env_workers)
        )
    return p


@options
class GALA:
    """Options of GALA."""

    learners: int = option("Learners, each a thread.", 4, least=1, most=1024)
    num_envs: int = option(NUM_ENVS, 16, least=1, most=16_384)
    env_workers: int = option(ENV_WORKERS, 1, least=0, most=1024)
    graph: str = option(gossip.GRAPH, "ring")
    mixing: gossip.Mix = option(gossip.MIXING, "uniform")
    sync: gossip.Sync = option(gossip.SYNC, "never")
    staleness: int = option(gossip.STALENESS, 16, least=0, most=1_000_000, measure="optimizer steps")
    interval: int = option(gossip.INTERVAL, 1, least=1, most=1_000_000, measure="optimizer steps")
    diagnostics: bool = option(gossip.DIAGNOSTICS, True)

    def program(self, task: Task) -> Program:
        parts = gossip.parts(self, hosts=1, learners=self.learners, seed=task.seed)
        return gala(
            task,
            learners=self.learners,
            num_envs=self.num_envs,
            env_workers=self.env_workers,
            gpus=task.gpus,
            **parts,
        )
