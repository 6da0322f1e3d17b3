"""How different the policies of several parameter vectors are."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from gossamer.actor import background
from gossamer.data import Array, Step
from gossamer.envs.base import VectorEnv
from gossamer.exchange.flat import Flat
from gossamer.learner import build
from gossamer.member import BACKGROUND_OBSERVATIONS
from gossamer.networks import centre_on
from gossamer.task import Task

OBSERVATIONS = 256
PLAYED = 2_048  # observations of random play that they are drawn from, where no background has to be found


class Policies:
    """The policies that parameter vectors stand for, on observations of random play that are drawn once.

    They compute in float32 on the CPU, whatever the members do. `envs` as the members have them: then their background,
    where the network takes one off, is the same. Torch uses as many threads as the caller has allowed itself."""

    def __init__(self, task: Task, envs: int) -> None:
        self.task = replace(task, device="cpu", network=replace(task.network, dtype=torch.float32))
        centre = task.network.centre
        with closing(task.env.make(envs)) as env:
            rng = np.random.default_rng(task.stream("kl"))
            seen = Seen(env, rng.choice(PLAYED, OBSERVATIONS, replace=False))
            seed = task.stream("background" if centre else "kl")  # the background's as in `Member`
            mean = background(seen, seed=seed, observations=max(BACKGROUND_OBSERVATIONS if centre else 0, PLAYED))
            self.model = build(self.task, env.spec)
        if centre:
            centre_on(self.model, mean)
        self.obs = torch.from_numpy(np.stack(seen.kept))  # [256, *O]
        self._flat = Flat(self.model)
        self._rng = torch.Generator()

    def logits(self, vector: Tensor) -> Tensor:
        """[256, A] of the policy with these parameters [P]."""
        self._flat.vector.copy_(vector)
        return self.task.algorithm.act(self.model, self.obs, self._rng).logits

    def divergence(self, vectors: Sequence[Tensor]) -> Tensor:
        """[N, N] float64: KL(pi_i || pi_j) in nats, mean over the observations."""
        return divergence(torch.stack([self.logits(vector) for vector in vectors]))


def divergence(logits: Tensor) -> Tensor:
    """Logits [N, M, A] of N policies on M observations -> KL(pi_i || pi_j) [N, N] float64, mean over observations."""
    log_pi = logits.double().log_softmax(-1).flatten(1) / logits.shape[1]  # [N, M*A]
    pi = logits.double().softmax(-1).flatten(1)
    cross = pi @ log_pi.T  # sum of pi_i log pi_j, negative cross entropies
    return (cross.diagonal().unsqueeze(1) - cross).clamp_min(0.0)  # rounding may leave less than nothing


class Seen:
    """Environments that remember some of the observations they show, by their number: first those of the reset."""

    def __init__(self, env: VectorEnv, wanted: Array) -> None:
        self.spec, self.num_envs, self.frames, self.close = env.spec, env.num_envs, env.frames, env.close
        self._env, self._wanted, self._shown = env, frozenset(wanted.tolist()), 0
        self.kept: list[Array] = []

    def reset(self, seed: int) -> Array:
        return self._see(self._env.reset(seed))

    def step(self, action: Array) -> Step:
        step = self._env.step(action)
        self._see(step.obs)
        return step

    def _see(self, obs: Array) -> Array:
        self.kept += [np.array(each) for i, each in enumerate(obs) if self._shown + i in self._wanted]
        self._shown += len(obs)
        return obs
