"""What Trackio keeps in its local database, read back by its own API."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from some_runs import result, rows, trained
from some_sinks import info

import gossamer

trackio = pytest.importorskip("trackio", reason="the extra [trackio] is not installed")

from gossamer.training.sinks.trackio import PROJECT, Trackio  # noqa: E402  after the check


@pytest.fixture(autouse=True)
def _local(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from trackio import sqlite_storage

    monkeypatch.setattr(sqlite_storage, "TRACKIO_DIR", tmp_path / "trackio")  # it reads the variable when imported


def logged(name: str) -> list[dict[str, Any]]:
    from trackio.sqlite_storage import SQLiteStorage

    found: list[dict[str, Any]] = SQLiteStorage.get_logs(PROJECT, name)
    return [{key: value for key, value in row.items() if key != "timestamp"} for row in found]


def test_a_run_has_its_group_options_metrics_and_end(tmp_path: Path) -> None:
    from trackio.sqlite_storage import SQLiteStorage

    run, sink = info(tmp_path / "pong-3", seed=3), Trackio()
    name = sink.start(run, None)
    sink.write({"loss": 2.0, "time/env": 0.25}, 10)
    sink.write({"eval/mean_return": 1.5}, 8)  # of an earlier checkpoint
    sink.close("interrupted")
    assert name.startswith("pong-3-")
    assert logged(name) == [
        {"loss": 2.0, "time/env": 0.25, "step": 10},
        {"eval/mean_return": 1.5, "step": 8},
        {"outcome": "interrupted", "step": 11},
    ]
    options = SQLiteStorage.get_run_config(PROJECT, name)
    assert (options["run"]["seed"], options["algorithm"]["name"], options["_Group"]) == (3, "a2c", run.group)


def test_a_resumed_run_is_the_same_run(tmp_path: Path) -> None:
    run = trained(tmp_path / "run", log="trackio")
    gossamer.resume(run.directory, steps=160)
    assert result(run.directory)["log_failures"] == {}
    name = json.loads((run.directory / "sinks.json").read_text())["trackio"]
    found = logged(name)
    assert [row["step"] for row in found if "learned" in row] == [row["steps"] for row in rows(run.directory)]
    assert [row["outcome"] for row in found if "outcome" in row] == ["finished", "finished"]
