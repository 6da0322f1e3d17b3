"""With nobody to exchange with, an exchange is the optimiser's step."""

from __future__ import annotations

import torch
from some_messages import local
from torch import nn
from torch.optim import SGD

from gossamer.exchange import AloneLink


def test_apply_is_the_optimiser_s_step_and_counts_versions() -> None:
    model = nn.Linear(2, 1, bias=False)
    with torch.no_grad():
        model.weight.fill_(1.0)
    exchange, opt = AloneLink(), SGD(model.parameters(), lr=0.5)
    assert exchange.refresh(model) == 0
    for version in (1, 2):
        model.weight.grad = torch.tensor([[1.0, -2.0]])
        exchange.step(local(opt))
        assert exchange.refresh(model) == version
    # 1 - 2 * 0.5 * 1 = 0, 1 + 2 * 0.5 * 2 = 3
    assert model.weight.tolist() == [[0.0, 3.0]]
