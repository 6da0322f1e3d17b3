"""RMSProp in the forms the papers' results rest on. They share a name and are four different optimizers.

All keep running means of the gradient g (n, where centred) and of its square (m), element by element:

    n <- decay * n + (1 - decay) * g,   m <- decay * m + (1 - decay) * g^2
    p <- p - lr * g / sqrt(m + eps)            eps inside the root
    p <- p - lr * g / (sqrt(m) + eps)          eps outside
    m - n^2 in place of m                      centred: the variance of g instead of its second moment

| form          | eps     | m starts at | centred | used by                                                       |
|---------------|---------|-------------|---------|---------------------------------------------------------------|
| rmsprop_a3c   | inside  | 0           | no      | A3C; with decay 0.9 and eps 1e-6 Lasagne, and so accel_rl     |
| rmsprop_tf    | inside  | 1           | no      | TensorFlow 1, and so PAAC, GA3C, IMPALA and OpenAI baselines  |
| rmsprop_torch | outside | 0           | no      | torch.optim.RMSprop, and so TorchBeast                        |
| rmsprop_dqn   | inside  | 0           | yes     | Nature DQN                                                    |

With eps 0.1 inside, the denominator is never below 0.316, nearly plain SGD for small gradients; the same 0.1 outside
allows steps 3.2 times as long. Port the formula, not the number.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import torch
from torch import Tensor
from torch.optim.optimizer import Optimizer, ParamsT

from gossamer.nn import eager, muon
from gossamer.system.options import option, options


class RMSProp(eager.Eager):
    """The family of forms above: prefer the named ones below.

    State is made at construction, `square` (m) and where centred `mean` (n) for each parameter, so that `state_dict()`
    holds tensors only, is whole before the first step, and restores exactly; it carries the form with it. The learning
    rate may be changed between steps through `param_groups`. Parameters without a gradient are left alone, their means
    too.

    Args:
        params: tensors, or groups of them, as for any torch optimizer.
        lr: learning rate.
        decay: of the running means, for each step.
        eps: what keeps the denominator from zero.
        inside: whether eps stands inside the root.
        start: what m starts at; n starts at 0.
        centred: whether n^2 is subtracted from m.

    Raises:
        ValueError: if a number is out of its range.
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float,
        *,
        decay: float,
        eps: float,
        inside: bool,
        start: float,
        centred: bool = False,
    ) -> None:
        if not lr >= 0.0:
            raise ValueError(f"lr={lr}: the learning rate must be 0 or more")
        if not 0.0 <= decay < 1.0:
            raise ValueError(f"decay={decay}: must be at least 0 and below 1, such as 0.99")
        if not eps > 0.0:
            raise ValueError(f"eps={eps}: must be above 0, or a parameter that never had a gradient divides by zero")
        if not start >= 0.0:
            raise ValueError(f"start={start}: a mean of squares must be 0 or more")
        form = {"lr": lr, "decay": decay, "eps": eps, "inside": inside, "start": start, "centred": centred}
        super().__init__(params, form)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Also called for every group at construction: the one place where state is made."""
        super().add_param_group(param_group)
        group = self.param_groups[-1]
        for p in group["params"]:
            self.state[p]["square"] = torch.full_like(p, group["start"])
            if group["centred"]:
                self.state[p]["mean"] = torch.zeros_like(p)

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]  # nothing here evaluates a loss twice
        """Update every parameter that has a gradient, in place."""
        for group in self.param_groups:
            params = [p for p in group["params"] if p.grad is not None]
            if params:
                self._update(params, [p.grad for p in params], group)

    def _update(self, params: list[Tensor], grads: list[Tensor], group: dict[str, Any]) -> None:
        decay, eps = group["decay"], group["eps"]
        square = [self.state[p]["square"] for p in params]
        torch._foreach_mul_(square, decay)
        torch._foreach_addcmul_(square, grads, grads, value=1.0 - decay)

        # The root is a temporary the size of the parameters: a buffer kept between steps was measured no faster.
        spread: list[Tensor] | tuple[Tensor, ...] = square
        if group["centred"]:
            mean = [self.state[p]["mean"] for p in params]
            torch._foreach_lerp_(mean, grads, 1.0 - decay)
            spread = torch._foreach_addcmul(square, mean, mean, value=-1.0)
            torch._foreach_clamp_min_(spread, 0.0)  # rounding may take a variance below zero, and its root is NaN
        if group["inside"]:
            root = torch._foreach_add(spread, eps)
            torch._foreach_sqrt_(root)
        else:
            root = torch._foreach_sqrt(spread)
            torch._foreach_add_(root, eps)
        torch._foreach_addcdiv_(params, grads, root, value=-group["lr"])


@dataclass(frozen=True)
class Form:
    """One of the forms, with the settings that it was published with; calling it makes the optimizer."""

    inside: bool  # whether eps stands inside the root
    start: float = 0.0  # of m
    centred: bool = False
    decay: float = 0.99
    eps: float = 0.1

    def __call__(self, params: ParamsT, lr: float, *, decay: float | None = None, eps: float | None = None) -> RMSProp:
        """`decay`, `eps`: as published where they are None."""
        numbers = {"decay": self.decay if decay is None else decay, "eps": self.eps if eps is None else eps}
        return RMSProp(params, lr, **numbers, inside=self.inside, start=self.start, centred=self.centred)


# Mnih et al. 2016, section 4, "Optimization". With decay 0.9 and eps 1e-6 it is Lasagne's `rmsprop`, used by accel_rl.
rmsprop_a3c = Form(inside=True)

# `tf.train.RMSPropOptimizer` of TensorFlow 1, without momentum. The start makes the first steps short, for about
# 1 / (1 - decay) of them. With these settings it is PAAC's and GA3C's; IMPALA's paper has eps 0.01, OpenAI baselines'
# A2C 1e-5.
rmsprop_tf = Form(inside=True, start=1.0)

# `torch.optim.RMSprop`, with TorchBeast's eps.
rmsprop_torch = Form(inside=False, eps=0.01)

# Mnih et al. 2015 (Nature DQN). The paper prints no formula, only the table's "min squared gradient"; the authors' code
# has this one (NeuralQLearner.lua, qLearnMinibatch). Its g is **summed** over the 32 samples of a minibatch; for a mean
# over N samples, eps / N^2 gives the very same steps (DQN Zoo: 0.01 / 32^2).
rmsprop_dqn = Form(inside=True, centred=True, decay=0.95, eps=0.01)


class StepRule(Protocol):
    """Options of an optimizer, which make it."""

    def make(self, params: ParamsT, lr: float) -> Optimizer:
        """The optimizer of these parameters; the learning rate changes from step to step. They come in groups, as
        torch's optimizers take them: those of hidden layers, with `hidden: True`, and the others."""


EPSILON = "Added to the denominator: inside the root for rmsprop-a3c, rmsprop-tf and rmsprop-dqn, else outside."
DECAY = "Of the running means, for each step."


@options
class Adam:
    """Adam (Kingma and Ba 2015), with torch's betas."""

    epsilon: float = option(EPSILON, 1e-5, above=0)

    def make(self, params: ParamsT, lr: float) -> Optimizer:
        return eager.Adam(params, lr, eps=self.epsilon, fused=True)


@options
class RAdam:
    """Adam whose first steps are those of a mean of gradients, until the mean of squares is reliable (Liu et al.
    2020), with torch's betas."""

    epsilon: float = option(EPSILON, 1e-5, above=0)

    def make(self, params: ParamsT, lr: float) -> Optimizer:
        return eager.RAdam(params, lr, eps=self.epsilon, foreach=True)


@options
class Muon:
    """Muon for the torso's matrices, Adam for all else (`gossamer.nn.muon`)."""

    momentum: float = option("Decay of the running mean of gradients, for each step.", 0.95, least=0, below=1)
    epsilon: float = option(EPSILON, 1e-5, above=0)

    def make(self, params: ParamsT, lr: float) -> Optimizer:
        return muon.Muon(params, lr, momentum=self.momentum, eps=self.epsilon)


@options
class AdaGrad:
    """AdaGrad (Duchi et al. 2011): p -= lr * g / (sqrt(G) + eps), G the sum of g^2 of all steps."""

    epsilon: float = option(EPSILON, 1e-5, above=0)

    def make(self, params: ParamsT, lr: float) -> Optimizer:
        groups: list[Any] = list(params)
        fused = all(p.device.type == "cpu" for group in groups for p in group["params"])  # elsewhere only new torch can
        return eager.Adagrad(groups, lr, eps=self.epsilon, fused=fused, foreach=not fused)


@options
class SGD:
    """Gradient descent: p -= lr * g; with momentum p -= lr * m, m the decaying sum of all gradients."""

    momentum: float = option(
        "Decay of the sum of gradients, for each step; 0: the last one alone.", 0.0, least=0, below=1
    )

    def make(self, params: ParamsT, lr: float) -> Optimizer:
        return eager.SGD(params, lr, momentum=self.momentum, foreach=True)


@options
class RMSPropOptions:
    """Options of all forms of RMSProp."""

    form: ClassVar[Form]
    decay: float = option(DECAY, 0.99, least=0, below=1)
    epsilon: float = option(EPSILON, 1e-5, above=0)

    def make(self, params: ParamsT, lr: float) -> Optimizer:
        return self.form(params, lr, decay=self.decay, eps=self.epsilon)


@options
class RMSPropA3C(RMSPropOptions):
    """`rmsprop_a3c`: p -= lr * g / sqrt(m + eps), m from 0."""

    form = rmsprop_a3c


@options
class RMSPropTF(RMSPropOptions):
    """`rmsprop_tf`: p -= lr * g / sqrt(m + eps), m from 1."""

    form = rmsprop_tf


@options
class RMSPropTorch(RMSPropOptions):
    """`rmsprop_torch`: p -= lr * g / (sqrt(m) + eps), m from 0."""

    form = rmsprop_torch


@options
class RMSPropDQN(RMSPropOptions):
    """`rmsprop_dqn`: p -= lr * g / sqrt(m - n^2 + eps), m and n from 0."""

    form = rmsprop_dqn
