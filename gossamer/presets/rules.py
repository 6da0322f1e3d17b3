"""Rules of presets: options that follow from others. Several parts share these."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from gossamer.system.processes import cores

FEWEST_ENVS = 4  # of an actor, where the number of actors is not given: smaller batches make inference slow


def long_rollouts_with_memory(values: Mapping[str, Any], given: Collection[str]) -> dict[str, Any]:
    """Gradients flow back to the start of a rollout: what must be remembered has to lie within it."""
    return {} if values["memory"] == "none" else {"rollout_length": 32}


def returns_with_memory(values: Mapping[str, Any], given: Collection[str]) -> dict[str, Any]:
    """Values of long episodes are large. Their gradient would drown the policy's in the memory that they share."""
    return {"normalize_returns": values["memory"] != "none"}


def returns_of_games(values: Mapping[str, Any], given: Collection[str]) -> dict[str, Any]:
    """Returns of games differ in scale: the largest would drown the others in the network that they share. Not where
    learners with common parameters could not have the statistics. Action values have another scale in place of
    statistics, unless rewards are clipped."""
    if "rescale_values" in values:
        return {"rescale_values": not values.get("clip_rewards", False)}
    shared = "statistics" in values or several_trainers(values)
    return {"normalize_returns": True} if "value_coef" in values and not shared else {}


def several_trainers(values: Mapping[str, Any]) -> bool:
    """Whether trainers of GA3C share parameters: those given, or those that its adjustment may add."""
    most: int = values["most"] if values.get("adjust_seconds") else 1
    return bool(values.get("trainers", 1) * most > 1)


def no_statistics_of_trainers(values: Mapping[str, Any], given: Collection[str]) -> dict[str, Any]:
    """Shared parameters have no running statistics."""
    return {"normalize_observations": False, "normalize_returns": False} if several_trainers(values) else {}


def critic_without_memory(values: Mapping[str, Any], given: Collection[str]) -> dict[str, Any]:
    """The value has a torso of its own, unless both heads share a memory."""
    return {"separate_critic": values["memory"] == "none"}


def no_convolutions(values: Mapping[str, Any], given: Collection[str]) -> dict[str, Any]:
    """Vectors need another network than the pictures of most papers."""
    return {} if values["network"] in ("linear", "tiles") else {"network": "mlp"}


def small_minibatches(values: Mapping[str, Any], given: Collection[str]) -> dict[str, Any]:
    """Minibatches of 256 steps, however many environments a learner has."""
    return minibatches_of(values, 256)


def minibatches_of(values: Mapping[str, Any], steps: int) -> dict[str, Any]:
    """The number of minibatches of so many steps; nothing if there are no minibatches or environments."""
    if not {"num_minibatches", "num_envs"} <= values.keys():
        return {}
    return {"num_minibatches": max(1, batch_envs(values) * values["rollout_length"] // steps)}


def whole_sequences(values: Mapping[str, Any], given: Collection[str]) -> dict[str, Any]:
    """With memory, a minibatch consists of the rollouts of one or more environments, by default of two or more."""
    if values["memory"] == "none" or not {"num_minibatches", "num_envs"} <= values.keys():
        return {}
    return {"num_minibatches": min(values["num_minibatches"], max(1, batch_envs(values) // 2))}


def batch_envs(values: Mapping[str, Any]) -> int:
    """The environments whose rollouts form a learner's batch.

    With a queue, --num-envs is that of a host's actors, who work for all learners. A batch has a rollout of each actor
    of a learner, or --batch-rollouts of them."""
    envs: int = values["num_envs"]
    if not {"batch_rollouts", "learners", "hosts", "actors"} <= values.keys():
        return envs
    learners = max(1, values["learners"])
    hosts = max(1, values["hosts"] // max(1, values.get("learner_hosts", 1)))
    actors: int = values["actors"] or actors_for(envs, learners, cores())
    rollouts: int = values["batch_rollouts"] or hosts * actors
    each: int = max(1, envs // (learners * actors))
    return each * rollouts


def actors_for(num_envs: int, learners: int, cores: int) -> int:
    """The number of actors of each learner on a machine with so many cores: it divides the learner's environments."""
    envs = num_envs // learners
    most = max(1, min(cores // learners - 1, envs // FEWEST_ENVS))
    return next(actors for actors in range(most, 0, -1) if envs % actors == 0 or actors == 1)
