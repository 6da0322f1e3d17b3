"""Parallel Sarsa by exchange of weights (Grounds and Kudenko 2008).

Components of the paper and their implementation:

agents                   `act_and_learn`: each has its own environments, action values and eligibility traces
exchange of weights      `Gossip` with `Sparse`: after every `interval`-th update each agent sends the parameters that
                         have changed most since they were last exchanged to all others, which average them
nodes of a cluster       `hosts`, whose agents exchange messages through proxies (as PALA); on one host mailboxes (as
                         GALA)
"""

from __future__ import annotations

from typing import ClassVar

from gossamer.architectures.gala import GALA
from gossamer.architectures.gossip import sqrt_of_members
from gossamer.architectures.options import ENV_WORKERS, NUM_ENVS
from gossamer.architectures.pala import PALA
from gossamer.exchange.gossip import options as shared
from gossamer.exchange.gossip.graphs import Complete
from gossamer.exchange.gossip.options import Gossiping
from gossamer.exchange.gossip.sparse import Select, Sparse
from gossamer.presets.layers import Layer
from gossamer.program import Program
from gossamer.system.errors import UserError
from gossamer.system.options import option, options
from gossamer.task import Task


@options
class ParallelSarsa:
    """`learners` agents on each of `hosts` hosts, each with its own `num_envs` environments. They learn independently,
    and average a share of their parameters after every `interval`-th update.

    At an exchange an agent waits for the messages of all others. What it sends is `exchange.gossip.sparse`."""

    hosts: int = option("Hosts, each one process.", 1, least=1, most=65_536)
    learners: int = option("Learners on each host, each a thread.", 4, least=1, most=65_536)
    num_envs: int = NUM_ENVS(8)
    env_workers: int = ENV_WORKERS(0)
    interval: int = shared.INTERVAL(16)
    share: float = shared.SHARE(0.1)
    select: Select = shared.SELECT("changed")

    def program(self, task: Task) -> Program:
        members = self.hosts * self.learners
        if members < 2:
            raise UserError(f"--learners {self.learners}: an exchange needs at least two; use paac for a single one")
        sparse = None if self.share == 1 else Sparse(self.share, self.select, task.seed)
        gossip = Gossiping(graph=Complete(), lock_step=True, interval=self.interval, period=0, sparse=sparse)
        if self.hosts == 1:
            machine = GALA(learners=self.learners, num_envs=self.num_envs, env_workers=self.env_workers)
            return machine.program(task, gossip=gossip, name="sarsa")
        cluster = PALA(hosts=self.hosts, learners=self.learners, num_envs=self.num_envs, env_workers=self.env_workers)
        return cluster.program(task, gossip=gossip, name="sarsa")

    algorithms: ClassVar[tuple[str, ...]] = ("sarsa-lambda",)
    presets: ClassVar[tuple[Layer, ...]] = (
        Layer("tuned on MountainCar-v0: an agent has one environment", {"num_envs": 1}, kind="bounded"),
        Layer("one agent's rate times the square root of the number of agents", rules=(sqrt_of_members,)),
        Layer(
            "Grounds and Kudenko as far as known: Sarsa(lambda) online, linear values, one environment for each agent. "
            "Not known: rate, lambda, epsilon, period and share; here Sutton and Barto's for Mountain Car, and ours",
            {
                "steps": 200_000,
                "rollout_length": 1,
                "num_envs": 1,
                "gamma": 1.0,
                "gae_lambda": 0.9,
                "epsilon_start": 0.0,
                "epsilon_end": 0.0,
                "network": "tiles",
                "optimizer": "sgd",
                "learning_rate": 0.2,
                "anneal_steps": 0,
                "final_fraction": 1.0,
                "max_grad_norm": 1e9,
                "interval": 128,
            },
            preset="paper",
            beside=("sarsa-lambda",),
        ),
    )
