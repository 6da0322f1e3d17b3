"""KL divergence between the policies of members."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np
import torch
from torch import Tensor

from gossamer.data import Array
from gossamer.exchange.gossip.records import PolicyOutputs
from gossamer.spaces import Space


def divergence(parameters: Tensor, actions: Space) -> Tensor:
    """Parameters [N, M, P] of N policies on M observations -> KL(pi_i || pi_j) [N, N] float64, mean over the M."""
    policies = actions.distribution(parameters.double())
    rows = [actions.distribution(each.unsqueeze(0)).kl(policies).mean(1) for each in parameters.double()]
    return torch.stack(rows).clamp_min(0.0)  # rounding can make it negative


def common_parameters(outputs: Sequence[PolicyOutputs]) -> Tensor:
    """Return parameters [N, M, P] on the M distinct observations that all N members have; M may be 0."""
    common = reduce(np.intersect1d, (each.observations for each in outputs))  # sorted, unique
    rows = [_places(each, common) for each in outputs]
    return torch.stack([each.parameters[places] for each, places in zip(outputs, rows, strict=True)])


def _places(outputs: PolicyOutputs, wanted: Array) -> Tensor:
    """Return the first index of each wanted checksum [M] among a member's observations, which contain all of them."""
    _, first = np.unique(outputs.observations, return_index=True)
    order = outputs.observations[first]  # sorted, unique
    return torch.from_numpy(first[np.searchsorted(order, wanted)])


@dataclass(frozen=True)
class PolicyDivergence:
    """KL divergence over ordered pairs of members, in nats."""

    mean: float | None = None
    greatest: float | None = None
    observations: int = 0  # M, common observations


def policy_divergence(outputs: Sequence[PolicyOutputs | None]) -> PolicyDivergence:
    """Compare all pairs of members. Values are None if a member has reported no policy or no observation is common."""
    known = [each for each in outputs if each is not None]
    if len(known) < len(outputs) or not known:
        return PolicyDivergence()
    parameters = common_parameters(known)
    if not parameters.shape[1]:
        return PolicyDivergence()
    pairs = divergence(parameters, known[0].actions)
    return PolicyDivergence(
        float(pairs.sum()) / max(1, len(known) * (len(known) - 1)), float(pairs.max()), parameters.shape[1]
    )
