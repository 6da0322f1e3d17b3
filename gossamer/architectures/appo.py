"""APPO: IMPALA with asynchronous PPO, reuse and replay ("Accelerating Distributed Deep Reinforcement Learning", 2019).

Components of the paper and their implementation:

asynchronous PPO loss    `algorithms.appo`, the default algorithm here
distributed replay       `replay_share`: old trajectories in each batch, kept by each of `hosts`, or without these by
                         the learner; `reuse`: several passes over each batch
parallel data loading    actors fill the columns of the next batches in place while the learner trains (`experience`);
                         `parallel_loading`: a worker assembles what has to be copied
"""

from __future__ import annotations

from typing import ClassVar

from gossamer.architectures.impala import IMPALA, LOADING
from gossamer.experience.queue import options as shared
from gossamer.presets.layers import Layer
from gossamer.system.options import options


@options
class APPO(IMPALA):
    """Actors and learners as in `IMPALA`. By default the algorithm is asynchronous PPO; `reuse` and `replay_share` use
    each batch several times and add old trajectories to it."""

    num_envs: int = shared.NUM_ENVS(16)
    env_workers: int = shared.ENV_WORKERS(1)  # on two cores more take time from the learner

    algorithms: ClassVar[tuple[str, ...]] = ("appo", "vtrace")
    presets: ClassVar[tuple[Layer, ...]] = (
        LOADING,
        Layer(
            "small environments are stepped in the actor's process", {"env_workers": 0}, preset=None, kind="not atari"
        ),
        Layer(
            "the settings of the authors' code for Pong: 42x42 pictures, auto-encoder, two passes over batches of 750 "
            "steps; its gradient clip of 10 is for sums over these steps",
            {
                "steps": 5_000_000,
                "rollout_length": 50,
                "screen_size": 42,
                "num_envs": 15,
                "reuse": 2,
                "depth": 5,
                "gae_lambda": 1.0,
                "value_coef": 1.0,
                "entropy_coef": 0.01,
                "clip_range": 0.3,
                "epochs": 1,
                "num_minibatches": 1,
                "surrogate": "behaviour",
                "network": "autoencoder",
                "input": "unit",
                "optimizer": "adam",
                "epsilon": 1e-8,
                "learning_rate": 5e-4,
                "anneal_steps": 0,
                "final_fraction": 1.0,
                "max_grad_norm": 10 / 750,
            },
            preset="paper",
            beside=("appo",),
        ),
    )
