"""Presets that every architecture that gossips has."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from typing import Any

from gossamer.exchange.gossip.options import follow
from gossamer.presets.layers import Layer
from gossamer.presets.rules import minibatches_of


def sqrt_of_learners(values: Mapping[str, Any], given: Collection[str]) -> dict[str, Any]:
    """One learner's learning rate times the square root of the number of learners (as in GALA's code).

    Adam and RMSProp divide by the size of a learner's own gradients, which is mostly noise. n learners with 1/n of the
    environments each have sqrt(n) times the noise. At one learner's rate their average would move less by that factor.
    """
    return {"learning_rate": values["learning_rate"] * math.sqrt(values.get("hosts", 1) * values["learners"])}


def shared_minibatches(values: Mapping[str, Any], given: Collection[str]) -> dict[str, Any]:
    """Minibatches of 256 steps of all gossiping learners together, at least 64 of each.

    The average of n learners has the noise of a minibatch n times as large."""
    return minibatches_of(values, max(64, 256 // (values.get("hosts", 1) * values["learners"])))


GOSSIP = (
    Layer("what follows from --sync and --staleness", rules=(follow,), preset=None),
    Layer("small environments are stepped in the learner's process", {"env_workers": 0}, preset=None, kind="not atari"),
    Layer("one learner's rate times the square root of the number of learners", rules=(sqrt_of_learners,)),
    Layer(
        "tuned on Catch: 3e-3 with four learners; 2e-3 is too slow for 150,000 steps, 4e-3 fails with some seeds",
        {"learning_rate": 1.5e-3},
        kind="vector",
        beside=("a2c",),
    ),
    Layer(
        "tried on Hopper-v5: four learners have 2,048 steps between updates together, and a rate of 1e-3",
        {"num_envs": 4, "learning_rate": 5e-4},
        (shared_minibatches,),
        kind="continuous",
        beside=("ppo", "appo"),
    ),
)
PUBLISHED = {  # in the code of GALA and of PALA
    "steps": 40_000_000,
    "preprocessing": "gala",
    "gae_lambda": 1.0,
    "value_coef": 0.5,
    "entropy_coef": 0.01,
    "network": "nature",
    "input": "unit",
    "optimizer": "rmsprop-torch",
    "decay": 0.99,
    "epsilon": 1e-5,
    "learning_rate": 0.0007,
    "anneal_steps": 0,
    "final_fraction": 1.0,
    "max_grad_norm": 0.5,
}
