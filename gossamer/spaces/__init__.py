"""Observations, actions, and distributions over actions."""

from gossamer.spaces.actions import (
    IMPOSSIBLE,
    Bounds,
    Box,
    Discrete,
    GaussianHead,
    MultiBinary,
    MultiDiscrete,
    Space,
    StateGaussianHead,
)
from gossamer.spaces.spec import Spec

__all__ = [
    "IMPOSSIBLE",
    "Bounds",
    "Box",
    "Discrete",
    "GaussianHead",
    "MultiBinary",
    "MultiDiscrete",
    "Space",
    "Spec",
    "StateGaussianHead",
]
