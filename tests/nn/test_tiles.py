"""Tile coding: against a slow one that looks at each number of each grid, and what it does not work with."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.testing import assert_close

from gossamer.envs.last import LastParts
from gossamer.nn.networks import ActorCritic, Network, QNetwork
from gossamer.nn.tiles import TileCoding
from gossamer.nn.torsos import linear
from gossamer.spaces import Discrete, Spec

LOW, HIGH = (-1.2, -0.07), (0.6, 0.07)  # of Mountain Car
CAR = Spec((2,), np.dtype(np.float32), Discrete(3), bounds=(LOW, HIGH))


def slow(x: list[float], low: tuple[float, ...], high: tuple[float, ...], tilings: int, tiles: int) -> list[int]:
    """The tile in each grid, by the definition."""
    found = []
    for grid in range(tilings):
        index = 0
        for d in reversed(range(len(x))):
            share = min(max((x[d] - low[d]) / (high[d] - low[d]), 0.0), 1.0)
            place = math.floor(share * tiles + grid * (2 * d + 1) % tilings / tilings)
            index = index * (tiles + 1) + place
        found.append(grid * (tiles + 1) ** len(x) + index)
    return found


@given(
    st.lists(st.integers(-40, 40), min_size=1, max_size=3), st.sampled_from([1, 2, 4, 8]), st.sampled_from([1, 4, 8])
)
def test_tiles_are_those_of_the_definition(x: list[int], tilings: int, tiles: int) -> None:
    # Multiples of 1/32 within -1 and 1, and beyond, which float32 has exactly
    values, low, high = [each / 32 for each in x], (-1.0,) * len(x), (1.0,) * len(x)
    torso = TileCoding(tilings, tiles).within(low, high)
    assert torso(torch.tensor([values])).tolist() == [slow(values, low, high, tilings, tiles)]


def test_grids_share_no_tile_and_are_shifted_by_odd_parts_of_a_tile() -> None:
    torso = TileCoding(tilings=4, tiles=2).within((0.0, 0.0), (1.0, 1.0))
    assert torso.count == 4 * 3 * 3
    # Halves of the unit square; shifts of (0, 0), (1, 3), (2, 2), (3, 1) fourths of a tile. At the origin all lie in
    # the first tile of their grid; at (0.45, 0.1), 0.9 and 0.2 tiles, the first number is over a border in grids 1, 2
    # and 3, the second one, with 0.2 + 0.75, in none.
    assert torso(torch.tensor([[0.0, 0.0], [0.45, 0.1]])).tolist() == [[0, 9, 18, 27], [0, 10, 19, 28]]


def car(**network: Any) -> QNetwork:
    return QNetwork(CAR, replace(Network(TileCoding(8, 8)), **network))


def test_values_are_0_at_first_and_a_step_corrects_the_share_that_the_rate_says() -> None:
    model, obs = car(), torch.tensor([[-0.5, 0.0], [0.5, 0.06]])
    assert not model(obs).any()
    loss = (10.0 - model(obs)[0, 1]).square() / 2
    loss.backward()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter -= 0.25 * parameter.grad  # type: ignore[operator]
    # a quarter of the error of 10, of that action alone, and none where no tile is shared
    assert_close(model(obs), torch.tensor([[0.0, 2.5, 0.0], [0.0, 0.0, 0.0]]))
    near = model(torch.tensor([[-0.5 + 0.3 * 1.8 / 8, 0.0]])).detach()[0, 1]
    assert 0 < float(near) < 2.5


def test_values_are_a_linear_function_of_one_feature_for_each_tile() -> None:
    model = car()
    head: Any = model.advantage
    head.weight.data.normal_(generator=torch.Generator().manual_seed(0))
    obs = torch.tensor([[-0.31, 0.011], [-1.1, -0.021]])
    features = torch.zeros(2, 8 * 81)
    for row, x in enumerate(obs.tolist()):
        features[row, slow(x, LOW, HIGH, 8, 8)] = 8**-0.5
    assert_close(model(obs), features @ head.weight)
    assert sum(each.numel() for each in model.parameters()) == 8 * 81 * 3  # and no bias


def test_tiles_are_found_in_float32_whatever_the_precision() -> None:
    obs = torch.tensor([[-0.52345, 0.001234]])
    model = car(dtype=torch.bfloat16)
    assert torch.equal(model.torso(model.prepare(obs).inputs), car().torso(obs))


def test_a_dueling_network_has_tiles_in_both_heads() -> None:
    model = QNetwork(CAR, Network(TileCoding()), dueling=True)
    assert [type(each).__name__ for each in (model.advantage, model.value)] == ["TileHead"] * 2
    assert model(torch.zeros(1, 2)).shape == (1, 3)


def refused(spec: Spec = CAR, kind: Any = QNetwork, **network: Any) -> str:
    with pytest.raises(ValueError) as error:
        kind(spec, replace(Network(TileCoding()), **network))
    return str(error.value)


def test_what_tiles_do_not_work_with() -> None:
    assert "finite bounds: use mlp or auto" in refused(replace(CAR, bounds=None))
    assert "finite bounds: use mlp or auto" in refused(LastParts(CAR).spec)
    assert "finite bounds: use mlp or auto" in refused(Spec((1, 42, 42), np.dtype(np.uint8), Discrete(3)))
    many = Spec((8,), np.dtype(np.float32), Discrete(3), bounds=((0.0,) * 8, (1.0,) * 8))
    assert "8 numbers have 3.44e+08 tiles, at most 16,777,216: use fewer --tiles" in refused(many)
    assert "--input raw" in refused(input_scale=1 / 255)
    assert "--memory none" in refused(memory="lstm")
    assert "action values only: use --algorithm sarsa-lambda" in refused(kind=ActorCritic)


def test_linear_features_are_the_observation_itself_in_float32() -> None:
    model = QNetwork(CAR, Network(linear, dtype=torch.bfloat16))
    obs: Tensor = torch.tensor([[0.12345, -0.054321]])
    assert_close(model(obs), obs @ model.advantage.weight.T + model.advantage.bias)
    assert sum(each.numel() for each in model.parameters()) == 3 * 2 + 3
