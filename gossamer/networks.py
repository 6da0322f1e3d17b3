"""Actor-critic networks: normalised inputs, a torso in reduced precision, memory, a policy head and a value head."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, Protocol, runtime_checkable

import torch
from torch import Tensor, nn
from torch.func import functional_call

from gossamer.data import Tree
from gossamer.distributions import Distribution
from gossamer.inputs import CentredParts, Inputs, Observations, Prepared, input_of
from gossamer.memory import Kind, Memory
from gossamer.normalization import Normalized, Observed, Sample, ValueHead
from gossamer.observations import MASK
from gossamer.options import option, options
from gossamer.spaces import Spec
from gossamer.torsos import AutoEncoder, Pair, Parts, TorsoFactory, auto, mlp


@options
class NetworkOptions:
    """Options of the network, common to all algorithms."""

    torso: str = option(
        "Torso: auto, nips, nature, small, tiny, resnet, autoencoder, mlp, or module:factory (shape -> torch module).",
        "auto",
        name="network",
    )
    input: Literal["background", "unit", "raw"] = option(
        "Images: minus their background and / 64, / 255, or unchanged.", "raw"
    )
    initialization: Literal["orthogonal", "uniform"] = option("Of weights; uniform: +-1/sqrt(fan_in).", "orthogonal")
    precision: Literal["auto", "fp32", "bf16"] = option("auto: bf16 on GPUs and processors with AMX.", "auto")
    separate_critic: bool = option("The value has a torso of its own.", False)
    normalize_observations: bool = option("Vectors: by their running mean and deviation.", False)
    normalize_returns: bool = option("Learn values in units of the returns' running deviation.", False)
    state_std: bool = option("Continuous actions: the deviation depends on the observation.", False)
    memory: Literal["none", "lstm", "gru"] = option("Recurrent layer between torso and heads.", "none")
    memory_units: int = option("Units of the memory.", 256, least=1, most=65_536)
    last_action_reward: bool = option("Observe the last action and reward, too.", False)
    reconstruction_coef: float = option("Weight of the loss of --network autoencoder.", 1.0, least=0)


@dataclass(frozen=True)
class Network:
    """The parts of a network; see `NetworkOptions`."""

    torso: TorsoFactory = auto
    input_scale: float = 1.0  # factor of images, and of observations that are a single vector
    centre: bool = False  # subtract the mean observation of random play first
    orthogonal: bool = True  # initialisation; otherwise uniform +-1/sqrt(fan_in)
    dtype: torch.dtype | None = torch.float32  # compute dtype of the torso; None: see `machine.resolve_dtype`
    separate_critic: bool = False  # not together with a memory
    normalize_observations: bool = False
    normalize_returns: bool = False
    state_std: bool = False
    memory: Kind = "none"
    memory_units: int = 256
    reconstruction_coef: float = 1.0  # weight of an auto-encoder's loss
    own_torso: bool = False  # the torso gets all parts of an observation, and not one


@runtime_checkable
class Recurrent(Protocol):
    """Networks with a state that belongs to an episode."""

    def initial_state(self, num_envs: int) -> Tree:
        """The state at the start of an episode: {name: [B, ...]}; empty: without memory."""

    def unroll(self, obs: Tensor, state: Tree, begins: Tensor) -> tuple[Distribution, Tensor, Tree]:
        """Map obs [T, B, *O], the state before them [B, ...] and `begins` [T, B] (x_t is the first observation of an
        episode) to T * B distributions over actions, values [T * B], and the state after them."""


class ActorCritic(nn.Module):
    """A torso with a policy head and a value head.

    Parameters, memory, heads and outputs are float32; the torso computes in `network.dtype`. In bfloat16, weights are
    cast once per set of parameters when acting, and within the graph when learning, so that gradients are float32.
    A torso with buffers of floats, such as those of batch normalisation, computes in float32 always. Raises
    `ValueError` if the torso does not return [N, F]."""

    def __init__(self, spec: Spec, network: Network) -> None:
        super().__init__()
        self.spec, self.actions = spec, spec.actions
        self.centre = _inputs(spec, network)
        self.torso = _torso(spec, network)
        if network.separate_critic:
            self.torso = Pair(self.torso, _torso(spec, network))
        with_floats = any(buffer.is_floating_point() for buffer in self.torso.buffers())
        self.compute_dtype = torch.float32 if with_floats else network.dtype or torch.float32
        with torch.no_grad():
            features = self.torso.eval()(_zeros(spec))  # batch normalisation cannot train on one observation
        self.torso.train()
        if features.dim() != 2:
            raise ValueError(f"a torso must return [N, F], not {list(features.shape)} for one observation")
        width = features.shape[1] // 2 if network.separate_critic else features.shape[1]
        self.memory = None if network.memory == "none" else Memory(network.memory, width, network.memory_units)
        width = width if self.memory is None else network.memory_units
        self.policy = self.actions.head(width, state_std=network.state_std)
        self.value: nn.Module = ValueHead(width) if network.normalize_returns else nn.Linear(width, 1)
        self._split = network.separate_critic
        self.observes = network.normalize_observations or network.normalize_returns  # whether `observe` has an effect
        self.share: Callable[[Observed], None] | None = None  # called in place of `include`: see `AllReduce`
        if network.orthogonal:
            _orthogonal(self, own_torso=network.own_torso)
        if spec.pixels:
            self.torso.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # not in torch's stubs
        self._cast: tuple[tuple[int, ...], dict[str, Tensor]] = ((), {})

    def forward(self, obs: Tensor) -> tuple[Distribution, Tensor]:
        """Map [N, *O] to N distributions over actions and values [N], both float32. Raises `RuntimeError` if the
        network has a memory: use `unroll`, or `algorithms.base.evaluate` for rollouts."""
        if self.memory is not None:
            raise RuntimeError("a network with memory needs its state: use unroll, or algorithms.base.evaluate")
        return self.outputs(self.prepare(obs))

    def prepare(self, obs: Observations) -> Prepared:
        """Compute the torso's inputs for obs [N, *O]. They do not change during the updates with one batch."""
        return Prepared(self.centre(obs, self.compute_dtype), self._mask(obs))

    def outputs(self, prepared: Prepared) -> tuple[Distribution, Tensor]:
        """`forward` for observations that have been prepared, without a memory."""
        return self._heads(self._features(prepared.inputs), prepared.mask)

    def initial_state(self, num_envs: int) -> Tree:
        """See `Recurrent`."""
        return {} if self.memory is None else self.memory.initial_state(num_envs)

    def unroll(self, obs: Tensor, state: Tree, begins: Tensor) -> tuple[Distribution, Tensor, Tree]:
        """See `Recurrent`."""
        prepared = self.prepare(obs.flatten(0, 1))
        features = self._features(prepared.inputs)
        if self.memory is not None:
            outputs, state = self.memory(features.view(*obs.shape[:2], -1), state, begins)
            features = outputs.flatten(0, 1)
        return *self._heads(features, prepared.mask), state

    def step(self, obs: Observations, state: Tree, begins: Tensor) -> tuple[Distribution, Tensor, Tree]:
        """One step of N environments: `unroll` without the dimension of time. obs [N, *O] may be split into its parts,
        {name: [N, *part shape]}."""
        prepared = self.prepare(obs)
        features = self._features(prepared.inputs)
        if self.memory is not None:
            outputs, state = self.memory(features.unsqueeze(0), state, begins.unsqueeze(0))
            features = outputs.squeeze(0)
        return *self._heads(features, prepared.mask), state

    def return_scale(self, returns: Tensor) -> Tensor | None:
        """Deviation of returns []; None if they are not normalised. The `returns` [N] of the first rollout set it."""
        if not isinstance(self.value, ValueHead):
            return None
        if not self.value.begun:
            (self.share or self.include)(Observed((Sample.of(returns),), first=True))
        return self.value.moments.deviation

    def observe(self, obs: Tensor, returns: Tensor) -> None:
        """Include a rollout's observations [N, *O] and returns [N] in the running statistics, if there are any."""
        values = [returns] if isinstance(self.value, ValueHead) else []
        layout = self.spec.layout
        values += [layout.part(obs, name) if layout else obs for name, _ in self._normalized()]
        (self.share or self.include)(Observed(tuple(map(Sample.of, values))))

    def include(self, observed: Observed) -> None:
        """Include a rollout in the running statistics."""
        samples = list(observed.samples)
        if isinstance(self.value, ValueHead):
            (self.value.begin if observed.first else self.value.update)(samples.pop(0))
        if not observed.first:
            for (_, module), sample in zip(self._normalized(), samples, strict=True):
                module.moments.update(sample)

    def _normalized(self) -> list[tuple[str, Normalized]]:
        """The inputs with running statistics, by the name of their part of the observation."""
        inputs = self.centre.named() if isinstance(self.centre, CentredParts) else [("", self.centre)]
        return [(name, module) for name, module in inputs if isinstance(module, Normalized)]

    def _mask(self, obs: Observations) -> Tensor | None:
        """Which actions are valid; None: all."""
        layout = self.spec.layout
        return layout.part(obs, MASK) if layout and MASK in layout.places else None

    def _heads(self, features: Tensor, mask: Tensor | None) -> tuple[Distribution, Tensor]:
        """Map features [N, F] to distributions over the actions that `mask` allows, and values [N]."""
        policy, value = features.chunk(2, dim=-1) if self._split else (features, features)
        parameters = self.policy(policy)
        if mask is not None:
            parameters = self.actions.masked(parameters, mask)
        return self.actions.distribution(parameters), self.value(value).squeeze(-1)

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
        if torch.is_grad_enabled():
            self._cast = ((), {})  # an update follows, and fused optimizers do not increment version counters
            return {name: w.to(self.compute_dtype) for name, w in weights.items()}
        versions = tuple(w._version for w in weights.values())  # incremented by in-place changes
        if versions != self._cast[0]:
            self._cast = (versions, {name: w.detach().to(self.compute_dtype) for name, w in weights.items()})
        return self._cast[1]


def auto_encoders(model: nn.Module) -> list[AutoEncoder]:
    """The network's auto-encoders."""
    return [module for module in model.modules() if isinstance(module, AutoEncoder)]


def reconstruction_loss(coders: Sequence[AutoEncoder]) -> Tensor | None:
    """The loss [] of auto-encoders for their last forward pass; None without one."""
    found = [loss for coder in coders if (loss := coder.reconstruction_loss()) is not None]
    return torch.stack(found).sum() if found else None


def _inputs(spec: Spec, network: Network) -> nn.Module:
    """The module that maps observations to inputs of the torso."""
    normalize = network.normalize_observations
    make = partial(input_of, scale=network.input_scale, centre=network.centre, normalize=normalize)
    if spec.layout is None:
        return make(spec.parts[0], alone=True)
    return CentredParts(spec.layout, partial(make, alone=False))


def _torso(spec: Spec, network: Network) -> nn.Module:
    """The torso for all parts of an observation."""
    if spec.layout is None:
        return network.torso(spec.obs_shape)
    parts = [part for part in spec.layout.parts if part.name != MASK]
    if network.own_torso:
        return network.torso({part.name: part.shape for part in parts})
    return Parts({part.name: (network.torso if part.picture else mlp)(part.shape) for part in parts})


def _zeros(spec: Spec) -> Any:
    """The torso's inputs for one observation of zeros."""
    if spec.layout is None:
        return torch.zeros(1, *spec.obs_shape)
    return {part.name: torch.zeros(1, *part.shape) for part in spec.layout.parts if part.name != MASK}


def _orthogonal(model: ActorCritic, *, own_torso: bool) -> None:
    """Initialise weights orthogonally: gain sqrt(2), 1 in a memory and for the value head, and 0.01 for the policy head
    (a nearly uniform initial policy). A user's own torso keeps its weights, which may have been trained before."""
    for module in [] if own_torso else model.torso.modules():
        if isinstance(module, nn.Conv2d | nn.Linear):
            nn.init.orthogonal_(module.weight, 2**0.5)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
    if model.memory is not None:
        model.memory.initialise()
    for head, gain in ((model.policy, 0.01), (model.value, 1.0)):
        for module in head.modules():
            if isinstance(module, nn.Linear):
                nn.init.orthogonal_(module.weight, gain)
                nn.init.zeros_(module.bias)
