"""Network torsos, and an actor-critic with input centring and reduced precision."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, TypeAlias

import torch
from torch import Tensor, nn
from torch.func import functional_call

from gossamer.data import Array
from gossamer.distributions import Distribution, Space
from gossamer.options import option, options

TorsoFactory: TypeAlias = Callable[[tuple[int, ...]], nn.Module]  # obs shape O -> torso: [N, *O] float -> [N, F]

INPUT_SCALES = {"background": 1 / 64, "unit": 1 / 255, "raw": 1.0}


@options
class NetworkOptions:
    """Options of the network, common to all algorithms."""

    torso: str = option(
        "Torso: nips, nature, small, mlp, or module:factory (observation shape -> torch module).",
        "nips",
        name="network",
    )
    input: Literal["background", "unit", "raw"] = option(
        "Images: minus their background and / 64, / 255, or unchanged.", "raw"
    )
    initialization: Literal["orthogonal", "uniform"] = option("Of weights; uniform: +-1/sqrt(fan_in).", "orthogonal")
    precision: Literal["auto", "fp32", "bf16"] = option("auto: bf16 if the processor supports it.", "auto")


def nips(obs_shape: tuple[int, ...]) -> nn.Module:
    """Two convolutions and 256 units (Mnih et al. 2013; arch_nips of PAAC, the network of A3C)."""
    return _convolutional(obs_shape, [(16, 8, 4), (32, 4, 2)], 256)


def nature(obs_shape: tuple[int, ...]) -> nn.Module:
    """Three convolutions and 512 units (Mnih et al. 2015; arch_nature of PAAC)."""
    return _convolutional(obs_shape, [(32, 8, 4), (64, 4, 2), (64, 3, 1)], 512)


def small(obs_shape: tuple[int, ...]) -> nn.Module:
    """Two 4x4 convolutions and 256 units, for images of about 42x42, as in RLlib's fast Pong."""
    return _convolutional(obs_shape, [(16, 4, 2), (32, 4, 2)], 256)


def mlp(obs_shape: tuple[int, ...]) -> nn.Module:
    """Two layers of 64 tanh units for small vectors (Schulman et al. 2017)."""
    size = torch.Size(obs_shape).numel()
    return nn.Sequential(nn.Flatten(), nn.Linear(size, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh())


def _convolutional(obs_shape: tuple[int, ...], layers: Sequence[tuple[int, int, int]], units: int) -> nn.Module:
    """`layers`: (channels, kernel, stride), without padding; all activations are ReLU. Raises `ValueError` for an
    `obs_shape` that is not [C, H, W] or is too small."""
    if len(obs_shape) != 3:
        raise ValueError("a convolutional network needs [C, H, W]: use mlp")
    modules: list[nn.Module] = []
    channels, height, width = obs_shape
    for out, kernel, stride in layers:
        modules += [nn.Conv2d(channels, out, kernel, stride), nn.ReLU()]
        channels, height, width = out, (height - kernel) // stride + 1, (width - kernel) // stride + 1
        if min(height, width) < 1:
            raise ValueError("too small for its convolutions: use small or mlp")
    modules += [nn.Flatten(), nn.Linear(channels * height * width, units), nn.ReLU()]
    return nn.Sequential(*modules)


class Centred(nn.Module):
    """Maps observations to network inputs: (x - offset) * scale.

    Images are centred on their background, the mean image of random play. Pong then needs a third of the steps that it
    needs with x / 255. Vectors are not changed (offset 0, scale 1)."""

    offset: Tensor
    scale: Tensor

    def __init__(self, obs_shape: tuple[int, ...], scale: float) -> None:
        super().__init__()
        self.register_buffer("offset", torch.zeros(obs_shape))  # *O
        self.register_buffer("scale", torch.tensor(scale))  # []

    def forward(self, obs: Tensor, dtype: torch.dtype) -> Tensor:
        """Map [N, *O] of any dtype to [N, *O] of `dtype`; images in channels-last format."""
        shift = (-self.offset * self.scale).to(dtype).unsqueeze(0)  # [1, *O]
        if obs.dim() == 4:  # adding tensors of different formats is ten times as slow and loses the format
            obs = obs.contiguous(memory_format=torch.channels_last)
            shift = shift.contiguous(memory_format=torch.channels_last)
        return torch.addcmul(shift, obs.to(dtype), self.scale.to(dtype))


class ActorCritic(nn.Module):
    """A torso with a policy head and a value head.

    Parameters, heads and outputs are float32; the torso computes in `compute_dtype`. In bfloat16, weights are cast once
    per set of parameters when acting, and within the graph when learning, so that gradients are float32. Raises
    `ValueError` if the torso does not return [N, F]."""

    def __init__(
        self,
        obs_shape: tuple[int, ...],
        actions: Space,
        torso: TorsoFactory,
        *,
        scale: float = 1.0,
        orthogonal: bool = True,
        compute_dtype: torch.dtype = torch.float32,
    ) -> None:
        super().__init__()
        self.centre = Centred(obs_shape, scale)
        self.torso = torso(obs_shape)
        with torch.no_grad():
            features = self.torso(torch.zeros(1, *obs_shape))
        if features.dim() != 2:
            raise ValueError(f"a torso must return [N, F], not {list(features.shape)} for one observation")
        self.actions, self.policy = actions, actions.head(features.shape[1])
        self.value = nn.Linear(features.shape[1], 1)
        if orthogonal:
            _orthogonal(self)
        if len(obs_shape) == 3:
            self.torso.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # not in torch's stubs
        self.compute_dtype = compute_dtype
        self._cast: tuple[tuple[int, ...], dict[str, Tensor]] = ((), {})

    def forward(self, obs: Tensor) -> tuple[Distribution, Tensor]:
        """Map [N, *O] to N distributions over actions and values [N], both float32."""
        features = self._features(self.centre(obs, self.compute_dtype)).float()
        return self.actions.distribution(self.policy(features)), self.value(features).squeeze(-1)

    def _features(self, inputs: Tensor) -> Tensor:
        """Map [N, *O] to features [N, F] in the compute dtype."""
        if self.compute_dtype == torch.float32:
            result: Tensor = self.torso(inputs)
        else:
            result = functional_call(self.torso, self._weights(), (inputs,))
        return result

    def _weights(self) -> dict[str, Tensor]:
        """The torso's parameters in the compute dtype; without gradients cached until a parameter changes."""
        weights = dict(self.torso.named_parameters())
        if torch.is_grad_enabled():
            self._cast = ((), {})  # an update follows, and fused optimisers do not increment version counters
            return {name: w.to(self.compute_dtype) for name, w in weights.items()}
        versions = tuple(w._version for w in weights.values())  # incremented by in-place changes
        if versions != self._cast[0]:
            self._cast = (versions, {name: w.detach().to(self.compute_dtype) for name, w in weights.items()})
        return self._cast[1]


def centre_on(model: nn.Module, mean: Array) -> None:
    """Set the mean observation [*O] that every `Centred` module of the model subtracts."""
    for module in model.modules():
        if isinstance(module, Centred):
            module.offset.copy_(torch.as_tensor(mean))


def _orthogonal(model: ActorCritic) -> None:
    """Initialise weights orthogonally: gain sqrt(2), and 0.01 for the policy head (a nearly uniform initial policy)."""
    for module in model.torso.modules():
        if isinstance(module, nn.Conv2d | nn.Linear):
            nn.init.orthogonal_(module.weight, 2**0.5)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
    for head, gain in ((model.policy, 0.01), (model.value, 1.0)):
        for module in head.modules():
            if isinstance(module, nn.Linear):
                nn.init.orthogonal_(module.weight, gain)
                nn.init.zeros_(module.bias)
