"""Equal policies do not differ; others differ as their definition says, on the observations that all members have."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from gossamer.diagnostics.divergence import PolicyDivergence, common_parameters, divergence, policy_divergence
from gossamer.exchange.gossip.records import PolicyOutputs
from gossamer.spaces import IMPOSSIBLE, Box, Discrete


def test_two_coins() -> None:
    # p = (1/2, 1/2), q = (3/4, 1/4): KL(p || q) = 1/2 ln(2/3) + 1/2 ln 2, KL(q || p) = 3/4 ln(3/2) + 1/4 ln(1/2).
    # On a second observation they agree: half of it is left.
    p, q = torch.tensor([0.5, 0.5]).log(), torch.tensor([0.75, 0.25]).log() + 7  # any constant may be added to logits
    found = divergence(torch.stack([torch.stack([p, p]), torch.stack([q, p])]), Discrete(2))
    there = 0.5 * np.log(2 / 3) + 0.5 * np.log(2)
    back = 0.75 * np.log(1.5) + 0.25 * np.log(0.5)
    np.testing.assert_allclose(found.numpy(), [[0, there / 2], [back / 2, 0]], atol=1e-7)


def test_two_gaussians() -> None:
    # Standard deviation 1, means 0 and 3: KL = 3^2 / 2 both ways
    p, q = torch.tensor([[0.0, 0.0]]), torch.tensor([[3.0, 0.0]])
    np.testing.assert_allclose(divergence(torch.stack([p, q]), Box((-1.0,), (1.0,))).numpy(), [[0, 4.5], [4.5, 0]])


def test_invalid_actions_do_not_count() -> None:
    # The first of three actions is invalid: what is left are the two coins above, 1/2 and 3/4
    p, q = torch.tensor([[IMPOSSIBLE, 0.0, 0.0]]), torch.tensor([[IMPOSSIBLE, np.log(3), 0.0]])
    there = 0.5 * np.log(2 / 3) + 0.5 * np.log(2)
    back = 0.75 * np.log(1.5) + 0.25 * np.log(0.5)
    found = divergence(torch.stack([p, q]), Discrete(3))
    np.testing.assert_allclose(found.numpy(), [[0, there], [back, 0]], atol=1e-7)


def test_equal_policies_do_not_differ() -> None:
    logits = torch.randn(1, 5, 3, generator=torch.Generator().manual_seed(0))
    assert divergence(logits.expand(3, 5, 3), Discrete(3)).max() < 1e-12


def outputs(observations: list[int], *rows: float) -> PolicyOutputs:
    """Of a policy that answers the i-th observation with logits (rows[i], 0)."""
    return PolicyOutputs(np.array(observations, np.uint32), torch.tensor([[row, 0.0] for row in rows]), Discrete(2))


def test_only_observations_that_all_members_have_are_used() -> None:
    # The first has stopped after three, the second has seen 7 where the others saw 9, the third has seen 5 twice
    one = outputs([5, 9, 3], 0.5, 0.9, 0.3)
    other = outputs([5, 7, 3, 8], 1.5, 1.7, 1.3, 1.8)
    third = outputs([3, 5, 9, 5], 2.3, 2.5, 2.9, 2.5)
    logits = common_parameters([one, other, third])  # in the order of their checksums: 3, then 5
    torch.testing.assert_close(logits[..., 0], torch.tensor([[0.3, 0.5], [1.3, 1.5], [2.3, 2.5]]))
    assert policy_divergence([one, other, third]).observations == 2


def test_the_mean_is_over_pairs_of_different_members() -> None:
    one, other = outputs([1], 0.0), outputs([1], 1.0)
    pairs = divergence(torch.stack([one.parameters, other.parameters]), Discrete(2))
    found = policy_divergence([one, other])
    assert found.mean == pytest.approx(float(pairs[0, 1] + pairs[1, 0]) / 2)
    assert found.greatest == pytest.approx(float(pairs.max()))
    assert policy_divergence([one]).mean == 0.0


def test_nothing_is_said_where_policies_cannot_be_compared() -> None:
    one = outputs([1], 0.0)
    assert policy_divergence([one, None]) == PolicyDivergence()
    assert policy_divergence([one, outputs([2], 0.0)]) == PolicyDivergence()
