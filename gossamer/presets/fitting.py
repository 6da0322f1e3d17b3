"""Sizes that fit a machine: environments, actors and threads for its cores, rollouts and a learning rate for so many
environments.

The presets are tuned on two cores with few environments. More of them keep more cores and a GPU busy, but change what
an update sees. With k times the environments:

rollout length   T / k^(3/4), but at least 5 steps, or T if it is shorter. A batch has k^(1/4) times the samples
minibatches      as large as tuned; so there are more of them, and as many gradient steps for each sample
learning rate    as tuned. Without minibatches, in proportion to the batch (as in PAAC's code, 0.0007 for each
                 environment, and Goyal et al. 2017, "Accurate, Large Minibatch SGD", section 2.1)

Large batches cost samples (McCandlish et al. 2018, "An Empirical Model of Large-Batch Training", section 2.3), so a
batch at most doubles. Short rollouts make biased returns. The exponent and the rate were tried on Catch and CartPole-v1
(docs/options.md). With a memory the rollout keeps its length, since gradients flow back to its start."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from gossamer.system.options import flag
from gossamer.system.resources import Resources

TUNED_CORES = 2
MOST_ENVS = 128  # of a machine: with 256 the toys need 1.5 times the steps
MOST_GROWTH = 2.0  # of a batch
EXPONENT = 0.75  # of the rollout length
SHORTEST = 5  # steps of a rollout
GPU_SHARE = 0.5  # of its memory, for minibatches

# Options whose tuned values are right for few environments on two cores
SIZES = ("num_envs", "rollout_length", "num_minibatches", "learning_rate", "actors", "env_workers")
# Outputs of all layers for a picture, as a multiple of its pixels; `auto` is nips or small
FLOATS_PER_PIXEL = {"nips": 3, "nature": 7, "auto": 13, "small": 13, "autoencoder": 13, "tiny": 129, "resnet": 90}
UNKNOWN_NETWORK = 90  # a user's


@dataclass(frozen=True)
class Shares:
    """How cores are shared out."""

    envs_per_core: int
    envs_per_core_of_actors: int  # apart from the learner
    cores_per_actor: int  # of a learner's
    most_actors: int  # of a learner
    busy_learners: bool  # whether learners need cores of their own


CPU = Shares(envs_per_core=4, envs_per_core_of_actors=4, cores_per_actor=4, most_actors=2, busy_learners=True)
# A GPU evaluates large batches: few actors with many environments each, whose environments step in turn. On an H200
# with 16 cores APPO's actors were as fast with 64 environments as with 128, which need more steps (docs/gpu.md)
BESIDE_GPU = Shares(envs_per_core=8, envs_per_core_of_actors=4, cores_per_actor=2, most_actors=4, busy_learners=False)


def fit(
    tuned: Mapping[str, Any], values: Mapping[str, Any], given: Collection[str], machine: Resources
) -> dict[str, Any]:
    """The options that differ from `values`, which have those that were `given`. `tuned`: the values without any given
    size. Nothing on two cores, unless more environments than the tuned number were given."""
    shares, found = _shares(values, machine), dict(values)
    if machine.cores > TUNED_CORES and "num_envs" not in given:
        found["num_envs"], _ = _envs(tuned, values, given, machine, shares)
    if found["num_envs"] > tuned["num_envs"]:
        found |= _for_envs(tuned, found, given)
    if machine.cores > TUNED_CORES and not _elsewhere(values):
        found |= _workers(found, machine.cores, shares)
    return {name: value for name, value in found.items() if name not in given and value != values[name]}


def told(tuned: Mapping[str, Any], values: Mapping[str, Any], given: Collection[str], machine: Resources) -> str:
    """What was chosen, and for what, in one line. `values`: with what `fit` chose."""
    changed = [name for name in SIZES if name in tuned and values[name] != tuned[name]]
    chosen = [f"{flag(name)} {values[name]} ({tuned[name]})" for name in changed if name not in given]
    if not chosen:
        return f"sizes for {machine}: as tuned on two cores"
    own = "".join(f", {flag(name)} {values[name]}" for name in changed if name in given)
    why = ""
    if machine.cores > TUNED_CORES and "num_envs" not in given:
        _, limit = _envs(tuned, values, given, machine, _shares(values, machine))
        why = f"; no more environments: {limit}"
    return f"sizes for {machine}{own}: {', '.join(chosen)}; in brackets: as tuned on two cores{why}"


def scaled_rollout(length: int, growth: float) -> int:
    """The rollout length with `growth` times the environments."""
    return max(min(length, SHORTEST), int(length / growth**EXPONENT))


def minibatch_bytes(values: Mapping[str, Any]) -> int:
    """Memory for the outputs of all layers and their gradients in a minibatch, float32."""
    height = values.get("screen_size", 0)
    pixels = height * (values.get("screen_width") or height)
    floats = FLOATS_PER_PIXEL.get(values["network"], UNKNOWN_NETWORK) + values.get("frame_stack", 0)
    return int(_minibatch(values) * pixels * floats * 2 * 4)


def _shares(values: Mapping[str, Any], machine: Resources) -> Shares:
    return BESIDE_GPU if machine.gpu_memory and not _elsewhere(values) else CPU


def _envs(
    tuned: Mapping[str, Any], values: Mapping[str, Any], given: Collection[str], machine: Resources, shares: Shares
) -> tuple[int, str]:
    """The number of environments that suits the cores, and the reason why it is not larger. It is the tuned number
    times a power of two, while batches stay in bounds."""
    sharing = _sharing(values)
    per_core = shares.envs_per_core_of_actors if "actors" in values else shares.envs_per_core
    most = min(MOST_ENVS, per_core * machine.cores) // sharing
    limit = "learning would need more steps" if most * sharing == MOST_ENVS else f"{per_core} keep a core busy"
    envs = int(tuned["num_envs"])
    while 2 * envs <= most:
        after = {**values, "num_envs": 2 * envs}
        after |= {name: value for name, value in _for_envs(tuned, after, given).items() if name not in given}
        if _batch(after) > MOST_GROWTH * _batch(tuned):
            return envs, "batches would more than double"
        if machine.gpu_memory and minibatch_bytes(after) * sharing > GPU_SHARE * machine.gpu_memory:
            return envs, "the GPU's memory"
        envs *= 2
    return envs, limit


def _for_envs(tuned: Mapping[str, Any], values: Mapping[str, Any], given: Collection[str]) -> dict[str, Any]:
    """Rollout length, minibatches and learning rate for these environments, which are more than the tuned ones."""
    found: dict[str, Any] = {}
    if tuned["memory"] == "none" and "rollout_length" not in given:
        found["rollout_length"] = scaled_rollout(tuned["rollout_length"], values["num_envs"] / tuned["num_envs"])
    if "num_minibatches" in tuned and "num_minibatches" not in given:
        found["num_minibatches"] = max(1, round(_batch({**values, **found}) / _minibatch(tuned)))
    if "num_minibatches" not in tuned:
        growth = _batch({**values, **found}) / _batch(tuned)
        found["learning_rate"] = float(f"{tuned['learning_rate'] * min(MOST_GROWTH, max(1.0, growth)):.3g}")
    return found


def _workers(values: Mapping[str, Any], cores: int, shares: Shares) -> dict[str, Any]:
    """Actors, and the threads that step their environments."""
    learners = max(1, values.get("learners", 1))
    if "agents" in values:
        busy = values["predictors"] + values["trainers"] if shares.busy_learners else 0
        return {"env_workers": max(1, cores // (values["agents"] + busy))}
    if "actors" in values:
        actors = values["actors"] or _actors(values["num_envs"] // learners, cores // learners, shares)
        threads = cores // (learners * (actors + shares.busy_learners))
        return {"actors": actors, "env_workers": max(1, threads)}
    if "learners" in values:  # each with environments of its own
        return {"env_workers": max(1, cores // _sharing(values))}
    return {}  # PAAC's environments have a thread on each core


def _actors(num_envs: int, cores: int, shares: Shares) -> int:
    """Of one learner. Their number divides its environments."""
    most = max(1, min(shares.most_actors, cores // shares.cores_per_actor, num_envs))
    return next(actors for actors in range(most, 0, -1) if num_envs % actors == 0)


def _elsewhere(values: Mapping[str, Any]) -> bool:
    """Whether actors are on hosts of their own, whose cores are not known here."""
    return "actors" in values and values["hosts"] > 0


def _sharing(values: Mapping[str, Any]) -> int:
    """How many times this machine has `num_envs`: of each learner, or of each host's actors."""
    hosts: int = max(1, values.get("hosts", 1))
    learners: int = 1 if "actors" in values else max(1, values.get("learners", 1))
    return hosts * learners


def _batch(values: Mapping[str, Any]) -> int:
    """Samples that an update sees."""
    return int(values["num_envs"] * values["rollout_length"])


def _minibatch(values: Mapping[str, Any]) -> float:
    """Samples of a gradient step."""
    return _batch(values) / max(1, int(values.get("num_minibatches", 1)))
