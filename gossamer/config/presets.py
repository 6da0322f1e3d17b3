"""Where settings come from that a user leaves open: the architecture's paper, or what we found to work, and why."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from gossamer.errors import UserError


@dataclass(frozen=True)
class Preset:
    """Values of `Settings` fields, and one line on where they come from."""

    why: str
    values: dict[str, Any] = field(default_factory=dict)
    plain: bool = False  # whether several learners have the learning rate that one has


COMMON: dict[str, Any] = {
    "preset": "tuned",
    "steps": 10_000_000,
    "seed": 1,
    "device": "auto",
    "precision": "auto",
    "hosts": 1,
    "learners": 1,
    "graph": "ring",
    "mixing": "uniform",
    "sync": "never",
    "staleness": 16,
    "interval": 1,
    "message_format": "fp32",
    "num_envs": 32,
    "env_workers": 0,
    "threads": 0,
    "preprocessing": "paac",
    "screen_size": 84,
    "input": "background",
    "initialization": "orthogonal",
    "gamma": 0.99,
    "loss_scale": 1.0,
    "clip_range": 0.2,
    "epochs": 1,
    "num_minibatches": 1,
    "normalize_advantage": False,
    "optimizer": "adam",
    "decay": 0.99,
    "epsilon": 1e-5,
}

PPO_PIXELS = Preset(
    "tuned on Pong: 42x42 pictures centred on their background, a small network, few passes, plain advantages",
    {
        "algorithm": "ppo",
        "screen_size": 42,
        "network": "small",
        "rollout_length": 50,
        "gae_lambda": 0.95,
        "value_coef": 1.0,
        "entropy_coef": 0.01,
        "clip_range": 0.3,
        "epochs": 3,
        "num_minibatches": 8,
        "learning_rate": 1e-3,
        "anneal_steps": 800_000,
        "final_fraction": 0.1,
        "max_grad_norm": 10.0,
    },
)
PPO_VECTOR = Preset(
    "tuned on Catch and CartPole-v1: a small MLP (one thread: more only wait for each other), short rollouts",
    {
        "algorithm": "ppo",
        "network": "mlp",
        "input": "raw",
        "threads": 1,
        "rollout_length": 32,
        "gamma": 0.98,
        "gae_lambda": 0.9,
        "value_coef": 0.1,
        "entropy_coef": 0.01,
        "epochs": 4,
        "num_minibatches": 4,
        "learning_rate": 1e-3,
        "anneal_steps": 1_000_000,
        "final_fraction": 0.1,
        "max_grad_norm": 0.5,
        "normalize_advantage": True,
    },
)
A2C_PIXELS = Preset(
    "tuned on Pong: PAAC's network and rollout, pictures centred on their background, Adam in place of RMSProp",
    {
        "algorithm": "a2c",
        "network": "nips",
        "rollout_length": 5,
        "gae_lambda": 1.0,
        "value_coef": 0.5,
        "entropy_coef": 0.01,
        "learning_rate": 1e-3,
        "anneal_steps": 6_000_000,
        "final_fraction": 0.1,
        "max_grad_norm": 0.5,
    },
)
A2C_VECTOR = Preset(
    "tuned on Catch and CartPole-v1: a small MLP (one thread: more only wait for each other), PAAC's rollout",
    {
        "algorithm": "a2c",
        "network": "mlp",
        "input": "raw",
        "threads": 1,
        "rollout_length": 5,
        "gamma": 0.98,
        "gae_lambda": 0.9,
        "value_coef": 0.05,
        "entropy_coef": 0.01,
        "learning_rate": 1e-3,
        "anneal_steps": 1_000_000,
        "final_fraction": 0.1,
        "max_grad_norm": 0.5,
    },
)
PAPER = Preset(
    "PAAC as published: its code's settings, which differ from its paper on clip, entropy and steps (see docs)",
    {
        "preset": "paper",
        "algorithm": "a2c",
        "network": "nips",
        "steps": 80_000_000,
        "num_envs": 32,
        "env_workers": 8,
        "rollout_length": 5,
        "gae_lambda": 1.0,
        "value_coef": 0.25,
        "entropy_coef": 0.02,
        "loss_scale": 5.0,
        "optimizer": "rmsprop-tf",
        "decay": 0.99,
        "epsilon": 0.1,
        "learning_rate": 0.0007 * 32,
        "anneal_steps": 80_000_000,
        "final_fraction": 0.0,
        "max_grad_norm": 3.0,
        "input": "unit",
        "initialization": "uniform",
    },
)
PAPER_GALA = Preset(
    "GALA as published: its code's settings, the learning rate 7e-4 times the square root of the number of learners; "
    "our nature network has 64 channels in its third layer, GALA's 32",
    {
        "preset": "paper",
        "algorithm": "a2c",
        "network": "nature",
        "steps": 40_000_000,
        "rollout_length": 5,
        "gae_lambda": 1.0,
        "value_coef": 0.5,
        "entropy_coef": 0.01,
        "optimizer": "rmsprop-torch",
        "decay": 0.99,
        "epsilon": 1e-5,
        "learning_rate": 0.0007,
        "anneal_steps": 0,
        "final_fraction": 1.0,
        "max_grad_norm": 0.5,
        "input": "unit",
        "preprocessing": "gala",
    },
)
PAPER_PALA = Preset(
    "PALA as its code has it: GALA's settings but for longer rollouts, the plain learning rate, and a process lock "
    "that lets no learner run ahead of what its neighbour has sent",
    {**PAPER_GALA.values, "rollout_length": 20, "sync": "bounded", "staleness": 0, "interval": 1},
    plain=True,
)
PAPERS = {"paac": PAPER, "gala": PAPER_GALA, "pala": PAPER_PALA}
# What an architecture needs whatever is learned. Gossip: as many environments in all as the papers have, with one
# thread to step each learner's, since learners run side by side.
SHAPES: dict[str, dict[str, Any]] = {
    "paac": {},
    "gala": {"learners": 4, "num_envs": 16, "env_workers": 1},
    "pala": {"hosts": 2, "learners": 2, "num_envs": 16, "env_workers": 1, "sync": "bounded", "interval": 4},
}
TUNED = {
    ("a2c", True): A2C_PIXELS,
    ("a2c", False): A2C_VECTOR,
    ("ppo", True): PPO_PIXELS,
    ("ppo", False): PPO_VECTOR,
}


def preset(
    architecture: str, name: str, algorithm: str | None, pixels: bool, shape: Mapping[str, Any] | None = None
) -> Preset:
    """The preset for an algorithm (None: the architecture's own) and a kind of environment, every value filled in.

    `shape`: how many hosts and learners, where the architecture's own numbers are not wanted. The learning rate is one
    learner's times the square root of their number (as in GALA's code). Adam and RMSProp divide by the size of a
    learner's own gradients, most of it noise: n learners with an n-th of the environments each have sqrt(n) times the
    noise, and at one learner's rate their average would move by so much less."""
    if name == "paper":
        if algorithm not in (None, "a2c"):
            name = architecture.upper()
            raise UserError(f"--algorithm {algorithm}: {name}'s paper has a2c only; leave --preset paper away")
        paper = PAPERS[architecture]
        chosen = paper if pixels else replace(paper, values={**paper.values, "network": "mlp", "input": "raw"})
    else:
        chosen = TUNED[algorithm or "a2c", pixels]
    values = {**COMMON, **SHAPES[architecture], **chosen.values}
    if not chosen.plain:
        learners = math.prod((shape or {}).get(part, values[part]) for part in ("hosts", "learners"))
        values["learning_rate"] *= math.sqrt(max(1, learners))
    return replace(chosen, values=values)
