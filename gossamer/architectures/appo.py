"""APPO: IMPALA with asynchronous PPO, reuse and replay ("Accelerating Distributed Deep Reinforcement Learning", 2019).

Components of the paper and their implementation:

asynchronous PPO loss    `algorithms.appo`, the default algorithm here
distributed replay       `replay_share`, `reuse`: old trajectories in each batch, several passes over each batch
parallel data loading    actors fill the columns of the next batches in place while the learner trains (`experience`)
"""

from __future__ import annotations

from typing import Any

from gossamer.architectures.impala import impala
from gossamer.envs.base import cores
from gossamer.experience import options as shared
from gossamer.loops import ENV_WORKERS
from gossamer.options import option, options
from gossamer.program import Program
from gossamer.task import Task


def appo(task: Task, *, actors: int = 2, num_envs: int = 16, **options: Any) -> Program:
    """Actors and learners as in `impala`. By default the algorithm is asynchronous PPO; `reuse` and `replay_share` use
    each batch several times and add old trajectories to it. `options` are those of `impala`."""
    return impala(task, actors=actors, num_envs=num_envs, name="appo", **options)


@options
class APPO:
    """Options of APPO."""

    hosts: int = option(shared.HOSTS, 0, least=0, most=1024)
    learners: int = option(shared.LEARNERS, 1, least=1, most=1024)
    actors: int = option(shared.ACTORS, 0, least=0, most=1024)
    num_envs: int = option(shared.NUM_ENVS, 16, least=1, most=16_384)
    env_workers: int = option(ENV_WORKERS, 1, least=0, most=1024)
    batch_rollouts: int = option(shared.BATCH_ROLLOUTS, 0, least=0, most=16_384)
    depth: int = option(shared.DEPTH, 2, least=1, most=1024, measure="batches")
    reuse: int = option(shared.REUSE, 1, least=1, most=1000)
    replay_share: float = option(shared.REPLAY_SHARE, 0.0, least=0, below=1)
    replay_size: int = option(shared.REPLAY_SIZE, 1000, least=1, most=10**7, measure="trajectories")

    def program(self, task: Task) -> Program:
        shared.check(self, task.algorithm)
        chosen = {name: getattr(self, name) for name in shared.NAMES}
        chosen["actors"] = self.actors or shared.actors_for(self.num_envs, self.learners, cores())
        return appo(task, gpus=task.gpus, **chosen)
