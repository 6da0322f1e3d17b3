"""Metrics of an environment's own, in the info of an episode's last step."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

SUCCESS, METRICS = "is_success", "metrics"  # keys of the info


def metrics_of(info: Any) -> dict[str, float]:
    """`info["is_success"]` and the entries of `info["metrics"]` that are finite numbers; a bool is 0 or 1. All else is
    left out."""
    if not isinstance(info, Mapping):
        return {}
    given = info.get(METRICS)
    told = {**given} if isinstance(given, Mapping) else {}
    if SUCCESS in info:
        told[SUCCESS] = info[SUCCESS]
    numbers = {str(name): _number(value) for name, value in told.items()}
    return {name: number for name, number in numbers.items() if number is not None}


def _number(value: Any) -> float | None:
    """The value as a float; None if it is no finite number."""
    if not isinstance(value, bool | int | float | np.number | np.bool_ | np.ndarray):
        return None
    array = np.asarray(value)
    if array.size != 1 or array.dtype.kind not in "biuf":
        return None
    number = float(array.item())
    return number if math.isfinite(number) else None
