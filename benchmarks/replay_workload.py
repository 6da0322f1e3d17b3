"""What every replay memory of `benchmarks/replay.py` is given, and how it is timed. Needs NumPy only, since it runs in
the environments of all libraries."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

import numpy as np

ENVS, ROLLOUT, STACK, SIZE = 16, 16, 4, 84  # environments; steps of each in a call; pictures of a stack; their pixels
EPISODE = 1008  # steps, a multiple of ROLLOUT
BATCH, SEQUENCES, LENGTH = 512, 32, 80  # one-step samples of a batch; sequences of a batch; their steps
LEAVES = 1_000_000
ALPHA, BETA = 0.6, 0.4


def stacks(envs: int, steps: int, seed: int = 0) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """Stacks [steps + 1, envs, STACK, SIZE, SIZE] of consecutive random pictures."""
    pictures = np.random.default_rng(seed).integers(0, 255, (steps + STACK, envs, SIZE, SIZE), np.uint8)
    return np.stack([pictures[i : i + steps + 1] for i in range(STACK)], 2)


def resident() -> float:
    """Memory of this process, in GB."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e9


def per_second(call: Callable[[], object], count: int, seconds: float) -> float:
    """`count` * calls per second, measured for so many seconds after three calls."""
    for _ in range(3):
        call()
    start, calls = time.perf_counter(), 0
    while (passed := time.perf_counter() - start) < seconds:
        call()
        calls += 1
    return count * calls / passed


def filled(add: Callable[[int], int], steps: int, before: float) -> dict[str, float]:
    """Call `add` with 0, 1, 2, .. until it has stored so many steps. It returns the steps of a call. `before`: GB of
    this process without the replay memory. Returns the steps, the steps per second, and the GB of the memory."""
    start, stored, call = time.perf_counter(), 0, 0
    while stored < steps:
        stored += add(call)
        call += 1
    return {
        "steps": steps,
        "insert": round(stored / (time.perf_counter() - start)),
        "memory_gb": round(resident() - before, 2),
    }
