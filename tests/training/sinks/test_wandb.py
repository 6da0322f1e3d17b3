"""What Weights & Biases writes in its offline mode, read back from its own files."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from some_runs import result, rows, trained
from some_sinks import info

import gossamer

wandb = pytest.importorskip("wandb", reason="the extra [wandb] is not installed")

from gossamer.training.sinks.wandb import WandB  # noqa: E402  after the check

HEADER, BLOCK = 7, 32_768  # bytes: of the file and of each record in it, and of a block
FULL, LAST = 1, 4  # kinds of records: a whole one, the last part of one


@pytest.fixture(autouse=True)
def _offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_DIR", str(tmp_path))
    monkeypatch.delenv("WANDB_PROJECT", raising=False)
    wandb.teardown()  # it reads its variables once
    yield
    wandb.teardown()


def contents(data: bytes) -> Iterator[bytes]:
    """The records of a log in LevelDB's format: checksum (4 bytes), length (2), kind (1), then the content."""
    place, parts = HEADER, b""
    while place + HEADER <= len(data):
        if BLOCK - place % BLOCK < HEADER:
            place += BLOCK - place % BLOCK
        length, kind = int.from_bytes(data[place + 4 : place + 6], "little"), data[place + 6]
        parts += data[place + HEADER : place + HEADER + length]
        place += HEADER + length
        if kind in (FULL, LAST):
            yield parts
            parts = b""


def records(folder: Path) -> list[list[Any]]:
    """The records of each offline run in a folder, the oldest first."""
    from wandb.proto.wandb_internal_pb2 import Record

    wandb.teardown()  # `finish` may return before the file is complete
    files = sorted(folder.glob("wandb/offline-run-*/*.wandb"), key=lambda file: file.stat().st_mtime)
    return [[Record.FromString(each) for each in contents(file.read_bytes())] for file in files]


def history(found: list[Any]) -> list[dict[str, Any]]:
    wanted = [each.history for each in found if each.WhichOneof("record_type") == "history"]
    return [{i.key or i.nested_key[0]: json.loads(i.value_json) for i in each.item} for each in wanted]


def test_a_run_has_its_group_options_metrics_and_end(tmp_path: Path) -> None:
    run, sink = info(tmp_path / "pong-3", seed=3), WandB()
    key = sink.start(run, None)
    sink.write({"loss": 2.0, "time/env": 0.25}, 10)
    sink.write({"eval/mean_return": 1.5}, 8)  # of an earlier checkpoint
    sink.close("interrupted")
    (found,) = records(tmp_path)
    kinds = {each.WhichOneof("record_type"): each for each in found}
    begun = next(each.run for each in found if each.WhichOneof("record_type") == "run")
    assert (begun.run_id, begun.display_name, begun.run_group) == (key, "pong-3", run.group)
    assert (begun.project, begun.job_type, list(begun.tags)) == ("gossamer", "train", ["paac", "a2c", "catch"])
    options = {each.key: json.loads(each.value_json) for each in begun.config.update}
    assert (options["run"]["seed"], options["algorithm"]["name"]) == (3, "a2c")
    assert [{name: value for name, value in row.items() if not name.startswith("_")} for row in history(found)] == [
        {"steps": 10, "loss": 2.0, "time/env": 0.25},
        {"steps": 8, "eval/mean_return": 1.5},
    ]
    axes = {each.metric.name or each.metric.glob_name: each.metric for each in found if each.HasField("metric")}
    assert axes["*"].step_metric == "steps"
    assert kinds["exit"].exit.exit_code == 255


def test_a_resumed_run_keeps_its_id(tmp_path: Path) -> None:
    run = trained(tmp_path / "run", log="wandb")
    gossamer.resume(run.directory, steps=160)
    assert result(run.directory)["log_failures"] == {}
    key = json.loads((run.directory / "sinks.json").read_text())["wandb"]
    first, second = records(tmp_path)
    for found in (first, second):
        assert {each.run.run_id for each in found if each.HasField("run")} == {key}
    steps = [row["steps"] for row in history(first) + history(second)]
    assert steps == [row["steps"] for row in rows(run.directory)]


def test_without_a_login_it_does_not_ask(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_MODE", "online")
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    monkeypatch.setenv("NETRC", str(tmp_path / "none"))
    monkeypatch.setenv("WANDB_CONFIG_DIR", str(tmp_path))
    with pytest.raises(ConnectionError, match="not logged in; run `wandb login`"):
        WandB().start(info(tmp_path), None)
