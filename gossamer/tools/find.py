"""Searches the fastest settings of a composition on this machine: `bench --find`."""

from __future__ import annotations

import gc
import shlex
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch

from gossamer.config.build import check_workers, environment, observed, program
from gossamer.config.memory import check_memory
from gossamer.config.resolve import Choices, Composition, resolve
from gossamer.envs.once import spec_of
from gossamer.envs.watchdog import complain
from gossamer.launch.threads import threads
from gossamer.system.errors import UserError
from gossamer.system.machine import machine
from gossamer.system.options import in_words
from gossamer.system.processes import cores
from gossamer.tools.bench import Reports
from gossamer.training.dry_run import try_network

FIND_SECONDS = 60.0
GAIN = 1.03  # a smaller one may be noise
MOST_GROWTH = 8  # of the number of environments: with more, training needs many more steps


@dataclass(frozen=True)
class Trial:
    """Settings and their speed."""

    settings: Mapping[str, Any]  # option -> value, without those that the user gave
    steps_per_second: float


def find(
    choices: Choices,
    seconds: float,
    told: Callable[[Trial], None] = lambda trial: None,
    now: Callable[[], float] = time.monotonic,
) -> dict[str, Any]:
    """The fastest settings that a minute of trials finds, beginning with the defaults: one option after the other takes
    other values, and keeps one that is faster. What the user gave stays.

    Each trial makes its environments and runs the whole program for `seconds`. It begins only if twice the longest
    before it would end in time: it may have twice the environments. `told` is called after each. Raises `UserError` for
    choices that cannot be used, and `torch.OutOfMemoryError` if the defaults do not fit into a GPU's memory."""
    config = resolve(choices)
    wired = program(config)
    check_workers(config, wired)
    try_network(config, wired)
    end, tried, longest = now() + FIND_SECONDS, list[Trial](), 0.0

    def rate(settings: Mapping[str, Any]) -> float:
        """0 if the composition does not allow these settings, or they need more memory than there is."""
        nonlocal longest
        found, began = None, now()
        try:
            found = steps_per_second(with_settings(choices, settings), seconds)
        except torch.OutOfMemoryError:  # of a GPU
            if not settings:
                raise
        longest = max(longest, now() - began)
        if found is None:
            gc.collect()
            torch.cuda.empty_cache()  # a trial that failed has left blocks of its sizes
            return 0.0
        tried.append(Trial(settings, found))
        told(tried[-1])
        return found

    settings = search(Composition(choices).values(), set(choices.options), rate, lambda: now() + 2 * longest <= end)
    best = next(trial for trial in tried if trial.settings == settings)
    return {
        "command": command(with_settings(choices, settings)),
        "steps_per_second": round(best.steps_per_second, 1),
        "default_steps_per_second": round(tried[0].steps_per_second, 1),
        "trials": [{"settings": dict(t.settings), "steps_per_second": round(t.steps_per_second, 1)} for t in tried],
        "machine": machine(config.run.device),
    }


def search(
    values: Mapping[str, Any],
    given: set[str],
    rate: Callable[[Mapping[str, Any]], float],
    going: Callable[[], bool],
) -> dict[str, Any]:
    """The settings that the climb ends at: options that differ from `values`. `rate`: how fast settings are; `going`:
    whether there is time for another trial."""
    best: dict[str, Any] = {}
    fastest = rate(best)
    for name in (each for each in MOVES if each in values and each not in given):
        for value in MOVES[name](values[name]):
            if not going():
                return best
            if (found := rate({**best, name: value})) > GAIN * fastest:
                best, fastest = {**best, name: value}, found
            elif name == "num_envs":
                break  # still more would not be faster, either
    return best


def steps_per_second(choices: Choices, seconds: float) -> float | None:
    """The speed of the whole program; None if these options do not go together, or what they keep does not fit into
    memory."""
    try:
        config = resolve(choices).with_run(steps=10**15)  # the observer ends it by time
        wired = program(config)
        check_workers(config, wired)
        check_memory(config, wired, spec_of(observed(environment(config), config), complain))
    except UserError:
        return None
    threads(wired, seen := Reports(seconds))
    return seen.rate()


def with_settings(choices: Choices, settings: Mapping[str, Any]) -> Choices:
    """These choices with more options."""
    return replace(choices, given={**choices.given, **settings})


def command(choices: Choices) -> str:
    """The command that trains with these choices, which are names."""
    parts = {"env": choices.env, "algorithm": choices.algorithm, "optimizer": choices.optimizer}
    named = {name: value for name, value in parts.items() if value is not None}
    named |= {"preset": choices.preset} if choices.preset != "tuned" else {}
    words = ["gossamer", "train", str(choices.architecture)]
    for name, value in {**named, **choices.given}.items():
        words += in_words(name, value)
    return shlex.join(words)


def _powers(value: int) -> list[int]:
    """1, 2, 4, .. up to the cores, but for the value itself."""
    return [n for n in (2**k for k in range(cores().bit_length())) if n <= cores() and n != value]


# Option -> the values to try instead of this one, the most promising option first
MOVES: dict[str, Callable[[Any], Any]] = {
    "num_envs": lambda value: [value * 2, value * 4, value * MOST_GROWTH],
    "policy": lambda value: ["served" if value == "replica" else "replica"],
    "actors": _powers,
    "env_workers": _powers,
    "alternating": lambda value: [not value],
    "threads": _powers,
}
