"""GALA: gossip-based actor-learners on one machine (Assran, Romoff, Ballas, Pineau and Rabbat 2019, fig. 1, alg. 1)."""

from __future__ import annotations

import math

from gossamer.exchange import Gossip, Mailboxes
from gossamer.exchange.gossip.graphs import RING, Graph
from gossamer.exchange.gossip.mixing import UNIFORM, Mixing
from gossamer.loops import Loop, act_and_learn
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
    period: int = 500,
    window: int = 32,
    loop: Loop = act_and_learn,
) -> Program:
    """`learners` actor-learners as threads of one process, each with `num_envs` environments of its own. After each of
    its optimiser's steps (or every `interval`-th) a learner leaves its parameters in its neighbours' mailboxes and
    averages with what it finds in its own. Nobody waits (or as `staleness`, `lock_step` have it: `Gossip`), nothing is
    copied or serialised.

    All start from the same parameters; action and environment streams are each learner's own. On a GPU each learner has
    its own stream."""
    p = Program("gala")
    with p.host("machine", cpus=learners * max(1, env_workers), gpus=gpus):
        post = p.service(Mailboxes)(learners, newest=not (lock_step or mixing.adds))
        gossip = Gossip(post, graph, mixing, staleness, lock_step, interval, period=period, window=window)
        p.worker(loop, copies=learners)(task, gossip, num_envs=num_envs, env_workers=env_workers)
    return p
