"""Masked distributions against the unmasked ones, by enumeration of all valid actions."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from gossamer.spaces import IMPOSSIBLE, Box, Discrete, MultiBinary, MultiDiscrete, Space

BATCH = (3, 5)
MASKS: dict[Space, list[list[int]]] = {  # of each choice
    Discrete(4): [[1, 0, 0, 1]],
    MultiDiscrete((2, 3, 4)): [[1, 0], [0, 1, 1], [0, 1, 0, 1]],
    MultiBinary(4): [[1, 0], [1, 1], [0, 1], [1, 1]],
}
masks = pytest.mark.parametrize(("space", "choices"), MASKS.items(), ids=lambda each: type(each).__name__)


def parameters(space: Space, seed: int = 0, scale: float = 2.0) -> Tensor:
    rng = torch.Generator().manual_seed(seed)
    return scale * torch.randn((*BATCH, space.outputs), generator=rng, dtype=torch.float64)


def flat(choices: list[list[int]]) -> Tensor:
    return torch.tensor([entry for each in choices for entry in each])


def valid_actions(space: Space, choices: list[list[int]]) -> Tensor:
    """All valid actions [N, *A]."""
    found = list(product(*(np.flatnonzero(each).tolist() for each in choices)))
    return torch.tensor(found).reshape(len(found), *space.shape)


@masks
def test_a_masked_distribution_is_the_unmasked_one_given_that_the_action_is_valid(
    space: Space, choices: list[list[int]]
) -> None:
    given, actions = parameters(space), valid_actions(space, choices)
    masked = space.distribution(space.masked(given, flat(choices)))
    each = [action.expand(*BATCH, *space.shape) for action in actions]
    free = torch.stack([space.distribution(given).log_prob(action) for action in each])
    expected = free - free.logsumexp(0)
    assert_close(torch.stack([masked.log_prob(action) for action in each]), expected)
    assert_close(masked.entropy(), -(expected.exp() * expected).sum(0))
    best = actions[expected.argmax(0)]
    assert_close(masked.mode(), best)


@masks
def test_all_valid_actions_are_drawn_and_no_others(space: Space, choices: list[list[int]]) -> None:
    masked = space.distribution(space.masked(torch.zeros(500, space.outputs), flat(choices)))
    drawn = masked.sample(torch.Generator().manual_seed(0))
    rows = np.tile(flat(choices).numpy(), (500, 1))
    at_random = torch.from_numpy(space.random(np.random.default_rng(0), 500, rows))
    expected = valid_actions(space, choices).unique(dim=0)
    assert_close(drawn.unique(dim=0), expected)
    assert_close(at_random.unique(dim=0), expected)


@masks
def test_an_invalid_choice_has_no_gradient(space: Space, choices: list[list[int]]) -> None:
    mask, given = flat(choices), parameters(space).float().requires_grad_()
    masked = space.distribution(space.masked(given, mask))
    other = space.distribution(space.masked(parameters(space, 1).float(), mask))
    (masked.entropy() + masked.kl(other)).sum().backward()
    fixed = masked.parameters.detach().abs() == -IMPOSSIBLE
    assert given.grad is not None
    assert fixed.any()
    assert (given.grad[fixed] == 0).all()
    assert given.grad.isfinite().all()
    assert given.grad[~fixed].any()


def test_continuous_actions_have_no_mask() -> None:
    with pytest.raises(NotImplementedError, match="no mask"):
        Box((-1.0,), (1.0,)).masked(torch.zeros(2), torch.ones(1))
