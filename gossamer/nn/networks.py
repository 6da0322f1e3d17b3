"""Networks: an actor-critic, and action values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from gossamer.data import Tree
from gossamer.nn.body import (
    Body,
    Network,
    NetworkOptions,
    Normalizing,
    Preparing,
    Recurrent,
    Stateful,
    Stepping,
    WithTorso,
)
from gossamer.nn.inputs import CentredParts, Observations, Prepared
from gossamer.nn.normalization import Normalized, Observed, Sample, ValueHead
from gossamer.nn.tiles import Tiles
from gossamer.nn.torsos import AutoEncoder
from gossamer.spaces import Discrete, Spec
from gossamer.spaces.distributions import Distribution

__all__ = [
    "ActorCritic",
    "Network",
    "NetworkOptions",
    "Normalizing",
    "Preparing",
    "QNetwork",
    "Recurrent",
    "RecurrentValues",
    "Stateful",
    "Stepping",
    "WithTorso",
    "action_values",
    "auto_encoders",
    "reconstruction_loss",
]


class ActorCritic(Body):
    """A body with a policy head and a value head, whose outputs are float32. See `Body` for what it raises."""

    def __init__(self, spec: Spec, network: Network) -> None:
        super().__init__(spec, network)
        if isinstance(self.torso, Tiles):
            raise ValueError("tiles have action values only: use --algorithm sarsa-lambda, pqn, nstep-q or dqn, or mlp")
        self.policy = self.actions.head(self.width, state_std=network.state_std)
        games = max(1, len(spec.games))
        self.value: nn.Module = ValueHead(self.width, games) if network.normalize_returns else nn.Linear(self.width, 1)
        self._split = network.separate_critic
        self.observes = network.normalize_observations or network.normalize_returns
        self.share: Callable[[Observed], None] | None = None  # called in place of `include`: see `AllReduce`
        self.initialise(network, {self.policy: 0.01, self.value: 1.0})  # a nearly uniform initial policy

    def forward(self, obs: Tensor) -> tuple[Distribution, Tensor]:
        """Map [N, *O] to N distributions over actions and values [N], both float32. Raises `RuntimeError` if the
        network has a memory: use `unroll`, or `algorithms.base.evaluate` for rollouts."""
        if self.memory is not None:
            raise RuntimeError("a network with memory needs its state: use unroll, or algorithms.base.evaluate")
        return self.outputs(self.prepare(obs))

    def outputs(self, prepared: Prepared) -> tuple[Distribution, Tensor]:
        """`forward` for observations that have been prepared, without a memory."""
        return self._heads(self._features(prepared.inputs), prepared)

    def unroll(self, obs: Tensor, state: Tree, begins: Tensor) -> tuple[Distribution, Tensor, Tree]:
        """See `Recurrent`."""
        prepared = self.prepare(obs.flatten(0, 1))
        features = self._features(prepared.inputs)
        if self.memory is not None:
            outputs, state = self.memory(features.view(*obs.shape[:2], -1), state, begins)
            features = outputs.flatten(0, 1)
        return *self._heads(features, prepared), state

    def step(self, obs: Observations, state: Tree, begins: Tensor) -> tuple[Distribution, Tensor, Tree]:
        """See `Stepping`: `unroll` without the dimension of time."""
        prepared = self.prepare(obs)
        features = self._features(prepared.inputs)
        if self.memory is not None:
            outputs, state = self.memory(features.unsqueeze(0), state, begins.unsqueeze(0))
            features = outputs.squeeze(0)
        return *self._heads(features, prepared), state

    @property
    def begun(self) -> bool:
        """See `Normalizing`."""
        return not isinstance(self.value, ValueHead) or self.value.begun

    def return_scale(self, obs: Tensor, returns: Tensor) -> Tensor | None:
        """See `Normalizing`."""
        if not isinstance(self.value, ValueHead):
            return None
        game = self._games(obs)
        if not self.value.begun:
            (self.share or self.include)(Observed((self.value.sample(returns, game),), first=True))
        deviation = self.value.moments.deviation
        return deviation if game is None else deviation[game]

    def observe(self, obs: Tensor, returns: Tensor) -> None:
        """Include a rollout's observations [N, *O] and returns [N] in the running statistics, if there are any."""
        samples = [self.value.sample(returns, self._games(obs))] if isinstance(self.value, ValueHead) else []
        layout = self.spec.layout
        samples += [Sample.of(layout.part(obs, name) if layout else obs) for name, _ in self._normalized()]
        (self.share or self.include)(Observed(tuple(samples)))

    def include(self, observed: Observed) -> None:
        """Include a rollout in the running statistics."""
        samples = list(observed.samples)
        if isinstance(self.value, ValueHead):
            (self.value.begin if observed.first else self.value.update)(samples.pop(0))
        if not observed.first:
            for (_, module), sample in zip(self._normalized(), samples, strict=True):
                module.moments.update(sample)

    def _normalized(self) -> list[tuple[str, Normalized]]:
        """The inputs with running statistics, by the name of their part of the observation."""
        inputs = self.centre.named() if isinstance(self.centre, CentredParts) else [("", self.centre)]
        return [(name, module) for name, module in inputs if isinstance(module, Normalized)]

    def _heads(self, features: Tensor, prepared: Prepared) -> tuple[Distribution, Tensor]:
        """Map features [N, F] to distributions over the valid actions, and values [N]."""
        policy, value = features.chunk(2, dim=-1) if self._split else (features, features)
        parameters = self.policy(policy)
        if prepared.mask is not None:
            parameters = self.actions.masked(parameters, prepared.mask)
        values = self.value(value)  # [N, 1]; [N, G] of a head with an output for each game
        if values.shape[1] == 1:
            return self.actions.distribution(parameters), values.squeeze(-1)
        assert prepared.game is not None, "several games are in every observation"
        return self.actions.distribution(parameters), values.gather(1, prepared.game.unsqueeze(1)).squeeze(1)


@runtime_checkable
class RecurrentValues(Stateful, Protocol):
    """Networks of action values with a state that belongs to an episode."""

    def unroll(self, obs: Tensor, state: Tree, begins: Tensor) -> tuple[Tensor, Tree]:
        """Map obs [T, B, *O], the state before them [B, ...] and `begins` [T, B] (x_t is the first observation of an
        episode) to Q(x, a) [T * B, A] and the state after them."""


class QNetwork(Body):
    """A body with a head of action values Q(x, a), for discrete actions.

    `dueling`: the head estimates the state's value and each action's advantage, Q = V + A - mean(A) (Wang et al. 2016,
    eq. 9, here on the torso's features or the memory's output). `returns`: maps action values [...] to returns, where
    the network learns them on another scale. Raises `ValueError` as `Body`, and for other actions."""

    def __init__(
        self, spec: Spec, network: Network, *, dueling: bool = False, returns: Callable[[Tensor], Tensor] | None = None
    ) -> None:
        super().__init__(spec, network)
        if not isinstance(spec.actions, Discrete):
            raise ValueError(f"action values need one choice among several, not {spec.actions}")
        head = self.torso.head if isinstance(self.torso, Tiles) else partial(nn.Linear, self.width)
        self.advantage = head(spec.actions.n)
        self.value = head(1) if dueling else None
        self._returns = returns
        self.initialise(network, {head: 0.01 for head in (self.advantage, self.value) if head is not None})

    def forward(self, obs: Observations) -> Tensor:
        """Map [N, *O] to Q(x, a) [N, A], float32; invalid actions get `IMPOSSIBLE`. Raises `RuntimeError` if the
        network has a memory: use `unroll`."""
        if self.memory is not None:
            raise RuntimeError("a network with memory needs its state: use unroll")
        return self.outputs(self.prepare(obs))

    def outputs(self, prepared: Prepared) -> Tensor:
        """`forward` for observations that have been prepared, without a memory."""
        return self._heads(self._features(prepared.inputs), prepared.mask)

    def unroll(self, obs: Tensor, state: Tree, begins: Tensor) -> tuple[Tensor, Tree]:
        """See `RecurrentValues`."""
        prepared = self.prepare(obs.flatten(0, 1))
        features = self._features(prepared.inputs)
        if self.memory is not None:
            outputs, state = self.memory(features.view(*obs.shape[:2], -1), state, begins)
            features = outputs.flatten(0, 1)
        return self._heads(features, prepared.mask), state

    def step(self, obs: Observations, state: Tree, begins: Tensor) -> tuple[Distribution, Tensor, Tree]:
        """See `Stepping`. The parameters of the distributions are the action values."""
        prepared = self.prepare(obs)
        features = self._features(prepared.inputs)
        if self.memory is not None:
            outputs, state = self.memory(features.unsqueeze(0), state, begins.unsqueeze(0))
            features = outputs.squeeze(0)
        q = self._heads(features, prepared.mask)
        best = q.amax(-1)
        return self.actions.distribution(q), best if self._returns is None else self._returns(best), state

    def _heads(self, features: Tensor, mask: Tensor | None) -> Tensor:
        """Map features [N, F] to the values of the actions that `mask` allows; the others get `IMPOSSIBLE`."""
        q: Tensor = self.advantage(features)
        if self.value is not None:
            q = self.value(features) + q - q.mean(-1, keepdim=True)
        return q if mask is None else self.actions.masked(q, mask)


def action_values(model: nn.Module, obs: Tensor, state: Tree) -> tuple[Tensor, Tree]:
    """Q(x, a) [B, A] for obs [B, *O] and the recurrent state before them, and the state after them."""
    if not state:
        return model(obs), state
    assert isinstance(model, RecurrentValues), "only a recurrent network has a state"
    return model.unroll(obs.unsqueeze(0), state, torch.zeros(1, len(obs), dtype=torch.bool, device=obs.device))


def auto_encoders(model: nn.Module) -> list[AutoEncoder]:
    """The network's auto-encoders."""
    return [module for module in model.modules() if isinstance(module, AutoEncoder)]


def reconstruction_loss(coders: Sequence[AutoEncoder]) -> Tensor | None:
    """The loss [] of auto-encoders for their last forward pass; None without one."""
    found = [loss for coder in coders if (loss := coder.reconstruction_loss()) is not None]
    return torch.stack(found).sum() if found else None
