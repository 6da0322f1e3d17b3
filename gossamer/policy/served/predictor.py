"""Evaluates a network for the requests of many actors."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from gossamer.algorithms.base import initial_state
from gossamer.data import Tree
from gossamer.nn.memory import reset
from gossamer.policy.base import Source
from gossamer.policy.outputs import evaluated
from gossamer.policy.served.messages import Answered, Key, PolicyAnswer, Request, Taken, Welcome
from gossamer.system.graphs import Repeated
from gossamer.system.machine import settle
from gossamer.system.transfers import uploaded


class Predictor:
    """A network with the newest parameters of its source, which it evaluates once for all requests of a batch."""

    def __init__(self, source: Source, device: str, *, records: bool = False) -> None:
        """`records`: see `Repeated`."""
        self._source, self._device = source, device
        self._evaluate = Repeated(partial(evaluated, source.model), source.model, records=records)
        self._initial: Tree = initial_state(source.model, 1)
        self.batches = 0  # evaluated

    def welcome(self) -> Welcome:
        """What actors have to know of the network."""
        return Welcome({name: each.cpu() for name, each in self._initial.items()}, self._source.refresh())

    @torch.no_grad()
    def answers(self, taken: Taken) -> dict[Key, Answered]:
        """Answer requests with the newest parameters, or those that have just been replaced."""
        version = self._source.refresh()
        requests = {key: request.unpacked() for key, request in taken.requests.items()}
        before = {key: self._before(request, taken.states.get(key)) for key, request in requests.items()}
        obs = _joined([uploaded(request.obs, self._device).movedim(1, -1) for request in requests.values()]).movedim(
            -1, 1
        )
        states = list(before.values())
        state = {name: _joined([each[name] for each in states]) for name in self._initial}
        outputs = self._evaluate(obs, state)
        after = outputs.state
        settle(self._device)
        answered, start = dict[Key, Answered](), 0
        for key, request in requests.items():
            rows = slice(start, start := start + request.envs)
            shown = {} if request.acts else before[key]
            tensors = tuple(each[rows] for each in outputs.tensors)
            answer = PolicyAnswer(tensors, outputs.distributions, version, shown)
            kept = {name: each[rows] for name, each in after.items()} if after and request.acts else None
            answered[key] = Answered(taken.requests[key].reply(answer), kept)
        self.batches += 1
        return answered

    def close(self) -> None:
        """The predictor ends."""
        self._source.leave()

    def _before(self, request: Request, state: Tree | None) -> Tree:
        """The recurrent state [B, ...] before a request; `state`: that of the actor's environments."""
        if state is None or request.rows is None:
            initial: Tree = initial_state(self._source.model, request.envs)
            return initial
        rows = uploaded(request.rows, self._device)
        if not request.acts:
            state = {name: each[(rows - 1).clamp(min=0)] for name, each in state.items()}
        return reset(state, rows == 0)


def _joined(parts: list[Tensor]) -> Tensor:
    """The parts side by side; one part as it is."""
    return parts[0] if len(parts) == 1 else torch.cat(parts)
