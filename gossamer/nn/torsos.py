"""Network torsos: from an observation to features."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import torch
from torch import Tensor, nn

# Shape of an observation [*O], or the shapes of its parts by name -> torso: [N, *O] or its parts -> [N, F], float
TorsoFactory: TypeAlias = Callable[[Any], nn.Module]

SEQUENCES = ("auto", "nips", "nature", "small", "tiny", "mlp")  # the names of those that `layer_normalized` takes
OF_PICTURES = ("nips", "nature", "small", "tiny", "resnet", "autoencoder")  # the names of those of pictures only
SIZED = (*SEQUENCES, "resnet")  # of those that take `Layers`

Activation: TypeAlias = Literal["tanh", "relu", "elu", "gelu", "silu"]
ACTIVATIONS: dict[Activation, Callable[[], nn.Module]] = {
    "tanh": nn.Tanh,
    "relu": nn.ReLU,
    "elu": nn.ELU,
    "gelu": nn.GELU,
    "silu": nn.SiLU,
}


@dataclass(frozen=True)
class Layers:
    """Units of each fully connected layer, and the activation after every layer; None: those of the torso."""

    units: tuple[int, ...] | None = None
    activation: Activation | None = None

    def filled(self, units: tuple[int, ...], activation: Activation) -> tuple[tuple[int, ...], Callable[[], nn.Module]]:
        """The units, and what makes the activation; these are those of the torso."""
        return self.units or units, ACTIVATIONS[self.activation or activation]


STANDARD = Layers()


def auto(obs_shape: tuple[int, ...], layers: Layers = STANDARD) -> nn.Module:
    """`mlp` for vectors; for images `nips` from 60 x 60 pixels on, `small` from 10 x 10 on, else `tiny`."""
    if len(obs_shape) != 3:
        return mlp(obs_shape, layers)
    side = min(obs_shape[1:])
    return (nips if side >= 60 else small if side >= 10 else tiny)(obs_shape, layers)


def nips(obs_shape: tuple[int, ...], layers: Layers = STANDARD) -> nn.Module:
    """Two convolutions and 256 units (Mnih et al. 2013; arch_nips of PAAC, the network of A3C)."""
    return _convolutional(obs_shape, [(16, 8, 4), (32, 4, 2)], 256, layers)


def nature(obs_shape: tuple[int, ...], layers: Layers = STANDARD) -> nn.Module:
    """Three convolutions and 512 units (Mnih et al. 2015; arch_nature of PAAC)."""
    return _convolutional(obs_shape, [(32, 8, 4), (64, 4, 2), (64, 3, 1)], 512, layers)


def small(obs_shape: tuple[int, ...], layers: Layers = STANDARD) -> nn.Module:
    """Two 4x4 convolutions and 256 units, for images of about 42x42, as in RLlib's fast Pong."""
    return _convolutional(obs_shape, [(16, 4, 2), (32, 4, 2)], 256, layers)


def tiny(obs_shape: tuple[int, ...], layers: Layers = STANDARD) -> nn.Module:
    """Two 3x3 convolutions that keep the size, and 128 units, for images of a few cells."""
    return _convolutional(obs_shape, [(16, 3, 1), (32, 3, 1)], 128, layers, padding=1)


def resnet(obs_shape: tuple[int, ...], layers: Layers = STANDARD) -> nn.Module:
    """Three sections of a convolution and two residual blocks, 15 convolutions in all, and 256 units (IMPALA's deep
    network, Espeholt et al. 2018, fig. 3, without its LSTM: use --memory lstm)."""
    if len(obs_shape) != 3:
        raise ValueError("a convolutional network needs [C, H, W]: use mlp or auto")
    channels, *plane = obs_shape
    modules: list[nn.Module] = []
    units, activation = layers.filled((256,), "relu")
    for out in (16, 32, 32):
        modules += [nn.Conv2d(channels, out, 3, padding=1), nn.MaxPool2d(3, 2, padding=1)]
        modules += [Residual(out, activation), Residual(out, activation)]
        channels, plane = out, [(side + 1) // 2 for side in plane]
    modules += [nn.Flatten(), activation(), *_connected(channels * plane[0] * plane[1], units, activation)]
    return nn.Sequential(*modules)


def autoencoder(obs_shape: tuple[int, ...]) -> nn.Module:
    """Three convolutions to a latent vector of 256, and a decoder whose loss trains it, too ("Accelerating Distributed
    Deep Reinforcement Learning", RLDM 2019, for 42x42 pictures). The loss is added when learning."""
    return AutoEncoder(obs_shape)


class AutoEncoder(nn.Module):
    """Encodes a picture [C, H, W] to 256 features. Raises `ValueError` for another shape, or one smaller than 8x8."""

    def __init__(self, obs_shape: tuple[int, ...]) -> None:
        super().__init__()
        if len(obs_shape) != 3 or min(obs_shape[1:]) < 8:
            raise ValueError("an auto-encoder needs pictures [C, H, W] of 8x8 or more: use mlp or auto")
        channels, height, width = obs_shape
        half, rest = (height // 2, width // 2), (height - height // 2 + 1, width - width // 2 + 1)
        self.encoder = nn.Sequential(
            nn.Conv2d(channels, 16, 4, 2, padding=1),
            nn.ReLU(),
            nn.Conv2d(16, 32, 4, 2, padding=1),
            nn.ReLU(),
            nn.Conv2d(32, 256, (height // 2 // 2, width // 2 // 2)),
            nn.ReLU(),
        )
        self.decoder = nn.Sequential(nn.ConvTranspose2d(256, 2, half), nn.ReLU(), nn.ConvTranspose2d(2, channels, rest))
        self._last: tuple[Tensor, Tensor] | None = None  # inputs and latents of the last forward pass for learning

    def forward(self, x: Tensor) -> Tensor:
        """[N, C, H, W] -> [N, 256]."""
        latent: Tensor = self.encoder(x)
        self._last = (x, latent) if torch.is_grad_enabled() else None
        return latent.flatten(1)

    def reconstruction_loss(self) -> Tensor | None:
        """Mean squared error [] of the last forward pass's inputs; None if it was not for learning."""
        if self._last is None:
            return None
        (x, latent), self._last = self._last, None
        return (self.decoded(latent.float()) - x.float()).square().mean()

    def decoded(self, latent: Tensor) -> Tensor:
        """Latents [N, 256, 1, 1] -> pictures [N, C, H, W], float32: what `decoder` computes, without its convolutions,
        which are slow on processors.

        On a plane of 1x1 a transposed convolution is a matrix product. One with a kernel as large as its plane is a
        product of Fourier transforms."""
        modules: list[Any] = list(self.decoder)
        first, activation, second = modules
        plane, kernel = first.kernel_size, second.kernel_size
        flat = latent.flatten(1) @ first.weight.flatten(1)
        hidden = activation(flat.unflatten(1, (-1, *plane)) + first.bias[:, None, None])
        size = [a + b - 1 for a, b in zip(plane, kernel, strict=True)]
        spectra = torch.fft.rfft2(hidden, size).unsqueeze(2) * torch.fft.rfft2(second.weight, size)
        decoded: Tensor = torch.fft.irfft2(spectra.sum(1), size) + second.bias[:, None, None]
        return decoded


class Residual(nn.Module):
    """x + conv(f(conv(f(x)))) with 3x3 convolutions and an activation f."""

    def __init__(self, channels: int, activation: Callable[[], nn.Module]) -> None:
        super().__init__()
        self.first = nn.Conv2d(channels, channels, 3, padding=1)
        self.second = nn.Conv2d(channels, channels, 3, padding=1)
        self.activation = activation()

    def forward(self, x: Tensor) -> Tensor:
        """[N, C, H, W] -> the same shape."""
        result: Tensor = x + self.second(self.activation(self.first(self.activation(x))))
        return result


def mlp(obs_shape: tuple[int, ...], layers: Layers = STANDARD) -> nn.Module:
    """Two layers of 64 tanh units for small vectors (Schulman et al. 2017)."""
    units, activation = layers.filled((64, 64), "tanh")
    return nn.Sequential(nn.Flatten(), *_connected(torch.Size(obs_shape).numel(), units, activation))


def linear(obs_shape: tuple[int, ...]) -> nn.Module:
    """The observation itself, without any layer: the heads are linear functions of it."""
    return nn.Flatten()


def _connected(size: int, units: Sequence[int], activation: Callable[[], nn.Module]) -> list[nn.Module]:
    """Fully connected layers, each with an activation after it."""
    modules: list[nn.Module] = []
    for out in units:
        modules += [nn.Linear(size, out), activation()]
        size = out
    return modules


def _convolutional(
    obs_shape: tuple[int, ...],
    convolutions: Sequence[tuple[int, int, int]],
    units: int,
    layers: Layers,
    *,
    padding: int = 0,
) -> nn.Module:
    """`convolutions`: (channels, kernel, stride); after them one layer of `units`, and ReLU after every layer, unless
    `layers` has others. Raises `ValueError` for an `obs_shape` that is not [C, H, W] or is too small."""
    if len(obs_shape) != 3:
        raise ValueError("a convolutional network needs [C, H, W]: use mlp or auto")
    modules: list[nn.Module] = []
    channels, height, width = obs_shape
    connected, activation = layers.filled((units,), "relu")
    for out, kernel, stride in convolutions:
        modules += [nn.Conv2d(channels, out, kernel, stride, padding), activation()]
        height, width = ((side + 2 * padding - kernel) // stride + 1 for side in (height, width))
        channels = out
        if min(height, width) < 1:
            raise ValueError("too small for its convolutions: use auto")
    modules[-1:] = [nn.Flatten(), activation()]  # in this order both have one memory format forwards and backwards
    modules += _connected(channels * height * width, connected, activation)
    return nn.Sequential(*modules)


def layer_normalized(torso: nn.Module) -> nn.Module:
    """Insert layer normalisation (Ba et al. 2016) after each linear and convolutional layer, over all features of an
    observation: channels, height and width. Raises `ValueError` if the torso is not a plain sequence of layers."""
    if not isinstance(torso, nn.Sequential) or any(len(list(layer.children())) for layer in torso):
        raise ValueError("layer normalisation needs a sequence of layers")
    return nn.Sequential(*(each for layer in torso for each in (layer, *_norms(layer))))


def _norms(layer: nn.Module) -> list[nn.Module]:
    """The normalisation that follows this layer; none after an activation."""
    if isinstance(layer, nn.Conv2d):
        return [nn.GroupNorm(1, layer.out_channels)]  # one group: over all channels, with a gain for each of them
    return [nn.LayerNorm(layer.out_features)] if isinstance(layer, nn.Linear) else []


class Parts(nn.Module):
    """One torso for each part of an observation, or for several side by side; the torsos' features side by side."""

    def __init__(self, torsos: Sequence[tuple[tuple[str, ...], nn.Module]]) -> None:
        """`torsos`: each with the names of its parts; several are flattened."""
        super().__init__()
        self._names = tuple(names for names, _ in torsos)
        self.torsos = nn.ModuleList(
            torso for _, torso in torsos
        )  # names of parts may contain dots, those of modules not

    def forward(self, parts: Mapping[str, Tensor]) -> Tensor:
        """{name: [N, *part shape]} -> [N, F]."""
        inputs = [
            parts[names[0]] if len(names) == 1 else torch.cat([parts[name].flatten(1) for name in names], dim=-1)
            for names in self._names
        ]
        return torch.cat([torso(each) for torso, each in zip(self.torsos, inputs, strict=True)], dim=-1)


class Pair(nn.Module):
    """Two torsos of the same kind, one for the policy and one for the value; their features side by side."""

    def __init__(self, policy: nn.Module, value: nn.Module) -> None:
        super().__init__()
        self.policy, self.value = policy, value

    def forward(self, inputs: Any) -> Tensor:
        """[N, *O] or its parts -> [N, 2 F]."""
        return torch.cat([self.policy(inputs), self.value(inputs)], dim=-1)
