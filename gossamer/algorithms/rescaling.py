"""Rescaled action values, for rewards of any size (Pohlen et al. 2018; Kapturowski et al. 2019, section 2.3).

    h(x) = sign(x) (sqrt(|x| + 1) - 1) + epsilon x

A network learns h(return). Both functions are written without differences of nearly equal numbers, so that float32 is
enough for returns of any size."""

from __future__ import annotations

from torch import Tensor


def rescale(x: Tensor, epsilon: float) -> Tensor:
    """h(x) [...], in the form x (1 / (sqrt(|x| + 1) + 1) + epsilon)."""
    return x * (1 / ((x.abs() + 1).sqrt() + 1) + epsilon)


def unscale(x: Tensor, epsilon: float) -> Tensor:
    """The inverse of `rescale` [...].

    h^-1(x) = sign(x) (((sqrt(1 + 4 epsilon (|x| + 1 + epsilon)) - 1) / (2 epsilon))^2 - 1)

    With u = (sqrt(..) - 1) / (2 epsilon) - 1 = 2 |x| / (sqrt(..) + 1 + 2 epsilon), it is sign(x) u (u + 2)."""
    root = (1 + 4 * epsilon * (x.abs() + 1 + epsilon)).sqrt()
    u = 2 * x / (root + 1 + 2 * epsilon)
    return u * (u.abs() + 2)
