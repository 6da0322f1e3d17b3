"""The rescaling of values against worked-out numbers, its printed forms, and its inverse."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gossamer.algorithms.rescaling import rescale, unscale

EPSILON = 1e-3


def h(x: float) -> float:
    return rescale(torch.tensor(x, dtype=torch.float64), EPSILON).item()


def test_values_against_worked_out_numbers() -> None:
    """h(3) = sqrt(4) - 1 + 0.003 = 1.003; h(99) = 9 + 0.099; h(-8) = -(3 - 1) - 0.008."""
    assert [h(3.0), h(99.0), h(-8.0), h(0.0)] == pytest.approx([1.003, 9.099, -2.008, 0.0], rel=1e-12)
    inverse = unscale(torch.tensor([1.003, 9.099, -2.008, 0.0], dtype=torch.float64), EPSILON)
    assert inverse.tolist() == pytest.approx([3.0, 99.0, -8.0, 0.0], rel=1e-12)


def test_without_the_linear_term_it_is_a_root() -> None:
    assert rescale(torch.tensor([24.0, -24.0]), 0.0).tolist() == [4.0, -4.0]
    assert unscale(torch.tensor([4.0, -4.0]), 0.0).tolist() == [24.0, -24.0]


@given(st.floats(-1e6, 1e6))
def test_they_are_the_functions_of_the_paper(x: float) -> None:
    """Where those have enough digits: their differences lose about 1e-16 / epsilon."""
    sign = math.copysign(1.0, x)
    assert h(x) == pytest.approx(sign * (math.sqrt(abs(x) + 1) - 1) + EPSILON * x, rel=1e-9, abs=1e-15)
    root = math.sqrt(1 + 4 * EPSILON * (abs(x) + 1 + EPSILON))
    inverse = sign * (((root - 1) / (2 * EPSILON)) ** 2 - 1)
    assert unscale(torch.tensor(x, dtype=torch.float64), EPSILON).item() == pytest.approx(inverse, rel=1e-9, abs=1e-11)


@given(st.floats(-1e6, 1e6, width=32))
def test_each_is_the_inverse_of_the_other_in_float32(x: float) -> None:
    value = torch.tensor(x, dtype=torch.float32)
    for one, other in ((rescale, unscale), (unscale, rescale)):
        assert other(one(value, EPSILON), EPSILON).item() == pytest.approx(x, rel=2e-6, abs=1e-37)


@given(st.floats(-1e6, 1e6), st.floats(1e-3, 1e3))
def test_a_larger_return_has_a_larger_value(x: float, more: float) -> None:
    assert h(x + more) > h(x)
