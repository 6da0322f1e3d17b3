"""A2C: synchronous actor-learners that average their gradients (Wu et al. 2017, section 5; OpenAI baselines).

On several hosts it is the synchronous data-parallel learner of Stooke and Abbeel 2018 (section 3.1), with any algorithm
that learns from its own experience: also ppo, nstep-q, pqn, and dqn with a replay memory for each learner.

mean gradient            `AllReduce`: `Gradients` on each host, and between hosts `Group`, of which each owns a slice of
                         the vector
members of the group     `keep`, the clock of a host: a host that is silent is left out, one that comes back takes over
                         the state of the others
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from gossamer.architectures.options import ENV_WORKERS, NUM_ENVS
from gossamer.exchange import AllReduce, Between, Gradients, Group, keep
from gossamer.experience import own_experience
from gossamer.loops import Envs, act_and_learn
from gossamer.policy import Replica
from gossamer.program import Program
from gossamer.system.options import option, options
from gossamer.task import Task


def share_of_a_learner(values: Mapping[str, Any], given: Collection[str]) -> dict[str, Any]:
    """All learners together have as many environments as paac, and with dqn a replay memory of the same size."""
    names = ("num_envs", "buffer_size", "learning_starts")
    count = values["hosts"] * values["learners"]
    return {name: max(1, values[name] // count) for name in names if name in values}


@options
class SynchronousA2C:
    """`learners` actor-learners on each of `hosts` hosts, each with its own `num_envs` environments. All learn at the
    same time from a rollout of their own, average their gradients, and take the same step.

    The mean gradient is that of one learner with all environments. A host that dies is left out, and the mean is that
    of the others; a host that comes back takes over their parameters, version and optimizer."""

    hosts: int = option("Hosts, each one process.", 1, least=1, most=4096)
    learners: int = option("Learners on each host, each a thread.", 2, least=1, most=1024)
    num_envs: int = NUM_ENVS(16)
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
                    task,
                    Replica(),
                    own_experience(task.algorithm),
                    AllReduce(gradients, between=between),
                    envs=Envs(self.num_envs, self.env_workers),
                )
                if groups:
                    p.worker(keep)(groups, h, loop=act_and_learn, learners=self.learners, hosts=self.hosts)
        return p
