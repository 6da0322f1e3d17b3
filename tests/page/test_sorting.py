"""The order of the runs on the page, in Node.js: the functions that need no browser."""

from __future__ import annotations

import json
import shutil
import subprocess
from importlib.resources import files
from typing import Any

import pytest

NODE = shutil.which("node")
pytestmark = pytest.mark.skipif(NODE is None, reason="Node.js is not installed")
RUNS: list[dict[str, Any]] = [
    {"name": "a/seed-10", "state": "ended", "env": "catch", "algorithm": "ppo", "seed": 10, "mean_return": 1.5},
    {"name": "a/seed-9", "state": "running", "env": "pong", "algorithm": "a2c", "seed": 9, "mean_return": None},
    {"name": "b", "state": "ended", "env": "catch", "algorithm": "a2c", "seed": 1, "mean_return": -20},
]


def js(expression: str, **values: Any) -> Any:
    program = (files("gossamer.page") / "assets" / "sorting.js").read_text()
    given = "".join(f"const {name} = {json.dumps(value)};" for name, value in values.items())
    done = subprocess.run(
        [str(NODE), "-e", f"{program};{given};console.log(JSON.stringify({expression}))"],
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(done.stdout)


def test_runs_are_sorted_found_and_compared() -> None:
    """One process of Node.js for all."""
    calls = {
        "greatest": 'names(inOrder(list, {by: "mean return", down: true}))',
        "least": 'names(inOrder(list, {by: "mean return", down: false}))',
        "by name": 'names(inOrder(list, {by: "run", down: false}))',
        "as it is": 'names(inOrder(list, {by: "", down: true}))',
        "words": 'names(list.filter((run) => matches(run, "CATCH  a2c")))',
        "seed": 'names(list.filter((run) => matches(run, "seed 9")))',
        "all": 'names(list.filter((run) => matches(run, "")))',
        "comparable": "names(comparable(list, 8))",
        "at most": "names(comparable(list, 1))",
        "none": "names(comparable([], 8))",
        "trials": "bestFirst(trials).map((trial) => trial.number)",
    }
    names = "const names = (list) => list.map((run) => run.name);"
    trials = [
        {"number": 0, "state": "finished", "value": -3},
        {"number": 1, "state": "pruned", "value": 9},
        {"number": 2, "state": "finished", "value": 2},
        {"number": 3, "state": "failed", "value": None},
    ]
    found = js(f"(() => {{ {names} return [{','.join(calls.values())}] }})()", list=RUNS, trials=trials)
    tens, nine, b = (run["name"] for run in RUNS)
    assert dict(zip(calls, found, strict=True)) == {
        "greatest": [tens, b, nine],  # without a value: last
        "least": [b, tens, nine],
        "by name": [nine, tens, b],  # 9 before 10
        "as it is": [tens, nine, b],
        "words": [b],
        "seed": [nine],
        "all": [tens, nine, b],
        "comparable": [tens, b],
        "at most": [tens],
        "none": [],
        "trials": [2, 0, 1, 3],
    }
