"""What MLflow keeps in a local database, read back by its own client."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from some_runs import result, rows, trained
from some_sinks import info

import gossamer

pytest.importorskip("mlflow", reason="the extra [mlflow] is not installed")
pytest.importorskip("sqlalchemy", reason="the extra [mlflow] is not installed")

from mlflow.tracking import MlflowClient

from gossamer.training.sinks.base import RunEnding
from gossamer.training.sinks.mlflow import MLflow


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Of one database for all tests: to make its tables takes seconds."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path_factory.mktemp('mlflow')}/mlflow.db")
        patch.delenv("MLFLOW_EXPERIMENT_NAME", raising=False)
        yield MlflowClient()


@pytest.mark.parametrize(
    ("outcome", "status"), [("finished", "FINISHED"), ("interrupted", "KILLED"), ("failed", "FAILED")]
)
def test_a_run_has_its_options_metrics_and_end(client: Any, tmp_path: Path, outcome: RunEnding, status: str) -> None:
    run, sink = info(tmp_path / "pong-3", seed=3), MLflow()
    key = sink.start(run, None)
    sink.write({"loss": 2.0, "time/env": 0.25}, 10)
    sink.write({"loss": 1.0}, 20)
    assert client.get_run(key).info.status == "RUNNING"
    sink.close(outcome)
    found = client.get_run(key)
    assert (found.info.run_name, found.info.status) == ("pong-3", status)
    assert client.get_experiment(found.info.experiment_id).name == "catch"
    assert {"group": run.group, "algorithm": "a2c"}.items() <= found.data.tags.items()
    assert found.data.params == {name: str(value) for name, value in run.options.items()}
    assert [(each.step, each.value) for each in client.get_metric_history(key, "loss")] == [(10, 2.0), (20, 1.0)]


def test_runs_of_one_environment_are_one_experiment(
    client: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = [MLflow().start(info(tmp_path / name), None) for name in "ab"]
    assert len({client.get_run(key).info.experiment_id for key in keys}) == 1
    monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", "mine")
    other = client.get_run(MLflow().start(info(tmp_path / "c"), None))
    assert client.get_experiment(other.info.experiment_id).name == "mine"


def test_long_values_and_many_options_are_within_its_limits(client: Any, tmp_path: Path) -> None:
    run = info(tmp_path)
    run.options.update({f"option_{number}": "x" * 7000 for number in range(150)})
    found = client.get_run(MLflow().start(run, None)).data.params
    assert len(found) == len(run.options)
    assert found["option_149"] == "x" * 6000


def test_a_resumed_run_is_the_same_run(client: Any, tmp_path: Path) -> None:
    run = trained(tmp_path / "run", log="mlflow")
    gossamer.resume(run.directory, steps=160)
    assert result(run.directory)["log_failures"] == {}
    key = json.loads((run.directory / "sinks.json").read_text())["mlflow"]
    assert client.get_run(key).info.status == "FINISHED"
    steps = [each.step for each in client.get_metric_history(key, "learned")]
    assert steps == [row["steps"] for row in rows(run.directory)]
