"""Tables of action values, for targets that can be worked out by hand."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from gossamer.algorithms.target import add_target
from gossamer.data import Tree


class Table(nn.Module):
    """Action values of three observations, 0, 1 and 2."""

    def __init__(self, values: list[list[float]]) -> None:
        super().__init__()
        self.values = nn.Parameter(torch.tensor(values))

    def forward(self, obs: Tensor) -> Tensor:
        return self.values[obs[:, 0].long()]


class Counts(nn.Module):
    """A network that counts the steps of an episode in its state. Its values are a row of a table of returns for each
    count, on a scale."""

    def __init__(self, returns: list[list[float]], scale: Callable[[Tensor], Tensor] = lambda returns: returns) -> None:
        super().__init__()
        self.returns, self._scale = nn.Parameter(torch.tensor(returns)), scale

    def initial_state(self, num_envs: int) -> Tree:
        return {"count": torch.zeros(num_envs, 1)}

    def unroll(self, obs: Tensor, state: Tree, begins: Tensor) -> tuple[Tensor, Tree]:
        count, found = state["count"], []
        for t in range(len(obs)):
            count = count.masked_fill(begins[t].unsqueeze(1), 0.0)
            found.append(self._scale(self.returns[count[:, 0].long()]))
            count = count + 1
        return torch.cat(found), {"count": count}


ONLINE = [[0.0, 0.0, 0.0], [1.0, 5.0, 2.0], [3.0, 0.0, 1.0]]
OLDER = [[0.0, 0.0, 0.0], [7.0, 4.0, 9.0], [10.0, 20.0, 30.0]]


def networks() -> Table:
    """A network with a target network."""
    model = Table(OLDER)
    add_target(model)
    target: Any = model.target
    target.used(model, 1000)  # copies OLDER now, and not again
    with torch.no_grad():
        model.values.copy_(torch.tensor(ONLINE))
    return model


def h(x: float) -> float:
    """Pohlen et al. 2018, proposition A.2."""
    return math.copysign(math.sqrt(abs(x) + 1) - 1, x) + 1e-3 * x


def inverse(y: float) -> float:
    """x >= 0 with h(x) = y, by bisection."""
    low, high = 0.0, 1e6
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if h(middle) < y else (low, middle)
    return low
