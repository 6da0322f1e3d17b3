"""Defaults of options that the user does not set, with their sources: the architecture's paper, or our tuning.

A layer is a set of parts; only the options written out in it count. Later layers override earlier ones: the defaults of
the dataclasses, the kind of environment, the architecture, the algorithm on that kind, both together, the paper."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from gossamer.algorithms import A2C, PPO, AsyncPPO, VTrace
from gossamer.architectures import APPO, GALA, IMPALA, PAAC, PALA
from gossamer.config.config import OptimizationOptions, RunOptions
from gossamer.config.layers import (
    Layer,
    critic_without_memory,
    large_steps_with_memory,
    loading_in_parallel,
    long_rollouts_with_memory,
    returns_with_memory,
    shared_minibatches,
    small_minibatches,
    small_steps_with_memory,
    sqrt_of_learners,
    whole_sequences,
)
from gossamer.config.papers import PAPERS
from gossamer.config.probe import Probe
from gossamer.envs.options import AleOptions, AtariOptions
from gossamer.errors import UserError
from gossamer.exchange.gossip.options import follow
from gossamer.networks import NetworkOptions
from gossamer.optim import Adam
from gossamer.options import given


def _asynchronous(layer: Layer, kind: str, *more: Any) -> Layer:
    """PPO's layer for asynchronous PPO, which has all of its options. `more`: parts that change some of them."""
    parts = tuple(AsyncPPO(**given(part)) if isinstance(part, PPO) else part for part in layer.parts)
    return Layer(f"the settings of PPO on {kind}", (*parts, *more), layer.rules)


PIXELS = Layer("pictures", (NetworkOptions(torso="auto", input="background"), Adam(epsilon=1e-5)))
VECTOR = Layer(
    "small vectors: one thread, because more would only wait for each other",
    (NetworkOptions(torso="auto", input="raw"), RunOptions(steps=200_000, threads=1), Adam(epsilon=1e-5)),
)
_PICTURES_42 = (AtariOptions("", screen_size=42), AleOptions("", screen_size=42))
PPO_PIXELS = Layer(
    "tuned on Pong: 42x42 pictures centred on their background, a small network, small minibatches",
    (
        *_PICTURES_42,
        RunOptions(rollout_length=50),
        PPO(
            gae_lambda=0.95,
            value_coef=1.0,
            entropy_coef=0.03,
            clip_range=0.3,
            epochs=3,
            num_minibatches=8,
            normalize_advantage=True,
        ),
        OptimizationOptions(learning_rate=1e-3, final_fraction=0.1, max_grad_norm=10.0),
    ),
    (small_steps_with_memory,),
)
PPO_VECTOR = Layer(
    "tuned on Catch and CartPole-v1: short rollouts, four passes",
    (
        RunOptions(rollout_length=32),
        PPO(
            gamma=0.98,
            gae_lambda=0.9,
            value_coef=0.1,
            entropy_coef=0.01,
            clip_range=0.2,
            epochs=4,
            num_minibatches=4,
            normalize_advantage=True,
        ),
        OptimizationOptions(learning_rate=1e-3, final_fraction=0.1, max_grad_norm=0.5),
    ),
    (returns_with_memory,),
)
A2C_PIXELS = Layer(
    "tuned on Pong: PAAC's network and rollout, pictures centred on their background, Adam instead of RMSProp",
    (
        RunOptions(rollout_length=5),
        A2C(gae_lambda=1.0, value_coef=0.5, entropy_coef=0.01),
        OptimizationOptions(learning_rate=1e-3, final_fraction=0.1, max_grad_norm=0.5),
    ),
)
A2C_VECTOR = Layer(
    "tuned on Catch and CartPole-v1: PAAC's rollout",
    (
        RunOptions(rollout_length=5),
        A2C(gamma=0.98, gae_lambda=0.9, value_coef=0.05, entropy_coef=0.01),
        OptimizationOptions(learning_rate=1e-3, final_fraction=0.1, max_grad_norm=0.5),
    ),
    (long_rollouts_with_memory,),
)
_NORMALIZED = NetworkOptions(normalize_observations=True, normalize_returns=True)
PPO_CONTINUOUS = Layer(
    "tried on MuJoCo's Hopper and HalfCheetah: observations and returns normalised, a network for each head",
    (
        RunOptions(rollout_length=128),
        _NORMALIZED,
        PPO(
            gamma=0.99,
            gae_lambda=0.95,
            value_coef=0.5,
            entropy_coef=0.0,
            clip_range=0.2,
            epochs=10,
            normalize_advantage=True,
        ),
        OptimizationOptions(learning_rate=1e-3, final_fraction=0.0, max_grad_norm=0.5),
    ),
    (critic_without_memory,),
)
GOSSIP_A2C_VECTOR = Layer(
    "tuned on Catch: 3e-3 with four learners; 2e-3 is too slow for 150,000 steps, 4e-3 fails with some seeds",
    (OptimizationOptions(learning_rate=1.5e-3),),
)
_FEW_ENVS = "tried on Hopper-v5: four learners have 2,048 steps between updates together, and a rate of 1e-3"
GALA_CONTINUOUS = Layer(_FEW_ENVS, (GALA(num_envs=4), OptimizationOptions(learning_rate=5e-4)))
PALA_CONTINUOUS = Layer(_FEW_ENVS, (PALA(num_envs=4), OptimizationOptions(learning_rate=5e-4)))
A2C_CONTINUOUS = Layer(
    "observations and returns normalised, a network for each head",
    (
        RunOptions(rollout_length=5),
        _NORMALIZED,
        A2C(gamma=0.99, gae_lambda=0.9, value_coef=0.5, entropy_coef=0.0),
        OptimizationOptions(learning_rate=7e-4, final_fraction=0.0, max_grad_norm=0.5),
    ),
    (critic_without_memory,),
)
VTRACE_PIXELS = Layer(
    "tuned on Pong: 42x42 pictures centred on their background, a small network, batches of 160 steps",
    (
        *_PICTURES_42,
        RunOptions(rollout_length=10),
        VTrace(gae_lambda=0.95, value_coef=0.5, entropy_coef=0.003),
        OptimizationOptions(learning_rate=1e-3, final_fraction=0.1, max_grad_norm=0.5),
    ),
)
VTRACE_VECTOR = Layer(
    "the settings of A2C on vectors",
    (
        RunOptions(rollout_length=5),
        VTrace(gamma=0.98, gae_lambda=0.9, value_coef=0.05, entropy_coef=0.01),
        OptimizationOptions(learning_rate=2e-3, final_fraction=0.1, max_grad_norm=0.5),
    ),
)
VTRACE_CONTINUOUS = Layer(
    "observations and returns normalised, a network for each head",
    (
        RunOptions(rollout_length=5),
        _NORMALIZED,
        VTrace(gamma=0.99, gae_lambda=0.9, value_coef=0.5, entropy_coef=0.0),
        OptimizationOptions(learning_rate=7e-4, final_fraction=0.0, max_grad_norm=0.5),
    ),
    (critic_without_memory,),
)
TUNED = {
    ("a2c", "pixels"): A2C_PIXELS,
    ("a2c", "vector"): A2C_VECTOR,
    ("a2c", "continuous"): A2C_CONTINUOUS,
    ("ppo", "pixels"): PPO_PIXELS,
    ("ppo", "vector"): PPO_VECTOR,
    ("ppo", "continuous"): PPO_CONTINUOUS,
    ("vtrace", "pixels"): VTRACE_PIXELS,
    ("vtrace", "vector"): VTRACE_VECTOR,
    ("vtrace", "continuous"): VTRACE_CONTINUOUS,
    ("appo", "pixels"): _asynchronous(
        PPO_PIXELS,
        "pictures, with a schedule and a clip range tuned on Pong",
        AsyncPPO(entropy_final_fraction=0.1, clip_range=0.15),
        OptimizationOptions(anneal_from=0.35, final_fraction=0.15),
    ),
    ("appo", "vector"): _asynchronous(PPO_VECTOR, "vectors"),
    ("appo", "continuous"): _asynchronous(PPO_CONTINUOUS, "continuous actions"),
}

# Settings of an architecture that do not depend on the algorithm. Gossip has the papers' total number of environments,
# and one thread that steps each learner's environments, because the learners run in parallel.
SHAPES = {
    "gala": Layer("the paper's total number of environments", (GALA(num_envs=16),)),
    "pala": Layer("the paper's total number of environments", (PALA(num_envs=16),)),
}
_GOSSIP = Layer("what follows from the number of learners and from --sync", (), (sqrt_of_learners, follow))
LEARNERS = {"gala": _GOSSIP, "pala": _GOSSIP}

FEW_ENVS_PIXELS = Layer("tuned on Pong: few environments", (PAAC(num_envs=16),))
FEW_ENVS_CONTINUOUS = Layer("2,048 steps between updates", (PAAC(num_envs=16),))
# What an algorithm needs in one architecture only: (architecture, algorithm, kind of environment)
COMBINATIONS = {
    ("paac", "ppo", "pixels"): FEW_ENVS_PIXELS,
    ("paac", "appo", "pixels"): FEW_ENVS_PIXELS,
    ("paac", "vtrace", "pixels"): FEW_ENVS_PIXELS,
    ("paac", "ppo", "continuous"): FEW_ENVS_CONTINUOUS,
    ("paac", "appo", "continuous"): FEW_ENVS_CONTINUOUS,
    ("impala", "vtrace", "pixels"): Layer("tuned on Pong: batches of 160 steps", (IMPALA(num_envs=16),)),
    ("impala", "appo", "pixels"): Layer("the environments of appo", (IMPALA(num_envs=16, env_workers=1),)),
    ("paac", "a2c", "vector"): Layer(
        "tuned on Catch and CartPole-v1: its batches are twice those of a learner of gala or pala",
        (OptimizationOptions(learning_rate=2e-3),),
        (large_steps_with_memory,),
    ),
    ("gala", "a2c", "vector"): GOSSIP_A2C_VECTOR,
    ("pala", "a2c", "vector"): GOSSIP_A2C_VECTOR,
    ("gala", "ppo", "continuous"): GALA_CONTINUOUS,
    ("gala", "appo", "continuous"): GALA_CONTINUOUS,
    ("pala", "ppo", "continuous"): PALA_CONTINUOUS,
    ("pala", "appo", "continuous"): PALA_CONTINUOUS,
}

CONTINUOUS_PIXELS = Layer(
    "as with vectors: no entropy bonus, returns normalised (not tuned)",
    (
        NetworkOptions(normalize_returns=True),
        A2C(entropy_coef=0.0),
        PPO(entropy_coef=0.0),
        VTrace(entropy_coef=0.0),
        AsyncPPO(entropy_coef=0.0),
    ),
)
_SMALL = Layer("minibatches of 256 steps", (), (small_minibatches,))
_SHARED = Layer("minibatches of 256 steps of all learners together", (), (shared_minibatches,))
SMALL_MINIBATCHES = {("ppo", "continuous"), ("appo", "continuous")}
SEQUENCES = Layer("with memory, minibatches are whole sequences", (), (whole_sequences,))

_LOADING = Layer("batches are assembled ahead where something has to be copied", (), (loading_in_parallel,))
LOADING = {"impala": _LOADING, "appo": _LOADING}

IN_PLACE = {
    "gala": Layer("small environments are stepped in the learner's process", (GALA(env_workers=0),)),
    "pala": Layer("small environments are stepped in the learner's process", (PALA(env_workers=0),)),
    "appo": Layer("small environments are stepped in the actor's process", (APPO(env_workers=0),)),
}


def layers(architecture: str, algorithm: str, *, preset: str, seen: Probe, atari: bool) -> Iterator[Layer]:
    """The layers of a composition; later ones override earlier ones. Raises `UserError` if there is no such preset."""
    kind = seen.kind
    if preset == "tuned":
        yield PIXELS if kind == "pixels" else VECTOR
        found = (
            SHAPES.get(architecture),
            TUNED.get((algorithm, kind)),
            COMBINATIONS.get((architecture, algorithm, kind)),
            LEARNERS.get(architecture),
        )
        yield from filter(None, found)
        if (algorithm, kind) in SMALL_MINIBATCHES:
            yield _SHARED if architecture in LEARNERS else _SMALL
        if kind == "pixels" and seen.continuous:
            yield CONTINUOUS_PIXELS
        yield SEQUENCES
    else:
        yield _paper(architecture, algorithm, seen)
    if architecture in IN_PLACE and not atari:
        yield IN_PLACE[architecture]
    if architecture in LOADING:
        yield LOADING[architecture]


def _paper(architecture: str, algorithm: str, seen: Probe) -> Layer:
    if architecture not in PAPERS:
        raise UserError(f"--preset paper: not available for {architecture}; available for {', '.join(PAPERS)}")
    own, paper = PAPERS[architecture]
    if algorithm != own:
        raise UserError(f"--algorithm {algorithm}: {architecture.upper()}'s paper has only {own}; omit --preset paper")
    if seen.kind != "pixels":
        return replace(paper, parts=(*paper.parts, NetworkOptions(torso="mlp", input="raw")))
    return replace(paper, parts=(*paper.parts, NetworkOptions(torso="auto"))) if seen.tiny else paper
