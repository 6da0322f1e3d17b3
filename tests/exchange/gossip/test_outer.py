"""The outer optimizer of local steps: its recursion, push-sum's mass, its state, and why it is not NoLoCo's."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from some_messages import Learns, Local, Place, Vector
from torch import Tensor
from torch.optim import SGD
from torch.testing import assert_close

from gossamer.exchange import Gossip, Mailboxes
from gossamer.exchange.gossip.outer import Outer, OuterStep
from gossamer.nn.normalization import Sample, ValueHead

SIZE = 16


def alone(outer: Outer | None, moves: list[float], *, interval: int = 1, state: Any = None, start: float = 0.0) -> Any:
    """A member without neighbours, whose local steps add `moves`: its parameters after each, and its link."""
    model = Vector(torch.full((SIZE,), start))
    gossip: Any = Gossip(Mailboxes(1), interval=interval, period=0, outer=outer)
    link, opt, found = gossip.join(Place(0), Learns(model), state), SGD(model.parameters(), 1.0), list[float]()
    for move in moves:
        model.value.grad = torch.full((SIZE,), -move)
        link.step(Local(opt))
        found.append(float(model.value.detach()[0]))
    return found, link


def test_a_step_with_momentum_of_the_local_steps_between_two_exchanges() -> None:
    # mu 0.5, eta 2. First exchange: delta = 1 + 3 = 4, m = 4, x = 0 + 2 (4 + 0.5 * 4) = 12.
    # Second: delta = -2, m = 0.5 * 4 - 2 = 0, x = 12 + 2 (-2 + 0) = 8; a step without an exchange is a plain one.
    found, _ = alone(Outer(0.5, 2.0), [1.0, 3.0, -1.0, -1.0, 5.0], interval=2)
    assert found == [1.0, 12.0, 11.0, 8.0, 13.0]


def test_equal_steps_become_eta_over_one_minus_mu_of_them() -> None:
    found, _ = alone(Outer(0.75, 0.5), [1.0] * 60)
    assert found[-1] - found[-2] == pytest.approx(0.5 / 0.25, rel=1e-5)


def test_without_momentum_and_with_a_rate_of_1_local_steps_stay_as_they_are_to_the_bit() -> None:
    moves = torch.randn(30, generator=torch.Generator().manual_seed(0)).tolist()
    assert alone(Outer(0.0, 1.0), moves, interval=3)[0] == alone(None, moves, interval=3)[0]


@pytest.mark.parametrize("half", [3, 4])  # in the midst of an interval, and after an exchange
def test_a_resumed_member_goes_on_exactly(half: int) -> None:
    moves = torch.randn(12, generator=torch.Generator().manual_seed(1)).tolist()
    whole, _ = alone(Outer(0.9, 0.7), moves, interval=2)
    first, link = alone(Outer(0.9, 0.7), moves[:half], interval=2)
    again, _ = alone(Outer(0.9, 0.7), moves[half:], interval=2, state=link.state_dict(), start=first[-1])
    assert first + again == whole


def test_with_push_sum_steps_count_by_what_they_add_to_weight_times_parameters() -> None:
    # Weight 0.5: a local step of 1 has added 1 / 0.5 = 2 to the parameters, so 1 to the mass. eta (1 + mu) = 1.5.
    step = OuterStep(Outer(0.5, 1.0), vector := torch.zeros(4), 3, None)
    step.take(vector.add_(2.0), 0.5)
    assert vector.tolist() == [3.0, 3.0, 3.0, 2.0]  # 0.5 * 3 = 1.5; the last is a running statistic


def test_a_change_of_the_returns_unit_is_no_step() -> None:
    """The value layer changes with its statistics, such that values stay what they were. Outer momentum would multiply
    the layer's change, and carry it on."""
    head, features = ValueHead(8), torch.randn(5, 8)
    head.begin(Sample.of(torch.tensor([1.0, 3.0])))
    gossip: Any = Gossip(Mailboxes(1), period=0, outer=Outer(0.5, 1.0))
    link, opt = gossip.join(Place(0), Learns(head)), SGD(head.parameters(), 1.0)
    before = head(features).detach()
    for k in range(4):
        head.update(Sample.of(torch.tensor([10.0, 30.0]) * (k + 1)))
        head.linear.weight.grad, head.linear.bias.grad = torch.zeros(1, 8), torch.zeros(1)
        link.step(Local(opt))
    assert_close(head(features), before, atol=1e-4, rtol=1e-4)


def test_momentum_of_an_average_diverges_on_a_directed_ring() -> None:
    """NoLoCo's momentum, m <- mu m + (W x - x), x <- x + m, without local steps, against members that rest here."""
    apart = torch.randn(4, SIZE, generator=torch.Generator().manual_seed(0))
    ring = (torch.eye(4) + torch.eye(4).roll(1, 0)) / 2

    def distance(x: Tensor) -> float:
        return float((x - x.mean(0)).norm())

    x, momentum = apart.clone(), torch.zeros(4, SIZE)
    for _ in range(100):
        momentum = 0.5 * momentum + ring @ x - x
        x = x + momentum
    assert distance(x) > 1000 * distance(apart)  # the largest root of z^2 - (1.5 + (w - 1) / 2) z + 0.5 is 1.1
    assert_close(x.mean(0), apart.mean(0), atol=0.1, rtol=0)
    assert distance(torch.linalg.matrix_power(ring, 100) @ apart) < 1e-6


@pytest.mark.parametrize("given", [{"momentum": 1.0}, {"momentum": -0.1}, {"learning_rate": 0.0}], ids=str)
def test_bad_values_are_refused(given: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="outer"):
        Outer(**given)
