"""Projections keep lengths, distances and angles within their stated error, for whatever vectors, and cost no copy."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor

from gossamer.exchange.gossip import projection as module
from gossamer.exchange.gossip.projection import DIMENSIONS, distance, project, standard_error

P = 200_000  # both stages: 4 rows of 65,536 and then 16 of 4,096


@pytest.fixture
def seeds(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[int], None]]:
    """Changes the signs and shifts."""

    def to(seed: int) -> None:
        monkeypatch.setattr(module, "SEED", seed)
        module._stages.cache_clear()

    yield to
    module._stages.cache_clear()


def every(step: int) -> Tensor:
    vector = torch.zeros(P)
    vector[::step] = 1.0
    return vector


VECTORS = {
    "normal": torch.randn(P, generator=torch.Generator().manual_seed(1)),
    "all alike": torch.ones(P),
    "a ramp": torch.arange(P).float(),
    "every 512th": every(512),  # as the weights of one unit lie
    "one row of 4,096": torch.cat([torch.ones(DIMENSIONS), torch.zeros(P - DIMENSIONS)]),
    "a few great ones": torch.randn(P, generator=torch.Generator().manual_seed(2)) ** 5,
}


@pytest.mark.parametrize("name", VECTORS)
def test_lengths_are_kept_within_the_stated_error_whatever_the_vector(name: str, seeds: Callable[[int], None]) -> None:
    vector, errors = VECTORS[name], []
    for seed in range(40):
        seeds(seed)
        errors.append(float(project(vector).double().norm() / vector.double().norm()) - 1)
    # The error's root mean square over 40 draws is within a third of its expectation but in one of 300 cases
    assert math.sqrt(sum(e**2 for e in errors) / 40) < 1.35 * standard_error(P)
    assert abs(sum(errors) / 40) < 4 * standard_error(P) / math.sqrt(40)  # neither too long nor too short on average


def test_the_stated_error() -> None:
    # of one stage: half of sqrt(2 / 4095); a stage of 65,536 before it adds a sixteenth of the variance
    assert standard_error(5_000) == pytest.approx(0.5 * math.sqrt(2 / 4095))
    assert standard_error(1_700_000) == pytest.approx(0.5 * math.sqrt(2 / 4095 + 2 / 65_535), rel=1e-3)
    assert standard_error(DIMENSIONS) == 0.0


def test_distances_are_those_of_projections_and_angles_are_kept() -> None:
    one, other = VECTORS["normal"], VECTORS["normal"] + 0.01 * VECTORS["a few great ones"]
    true = distance(one, other)
    assert float((project(one) - project(other)).norm()) == pytest.approx(true, rel=4 * standard_error(P))
    cosine = torch.cosine_similarity(one, other, dim=0)
    assert torch.cosine_similarity(project(one), project(other), dim=0) == pytest.approx(float(cosine), abs=0.03)


def test_a_projection_is_linear_and_short() -> None:
    one, other = VECTORS["normal"], VECTORS["a few great ones"]
    assert project(one).shape == (DIMENSIONS,)
    mixed = project(0.25 * one + 0.75 * other)
    torch.testing.assert_close(mixed, 0.25 * project(one) + 0.75 * project(other), rtol=1e-4, atol=2e-3)


def test_short_vectors_stay_as_they_are() -> None:
    vector = torch.randn(DIMENSIONS)
    assert project(vector) is vector


@pytest.mark.parametrize("size", [DIMENSIONS + 1, 65_536, 65_537, 2 * 65_536, 100_003])
def test_every_element_counts_at_whatever_length(size: int) -> None:
    for place in (0, size // 2, size - 1):
        vector = torch.zeros(size)
        vector[place] = 3.0
        assert project(vector).abs().sum() == 3.0


def test_the_same_on_every_machine() -> None:
    # Written down once; the shifts and signs come from torch's generator, the sums are in a fixed order.
    vector = torch.arange(P).remainder(7).float() - 3
    found = project(vector)
    assert [float(found[i]) for i in (0, 1, 2, 2048, 4095)] == EXPECTED


EXPECTED = [-6.0, -10.0, -13.0, -2.0, 6.0]


def test_an_exact_distance_of_many_elements() -> None:
    one = torch.randn(3 * module.CHUNK // 2, generator=torch.Generator().manual_seed(0))
    other = one + 1e-3 * torch.randn(len(one), generator=torch.Generator().manual_seed(1))
    exact = float((one.double() - other.double()).norm())
    assert distance(one, other) == pytest.approx(exact, rel=1e-6)
    assert distance(one, one) == 0.0
