"""What presets consist of: layers of options with their sources, and rules that derive options from others."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from gossamer.experience.options import actors_for
from gossamer.processes import cores

Kind: TypeAlias = Literal["pixels", "vector", "continuous"]  # pictures; else vectors, with continuous actions or not
# (values of all options so far, names of those that the user gave) -> options derived from them
Rule: TypeAlias = Callable[[Mapping[str, Any], Collection[str]], dict[str, Any]]


@dataclass(frozen=True)
class Layer:
    """Parts with some of their options, one line on the source, and rules that derive options from others."""

    why: str
    parts: tuple[Any, ...] = ()
    rules: tuple[Rule, ...] = ()


def sqrt_of_learners(values: Mapping[str, Any], given: Collection[str]) -> dict[str, Any]:
    """One learner's learning rate times the square root of the number of learners (as in GALA's code).

    Adam and RMSProp divide by the size of a learner's own gradients, which is mostly noise. n learners with 1/n of the
    environments each have sqrt(n) times the noise. At one learner's rate their average would move less by that factor.
    """
    return {"learning_rate": values["learning_rate"] * math.sqrt(values.get("hosts", 1) * values["learners"])}


def returns_with_memory(values: Mapping[str, Any], given: Collection[str]) -> dict[str, Any]:
    """Values of long episodes are large. Their gradient would drown the policy's in the memory that they share."""
    return {"normalize_returns": values["memory"] != "none"}


def long_rollouts_with_memory(values: Mapping[str, Any], given: Collection[str]) -> dict[str, Any]:
    """Gradients flow back to the start of a rollout: what must be remembered has to lie within it."""
    return {} if values["memory"] == "none" else {"rollout_length": 32}


def large_steps_with_memory(values: Mapping[str, Any], given: Collection[str]) -> dict[str, Any]:
    """Tuned on Recall, which A2C then learns within 200,000 steps (0.98 or more with three seeds): long rollouts of one
    pass make few updates. With a rate of 3e-3 or a lambda of 0.9 returns stay at chance with some seeds."""
    return {} if values["memory"] == "none" else {"num_envs": 16, "learning_rate": 5e-3, "gae_lambda": 1.0}


def small_steps_with_memory(values: Mapping[str, Any], given: Collection[str]) -> dict[str, Any]:
    """Tuned on Pong with an LSTM and single frames. At the rate of networks without memory, 1e-3, each update moves the
    policy too far (a KL of 0.09), and returns stop growing at -5. The schedule is the one that it was tuned with."""
    if values["memory"] == "none":
        return {}
    schedule = {"anneal_from": 0.0, "final_fraction": 0.1, "entropy_final_fraction": 1.0}
    return {"learning_rate": 4e-4, "entropy_coef": 0.02, "epochs": 4, "num_minibatches": 4, **schedule}


def small_minibatches(values: Mapping[str, Any], given: Collection[str]) -> dict[str, Any]:
    """Minibatches of 256 steps, however many environments a learner has."""
    return _minibatches(values, 256)


def shared_minibatches(values: Mapping[str, Any], given: Collection[str]) -> dict[str, Any]:
    """Minibatches of 256 steps of all gossiping learners together, at least 64 of each.

    The average of n learners has the noise of a minibatch n times as large."""
    return _minibatches(values, max(64, 256 // (values.get("hosts", 1) * values["learners"])))


def _minibatches(values: Mapping[str, Any], steps: int) -> dict[str, Any]:
    if not {"num_minibatches", "num_envs"} <= values.keys():
        return {}
    return {"num_minibatches": max(1, batch_envs(values) * values["rollout_length"] // steps)}


def batch_envs(values: Mapping[str, Any]) -> int:
    """The environments whose rollouts form a learner's batch.

    With a queue, --num-envs is that of a host's actors, who work for all learners. A batch has a rollout of each actor
    of a learner, or --batch-rollouts of them."""
    envs: int = values["num_envs"]
    if not {"batch_rollouts", "learners", "hosts", "actors"} <= values.keys():
        return envs
    learners, hosts = max(1, values["learners"]), max(1, values["hosts"])
    actors: int = values["actors"] or actors_for(envs, learners, cores())
    rollouts: int = values["batch_rollouts"] or hosts * actors
    each: int = max(1, envs // (learners * actors))
    return each * rollouts


def loading_in_parallel(values: Mapping[str, Any], given: Collection[str]) -> dict[str, Any]:
    """A worker assembles batches where something has to be copied: old trajectories, or rollouts of other hosts. With
    --depth 1 the learner would wait for it."""
    return {"parallel_loading": bool(values["replay_share"] or values["hosts"]) and values["depth"] > 1}


def whole_sequences(values: Mapping[str, Any], given: Collection[str]) -> dict[str, Any]:
    """With memory, a minibatch consists of the rollouts of one or more environments, by default of two or more."""
    if values["memory"] == "none" or not {"num_minibatches", "num_envs"} <= values.keys():
        return {}
    return {"num_minibatches": min(values["num_minibatches"], max(1, batch_envs(values) // 2))}


def critic_without_memory(values: Mapping[str, Any], given: Collection[str]) -> dict[str, Any]:
    """The value has a torso of its own, unless both heads share a memory."""
    return {"separate_critic": values["memory"] == "none"}
