"""Random projections of parameter vectors to a few thousand elements that preserve lengths, distances and angles.

A parameter vector x [P] is projected in stages. A stage of width w splits x into rows x_r of w elements, flips signs at
random, rotates each row by a random shift, and sums the rows:

    y = sum_r a_r rotate(b * x_r, o_r)      a_r, b_c uniform in {-1, +1}, the o_r distinct and uniform in 0..w-1

Two elements of x collide in y with probability at most 1 / (w - 1) and then have independent signs, so for every x

    E ||y||^2 = ||x||^2,    Var ||y||^2 <= 2 / (w - 1) ||x||^4

This is a count sketch (Charikar, Chen and Farach-Colton 2002) that reads memory once and sequentially. Two stages need
fewer calls than one, each on more elements; their relative variances add up. The map is linear, so the distance between
two vectors is estimated by the distance between their projections. Signs and shifts come from a fixed seed and the
order of summation is fixed, so results are bitwise identical on all members and machines.
"""

from __future__ import annotations

import math
from functools import lru_cache

import torch
from torch import Tensor

DIMENSIONS = 4096  # D, elements of a projection; vectors with at most D elements are not projected
WIDTHS = (65_536, DIMENSIONS)  # widths of the stages
CHUNK = 1 << 17  # elements subtracted at a time, so that the difference fits into the processor's cache
SEED = 20_190_604


class Stage:
    """Projects a vector [size] to [width]."""

    def __init__(self, size: int, width: int, rng: torch.Generator, device: torch.device) -> None:
        rows = -(-size // width)
        self.width = width
        self.signs = (2.0 * torch.randint(0, 2, (width,), generator=rng) - 1).to(device)  # b [width]
        self.row_signs: list[int] = (2 * torch.randint(0, 2, (rows,), generator=rng) - 1).tolist()  # a [rows]
        shifts: list[int] = torch.randperm(width, generator=rng).tolist()
        self.shifts = [shifts[row % width] for row in range(rows)]  # o [rows]

    def __call__(self, vector: Tensor) -> Tensor:
        sums = vector.new_zeros(2 * self.width)  # twice the width, so that rotated rows need not be split
        for row, shift, sign in zip(torch.split(vector, self.width), self.shifts, self.row_signs, strict=True):
            sums[shift : shift + len(row)].addcmul_(row, self.signs[: len(row)], value=sign)
        return sums[: self.width] + sums[self.width :]


def project(vector: Tensor) -> Tensor:
    """Project a vector [P] to [D] on the CPU. Vectors with at most D elements are returned unchanged."""
    for stage in _stages(len(vector), vector.device):
        vector = stage(vector)
    return vector.cpu()


@lru_cache(maxsize=4)  # shared by all members of a process, whose vectors have the same size
def _stages(size: int, device: torch.device) -> tuple[Stage, ...]:
    rng, stages = torch.Generator().manual_seed(SEED), []
    for width in WIDTHS:
        if size > width:
            stages.append(Stage(size, width, rng, device))
            size = width
    return tuple(stages)


def standard_error(size: int) -> float:
    """Upper bound, for any vector [P], of the standard error of its projected length relative to its true length."""
    variance = 1.0  # variance of the squared length, plus 1
    for width in WIDTHS:
        if size > width:
            variance *= 1 + 2 / (width - 1)
    return math.sqrt(variance - 1) / 2


def distance(one: Tensor, other: Tensor) -> float:
    """Return ||one - other||_2 of two vectors [P], exactly and without a temporary vector [P]."""
    scratch, squares = one.new_empty(min(CHUNK, len(one))), []
    for a, b in zip(torch.split(one, CHUNK), torch.split(other, CHUNK), strict=True):
        difference = torch.sub(a, b, out=scratch[: len(a)])
        squares.append(torch.dot(difference, difference))
    return math.sqrt(torch.stack(squares).double().sum().item())
