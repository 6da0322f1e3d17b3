"""APPO: IMPALA with asynchronous PPO, reuse and replay ("Accelerating Distributed Deep Reinforcement Learning", 2019).

Components of the paper and their implementation:

asynchronous PPO loss    `algorithms.appo`, the default algorithm here
distributed replay       `replay_share`, `reuse`: old trajectories in each batch, several passes over each batch
parallel data loading    actors fill the columns of the next batches in place while the learner trains (`experience`);
                         `parallel_loading`: a worker assembles what has to be copied
"""

from __future__ import annotations

from typing import Any

from gossamer.architectures.impala import IMPALA, impala
from gossamer.experience import options as shared
from gossamer.options import option, options
from gossamer.program import Program
from gossamer.task import Task


def appo(task: Task, *, actors: int = 2, num_envs: int = 16, env_workers: int = 1, **options: Any) -> Program:
    """Actors and learners as in `impala`. By default the algorithm is asynchronous PPO; `reuse` and `replay_share` use
    each batch several times and add old trajectories to it. `options` are those of `impala`."""
    return impala(task, actors=actors, num_envs=num_envs, env_workers=env_workers, name="appo", **options)


@options
class APPO(IMPALA):
    """Options of APPO: those of IMPALA."""

    num_envs: int = option(shared.NUM_ENVS, 16, least=1, most=16_384)
    env_workers: int = option(shared.ENV_WORKERS, 1, least=0, most=1024)  # on two cores more take time from the learner

    def program(self, task: Task) -> Program:
        return appo(task, **shared.arguments(self, task))
