"""PALA: parallel actor-learner architecture, GALA's gossip across machines (National University of Defense Technology,
Chinese Journal of Computers 46(2), 2023, pp. 229-243).

Components of the paper and their implementation:

data proxy               `Proxy`, one on each host, with couriers (`carry`) and a clock (`watch`): accepts a learner's
                         parameters immediately and sends them to the neighbours' proxies asynchronously
process lock             `staleness`: a member blocks in its host's proxy, without polling, while it is more than this
                         number of iterations ahead of an in-neighbour; members that leave, fail or become unreachable
                         no longer block others
serialisation of         `exchange.proxy.wire`: one flat buffer, from a GPU through pinned memory, with layout, version
CUDA tensors             and checksum, as float32, bfloat16 or int8; never pickle
model aggregation        `Gossip`: one fused average on the device after every `interval`-th step; at the end of a run
                         the average of all members is evaluated and kept in addition to the best member
                         (`evaluation.members`)
"""

from __future__ import annotations

import secrets

from gossamer.exchange import Gossip, Proxy, room
from gossamer.exchange.gossip import options as gossip
from gossamer.exchange.gossip.formats import Format
from gossamer.exchange.gossip.gossip import PERIOD, WINDOW
from gossamer.exchange.gossip.graphs import RING, Graph
from gossamer.exchange.gossip.mixing import UNIFORM, Mixing
from gossamer.exchange.proxy.wire import Token
from gossamer.exchange.proxy.workers import carry, watch
from gossamer.experience import own_experience
from gossamer.loops import ENV_WORKERS, NUM_ENVS, Envs, Loop, act_and_learn
from gossamer.options import option, options
from gossamer.policy import Replica
from gossamer.program import Program
from gossamer.task import Task


def pala(
    task: Task,
    *,
    hosts: int = 2,
    learners: int = 2,
    num_envs: int = 16,
    env_workers: int = 1,
    gpus: float = 0,
    graph: Graph = RING,
    mixing: Mixing = UNIFORM,
    staleness: float = 16,
    lock_step: bool = False,
    message_format: Format = "fp32",
    interval: int | None = None,
    couriers: int = 2,
    period: int = PERIOD,
    window: int = WINDOW,
    loop: Loop = act_and_learn,
) -> Program:
    """`learners` actor-learners on each of `hosts` hosts, each with its own `num_envs` environments.

    They gossip after every `interval`-th optimizer step. None: every step in lock-step, otherwise 4 or, if smaller, the
    longest interval for `staleness` (`room`)."""
    p, token = Program("pala"), Token(secrets.token_bytes(16))
    if interval is None:
        interval = 1 if lock_step else int(min(4, room(staleness)))
    needs = {"cpus": learners * max(1, env_workers), "gpus": gpus}
    proxies = []
    for h in range(hosts):
        with p.host(f"host{h}", **needs):
            proxy = p.service(Proxy, saved=True)
            every = {"newest": not (lock_step or mixing.adds), "adds": mixing.adds and not lock_step}
            proxies.append(proxy(host=h, hosts=hosts, learners=learners, token=token, **every))
    for h, proxy_here in enumerate(proxies):
        with p.host(f"host{h}", **needs):
            exchange = Gossip(proxy_here, graph, mixing, staleness, lock_step, interval, period=period, window=window)
            p.worker(loop, copies=learners, saved=True)(
                task, Replica(), own_experience(task.algorithm), exchange, envs=Envs(num_envs, env_workers)
            )
            p.worker(carry, copies=couriers)(proxy_here, proxies, form=message_format)
            p.worker(watch)(proxy_here)
    return p


@options
class PALA:
    """Options of PALA."""

    hosts: int = option("Hosts, each one process.", 2, least=1, most=1024)
    learners: int = option("Learners on each host, each a thread.", 2, least=1, most=1024)
    num_envs: int = option(NUM_ENVS, 16, least=1, most=16_384)
    env_workers: int = option(ENV_WORKERS, 1, least=0, most=1024)
    graph: str = option(gossip.GRAPH, "ring")
    mixing: gossip.Mix = option(gossip.MIXING, "uniform")
    sync: gossip.Sync = option(gossip.SYNC, "bounded")
    staleness: int = option(gossip.STALENESS, 16, least=0, most=1_000_000, measure="optimizer steps")
    interval: int = option(gossip.INTERVAL, 4, least=1, most=1_000_000, measure="optimizer steps")
    diagnostics: bool = option(gossip.DIAGNOSTICS, True)
    message_format: Format = option("Number format of parameters sent between hosts.", "fp32")

    def program(self, task: Task) -> Program:
        parts = gossip.parts(self, hosts=self.hosts, learners=self.learners, seed=task.seed)
        return pala(
            task,
            hosts=self.hosts,
            learners=self.learners,
            num_envs=self.num_envs,
            env_workers=self.env_workers,
            gpus=task.gpus,
            message_format=self.message_format,
            **parts,
        )
