"""With nobody to exchange with, an exchange is the optimiser's step."""

from __future__ import annotations

import torch
from some_messages import Learns, Local, Place, Vector
from torch import nn
from torch.optim import SGD

from gossamer.exchange import Alone, AloneLink


def test_apply_is_the_optimiser_s_step_and_counts_versions() -> None:
    model = nn.Linear(2, 1, bias=False)
    with torch.no_grad():
        model.weight.fill_(1.0)
    exchange, opt = AloneLink(), SGD(model.parameters(), lr=0.5)
    assert exchange.refresh() == 0
    for version in (1, 2):
        model.weight.grad = torch.tensor([[1.0, -2.0]])
        exchange.step(Local(opt))
        assert exchange.refresh() == version
    # 1 - 2 * 0.5 * 1 = 0, 1 + 2 * 0.5 * 2 = 3
    assert model.weight.tolist() == [[0.0, 3.0]]


def test_each_step_is_told_of_after_it_and_a_step_that_is_not_finite_is_none() -> None:
    learner, told = Learns(Vector(torch.zeros(1))), list[tuple[int, float]]()
    opt = SGD(learner.model.parameters(), lr=1.0)
    link = Alone().join(
        Place(),  # type: ignore[arg-type]
        learner,  # type: ignore[arg-type]
        {"iteration": 4},
        lambda: told.append((link.refresh(), learner.model.value.item())),  # type: ignore[operator, union-attr]
    )
    for finite in (True, False, True):
        learner.model.value.grad = torch.full((1,), -1.0)  # type: ignore[assignment]
        assert link.step(Local(opt, finite)).finite == finite
    assert told == [(5, 1.0), (6, 2.0)]
