"""A model's parameters as one vector: what is sent, averaged and measured is one buffer, not a tree of tensors."""

from __future__ import annotations

import hashlib

import torch
from torch import Tensor, nn
from torch.autograd.graph import increment_version

ALIGN = 16  # elements; a parameter starts at a multiple of 64 bytes


class Flat:
    """`vector` [P] float32: the model's parameters are views of it, gaps between them are zero.

    Elements lie as they lie in memory, so a channels-last weight stays one. Raises ValueError for a model without
    parameters, with others than float32, or on more than one device."""

    def __init__(self, model: nn.Module) -> None:
        self._parameters = dict(model.named_parameters())
        kinds = {(p.dtype, p.device) for p in self._parameters.values()}
        if len(kinds) != 1 or next(iter(kinds))[0] != torch.float32:
            raise ValueError(f"gossip needs float32 parameters on one device, not {sorted(map(str, kinds))}")
        self._places: list[int] = []
        size = 0
        for parameter in self._parameters.values():
            self._places.append(size)
            size += -(-parameter.numel() // ALIGN) * ALIGN
        (device,) = {device for _, device in kinds}
        vector = torch.zeros(size, device=device)
        for parameter, view in zip(self._parameters.values(), self.views(vector), strict=True):
            view.copy_(parameter.detach())
        self.vector = vector
        self.swap(vector)

    def views(self, vector: Tensor) -> list[Tensor]:
        """The parameters that a vector [P] holds, in the model's order."""
        parameters = self._parameters.values()
        return [
            vector[place:].as_strided(p.size(), p.stride()) if p.dim() else vector[place].reshape(())
            for place, p in zip(self._places, parameters, strict=True)
        ]

    def swap(self, vector: Tensor) -> None:
        """Let the model's parameters be views of this vector [P] from now on; the one before is left as it is."""
        self.vector = vector
        for parameter, view in zip(self._parameters.values(), self.views(vector), strict=True):
            parameter.data = view
            increment_version(parameter)  # or a cast of the values before would be taken for the present ones

    def gradient(self) -> Tensor:
        """The gradients, as one new vector [P]; zero where there is none."""
        vector = torch.zeros_like(self.vector)
        for parameter, view in zip(self._parameters.values(), self.views(vector), strict=True):
            if parameter.grad is not None:
                view.copy_(parameter.grad)
        return vector

    @property
    def layout(self) -> bytes:
        """8 bytes that are the same for models whose vectors can be averaged: names, shapes, order in memory."""
        said = [(name, tuple(p.size()), p.stride()) for name, p in self._parameters.items()]
        return hashlib.sha256(repr(said).encode()).digest()[:8]
