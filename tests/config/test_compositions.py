"""The resolved options of every composition are those of a stored table, `tests/data/compositions.json`.

A change of a default or of a preset changes the table, and a new architecture or algorithm adds to it. Write it anew,
and look at the difference before the commit:

    python tests/config/test_compositions.py

The table has each different set of options of a part once, and for each composition the numbers of its sets. The number
of cores is fixed to two, for which the presets are tuned: sizes for other machines are tested in `presets`."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from gossamer.config import resolve
from gossamer.config.build import unresolved
from gossamer.config.file import to_dict
from gossamer.config.names import ALGORITHMS, ARCHITECTURES, PRESETS
from gossamer.config.resolve import PLACES, configure
from gossamer.system.errors import UserError

TABLE = Path(__file__).parents[1] / "data" / "compositions.json"
ENVS = ("pong", "ALE/Pong-v5", "catch-pixels", "catch", "CartPole-v1", "Pendulum-v1", "cameras:Camera")
# What rules derive other options from, as far as a composition has it
GIVEN: tuple[dict[str, Any], ...] = (
    {},
    {"memory": "lstm"},
    {"num_envs": 8},
    {"learners": 2},
    {"hosts": 3},
    {"sync": "lock-step"},
    {"staleness": 8},
    {"replay_share": 0.5},
)
CHOSEN = (None, *ALGORITHMS)
CORES = 2


@contextmanager
def fixed_cores() -> Iterator[None]:
    with (
        patch.object(os, "sched_getaffinity", lambda pid: set(range(CORES)), create=True),
        patch.object(os, "cpu_count", lambda: CORES),
    ):
        yield


def resolved() -> dict[str, dict[str, Any]]:
    """Composition -> place -> options, for everything that can be wired. The order is that of the names."""
    found = {}
    with fixed_cores(), patch.object(resolve, "probe", cache(resolve.probe)):
        for architecture, algorithm, preset, env, given in product(ARCHITECTURES, CHOSEN, PRESETS, ENVS, GIVEN):
            try:
                config = configure(architecture, env=env, algorithm=algorithm, preset=preset, **given)
                unresolved(config)
            except UserError:
                continue
            changed = [f"{name}={value}" for name, value in given.items()]
            words = (architecture, algorithm or "(default)", preset, env, *changed)
            parts = to_dict(config)
            found[" ".join(words)] = {place: parts[place] for place in PLACES}
    return found


def stored() -> dict[str, dict[str, Any]]:
    table = json.loads(TABLE.read_text())
    return {
        words: {place: table["parts"][place][number] for place, number in zip(PLACES, numbers, strict=True)}
        for words, numbers in table["compositions"].items()
    }


def write() -> None:
    """Write the table, with a line for each set of options and for each composition."""
    sets: dict[str, dict[str, int]] = {place: {} for place in PLACES}
    rows = []
    for words, composition in resolved().items():
        numbers = [sets[place].setdefault(json.dumps(own), len(sets[place])) for place, own in composition.items()]
        rows.append(f"{json.dumps(words)}: {numbers}")
    parts = [f'"{place}": [\n' + ",\n".join(found) + "\n]" for place, found in sets.items()]
    TABLE.write_text('{"parts": {\n' + ",\n".join(parts) + '},\n"compositions": {\n' + ",\n".join(rows) + "\n}}\n")


def test_every_composition_has_the_options_of_the_table() -> None:
    pytest.importorskip("ale_py", reason="the extra [atari] is not installed")
    expected, found = stored(), resolved()
    told = f"python {Path(__file__).name} writes the table anew"
    assert sorted(found) == sorted(expected), told
    different = {
        f"{words}: {place}.{name}": (value, found[words][place].get(name))
        for words, composition in expected.items()
        for place, options in composition.items()
        for name, value in options.items()
        if found[words][place].get(name) != value
    }
    assert not different, told
    assert found == expected, told  # options that are in no table


if __name__ == "__main__":
    write()
