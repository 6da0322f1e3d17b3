"""What the networks of all algorithms share: options, normalised inputs, a torso in reduced precision, and memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, Protocol, runtime_checkable

import torch
from torch import Tensor, nn
from torch.func import functional_call

from gossamer.data import Tree
from gossamer.nn.inputs import CentredParts, Inputs, Observations, Prepared, input_of
from gossamer.nn.memory import Memory, MemoryKind
from gossamer.nn.normalization import Observed
from gossamer.nn.tiles import TileCoding, Tiles
from gossamer.nn.torsos import (
    STANDARD,
    Activation,
    Layers,
    Pair,
    Parts,
    TorsoFactory,
    auto,
    layer_normalized,
    linear,
    mlp,
)
from gossamer.spaces import Space, Spec
from gossamer.spaces.distributions import Distribution
from gossamer.spaces.observations import MASK
from gossamer.system.graphs import recording
from gossamer.system.options import Sizes, option, options


@options
class NetworkOptions:
    """Options of the network, common to all algorithms."""

    torso: str = option(
        "Torso: auto, nips, nature, small, tiny, resnet, autoencoder, mlp, linear, tiles, or module:factory (shape -> "
        "torch module).",
        "auto",
        name="network",
    )
    hidden_sizes: Sizes | None = option(
        "Units of each fully connected layer of the torso, after convolutions: 256,256.", None, least=1, most=65_536,
        unset="those of the torso",
    )  # fmt: skip
    activation: Activation | None = option("After each layer of the torso.", None, unset="that of the torso")
    input: Literal["background", "unit", "raw"] = option(
        "Images, and an observation of one vector: minus the mean of random play and / 64, / 255, or unchanged.", "raw"
    )
    layer_norm: bool = option("Layer normalisation after each layer of the torso, before its activation.", False)
    initialization: Literal["orthogonal", "uniform"] = option("Of weights; uniform: +-1/sqrt(fan_in).", "orthogonal")
    precision: Literal["auto", "fp32", "bf16"] = option(
        "auto: bf16 on GPUs, and for pictures on processors that compute it fast.", "auto"
    )
    join_vectors: bool = option("The vectors of a Dict have one torso together, in place of one each.", False)
    separate_critic: bool = option("The value has a torso of its own.", False)
    normalize_observations: bool = option("Vectors: by their running mean and deviation.", False)
    normalize_returns: bool = option(
        "Learn values in units of the returns' running deviation; of several games, of each one's.", False
    )
    state_std: bool = option("Continuous actions: the deviation depends on the observation.", False)
    memory: Literal["none", "lstm", "gru"] = option("Recurrent layer between torso and heads.", "none")
    memory_units: int = option("Units of the memory.", 256, least=1, most=65_536)
    last_action_reward: bool = option("Observe the last action and reward, too.", False)
    observe_game: bool = option("Several games: observe which one it is, too.", False)
    tilings: int = option("Grids of --network tiles, each shifted against the others.", 8, least=1, most=1024)
    tiles: int = option("Tiles of each grid along each number of the observation.", 8, least=1, most=65_536)
    reconstruction_coef: float = option("Weight of the loss of --network autoencoder.", 1.0, least=0)


@dataclass(frozen=True)
class Network:
    """The parts of a network; see `NetworkOptions`."""

    torso: TorsoFactory | TileCoding = auto
    input_scale: float = 1.0  # factor of images, and of observations that are a single vector
    centre: bool = False  # subtract the mean observation of random play first
    layer_norm: bool = False  # see `torsos.layer_normalized`
    orthogonal: bool = True  # initialisation; otherwise uniform +-1/sqrt(fan_in)
    dtype: torch.dtype | None = torch.float32  # compute dtype of the torso; None: see `machine.resolve_dtype`
    separate_critic: bool = False  # not together with a memory
    normalize_observations: bool = False
    normalize_returns: bool = False
    state_std: bool = False
    memory: MemoryKind = "none"
    memory_units: int = 256
    reconstruction_coef: float = 1.0  # weight of an auto-encoder's loss
    observe_game: bool = False  # which of several games it is
    join_vectors: bool = False  # one torso for all parts that are no pictures
    own_torso: bool = False  # the torso gets all parts of an observation, and not one
    layers: Layers = STANDARD  # only for the torsos in `torsos.SIZED`


@runtime_checkable
class Stateful(Protocol):
    """Networks with a state that belongs to an episode."""

    def initial_state(self, num_envs: int) -> Tree:
        """The state at the start of an episode: {name: [B, ...]}; empty: without memory."""


@runtime_checkable
class Recurrent(Stateful, Protocol):
    """Actor-critics with a state that belongs to an episode."""

    def unroll(self, obs: Tensor, state: Tree, begins: Tensor) -> tuple[Distribution, Tensor, Tree]:
        """Map obs [T, B, *O], the state before them [B, ...] and `begins` [T, B] (x_t is the first observation of an
        episode) to T * B distributions over actions, values [T * B], and the state after them."""


@runtime_checkable
class Normalizing(Protocol):
    """Networks with running statistics of what they observe, which learners may have to share."""

    share: Callable[[Observed], None] | None  # called in place of `include`: see `AllReduce`

    @property
    def observes(self) -> bool:
        """Whether `observe` has an effect."""

    @property
    def begun(self) -> bool:
        """Whether values have their units: the first rollout has set them, or returns are not normalised."""

    def observe(self, obs: Tensor, returns: Tensor) -> None:
        """Include a rollout's observations [N, *O] and returns [N] in the running statistics."""

    def include(self, observed: Observed) -> None:
        """Include what one or several learners have observed."""

    def return_scale(self, obs: Tensor, returns: Tensor) -> Tensor | None:
        """Deviation of returns [], of several games [N] of each observation's game; None if they are not normalised.
        The observations [N, *O] and `returns` [N] of the first rollout set it."""


@runtime_checkable
class Preparing(Protocol):
    """Networks whose inputs can be computed once for several updates with one batch."""

    def prepare(self, obs: Observations) -> Prepared:
        """Compute the torso's inputs for obs [N, *O]."""

    def outputs(self, prepared: Prepared) -> Any:
        """What the network answers for observations that have been prepared."""


@runtime_checkable
class Stepping(Protocol):
    """Networks that give distributions over actions step by step, and can be exported."""

    spec: Spec
    actions: Space

    def initial_state(self, num_envs: int) -> Tree:
        """See `Recurrent`."""

    def step(self, obs: Observations, state: Tree, begins: Tensor) -> tuple[Distribution, Tensor, Tree]:
        """Map obs [N, *O], the state before them [N, ...] and `begins` [N] to N distributions over actions, values [N]
        and the state after them. The observations may be split into their parts, {name: [N, *part shape]}."""


@runtime_checkable
class WithTorso(Protocol):
    """Networks whose hidden layers are those of a torso."""

    @property
    def torso(self) -> nn.Module:
        """The torso."""


class Body(nn.Module):
    """Inputs, torso and memory: from observations to the features that heads map to outputs.

    Parameters, memory and features are float32; the torso computes in `network.dtype`. In bfloat16, weights are cast
    once per set of parameters when acting, and within the graph when learning, so that gradients are float32. A torso
    without parameters, or with buffers of floats such as those of batch normalisation, computes in float32 always.
    Raises `ValueError` if the torso does not return [N, F], or does not work with the other options."""

    def __init__(self, spec: Spec, network: Network) -> None:
        super().__init__()
        self.spec, self.actions = spec, spec.actions
        self.centre = _inputs(spec, network)
        self.torso = _torso(spec, network)
        if network.separate_critic:
            self.torso = Pair(self.torso, _torso(spec, network))
        with_floats = any(buffer.is_floating_point() for buffer in self.torso.buffers())
        with_floats |= next(self.torso.parameters(), None) is None  # rounding would lose precision, and gain no speed
        self.compute_dtype = torch.float32 if with_floats else network.dtype or torch.float32
        with torch.no_grad():
            features = self.torso.eval()(_zeros(spec, network))  # batch normalisation cannot train on one observation
        self.torso.train()
        if features.dim() != 2:
            raise ValueError(f"a torso must return [N, F], not {list(features.shape)} for one observation")
        if network.own_torso and (bad := _not_finite(self.torso)):
            raise ValueError(
                f"{bad} of the torso is NaN or infinite, which no checkpoint may have: use a large number, "
                "or register the buffer with persistent=False"
            )
        width = features.shape[1] // 2 if network.separate_critic else features.shape[1]
        if isinstance(self.torso, Tiles) and network.memory != "none":
            raise ValueError("tiles have no memory: use mlp, or --memory none")
        self.memory = None if network.memory == "none" else Memory(network.memory, width, network.memory_units)
        self.width = width if self.memory is None else network.memory_units  # F, of each head's features
        self._cast: tuple[tuple[int, ...], dict[str, Tensor]] = ((), {})

    def initialise(self, network: Network, heads: Mapping[nn.Module, float]) -> None:
        """Initialise the weights as `network` says. `heads`: the gain of each. Call it after the heads were made."""
        if network.orthogonal:
            _orthogonal(self, heads, own_torso=network.own_torso)
        if self.spec.pixels:
            self.torso.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # not in torch's stubs

    def prepare(self, obs: Observations) -> Prepared:
        """Compute the torso's inputs for obs [N, *O]. They do not change during the updates with one batch."""
        return Prepared(self.centre(obs, self.compute_dtype), self._mask(obs), self._games(obs))

    def initial_state(self, num_envs: int) -> Tree:
        """See `Recurrent`."""
        return {} if self.memory is None else self.memory.initial_state(num_envs)

    def _games(self, obs: Observations) -> Tensor | None:
        """Which game each observation [N, *O] is of [N]; None: there is only one."""
        layout = self.spec.layout
        return layout.games(obs) if layout and self.spec.games else None

    def _mask(self, obs: Observations) -> Tensor | None:
        """Which actions are valid; None: all."""
        layout = self.spec.layout
        return layout.part(obs, MASK) if layout and MASK in layout.places else None

    def _features(self, inputs: Inputs) -> Tensor:
        """Map the torso's inputs to features [N, F], float32."""
        if self.compute_dtype == torch.float32:
            result: Tensor = self.torso(inputs)
        else:
            result = functional_call(self.torso, self._weights(), (inputs,))
        return result.float()

    def _weights(self) -> dict[str, Tensor]:
        """The torso's parameters in the compute dtype; without gradients cached until a parameter changes."""
        weights = dict(self.torso.named_parameters())
        if torch.is_grad_enabled() or recording():
            self._cast = ((), {})  # an update follows, and fused optimizers do not increment version counters
            return {name: w.to(self.compute_dtype) for name, w in weights.items()}
        versions = tuple(w._version for w in weights.values())  # incremented by in-place changes
        if versions != self._cast[0]:
            self._cast = (versions, {name: w.detach().to(self.compute_dtype) for name, w in weights.items()})
        return self._cast[1]


def _inputs(spec: Spec, network: Network) -> nn.Module:
    """The module that maps observations to inputs of the torso."""
    normalize = network.normalize_observations
    make = partial(input_of, scale=network.input_scale, centre=network.centre, normalize=normalize)
    if spec.layout is None:
        return make(spec.parts[0], alone=True)
    make = partial(make, alone=False, games=max(1, len(spec.games)))
    return CentredParts(spec.layout, spec.layout.inputs(game=network.observe_game), make)


def _torso(spec: Spec, network: Network) -> nn.Module:
    """The torso for all parts of an observation."""
    if isinstance(network.torso, TileCoding):
        return _tiles(spec, network, network.torso)
    finish = layer_normalized if network.layer_norm else _unchanged
    torso = _with_layers(network.torso, network.layers)
    of_vectors = linear if network.torso is linear else _with_layers(mlp, network.layers)
    if spec.layout is None:
        return finish(torso(spec.obs_shape))
    parts = spec.layout.inputs(game=network.observe_game)
    if network.own_torso:
        return finish(torso({part.name: part.shape for part in parts}))
    vectors = [part for part in parts if not part.picture]
    joined = vectors if network.join_vectors and len(vectors) > 1 else []
    torsos: list[tuple[tuple[str, ...], nn.Module]] = [
        ((part.name,), finish((torso if part.picture else of_vectors)(part.shape)))
        for part in parts
        if part not in joined
    ]
    if joined:
        numbers = sum(torch.Size(part.shape).numel() for part in joined)
        torsos.append((tuple(part.name for part in joined), finish(of_vectors((numbers,)))))
    return Parts(torsos)


def _with_layers(torso: Any, layers: Layers) -> TorsoFactory:
    """The factory of a torso with these layers; only those in `torsos.SIZED` take others than their own."""
    made: TorsoFactory = torso if layers == STANDARD else partial(torso, layers=layers)
    return made


def _tiles(spec: Spec, network: Network, coding: TileCoding) -> nn.Module:
    if spec.bounds is None:
        raise ValueError("tiles need one vector of numbers with finite bounds: use mlp or auto")
    if network.input_scale != 1 or network.centre:
        raise ValueError("tiles have a scale of their own: use --input raw")
    return coding.within(*spec.bounds)


def _not_finite(torso: nn.Module) -> str:
    """The first parameter or saved buffer that is not finite; empty if all are."""
    saved = torso.state_dict().items()
    return next((name for name, tensor in saved if not bool(tensor.isfinite().all())), "")


def _unchanged(torso: nn.Module) -> nn.Module:
    return torso


def _zeros(spec: Spec, network: Network) -> Any:
    """The torso's inputs for one observation of zeros."""
    if spec.layout is None:
        return torch.zeros(1, *spec.obs_shape)
    parts = spec.layout.inputs(game=network.observe_game)
    return {part.name: torch.zeros(1, *part.shape) for part in parts}


def _orthogonal(model: Body, heads: Mapping[nn.Module, float], *, own_torso: bool) -> None:
    """Initialise weights orthogonally: gain sqrt(2), 1 in a memory, and the given ones for heads. A user's own torso
    keeps its weights, which may have been trained before."""
    for module in [] if own_torso else model.torso.modules():
        if isinstance(module, nn.Conv2d | nn.Linear):
            nn.init.orthogonal_(module.weight, 2**0.5)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
    if model.memory is not None:
        model.memory.initialise()
    for head, gain in heads.items():
        for module in head.modules():
            if isinstance(module, nn.Linear):
                nn.init.orthogonal_(module.weight, gain)
                nn.init.zeros_(module.bias)
