"""Protocol of algorithms, and functions shared by actor-critics."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol, TypeVar, runtime_checkable

import torch
from torch import Tensor, nn

from gossamer.algorithms.losses import Loss
from gossamer.algorithms.returns import VTrace, vtrace
from gossamer.data import Action, Trajectory, Tree, Version
from gossamer.nn.networks import ActorCritic, Network, Normalizing, Recurrent, Stateful
from gossamer.spaces import Spec
from gossamer.spaces.distributions import Distribution, rows

ENTROPY_FINAL = (
    "Final weight of the entropy bonus, as a fraction of the initial one; it falls over --anneal-steps, too."
)


@runtime_checkable
class Algorithm(Protocol):
    """Frozen hyperparameters and four methods, which the worker loops call."""

    @property
    def gamma(self) -> float:
        """Discount per step."""

    @property
    def on_policy(self) -> bool:
        """Whether the losses are right only for batches of the very policy that learns, and not for older ones."""

    def model(self, spec: Spec, network: Network) -> nn.Module:
        """Create a network with this algorithm's heads, initialised from torch's global generator."""

    def act(
        self, model: nn.Module, obs: Tensor, state: Tree, rng: torch.Generator, *, greedy: bool = False
    ) -> tuple[Action, Tree]:
        """Select actions for obs [B, *O]: sampled, or the most probable ones if `greedy`. `state` [B, ...] is the
        network's recurrent state before them (empty without memory); return the state after them, too."""

    def value(self, model: nn.Module, obs: Tensor, state: Tree) -> Tensor:
        """Estimate the return [B] from obs [B, *O] and the recurrent state before them."""

    def losses(self, model: nn.Module, batch: Trajectory, rng: torch.Generator) -> Iterator[Loss]:
        """Yield one loss per optimizer step. The caller takes the step before it requests the next loss."""


@runtime_checkable
class Scheduled(Protocol):
    """An algorithm with hyperparameters that change during a run."""

    def at(self, progress: float) -> Algorithm:
        """The algorithm for one batch. `progress`: how much of the learning rate's schedule is over, 0 to 1."""


@runtime_checkable
class ByValue(Protocol):
    """An algorithm that takes the action of the highest value, or with probability epsilon a random one."""

    @property
    def epsilon_end(self) -> float:
        """Epsilon of `Algorithm.act`, as in evaluation."""

    def with_epsilon(self, epsilon: float) -> Algorithm:
        """The algorithm with another `epsilon_end`, 0 to 1."""


class Acting(Protocol):
    """The part of an algorithm that selects actions."""

    def act(
        self, model: nn.Module, obs: Tensor, state: Tree, rng: torch.Generator, *, greedy: bool = False
    ) -> tuple[Action, Tree]:
        """See `Algorithm`."""


@runtime_checkable
class Exploring(Protocol):
    """An algorithm whose exploration depends on the progress of the run, or on the environment."""

    def exploring(self, position: int, envs: Sequence[int], total: int, version: Version) -> Acting:
        """How the algorithm acts in a rollout. `position`: environment steps in the run's budget before it; `envs`:
        indices of the actor's environments among the `total` environments of all actors; `version`: of the parameters
        that it acts with."""


def exploring(algorithm: Algorithm, position: int, envs: Sequence[int], total: int, version: Version) -> Acting:
    """How the algorithm acts in a rollout: see `Exploring.exploring`."""
    return algorithm.exploring(position, envs, total, version) if isinstance(algorithm, Exploring) else algorithm


class Errors(Protocol):
    """Computes the first priorities of windows from what was computed when acting (Horgan et al. 2018, section 3)."""

    def __call__(self, reward: Tensor, discount: Tensor, value: Tensor, chosen: Tensor, begins: Tensor) -> Tensor:
        """|delta| [W] of W windows of T steps: reward, discount, chosen (Q(x_t, a_t)) [T, W]; value (max_a Q(x_t, a)),
        begins [T+1, W]."""


@dataclass(frozen=True)
class Prioritized:
    """Windows are drawn in proportion to p^alpha, p = |delta| + 1e-6 (Schaul et al. 2016, eq. 1)."""

    exponent: float  # alpha
    correction: float  # beta, exponent of the importance weights
    errors: Errors  # |delta| of new windows; later ones are those of the losses (`Loss.priority`)


@dataclass(frozen=True)
class ReplayPlan:
    """How an algorithm learns from a replay memory."""

    capacity: int  # environment steps, of each memory
    batch_size: int  # windows of each batch
    window: int  # steps of each window
    samples_per_insert: float  # windows that are drawn for each environment step
    learning_starts: int  # environment steps in a memory before the first batch
    priority: Prioritized | None = None  # None: windows are drawn uniformly
    sequences: bool = False  # windows start where rollouts or episodes begin; they have a recurrent state and a mask
    whole: bool = False  # sequences are rollouts: they start where these do, and have no mask
    saved: bool = False  # whether the memory is part of checkpoints
    folder: str = ""  # for pictures, in files that are mapped into memory; empty: in host memory
    inner: bool = True  # whether a window's observations between x_0 and x_T are needed; else `obs` is [2, W, *O]


@runtime_checkable
class FromReplay(Protocol):
    """An algorithm whose batches are drawn from a replay memory."""

    def replay_plan(self) -> ReplayPlan:
        """How it is used. Raises `UserError` if the options contradict each other."""


@runtime_checkable
class Limited(Protocol):
    """An algorithm that does not work with every network or environment."""

    def check(self, spec: Spec, network: Network, env: str) -> None:
        """Raise `UserError` if it does not work with them. `env`: the environment's name."""


class Valued(Protocol):
    """The part of an algorithm that estimates returns."""

    @property
    def gamma(self) -> float:
        """Discount per step."""

    def value(self, model: nn.Module, obs: Tensor, state: Tree) -> Tensor:
        """See `Algorithm`."""


class PolicyGradient:
    """Base of algorithms that learn a policy and its value: network and acting are here, their losses differ."""

    on_policy = True  # those that correct for the lag of their batches set it to False

    def model(self, spec: Spec, network: Network) -> nn.Module:
        """A shared torso with a policy head and a value head."""
        return ActorCritic(spec, network)

    def act(
        self, model: nn.Module, obs: Tensor, state: Tree, rng: torch.Generator, *, greedy: bool = False
    ) -> tuple[Action, Tree]:
        """See `Algorithm`."""
        return sample(model, obs, state, rng, greedy=greedy)

    def value(self, model: nn.Module, obs: Tensor, state: Tree) -> Tensor:
        """See `Algorithm`."""
        return critic(model, obs, state)


def scheduled(algorithm: Algorithm, progress: float) -> Algorithm:
    """The algorithm for one batch: see `Scheduled.at`."""
    return algorithm.at(progress) if isinstance(algorithm, Scheduled) else algorithm


def varying(algorithm: Algorithm) -> list[str]:
    """The names of the hyperparameters that have a schedule."""
    first, last = (vars(scheduled(algorithm, progress)) for progress in (0.0, 1.0))
    return [name for name in first if first[name] != last[name]]


def with_numbers(algorithm: Algorithm, numbers: Mapping[str, Tensor]) -> Algorithm:
    """A copy of the algorithm that takes these hyperparameters [] from tensors."""
    due = copy.copy(algorithm)
    for name, number in numbers.items():
        object.__setattr__(due, name, number)  # it is frozen
    return due


class Entropic(Protocol):
    """The options of `annealed`."""

    @property
    def entropy_coef(self) -> float: ...
    @property
    def entropy_final_fraction(self) -> float: ...


E = TypeVar("E", bound=Entropic)


def annealed(algorithm: E, progress: float) -> E:
    """A copy of the algorithm with the entropy bonus of this part of the schedule, 0 to 1. It falls linearly."""
    if algorithm.entropy_final_fraction == 1:
        return algorithm
    factor, due = 1 + (algorithm.entropy_final_fraction - 1) * progress, copy.copy(algorithm)
    object.__setattr__(due, "entropy_coef", algorithm.entropy_coef * factor)  # it is frozen
    return due


def initial_state(model: nn.Module, num_envs: int) -> Tree:
    """The recurrent state [B, ...] at the start of an episode; empty without memory."""
    return model.initial_state(num_envs) if isinstance(model, Stateful) else {}


@torch.no_grad()
def sample(
    model: nn.Module, obs: Tensor, state: Tree, rng: torch.Generator, *, greedy: bool = False
) -> tuple[Action, Tree]:
    """Select actions [B, *A] for obs [B, *O]: sampled, or the most probable ones if `greedy`. Their log-probabilities
    are left to the actor, which needs them once for a whole rollout."""
    policy, value, state = _step(model, obs, state)
    action = policy.mode() if greedy else policy.sample(rng)
    return Action(action=action, log_prob=None, parameters=policy.parameters, value=value), state


@torch.no_grad()
def critic(model: nn.Module, obs: Tensor, state: Tree) -> Tensor:
    """Evaluate the value head: obs [B, *O] -> [B]."""
    return _step(model, obs, state)[1]


def _step(model: nn.Module, obs: Tensor, state: Tree) -> tuple[Distribution, Tensor, Tree]:
    """One step of B environments: distributions over actions, values [B], and the recurrent state after it."""
    if not state:
        return *model(obs), state
    assert isinstance(model, Recurrent), "only a recurrent network has a state"
    return model.unroll(obs.unsqueeze(0), state, torch.zeros(1, len(obs), dtype=torch.bool, device=obs.device))


def evaluate(model: nn.Module, batch: Trajectory, envs: Tensor | None = None) -> tuple[Distribution, Tensor]:
    """Evaluate a rollout with the current parameters: T * B distributions over actions, and values [T * B]. `envs`: of
    these environments only. A recurrent network starts from the state stored with the rollout."""
    chosen = slice(None) if envs is None else envs
    obs = batch.obs[:-1, chosen]
    if not batch.state:
        policy, value = model(obs.flatten(0, 1))
        return policy, value
    assert isinstance(model, Recurrent), "only a recurrent network has a state"
    state = {name: each[chosen] for name, each in batch.state.items()}
    policy, value, _ = model.unroll(obs, state, batch.begins[:-1, chosen])
    return policy, value


def evaluate_to_end(model: nn.Module, batch: Trajectory, envs: Tensor | None = None) -> tuple[Distribution, Tensor]:
    """Like `evaluate`, with the value of the observation after the rollout: T * B distributions, values [T+1, B]."""
    chosen = slice(None) if envs is None else envs
    obs = batch.obs[:, chosen]
    if batch.state:
        assert isinstance(model, Recurrent), "only a recurrent network has a state"
        state = {name: each[chosen] for name, each in batch.state.items()}
        policy, value, _ = model.unroll(obs, state, batch.begins[:, chosen])
    else:
        policy, value = model(obs.flatten(0, 1))
    length, count = obs.shape[0], obs.shape[1]
    return rows(policy, slice((length - 1) * count)), value.view(length, count)


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Evaluation mode inside, for values that are not learned from: dropout would add noise to them, and batch
    normalisation would need more than one observation."""
    before = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(before)


def own_rewards(algorithm: Valued, model: nn.Module, batch: Trajectory) -> Tensor:
    """The batch's rewards [T, B]. Where an episode was truncated, they include the value of its final observation as
    the algorithm estimates it with this network, and not the behaviour policy's estimate. Call it before the forward
    pass to learn from: what a network keeps of its last pass (an auto-encoder's inputs, weights cast to bfloat16) must
    be of that one."""
    if not batch.finals:
        return batch.reward
    reward = batch.reward.clone()
    obs = torch.stack([final.obs for final in batch.finals])
    state = {name: torch.stack([final.state[name] for final in batch.finals]) for name in batch.state}
    with evaluating(model):
        values = algorithm.value(model, obs, state).double()
    for final, value in zip(batch.finals, values, strict=True):  # nothing is read from a GPU
        reward[final.t, final.b] += (algorithm.gamma * value - final.value).float()
    return reward


class OffPolicy(Protocol):
    """The options of `corrected`."""

    @property
    def gamma(self) -> float: ...
    @property
    def gae_lambda(self) -> float: ...
    @property
    def rho_bar(self) -> float: ...
    @property
    def c_bar(self) -> float: ...


def corrected(options: OffPolicy, batch: Trajectory, reward: Tensor, value: Tensor, log_prob: Tensor) -> VTrace:
    """V-trace for the policy of a network, from its rewards (`own_rewards`) [T, B], values [T+1, B] and ln pi(a)
    [T, B]."""
    return vtrace(
        reward,
        batch.discount,
        value,
        log_prob - batch.behaviour,
        lam=options.gae_lambda,
        rho_bar=options.rho_bar,
        c_bar=min(options.c_bar, options.rho_bar),
        rho_pg_bar=options.rho_bar,
    )


@dataclass(frozen=True)
class Scaling:
    """Divides values, targets and advantages of a rollout by the deviation of returns."""

    scale: Tensor | None  # [], or [T * B] with several games; None: they stay as they are
    first: bool = False  # whether this rollout is the first one, which has set the units of the network's values

    def __call__(self, values: Tensor, index: Tensor | None = None) -> Tensor:
        """Of values [T * B], or those of the steps `index` [N] of the flattened rollout."""
        if self.scale is None:
            return values
        return values / (self.scale if index is None or self.scale.dim() == 0 else self.scale[index])


def return_scaling(model: nn.Module, batch: Trajectory, target: Tensor) -> Scaling:
    """The scaling of a rollout, for a network that may normalise returns. `target`: the rollout's returns [T, B]."""
    if not isinstance(model, Normalizing):
        return Scaling(None)
    begun = model.begun
    return Scaling(model.return_scale(batch.obs[:-1].flatten(0, 1), target.flatten()), first=not begun)


def observe(model: nn.Module, batch: Trajectory, target: Tensor) -> None:
    """Include a rollout and its returns [T, B] in the network's running statistics, after its last update."""
    if isinstance(model, Normalizing) and model.observes:
        model.observe(batch.obs[:-1].flatten(0, 1), target.flatten())
