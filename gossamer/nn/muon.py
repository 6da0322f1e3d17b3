"""Muon: steps along the orthogonalised momentum of each matrix of the hidden layers (Jordan et al. 2024, "Muon: An
optimizer for hidden layers in neural networks").

If M = U S V' is a matrix' momentum, a step is about -0.2 lr sqrt(max(rows, columns)) U V'. It moves the matrix equally
far in all directions of M; Adam moves it mostly in the few with large singular values. The factor makes the root mean
square of a step 0.2 lr, about that of Adam, so the learning rates of Adam suit (Liu et al. 2025, "Muon is Scalable for
LLM Training", eq. 4).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.optim.adam import adam
from torch.optim.optimizer import ParamsT

from gossamer.nn.eager import Eager
from gossamer.system.machine import multiplies_bfloat16

# Of p(s) = A s + B s^3 + C s^5, which is applied TIMES times. Jordan et al. have five, after a division by the 2-norm
# of the singular values; a division by their 4-norm leaves them larger, so that four are enough
A, B, C, TIMES = 3.4445, -4.7750, 2.0315, 4
_BETAS: dict[str, Any] = {"beta1": 0.9, "beta2": 0.999, "weight_decay": 0.0, "amsgrad": False, "maximize": False}
STEP = 0.2  # root mean square of a matrix' step, in learning rates


class Muon(Eager):
    """Orthogonalised Nesterov momentum for the matrices of groups with `hidden`; Adam for all else.

    A parameter [D0, D1, ...] counts as the matrix [D0, D1 * ...]: a convolution's has a row for each channel. State is
    made at construction: `momentum`, or Adam's `step`, `exp_avg` and `exp_avg_sq`. The learning rate may be changed
    between steps through `param_groups`. Parameters without a gradient are left alone.

    Args:
        params: tensors, or groups of them, as for any torch optimizer; groups of hidden layers have `hidden: True`.
        lr: learning rate.
        momentum: decay of a matrix' momentum, for each step.
        eps: Adam's epsilon; its betas are torch's.

    Raises:
        ValueError: if a number is out of its range.
    """

    def __init__(self, params: ParamsT, lr: float, *, momentum: float = 0.95, eps: float = 1e-5) -> None:
        if not lr >= 0.0:
            raise ValueError(f"lr={lr}: the learning rate must be 0 or more")
        if not 0.0 <= momentum < 1.0:
            raise ValueError(f"momentum={momentum}: must be at least 0 and below 1, such as 0.95")
        if not eps > 0.0:
            raise ValueError(f"eps={eps}: must be above 0, or a parameter that never had a gradient divides by zero")
        # `fused`: `load_state_dict` then puts `step` on the parameter's device, where the fused Adam needs it
        super().__init__(params, {"lr": lr, "momentum": momentum, "eps": eps, "hidden": False, "fused": True})

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Also called for every group at construction: the one place where state is made."""
        super().add_param_group(param_group)
        group = self.param_groups[-1]
        for p in group["params"]:
            if _turns(p, group):
                self.state[p]["momentum"] = torch.zeros_like(p)
            else:
                self.state[p]["step"] = torch.zeros((), device=p.device)
                self.state[p]["exp_avg"], self.state[p]["exp_avg_sq"] = torch.zeros_like(p), torch.zeros_like(p)

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]  # nothing here evaluates a loss twice
        """Update every parameter that has a gradient, in place."""
        for group in self.param_groups:
            params = [p for p in group["params"] if p.grad is not None]
            for p in params:
                if _turns(p, group):
                    self._turn(p, p.grad, group)
            self._adam([p for p in params if not _turns(p, group)], group)

    def _turn(self, p: Tensor, grad: Tensor, group: dict[str, Any]) -> None:
        mean = self.state[p]["momentum"].lerp_(grad, 1.0 - group["momentum"])
        ahead = grad.lerp(mean, group["momentum"]).flatten(1)
        length = STEP * max(ahead.shape) ** 0.5
        p.sub_(orthogonal(ahead).reshape(p.shape), alpha=group["lr"] * length)

    def _adam(self, params: list[Tensor], group: dict[str, Any]) -> None:
        if not params:
            return
        state = [self.state[p] for p in params]
        mean, square, step = ([each[name] for each in state] for name in ("exp_avg", "exp_avg_sq", "step"))
        grads = [p.grad for p in params]
        adam(params, grads, mean, square, [], step, lr=group["lr"], eps=group["eps"], fused=True, **_BETAS)  # type: ignore[arg-type]


def orthogonal(matrix: Tensor) -> Tensor:
    """U S' V' of a matrix U S V' [R, C], float32. S' is 0.68 to 1.21 where S is 0.008 or more times its 4-norm.

    In bfloat16 where that is fast. Else in float32 through the matrix' Gram matrix, which halves the arithmetic, but
    squares the condition number: bfloat16 is too coarse for it."""
    wide = matrix if matrix.shape[0] <= matrix.shape[1] else matrix.T
    dtype = torch.bfloat16 if multiplies_bfloat16(str(matrix.device)) else torch.float32
    wide = wide.to(dtype)
    gram = wide @ wide.T
    size = gram.float().norm().sqrt().clamp(min=1e-12)  # the 4-norm of S: at least its maximum, and close to it
    wide, gram = wide / size.to(dtype), gram / size.square().to(dtype)
    found = (_polynomial if dtype == torch.bfloat16 else _polynomial_of_gram)(wide, gram).float()
    return found if wide.shape == matrix.shape else found.T


def _polynomial(x: Tensor, gram: Tensor) -> Tensor:
    """p(p(...p(x))), with p(x) = (A + B g + C g^2) x and g = x x'."""
    x = _quintic(x, gram)
    for _ in range(TIMES - 1):
        x = _quintic(x, x @ x.T)
    return x


def _quintic(x: Tensor, gram: Tensor) -> Tensor:
    return torch.addmm(x, torch.addmm(gram, gram, gram, beta=B, alpha=C), x, beta=A)


def _polynomial_of_gram(x: Tensor, gram: Tensor) -> Tensor:
    """The same: the factors q = A + B g + C g^2 are multiplied first, and the next g is q g q."""
    product = _factor(gram)
    q = product
    for _ in range(TIMES - 1):
        gram = q @ gram @ q
        q = _factor(gram)
        product = q @ product
    return product @ x


def _factor(gram: Tensor) -> Tensor:
    q = torch.addmm(gram, gram, gram, beta=B, alpha=C)
    q.diagonal().add_(A)
    return q


def _turns(p: Tensor, group: dict[str, Any]) -> bool:
    return bool(group["hidden"]) and p.dim() > 1
