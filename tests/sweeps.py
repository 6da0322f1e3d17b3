"""Tests over many seeds: the first few in the normal run, the others in the long one (`make test-long`)."""

from __future__ import annotations

import pytest


def sweep(total: int, normal: int) -> pytest.MarkDecorator:
    """The parameter `seeds`: a range of the first `normal` ones, and one of the others up to `total`."""
    others = pytest.param(range(normal, total), id=f"seeds {normal} to {total - 1}", marks=pytest.mark.long)
    return pytest.mark.parametrize("seeds", [pytest.param(range(normal), id=f"{normal} seeds"), others])


def each_seed(total: int, normal: int) -> pytest.MarkDecorator:
    """The parameter `seed`, one test each."""
    others = [pytest.param(seed, marks=pytest.mark.long) for seed in range(normal, total)]
    return pytest.mark.parametrize("seed", [*range(normal), *others])
