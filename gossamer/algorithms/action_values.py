"""What algorithms that learn action values share: acting, values of observations, and what they do not work with."""

from __future__ import annotations

import copy
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, Self

import torch
from torch import Tensor, nn

from gossamer.algorithms.base import Acting, evaluating
from gossamer.algorithms.exploration import EpsilonGreedy, Explores, epsilon_greedy, fraction
from gossamer.algorithms.rescaling import EPSILON, OF_RETURNS, RESCALE_VALUES, Scale
from gossamer.data import Action, Tree, Version
from gossamer.nn.networks import Network, action_values
from gossamer.nn.torsos import SEQUENCES
from gossamer.spaces import Discrete, Spec
from gossamer.system.errors import UserError
from gossamer.system.options import options, word

OTHERS = "a2c, ppo, vtrace or appo"  # that work with all actions
REMEMBERING = f"pqn, nstep-q, one-step-q, sarsa, r2d2, {OTHERS}"  # that work with memory


def normalize_layers(values: Mapping[str, Any], given: Collection[str]) -> dict[str, Any]:
    """Layer normalisation, for torsos that can have it; the others do without."""
    return {"layer_norm": values["network"] in SEQUENCES}


class Scaled(Explores, Protocol):
    """An algorithm that acts by values on a scale."""

    @property
    def scale(self) -> Scale: ...


class ActionValues:
    """Base of algorithms that learn action values: acting and checks are here, their losses and networks differ."""

    @property
    def scale(self) -> Scale:
        """Of what the network learns. Values of acting time, in `Trajectory` and elsewhere, are returns."""
        return OF_RETURNS

    def check(self, spec: Spec, network: Network, env: str) -> None:
        """See `Limited`."""
        name = word(type(self))
        if network.memory != "none":
            raise UserError(
                f"--memory {network.memory}: {name} has none; stack pictures (--frame-stack), or use {REMEMBERING}"
            )
        check_values(name, spec, network, env)

    def act(
        self: Scaled, model: nn.Module, obs: Tensor, state: Tree, rng: torch.Generator, *, greedy: bool = False
    ) -> tuple[Action, Tree]:
        """See `Algorithm`; with the final epsilon, as in evaluation."""
        return self.scale.acting(EpsilonGreedy(self.epsilon_end)).act(model, obs, state, rng, greedy=greedy)

    def exploring(self: Scaled, position: int, envs: Sequence[int], total: int, version: Version) -> Acting:
        """See `Exploring`."""
        return self.scale.acting(epsilon_greedy(self, fraction(position, self.epsilon_steps), envs, total))

    def with_epsilon(self, epsilon: float) -> Self:
        """See `ByValue`."""
        changed = copy.copy(self)
        object.__setattr__(changed, "epsilon_end", epsilon)  # it is frozen
        return changed

    @torch.no_grad()
    def value(self, model: nn.Module, obs: Tensor, state: Tree) -> Tensor:
        """The return [B] of the best action."""
        return self.scale.returns(action_values(model, obs, state)[0].amax(-1))


@options
class RescaledValues(ActionValues):
    """Base of those that learn returns, or h(return) with an option."""

    rescale_values: bool = RESCALE_VALUES(False)

    @property
    def scale(self) -> Scale:
        """See `ActionValues`."""
        return Scale(EPSILON) if self.rescale_values else OF_RETURNS


@options
class OnPolicyValues(RescaledValues):
    """Base of those that learn from rollouts as they were acted, which have the state of a memory."""

    def check(self, spec: Spec, network: Network, env: str) -> None:
        """See `Limited`."""
        check_values(word(type(self)), spec, network, env)


def check_values(name: str, spec: Spec, network: Network, env: str) -> None:
    """Raise `UserError` if no algorithm of action values works with them. `name`: of the algorithm; `env`: of the
    environment."""
    if not isinstance(spec.actions, Discrete):
        raise UserError(
            f"--algorithm {name}: {env} has {spec.actions}, not one choice among several; use {OTHERS}, "
            "for example under paac"
        )
    for flag, used in (
        ("--separate-critic", network.separate_critic),
        ("--normalize-returns", network.normalize_returns),
        ("--normalize-observations", network.normalize_observations),
    ):
        if used:
            raise UserError(f"{flag}: has no effect with --algorithm {name}; leave it out")


@dataclass(frozen=True)
class DoubleQ:
    """Values by double Q-learning (van Hasselt et al. 2016, eq. 4)."""

    gamma: float
    chooses: nn.Module  # the network that chooses actions

    @torch.no_grad()
    def value(self, model: nn.Module, obs: Tensor, state: Tree) -> Tensor:
        """The value [B] that the target network `model` gives to the action that the other network prefers."""
        with evaluating(self.chooses):
            best = action_values(self.chooses, obs, state)[0].argmax(-1, keepdim=True)
        return action_values(model, obs, state)[0].gather(-1, best).squeeze(-1)
