"""A network's outputs as tensors, and a stand-in for a network that is evaluated in this form."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from gossamer.algorithms.base import initial_state
from gossamer.data import Tree
from gossamer.nn.networks import Recurrent, RecurrentValues
from gossamer.spaces import Space


@dataclass(frozen=True)
class Outputs:
    """What a network answers."""

    tensors: tuple[Tensor, ...]  # [N, ..]  distributions and values, or action values
    state: Tree  # [N, ...]  recurrent state after the observations
    distributions: bool  # whether the first ones are the parameters of distributions over actions


Evaluate: TypeAlias = Callable[[Tensor, Tree], Outputs]  # obs [N, *O], the recurrent state before them [N, ...]


def evaluated(model: nn.Module, obs: Tensor, state: Tree) -> Outputs:
    """The network's outputs for obs [N, *O] and the recurrent state before them [N, ...]."""
    found: Any
    if state:
        assert isinstance(model, Recurrent | RecurrentValues), "only a recurrent network has a state"
        begins = torch.zeros(1, len(obs), dtype=torch.bool, device=obs.device)
        *found, state = model.unroll(obs.unsqueeze(0), state, begins)
    else:
        given = model(obs)
        found = list(given) if isinstance(given, tuple) else [given]
    first, *others = found
    if isinstance(first, Tensor):
        return Outputs((first, *others), state, False)
    return Outputs((first.parameters, *others), state, True)


class Evaluated(nn.Module):
    """Stands in for a network where it acts: answers as it does, by a function that evaluates it."""

    def __init__(self, model: nn.Module, evaluate: Evaluate, actions: Space) -> None:
        super().__init__()
        self._model, self._evaluate, self._actions = [model], evaluate, actions  # in a list: it is no part of this one

    def initial_state(self, num_envs: int) -> Tree:
        """See `Stateful`."""
        return initial_state(self._model[0], num_envs)

    def forward(self, obs: Tensor) -> Any:
        """What the network answers for obs [B, *O]."""
        first, *others = self._outputs(self._evaluate(obs, {}))
        return (first, *others) if others else first

    def unroll(self, obs: Tensor, state: Tree, begins: Tensor) -> Any:
        """What the network answers for one step of running episodes: obs [1, B, *O] and the state before it."""
        outputs = self._evaluate(obs[0], state)
        return *self._outputs(outputs), outputs.state

    def _outputs(self, outputs: Outputs) -> tuple[Any, ...]:
        """The outputs in the form in which the network gives them."""
        first, *others = outputs.tensors
        return (self._actions.distribution(first) if outputs.distributions else first, *others)
