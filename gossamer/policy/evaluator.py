"""Evaluates networks without gradients, on a GPU with recorded CUDA graphs."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from gossamer.algorithms.base import initial_state
from gossamer.data import Tree
from gossamer.nn.networks import Recurrent, RecurrentValues
from gossamer.spaces import Space
from gossamer.system.graphs import Recorder, Recording, addresses, forms

WARM = 2  # evaluations of a form before one is recorded: they load kernels
MOST = 16  # recordings, after which all is computed as it comes


@dataclass(frozen=True)
class Outputs:
    """What a network answers, as tensors."""

    tensors: tuple[Tensor, ...]  # [N, ..]  distributions and values, or action values
    state: Tree  # [N, ...]  recurrent state after the observations
    distributions: bool  # whether the first ones are the parameters of distributions over actions

    def cloned(self) -> Outputs:
        """A copy."""
        state = {name: each.clone() for name, each in self.state.items()}
        return Outputs(tuple(each.clone() for each in self.tensors), state, self.distributions)


class Evaluator:
    """Evaluates a network. Observations of a form that comes again are evaluated by a recording."""

    def __init__(self, model: nn.Module, *, records: bool) -> None:
        """`records`: whether there are recordings. They need a GPU."""
        self.model, self._records = model, records
        self._seen = Counter[Any]()  # form -> evaluations, since the last recording
        self._known = dict[Any, _Recorded]()  # form -> its recording

    @torch.no_grad()
    def __call__(self, obs: Tensor, state: Tree) -> Outputs:
        """The outputs for obs [N, *O] and the recurrent state before them [N, ...]."""
        known = self._recorded(obs, state) if self._records else None
        return evaluated(self.model, obs, state) if known is None else known(obs, state)

    def _recorded(self, obs: Tensor, state: Tree) -> _Recorded | None:
        """The recording for observations of this form, if it comes often enough."""
        form = obs.shape, forms(state), addresses(list(self.model.parameters()))
        if form in self._known or len(self._known) == MOST:
            return self._known.get(form)
        self._seen[form] += 1
        if self._seen[form] <= WARM:
            return None
        self._seen.clear()  # forms that do not come again
        try:
            self._known[form] = _Recorded(self.model, obs, state)
        except RuntimeError:  # a user's network may read from the GPU
            self._records = False
            return None
        return self._known[form]


class _Recorded:
    """The evaluation of observations of one form."""

    def __init__(self, model: nn.Module, obs: Tensor, state: Tree) -> None:
        self._obs = torch.empty_like(obs)
        self._state = {name: torch.empty_like(each) for name, each in state.items()}
        self._recording: Recording[Outputs] = Recorder()(lambda: evaluated(model, self._obs, self._state))

    def __call__(self, obs: Tensor, state: Tree) -> Outputs:
        self._obs.copy_(obs)
        for name, each in state.items():
            self._state[name].copy_(each)
        self._recording.replay()
        return self._recording.result.cloned()


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


class ActingNetwork(nn.Module):
    """Stands in for a network where it acts: answers as it does, by its `Evaluator`."""

    def __init__(self, evaluator: Evaluator, actions: Space) -> None:
        super().__init__()
        self._evaluator, self._actions = [evaluator], actions  # in a list: its network is not a part of this one

    def initial_state(self, num_envs: int) -> Tree:
        """See `Stateful`."""
        return initial_state(self._evaluator[0].model, num_envs)

    def forward(self, obs: Tensor) -> Any:
        """What the network answers for obs [B, *O]."""
        first, *others = self._outputs(self._evaluator[0](obs, {}))
        return (first, *others) if others else first

    def unroll(self, obs: Tensor, state: Tree, begins: Tensor) -> Any:
        """What the network answers for one step of running episodes: obs [1, B, *O] and the state before it."""
        outputs = self._evaluator[0](obs[0], state)
        return *self._outputs(outputs), outputs.state

    def _outputs(self, outputs: Outputs) -> tuple[Any, ...]:
        """The outputs in the form in which the network gives them."""
        first, *others = outputs.tensors
        return (self._actions.distribution(first) if outputs.distributions else first, *others)
