"""Whole games, played side by side."""

from __future__ import annotations

import numpy as np
import torch

from gossamer.envs.base import VectorEnv
from gossamer.policy import Policy

SIDE_BY_SIDE = 32  # games at once


def play(policy: Policy, env: VectorEnv, episodes: int, *, seed: int, device: str) -> list[float]:
    """Undiscounted, unclipped returns of so many games. Every environment plays its share, so that quick games (lost
    ones) are not counted more often."""
    quota = np.full(env.num_envs, episodes // env.num_envs)
    quota[: episodes % env.num_envs] += 1
    returns: list[float] = []
    score, obs = np.zeros(env.num_envs), env.reset(seed)
    while quota.any():
        answer, _ = policy(torch.from_numpy(obs).to(device), {})
        step = env.step(answer.action.cpu().numpy())
        obs, score = step.obs, score + step.score
        for b in np.flatnonzero(step.over & (quota > 0)):
            returns.append(float(score[b]))
            quota[b] -= 1
        score[step.over] = 0.0
    return returns
