"""A2C: synchronous actor-learners that average their gradients (OpenAI baselines 2017; Stooke and Abbeel 2018).

It learns with any algorithm that learns from its own experience: a2c, also ppo, nstep-q, pqn, and dqn with a replay
memory for each learner, which is Stooke and Abbeel's synchronous multi-learner DQN.

mean gradient            `AllReduce`: `Gradients` on each host, and between hosts `Group`, of which each owns a slice of
                         the vector
members of the group     `keep`, the clock of a host: a host that is silent is left out, one that comes back takes over
                         the state of the others
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any, ClassVar

from gossamer.architectures.options import ENV_WORKERS, NUM_ENVS
from gossamer.exchange import AllReduce, Between, Gradients, Group, Learners, keep
from gossamer.experience import own_experience
from gossamer.loops import Envs, act_and_learn
from gossamer.policy import Replica
from gossamer.presets.layers import Layer
from gossamer.presets.rules import minibatches_of
from gossamer.program import Program
from gossamer.system.options import option, options
from gossamer.task import Task


def share_of_a_learner(values: Mapping[str, Any], given: Collection[str]) -> dict[str, Any]:
    """All learners together have as many environments as paac, and with dqn a replay memory of the same size. So the
    mean gradient is that of one learner of paac, and its learning rate is right for it."""
    names = ("num_envs", "buffer_size", "learning_starts", "batch_size")
    return {name: max(1, values[name] // learners_of(values)) for name in names if name in values}


def shared_minibatches(values: Mapping[str, Any], given: Collection[str]) -> dict[str, Any]:
    """Minibatches of 256 steps of all learners together. Their gradients are averaged for each one."""
    return minibatches_of(values, max(16, 256 // learners_of(values)))


def learners_of(values: Mapping[str, Any]) -> int:
    """On all hosts; 1 where a value is still to be refused."""
    count: int = values["hosts"] * values["learners"]
    return max(1, count)


@options
class SynchronousA2C:
    """`learners` actor-learners on each of `hosts` hosts, each with its own `num_envs` environments. All learn at the
    same time from a rollout of their own, average their gradients, and take the same step.

    The mean gradient is that of one learner with all environments. A host that dies is left out, and the mean is that
    of the others; a host that comes back takes over their parameters, version and optimizer."""

    hosts: int = option("Hosts, each one process.", 1, least=1, most=4096)
    learners: int = option("Learners on each host, each a thread.", 2, least=1, most=1024)
    num_envs: int = NUM_ENVS(32)
    env_workers: int = ENV_WORKERS(1)

    def program(self, task: Task) -> Program:
        p = Program("a2c")
        needs = {"cpus": self.learners * max(1, self.env_workers), "gpus": task.gpus}
        groups = []
        for h in range(self.hosts if self.hosts > 1 else 0):
            with p.host(f"host{h}", **needs):
                groups.append(p.service(Group)(h, self.hosts))
        for h in range(self.hosts):
            with p.host(f"host{h}", **needs):
                gradients = p.service(Gradients)(self.learners, h * self.learners)
                between = Between(tuple(groups), h) if groups else None
                p.worker(act_and_learn, copies=self.learners, saved=True)(
                    replace(task, gpu=None),
                    Replica(),
                    own_experience(task.algorithm),
                    AllReduce(gradients, between=between),
                    envs=Envs(self.num_envs, self.env_workers),
                )
                if groups:
                    p.worker(keep)(groups, Learners.of(act_and_learn, self.hosts, self.learners), host=h)
        return p

    presets: ClassVar[tuple[Layer, ...]] = (
        Layer("small environments: by the learner's own process", {"env_workers": 0}, preset=None, kind="not atari"),
        Layer(
            "all together those of paac",
            {"num_envs": 16},
            kind="pixels",
            beside=("ppo", "appo", "vtrace", "nstep-q", "pqn"),
        ),
        Layer("all together those of paac", {"num_envs": 16}, kind="continuous", beside=("ppo", "appo")),
        Layer("all together those of paac", {"learning_rate": 2e-3}, kind="vector", beside=("a2c",)),
        Layer("all together those of paac", {"num_envs": 8}, kind="vector", beside=("nstep-q", "dqn")),
        Layer("all together those of paac", {"num_envs": 16}, kind="vector", beside=("pqn",)),
        Layer("minibatches of all learners together", rules=(shared_minibatches,), beside=("ppo", "appo")),
        Layer(
            "all learners together have as many environments as one of paac", rules=(share_of_a_learner,), preset=None
        ),
        Layer(
            "A2C as published: the settings of OpenAI baselines, with 16 environments in all",
            {
                "steps": 80_000_000,
                "rollout_length": 5,
                "num_envs": 16,
                "preprocessing": "gala",
                "gae_lambda": 1.0,
                "value_coef": 0.5,
                "entropy_coef": 0.01,
                "loss_scale": 1.0,
                "network": "nature",
                "input": "unit",
                "optimizer": "rmsprop-tf",
                "decay": 0.99,
                "epsilon": 1e-5,
                "learning_rate": 7e-4,
                "anneal_steps": 80_000_000,
                "final_fraction": 0.0,
                "max_grad_norm": 0.5,
            },
            preset="paper",
            beside=("a2c",),
        ),
    )
