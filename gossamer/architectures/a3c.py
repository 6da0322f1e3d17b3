"""A3C and the asynchronous methods of action values (Mnih et al. 2016, algorithms 1, S2 and S3).

Components of the paper and their implementation:

actor-learner thread      a copy of `act_and_learn`, with environments and a copy of the parameters of its own
shared parameters,        `SharedMemory`, which all learners change without a lock (`Shared`); of several
RMSProp statistics and    processes it is a file that each maps
target network
global counter T          positions in the run's budget: learning rate and epsilon follow them
"""

from __future__ import annotations

import atexit
import secrets
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any, ClassVar

from gossamer.architectures.options import ENV_WORKERS, NUM_ENVS
from gossamer.architectures.parameter_server import share_server
from gossamer.exchange import Exchange, Server, Shared, SharedMemory
from gossamer.exchange.shared.memory import remove
from gossamer.exchange.shared.shared import Statistics
from gossamer.experience import own_experience
from gossamer.loops import Envs, act_and_learn
from gossamer.policy import Replica
from gossamer.presets.layers import Layer
from gossamer.program import OnRestart, Program, copy_name
from gossamer.system.errors import UserError
from gossamer.system.options import option, options
from gossamer.task import Task

ANY_DELAY = 10**12  # updates: no gradient is too old
NO_STATISTICS = "shared parameters have no running statistics (not tuned)"
UNNORMALIZED = {"normalize_observations": False, "normalize_returns": False}


def sums(values: Mapping[str, Any], given: Collection[str]) -> dict[str, Any]:
    """Gradients of the paper are sums over the steps of a rollout, and those of (y - Q)^2 are not halved."""
    return {"loss_scale": values["rollout_length"] * (1.0 if "value_coef" in values else 2.0)}


def share_of_memory(values: Mapping[str, Any], given: Collection[str]) -> dict[str, Any]:
    """All learners together keep as many steps as one of paac, and begin after as many."""
    count = max(1, values["hosts"] * values["learners"])
    return {name: max(1, values[name] // count) for name in ("buffer_size", "learning_starts") if name in values}


@options
class A3C:
    """`learners` actor-learners on each of `hosts` hosts, each with `num_envs` environments of its own, change shared
    parameters without a lock.

    A learner acts for a rollout with its copy of the parameters, applies the gradient to the shared ones, and copies
    them anew. Learners do not wait for each other. Those of a host are threads; several hosts are processes of one
    machine that map the same memory. With `shards`, the parameters live on a parameter server instead, and hosts may be
    on several machines."""

    hosts: int = option("Hosts, each one process; on one machine unless there are --shards.", 1, least=1, most=65_536)
    learners: int = option("Learners on each host, each a thread.", 4, least=1, most=65_536)
    num_envs: int = NUM_ENVS(4)
    env_workers: int = ENV_WORKERS(1)
    statistics: Statistics = option("Whether learners share what their optimizers accumulate.", "shared")
    shards: int = option(
        "Parts of a parameter server in place of shared memory, each a host; 0: none.", 0, least=0, most=65_536
    )

    def program(self, task: Task) -> Program:
        p = Program("a3c")
        hosts = ["machine"] if self.hosts == 1 else [f"host{h}" for h in range(self.hosts)]
        if self.hosts > 1 and not self.shards:
            task = replace(task, device="cpu")  # processes share host memory
        needs = {"cpus": self.learners * max(1, self.env_workers), "gpus": task.gpus}
        exchange = self._server(p, task) if self.shards else self._shared(p, hosts[0], needs)
        for host in hosts:
            with p.host(host, **needs):
                p.worker(act_and_learn, copies=self.learners, saved=True)(
                    task,
                    Replica(),
                    own_experience(task.algorithm),
                    exchange,
                    envs=Envs(self.num_envs, self.env_workers),
                )
        return p

    def _shared(self, p: Program, host: str, needs: Mapping[str, float]) -> Exchange:
        """Add the shared memory to this host."""
        name = secrets.token_hex(8) if self.hosts > 1 else ""
        if name:  # the launcher kills hosts: if a learner has never joined, nothing there removes the file
            atexit.register(remove, name)
        with p.host(host, **needs):
            service = p.service(SharedMemory, saved=True, on_restart=OnRestart.CHECKPOINT)
            return Shared(service(self.hosts * self.learners, name), self.statistics)

    def _server(self, p: Program, task: Task) -> Exchange:
        """Add a parameter server."""
        if self.statistics == "own":
            raise UserError("--statistics own: a parameter server (--shards) has one optimizer; leave it out")
        count = self.hosts * self.learners
        names = [copy_name(act_and_learn, rank, count) for rank in range(count)]
        return Server(share_server(p, task, names, shards=self.shards, max_delay=ANY_DELAY), holds=True)

    algorithms: ClassVar[tuple[str, ...]] = ("a2c", "nstep-q", "one-step-q", "sarsa")
    presets: ClassVar[tuple[Layer, ...]] = (
        Layer("small environments are stepped in the learner's process", {"env_workers": 0}, kind="not atari"),
        Layer(
            "tuned on Catch in the simulation: 1e-3 reaches 0.78 after 150,000 steps, 2e-3 fails with some seeds",
            {"learning_rate": 5e-4},
            kind="vector",
            beside=("a2c",),
        ),
        Layer(
            "tried on CartPole-v1 and Catch: small batches, so that there are many updates",
            {
                "num_envs": 2,
                "rollout_length": 8,
                "target_period": 50,
                "epsilon_end": 0.02,
            },
            kind="vector",
            beside=("nstep-q", "one-step-q", "sarsa"),
        ),
        Layer(
            "tried on CartPole-v1: with 5e-4 and rollouts of 4 steps sarsa reaches 64 in place of 427",
            {"learning_rate": 2e-3},
            kind="vector",
            beside=("one-step-q", "sarsa"),
        ),
        Layer("learners share out the replay memory", rules=(share_of_memory,), preset=None, beside=("dqn", "r2d2")),
        Layer(NO_STATISTICS, UNNORMALIZED, kind="continuous"),
        Layer(NO_STATISTICS, UNNORMALIZED, kind="continuous pixels"),
        Layer(
            "as published, for all four methods: 16 threads of one environment each, and the learning rate of the "
            "authors' e-mail; the paper drew rates from 1e-4 to 1e-2",
            {
                "steps": 80_000_000,
                "hosts": 1,
                "learners": 16,
                "num_envs": 1,
                "rollout_length": 5,
                "gamma": 0.99,
                "gae_lambda": 1.0,
                "value_coef": 0.25,  # of the reproductions with these rates; S3 has no weight
                "entropy_coef": 0.01,
                "target_period": 2_000,  # updates of 5 steps: 40,000 frames
                "exploration": "mixed",
                "epsilon_start": 1.0,
                "epsilon_steps": 1_000_000,
                "network": "nips",
                "input": "unit",
                "initialization": "uniform",
                "optimizer": "rmsprop-a3c",
                "decay": 0.99,
                "epsilon": 0.1,
                "learning_rate": 7e-4,
                "anneal_steps": 80_000_000,
                "final_fraction": 0.0,
                "max_grad_norm": 40.0,
            },
            (sums,),
            preset="paper",
            beside=algorithms,
        ),
    )
