"""A model's parameters as one flat vector, which can be sent, averaged and measured in one operation."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.autograd.graph import increment_version

ALIGN = 16  # elements; a parameter starts at a multiple of 64 bytes
UNTRAINED = (  # of an exchange of gradients alone
    "all need gradients: make the weights of frozen layers buffers, or use another architecture, such as gala or "
    "impala; running statistics are not shared"
)


class Flat:
    """`vector` [P] float32. The model's parameters are views of it; padding between them is zero. Parameters without
    gradients, which hold running statistics, come last. Before them come the parameters of modules whose `inseparable`
    is True: layers whose outputs are in units of these statistics. Parameters of a module whose `exchanged` is False,
    such as a target network, are not in it.

    Each parameter keeps its memory format, channels last for example. Raises `ValueError` if the model has no
    parameters, parameters of another dtype than float32, or parameters on more than one device."""

    def __init__(self, model: nn.Module) -> None:
        local = {p for module in _local(model) for p in module.parameters()}
        named = [(name, p) for name, p in model.named_parameters() if p not in local]
        tied = {p for module in model.modules() if getattr(module, "inseparable", False) for p in module.parameters()}
        # The sort is stable
        self._parameters = dict(sorted(named, key=lambda each: (not each[1].requires_grad, each[1] in tied)))
        kinds = {(p.dtype, p.device) for p in self._parameters.values()}
        if len(kinds) != 1 or next(iter(kinds))[0] != torch.float32:
            raise ValueError(f"exchanges need float32 parameters on one device, not {sorted(map(str, kinds))}")
        self._places: list[int] = []
        size = 0
        for parameter in self._parameters.values():
            self._places.append(size)
            size += -(-parameter.numel() // ALIGN) * ALIGN
        (device,) = {device for _, device in kinds}
        vector = torch.zeros(size, device=device)
        for parameter, view in zip(self._parameters.values(), self.views(vector), strict=True):
            view.copy_(parameter.detach())
        places = list(zip(self._parameters.values(), self._places, strict=True))
        # Elements before the statistics, and before the layers in their units, too
        self.trained = next((place for p, place in places if not p.requires_grad), size)
        self.separable = next((place for p, place in places if not p.requires_grad or p in tied), size)
        self.vector = vector
        self.swap(vector)

    def views(self, vector: Tensor) -> list[Tensor]:
        """Return the parameters in a vector [P] as views, in the vector's order."""
        parameters = self._parameters.values()
        return [
            vector[place:].as_strided(p.size(), p.stride()) if p.dim() else vector[place].reshape(())
            for place, p in zip(self._places, parameters, strict=True)
        ]

    def swap(self, vector: Tensor) -> None:
        """Make the model's parameters views of this vector [P]. The previous vector is not modified."""
        self.vector = vector
        for parameter, view in zip(self._parameters.values(), self.views(vector), strict=True):
            parameter.data = view
            increment_version(parameter)  # invalidates the cached cast in `ActorCritic`

    def gradient(self) -> Tensor:
        """Return the gradients as a new vector [P]; zero for parameters without a gradient."""
        vector = torch.zeros_like(self.vector)
        for parameter, view in zip(self._parameters.values(), self.views(vector), strict=True):
            if parameter.grad is not None:
                view.copy_(parameter.grad)
        return vector

    def set_gradient(self, vector: Tensor) -> None:
        """Replace the gradients by a vector [P], perhaps of another GPU. Parameters without a gradient keep none."""
        vector = vector.to(self.vector.device)
        for parameter, view in zip(self._parameters.values(), self.views(vector), strict=True):
            if parameter.grad is not None:
                parameter.grad.copy_(view)

    def zero_gradients(self) -> None:
        """Give each trained parameter a gradient of zeros."""
        for parameter in self._parameters.values():
            parameter.grad = torch.zeros_like(parameter) if parameter.requires_grad else None

    @property
    def layout(self) -> bytes:
        """Hash (8 bytes) of the parameters' names, shapes and strides. Only vectors of equal layout can be averaged."""
        described = [(name, tuple(p.size()), p.stride()) for name, p in self._parameters.items()]
        return hashlib.sha256(repr(described).encode()).digest()[:8]


def buffers(model: nn.Module) -> dict[str, Tensor]:
    """What the model has besides parameters, by name, without the modules whose `exchanged` is False."""
    local = {buffer for module in _local(model) for buffer in module.buffers()}
    return {name: buffer for name, buffer in model.named_buffers() if buffer not in local}


def local_state(model: nn.Module) -> dict[str, Tensor]:
    """A copy of the parameters and buffers of the modules whose `exchanged` is False."""
    return {name: tensor.detach().clone() for name, tensor in _local_tensors(model).items()}


@torch.no_grad()
def load_local_state(model: nn.Module, state: Mapping[str, Tensor]) -> None:
    """Copy what `local_state` has returned, here or for another copy of the model."""
    for name, tensor in _local_tensors(model).items():
        tensor.copy_(state[name])


def _local_tensors(model: nn.Module) -> dict[str, Tensor]:
    named = dict(model.named_modules())
    return {
        f"{prefix}.{name}": tensor
        for prefix, module in named.items()
        if not getattr(module, "exchanged", True)
        for name, tensor in module.state_dict().items()
        if not name.endswith("_extra_state")  # which is a learner's own, as its traces
    }


def _local(model: nn.Module) -> list[nn.Module]:
    """The modules that are not exchanged."""
    return [module for module in model.modules() if not getattr(module, "exchanged", True)]
