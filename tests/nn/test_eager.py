"""The optimizers without torch's compiler: they compute what torch's own classes compute, and import no compiler."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.optim.optimizer import Optimizer
from torch.testing import assert_close

from gossamer.nn import eager

KINDS: list[tuple[Callable[..., Optimizer], Callable[..., Optimizer], dict[str, Any]]] = [
    (eager.Adam, torch.optim.Adam, {"fused": True}),
    (eager.RAdam, torch.optim.RAdam, {"foreach": True}),
    (eager.Adagrad, torch.optim.Adagrad, {"fused": True}),
    (eager.SGD, torch.optim.SGD, {"foreach": True, "momentum": 0.9}),
]
USE = """
import sys, torch
from gossamer.nn import optim
for rule in (optim.Adam(), optim.RAdam(), optim.Muon(), optim.AdaGrad(), optim.SGD(), optim.RMSPropTF()):
    opt = rule.make([{"params": [torch.ones(2, 2, requires_grad=True)], "hidden": True}], 0.1)
    for _ in range(2):
        opt.zero_grad(set_to_none=True)
        opt.param_groups[0]["params"][0].sum().backward()
        opt.step()
    opt.load_state_dict(opt.state_dict())
print("torch._dynamo" in sys.modules)
"""


def trained(make: Callable[..., Optimizer], options: dict[str, Any]) -> tuple[list[Tensor], dict[str, Any]]:
    rng = torch.Generator().manual_seed(0)
    params = [torch.randn(shape, generator=rng).requires_grad_() for shape in ((4, 3), (4,))]
    opt = make(params, 0.1, **options)
    for _ in range(5):
        opt.zero_grad()
        for p in params:
            (p * torch.randn(p.shape, generator=rng)).sum().backward()
        opt.step()
    return params, opt.state_dict()


@pytest.mark.parametrize(("ours", "torchs", "options"), KINDS, ids=lambda each: getattr(each, "__name__", ""))
def test_steps_and_state_are_those_of_torch_s_class(
    ours: Callable[..., Optimizer], torchs: Callable[..., Optimizer], options: dict[str, Any]
) -> None:
    (params, state), (expected, expected_state) = trained(ours, options), trained(torchs, options)
    assert_close(params, expected, rtol=0, atol=0)
    assert_close(state["state"], expected_state["state"], rtol=0, atol=0)
    assert state["param_groups"] == expected_state["param_groups"]


def test_no_optimizer_imports_the_compiler() -> None:
    found = subprocess.run([sys.executable, "-c", USE], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "False"
