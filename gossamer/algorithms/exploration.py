"""Exploration of algorithms that learn action values: with probability epsilon, a random action."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, Protocol, TypeAlias

import torch
from torch import Tensor, nn

from gossamer.data import Action, Tree
from gossamer.nn.networks import action_values
from gossamer.spaces import IMPOSSIBLE
from gossamer.system.options import option
from gossamer.system.transfers import uploaded

Exploration: TypeAlias = Literal["schedule", "by-environment", "mixed"]

# Each gives its default, as in `epsilon_end: float = EPSILON_END(0.01)`
EXPLORATION = partial(
    option,
    "One epsilon that falls, a constant one for each environment (Ape-X), or one for each that falls to 0.1, 0.01 or "
    "0.5 (A3C).",
)
EPSILON_START = partial(option, "Epsilon at first.", least=0, most=1)
EPSILON_END = partial(option, "Epsilon after it has fallen, and when evaluating.", least=0, most=1)
EPSILON_STEPS = partial(option, "Until it has fallen, linearly.", least=0, most=10**15, measure="steps")


class Explores(Protocol):
    """The options of `epsilon_greedy`."""

    @property
    def exploration(self) -> Exploration: ...
    @property
    def epsilon_start(self) -> float: ...
    @property
    def epsilon_end(self) -> float: ...
    @property
    def epsilon_steps(self) -> int: ...


def explore_a_tenth(values: Mapping[str, Any], given: Collection[str]) -> dict[str, Any]:
    """Epsilon falls during a tenth of the run, and at most 250,000 steps (1M frames, as in Mnih et al. 2015)."""
    return {"epsilon_steps": min(250_000, values["steps"] // 10)}


@dataclass(frozen=True)
class EpsilonGreedy:
    """The best action, or with probability epsilon a valid one drawn uniformly."""

    epsilon: float | tuple[float, ...]  # of all environments, or of each

    @torch.no_grad()
    def act(
        self, model: nn.Module, obs: Tensor, state: Tree, rng: torch.Generator, *, greedy: bool = False
    ) -> tuple[Action, Tree]:
        """See `Algorithm`. The parameters are ln mu(a) [B, A]."""
        q, state = action_values(model, obs, state)
        epsilon = self._of_each(len(q), q.device, greedy=greedy)
        valid = (q > IMPOSSIBLE / 2).to(q.dtype)
        best = q.argmax(-1)
        random = (torch.rand(q.shape, generator=rng, device=q.device) * valid).argmax(-1)
        explores = torch.rand(len(q), generator=rng, device=q.device) < epsilon
        action = torch.where(explores, random, best)
        mu = epsilon.unsqueeze(-1) * valid / valid.sum(-1, keepdim=True)
        mu.scatter_add_(-1, best.unsqueeze(-1), (1 - epsilon).unsqueeze(-1))
        log_mu = mu.clamp(min=1e-30).log()
        log_prob, chosen = (each.gather(-1, action.unsqueeze(-1)).squeeze(-1) for each in (log_mu, q))
        return Action(action=action, log_prob=log_prob, parameters=log_mu, value=q.amax(-1), chosen=chosen), state

    def _of_each(self, num_envs: int, device: torch.device, *, greedy: bool) -> Tensor:
        """Epsilon of each environment, [B]."""
        epsilon = 0.0 if greedy else self.epsilon
        if isinstance(epsilon, tuple):
            return uploaded(torch.tensor(epsilon), device)
        return torch.full((num_envs,), epsilon, device=device)


def epsilon_greedy(options: Explores, over: float, envs: Sequence[int], total: int) -> EpsilonGreedy:
    """The policy of a rollout: see `Exploring.exploring`. `over`: how much of the schedule is, 0 to 1."""
    if options.exploration == "by-environment":
        return EpsilonGreedy(tuple(apex_epsilon(i, total) for i in envs))
    if options.exploration == "mixed":
        return EpsilonGreedy(tuple(options.epsilon_start * (1 - over) + a3c_epsilon(i, total) * over for i in envs))
    return EpsilonGreedy(options.epsilon_start * (1 - over) + options.epsilon_end * over)


def fraction(now: int, end: int) -> float:
    """How much of a schedule is over that ends at `end`; 0: all of it."""
    return min(1.0, now / end) if end else 1.0


def apex_epsilon(index: int, total: int, base: float = 0.4, alpha: float = 7.0) -> float:
    """Epsilon of environment `index` of `total`: base^(1 + alpha * index / (total - 1)) (Horgan et al. 2018, section
    4.1)."""
    return float(base ** (1 + alpha * index / max(1, total - 1)))


def a3c_epsilon(index: int, total: int) -> float:
    """Final epsilon of environment `index` of `total`: 0.1, 0.01 or 0.5, for 40 %, 30 % and 30 % of them (Mnih et al.
    2016, section 5.1). The paper draws it for each worker; here the shares are exact, up to one environment."""
    share = (index + 0.5) / total
    return 0.1 if share < 0.4 else 0.01 if share < 0.7 else 0.5


def epsilon_of(log_prob: Tensor, choices: Tensor) -> Tensor:
    """Epsilon of an epsilon-greedy policy [..], from the log-probability [..] of the action that it took among so many
    valid `choices` [..].

    A random action has probability epsilon / n, which is at most 1 / n, and the best one 1 - epsilon + epsilon / n.
    With one choice epsilon cannot be told: 0."""
    prob = log_prob.exp()
    best = (1 - prob) * choices / (choices - 1).clamp(min=1)
    return torch.where((prob * choices <= 1) & (choices > 1), prob * choices, best)
