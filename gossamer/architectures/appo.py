"""APPO: IMPALA with asynchronous PPO, reuse and replay ("Accelerating Distributed Deep Reinforcement Learning", 2019).

Components of the paper and their implementation:

asynchronous PPO loss    `algorithms.appo`, the default algorithm here
distributed replay       `replay_share`, `reuse`: old trajectories in each batch, several passes over each batch
parallel data loading    actors fill the columns of the next batches in place while the learner trains (`experience`);
                         `parallel_loading`: a worker assembles what has to be copied
"""

from __future__ import annotations

from gossamer.architectures.impala import IMPALA
from gossamer.experience import options as shared
from gossamer.options import options


@options
class APPO(IMPALA):
    """Actors and learners as in `IMPALA`. By default the algorithm is asynchronous PPO; `reuse` and `replay_share` use
    each batch several times and add old trajectories to it."""

    num_envs: int = shared.NUM_ENVS(16)
    env_workers: int = shared.ENV_WORKERS(1)  # on two cores more take time from the learner
