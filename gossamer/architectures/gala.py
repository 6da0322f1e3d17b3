"""GALA: gossip-based actor-learners on one machine (Assran, Romoff, Ballas, Pineau and Rabbat 2019, fig. 1, alg. 1)."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from gossamer.architectures.gossip import GOSSIP, PUBLISHED, members, sqrt_of_members
from gossamer.architectures.options import ENV_WORKERS, NUM_ENVS
from gossamer.exchange import Mailboxes
from gossamer.exchange.gossip import options as shared
from gossamer.exchange.gossip.options import Gossiping
from gossamer.exchange.gossip.sparse import Select
from gossamer.experience import own_experience
from gossamer.loops import Envs, act_and_learn
from gossamer.policy import Replica
from gossamer.presets.layers import Layer
from gossamer.program import Program
from gossamer.system.options import option, options
from gossamer.task import Task


@options
class GALA:
    """`learners` actor-learners as threads of one process, each with its own `num_envs` environments.

    After every `interval`-th optimizer step, a learner puts its parameters into its neighbours' mailboxes and averages
    its own with those in its mailbox. Nothing is copied or serialised. By default a learner waits for its neighbours
    only beyond `staleness`. With `group_size` above 1, so many learners average their gradients and are one member.

    All learners start from the same parameters, with separate random streams for actions and environments. On a GPU,
    each learner has its own CUDA stream."""

    learners: int = option("Learners, each a thread.", 4, least=1, most=1024)
    num_envs: int = NUM_ENVS(16)
    env_workers: int = ENV_WORKERS(1)
    graph: str = shared.GRAPH("ring")
    mixing: shared.Mix = shared.MIXING("uniform")
    sync: shared.Sync = shared.SYNC("bounded")
    staleness: int = shared.STALENESS(16)
    interval: int = shared.INTERVAL(1)
    group_size: int = shared.GROUP_SIZE(1)
    share: float = shared.SHARE(1.0)
    select: Select = shared.SELECT("random")
    outer_momentum: float = shared.OUTER_MOMENTUM(0.0)
    outer_learning_rate: float = shared.OUTER_LEARNING_RATE(1.0)
    staleness_decay: float = shared.STALENESS_DECAY(0.0)
    diagnostics: bool = shared.DIAGNOSTICS(True)

    def program(self, task: Task, *, gossip: Gossiping | None = None, name: str = "gala") -> Program:
        """`gossip` replaces what the options say of it. `name`: of the program."""
        gossip = gossip or self._gossip(task.seed)
        p = Program(name)
        with p.host("machine", cpus=self.learners * max(1, self.env_workers), gpus=task.gpus):
            groups = self.learners // self.group_size
            post = p.service(Mailboxes, saved=True)(groups, newest=gossip.newest, adds=gossip.adds)
            for exchange, copies in members(p, gossip, post, learners=self.learners, size=self.group_size):
                p.worker(act_and_learn, copies=copies, saved=True)(
                    replace(task, gpu=None),
                    Replica(),
                    own_experience(task.algorithm),
                    exchange,
                    envs=Envs(self.num_envs, self.env_workers),
                )
        return p

    def _gossip(self, seed: int) -> Gossiping:
        return shared.gossiping(self, seed, hosts=1, learners=self.learners)

    presets: ClassVar[tuple[Layer, ...]] = (
        *GOSSIP,
        Layer(
            "GALA as published: the settings of its code, learning rate 7e-4 times the square root of the number of "
            "learners, which never wait; our nature network has 64 channels in its third layer, GALA's has 32",
            {**PUBLISHED, "rollout_length": 5, "sync": "never"},
            (sqrt_of_members,),
            preset="paper",
            beside=("a2c",),
        ),
    )
