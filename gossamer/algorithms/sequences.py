"""Action values of sequences of steps, for networks with memory and without."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from gossamer.algorithms.losses import sequence_priority
from gossamer.algorithms.rescaling import rescale
from gossamer.algorithms.returns import n_step_of_each
from gossamer.data import Trajectory, Tree, first_episode
from gossamer.nn.networks import RecurrentValues


@dataclass(frozen=True)
class SequenceErrors:
    """First priorities of sequences, by the rule of the losses, from values of acting time. See `Errors`."""

    n_step: int
    burn_in: int
    eta: float
    epsilon: float  # of the rescaling

    def __call__(self, reward: Tensor, discount: Tensor, value: Tensor, chosen: Tensor, begins: Tensor) -> Tensor:
        returns = n_step_of_each(reward, discount, value, self.n_step)
        size = (rescale(returns, self.epsilon) - rescale(chosen, self.epsilon)).abs()
        return sequence_priority(size, trained_steps(first_episode(begins[:-1]), begins[0], self.burn_in), self.eta)


def trained_steps(mask: Tensor, exact: Tensor, burn_in: int) -> Tensor:
    """The steps [T, W] of sequences that are trained: those of `mask` [T, W], but for the burn-in of a sequence whose
    first state is not `exact` [W]."""
    after = torch.arange(len(mask), device=mask.device).unsqueeze(1) >= burn_in
    return mask & (after | exact)


ACTED, NEXT, LAST = slice(-1), slice(1, None), slice(-1, None)  # of a rollout: x_0 .. x_{T-1}, x_1 .. x_T, x_T


def q_of(model: nn.Module, batch: Trajectory, steps: slice, envs: Tensor | None = None) -> Tensor:
    """Q(x_t, .) [t, B, A] of the observations x_t of a rollout in `steps`. `envs`: of these environments only. A
    network with memory goes over the whole rollout, from the state that was stored with it."""
    chosen = slice(None) if envs is None else envs
    if not batch.state:
        obs = batch.obs[steps, chosen]
        found: Tensor = model(obs.flatten(0, 1))
        return found.view(*obs.shape[:2], -1)
    assert isinstance(model, RecurrentValues), "only a recurrent network has a state"
    state = {name: each[chosen] for name, each in batch.state.items()}
    begins = batch.begins[:, chosen]
    q, _ = model.unroll(batch.obs[:, chosen], state, begins)
    return q.view(*begins.shape, -1)[steps]


def unrolled(model: nn.Module, batch: Trajectory, burn_in: int = 0) -> Tensor:
    """Q(x_t, .) [T+1, W, A] of sequences from their stored states, up to the end of each one's first episode; what
    follows has no meaning. No gradient reaches the first `burn_in` steps of sequences that begin within an episode."""
    assert isinstance(model, RecurrentValues), "R2D2 needs a network with `initial_state` and `unroll`"
    steps, windows = batch.begins.shape
    begins = torch.zeros_like(batch.begins)
    begins[0] = batch.begins[0]  # later ones would cut the unroll into many short ones
    state, parts = batch.state, list[Tensor]()
    if burn_in:
        first, state = _burnt_in(model, batch, begins[:burn_in])
        parts.append(first)
    rest, _ = model.unroll(batch.obs[burn_in:], state, begins[burn_in:])
    return torch.cat([*parts, rest.view(steps - burn_in, windows, -1)])


def _burnt_in(model: RecurrentValues, batch: Trajectory, begins: Tensor) -> tuple[Tensor, Tree]:
    """Unroll the first steps [b, W], with gradients only where a sequence begins with an episode. Return Q(x_t, .)
    [b, W, A] and the states after them."""
    found, order, learns = list[tuple[Tensor, Tree]](), list[Tensor](), torch.is_grad_enabled()
    for chosen, gradient in ((begins[0], learns), (~begins[0], False)):
        index = chosen.nonzero().flatten()
        if not len(index):
            continue
        with torch.set_grad_enabled(gradient):
            state = {name: rows[index] for name, rows in batch.state.items()}
            q, state = model.unroll(batch.obs[: len(begins), index], state, begins[:, index])
        found.append((q.view(len(begins), len(index), -1), state))
        order.append(index)
    back = torch.cat(order).argsort()
    joined = {name: torch.cat([state[name] for _, state in found])[back] for name in batch.state}
    return torch.cat([q for q, _ in found], 1)[:, back], joined
