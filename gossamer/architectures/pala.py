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
from dataclasses import replace
from typing import ClassVar

from gossamer.architectures.gossip import GOSSIP, PUBLISHED, members
from gossamer.architectures.options import ENV_WORKERS, NUM_ENVS
from gossamer.exchange import Proxy
from gossamer.exchange.gossip import options as shared
from gossamer.exchange.gossip.formats import Format
from gossamer.exchange.gossip.options import Gossiping
from gossamer.exchange.gossip.sparse import Select
from gossamer.exchange.proxy.wire import Token
from gossamer.exchange.proxy.workers import carry, watch
from gossamer.experience import own_experience
from gossamer.loops import Envs, act_and_learn
from gossamer.policy import Replica
from gossamer.presets.layers import Layer
from gossamer.program import Program
from gossamer.system.errors import UserError
from gossamer.system.options import option, options
from gossamer.task import Task


@options
class PALA:
    """`learners` actor-learners on each of `hosts` hosts, each with its own `num_envs` environments. They gossip after
    every `interval`-th optimizer step. With `group_size` above 1, so many learners of a host average their gradients
    and are one member."""

    hosts: int = option("Hosts, each one process.", 2, least=1, most=65_536)
    learners: int = option("Learners on each host, each a thread.", 2, least=1, most=65_536)
    num_envs: int = NUM_ENVS(16)
    env_workers: int = ENV_WORKERS(1)
    graph: str = shared.GRAPH("ring")
    mixing: shared.Mix = shared.MIXING("uniform")
    sync: shared.Sync = shared.SYNC("bounded")
    staleness: int = shared.STALENESS(16)
    interval: int = shared.INTERVAL(4)
    group_size: int = shared.GROUP_SIZE(1)
    share: float = shared.SHARE(1.0)
    select: Select = shared.SELECT("random")
    outer_momentum: float = shared.OUTER_MOMENTUM(0.0)
    outer_learning_rate: float = shared.OUTER_LEARNING_RATE(1.0)
    staleness_decay: float = shared.STALENESS_DECAY(0.0)
    diagnostics: bool = shared.DIAGNOSTICS(True)
    message_format: Format = option("Number format of parameters sent between hosts.", "fp32")
    error_feedback: bool = option("Add to each message what was rounded off of earlier ones.", False)

    def program(self, task: Task, *, gossip: Gossiping | None = None, couriers: int = 2, name: str = "pala") -> Program:
        """`gossip` replaces what the options say of it. `couriers`: of each host; `name`: of the program."""
        gossip = gossip or self._gossip(task.seed)
        p, token = Program(name), Token(secrets.token_bytes(16))
        needs = {"cpus": self.learners * max(1, self.env_workers), "gpus": task.gpus}
        proxies = []
        for h in range(self.hosts):
            with p.host(f"host{h}", **needs):
                proxy = p.service(Proxy, saved=True)(
                    host=h,
                    hosts=self.hosts,
                    members=self.learners // self.group_size,
                    token=token,
                    newest=gossip.newest,
                    adds=gossip.adds,
                )
                proxies.append(proxy)
        for h, proxy_here in enumerate(proxies):
            with p.host(f"host{h}", **needs):
                here = {"learners": self.learners, "size": self.group_size, "first": h * self.learners}
                for exchange, copies in members(p, gossip, proxy_here, **here):
                    p.worker(act_and_learn, copies=copies, saved=True)(
                        replace(task, gpu=None),
                        Replica(),
                        own_experience(task.algorithm),
                        exchange,
                        envs=Envs(self.num_envs, self.env_workers),
                    )
                p.worker(carry, copies=couriers)(proxy_here, proxies, form=gossip.form)
                p.worker(watch)(proxy_here)
        return p

    def _gossip(self, seed: int) -> Gossiping:
        if self.error_feedback and self.message_format == "fp32":
            raise UserError("--error-feedback: has no effect with --message-format fp32, which does not round")
        # Rounded by members, which add the errors to later messages, or else by couriers
        who = {"rounding" if self.error_feedback else "form": self.message_format}
        return shared.gossiping(self, seed, hosts=self.hosts, learners=self.learners, **who)

    presets: ClassVar[tuple[Layer, ...]] = (
        *GOSSIP,
        Layer(
            "PALA as published: the settings of its code, which are GALA's except for longer rollouts, an unscaled "
            "learning rate, and a process lock that keeps every learner from running ahead of its neighbour's messages",
            {**PUBLISHED, "rollout_length": 20, "sync": "bounded", "staleness": 0, "interval": 1},
            preset="paper",
            beside=("a2c",),
        ),
    )
