"""Memory between torso and heads: a recurrent layer that is reset where episodes begin."""

from __future__ import annotations

from typing import Literal, TypeAlias

import torch
from torch import Tensor, nn

from gossamer.data import Tree

MemoryKind: TypeAlias = Literal["none", "lstm", "gru"]
# Of the tensors of a state
NAMES: dict[MemoryKind, tuple[str, ...]] = {"none": (), "lstm": ("hidden", "cell"), "gru": ("hidden",)}


def state_bytes(kind: MemoryKind, units: int) -> int:
    """Bytes of the state of one environment, which is float32."""
    return len(NAMES[kind]) * units * 4


class Memory(nn.Module):
    """An LSTM or a GRU over T steps of B environments. `state`: {name: [B, H]}.

    Layer normalisation (Ba et al. 2016) scales its inputs to mean 0 and deviation 1. Small objects in a picture, such
    as Pong's ball, have small features, which the memory would otherwise learn to use late."""

    def __init__(self, kind: MemoryKind, features: int, units: int) -> None:
        super().__init__()
        self.units, self.names = units, NAMES[kind]
        self.norm = nn.LayerNorm(features)
        self.core = nn.LSTM(features, units) if kind == "lstm" else nn.GRU(features, units)
        self._gates = 4 if kind == "lstm" else 3  # whose weights are stacked

    def initialise(self) -> None:
        """Make the weights of each gate orthogonal and the biases zero; torch's default weights are smaller."""
        for weights in self.core.parameters():
            if weights.dim() == 1:
                nn.init.zeros_(weights)
            else:
                for gate in weights.chunk(self._gates):
                    nn.init.orthogonal_(gate)

    def initial_state(self, num_envs: int) -> Tree:
        """The state at the start of an episode: zeros."""
        weights = next(self.core.parameters())
        return {name: weights.new_zeros(num_envs, self.units) for name in self.names}

    def forward(self, features: Tensor, state: Tree, begins: Tensor) -> tuple[Tensor, Tree]:
        """Map features [T, B, F] and the state before them to outputs [T, B, H] and the state after them. Where
        `begins` [T, B] is true, an episode begins and the state before that step is zero.

        Steps between two resets of any environment run in one call of the layer."""
        features = self.norm(features)
        starts = [0] if len(begins) == 1 else [0, *(begins[1:].any(1).nonzero().flatten() + 1).tolist()]
        outputs = []
        for start, end in zip(starts, [*starts[1:], len(features)], strict=True):
            output, state = self._run(features[start:end], reset(state, begins[start]))
            outputs.append(output)
        return torch.cat(outputs) if len(outputs) > 1 else outputs[0], state

    def _run(self, features: Tensor, state: Tree) -> tuple[Tensor, Tree]:
        before = tuple(state[name].unsqueeze(0) for name in self.names)
        output, after = self.core(features, before if len(before) > 1 else before[0])
        after = after if isinstance(after, tuple) else (after,)
        return output, {name: each.squeeze(0) for name, each in zip(self.names, after, strict=True)}


def reset(state: Tree, begins: Tensor) -> Tree:
    """Return the state [B, ...] with zeros where `begins` [B] is true."""
    return {name: rows.masked_fill(begins.unsqueeze(-1), 0.0) for name, rows in state.items()}
