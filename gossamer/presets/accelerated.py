"""The settings of "Accelerated Methods for Deep Reinforcement Learning" (Stooke and Abbeel 2018, arXiv 1803.02811): the
defaults and examples of the authors' code, accel_rl, for many environments on one machine.

They are the preset `accelerated` of three algorithms, in architectures with the paper's learners: synchronous (`a2c`)
and asynchronous (`a3c`, where each learner has these environments and batches). All have alternating groups of
environments, a lost life that ends the episode, pictures of half the screen's height and width (104x80 there), and a
constant learning rate. Losses are means, as here. A2C's learning rate was found with 64 environments: with others it
has to be tuned again."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from gossamer.presets.layers import Layer
from gossamer.presets.rules import minibatches_of

ON_POLICY = ("paac", "a2c", "a3c")  # architectures
WITH_REPLAY = ("paac", "a2c", "a3c", "dqn")
MINIBATCH = 512  # steps, of PPO
TARGET_STEPS = 10_000  # environment steps between two copies to the target network
FEWEST_ENVS = 32
_COMMON = {
    "steps": 10_000_000,
    "alternating": True,
    "preprocessing": "impala",
    "screen_size": 105,
    "screen_width": 80,
    "input": "unit",
    "anneal_steps": 0,
    "final_fraction": 1.0,
}
_NO_CLIP = 1e9


def large_minibatches(values: Mapping[str, Any], given: Collection[str]) -> dict[str, Any]:
    """Minibatches of 512 steps of all learners that average their gradients, for any number of environments."""
    return minibatches_of(values, MINIBATCH // _averaging(values))


def sizes_of_batch(values: Mapping[str, Any], given: Collection[str]) -> dict[str, Any]:
    """With batches of 32 to 2,048 samples of all learners that average their gradients: environments whose rollouts owe
    one batch or more, and a target network that is copied as often as with any other batch."""
    learners = _averaging(values)
    uses, batch = values["samples_per_insert"], values["batch_size"] * learners
    return {
        "num_envs": max(FEWEST_ENVS, int(batch / (uses * values["rollout_length"]))) // learners,
        "target_period": max(1, int(TARGET_STEPS * uses / batch)),
    }


def _averaging(values: Mapping[str, Any]) -> int:
    """Learners whose gradients are averaged; those of `a3c` are not."""
    return 1 if "statistics" in values else int(values.get("hosts", 1) * values.get("learners", 1))


A2C = Layer(
    "accelerated A2C: 64 environments, Lasagne's RMSProp",
    {
        **_COMMON,
        "num_envs": 64,
        "rollout_length": 5,
        "gamma": 0.99,
        "gae_lambda": 1.0,
        "value_coef": 0.25,
        "entropy_coef": 0.01,
        "loss_scale": 1.0,
        "network": "nips",
        "optimizer": "rmsprop-a3c",
        "decay": 0.9,
        "epsilon": 1e-6,
        "learning_rate": 7e-4,
        "max_grad_norm": 0.5,
    },
    preset="accelerated",
    beside=ON_POLICY,
)
PPO = Layer(
    "accelerated PPO: minibatches of 512 steps; the number of environments is not published",
    {
        **_COMMON,
        "num_envs": 512,
        "rollout_length": 5,
        "gamma": 0.99,
        "gae_lambda": 0.95,
        "value_coef": 1.0,
        "entropy_coef": 0.01,
        "clip_range": 0.2,
        "epochs": 4,
        "normalize_advantage": False,
        "network": "nips",
        "optimizer": "adam",
        "epsilon": 1e-5,
        "learning_rate": 1e-3,
        "max_grad_norm": _NO_CLIP,
    },
    (large_minibatches,),
    preset="accelerated",
    beside=ON_POLICY,
)
DQN = Layer(
    "accelerated DQN: 32 or more environments, 8 uses of each step, Lasagne's RMSProp",
    {
        **_COMMON,
        "rollout_length": 4,
        "gamma": 0.99,
        "n_step": 1,
        "double": False,
        "dueling": False,
        "huber": True,
        "exploration": "schedule",
        "epsilon_start": 1.0,
        "epsilon_end": 0.1,
        "epsilon_steps": 1_000_000,
        "buffer_size": 1_000_000,
        "batch_size": 32,
        "samples_per_insert": 8.0,
        "learning_starts": 50_000,
        "network": "nature",
        "optimizer": "rmsprop-a3c",
        "decay": 0.95,
        "epsilon": 1e-6,
        "learning_rate": 2.5e-4,
        "max_grad_norm": _NO_CLIP,
    },
    (sizes_of_batch,),
    preset="accelerated",
    beside=WITH_REPLAY,
)
