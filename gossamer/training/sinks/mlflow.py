"""MLflow. Its own environment variables apply: MLFLOW_TRACKING_URI, MLFLOW_EXPERIMENT_NAME, .."""

from __future__ import annotations

import os
import time
from itertools import islice
from typing import Any

from mlflow.entities import Metric, Param
from mlflow.exceptions import MlflowException
from mlflow.tracking import MlflowClient

from gossamer.training.sinks.base import RunEnding, RunInfo, Scalars

STATUS = {"finished": "FINISHED", "interrupted": "KILLED", "failed": "FAILED"}
LONGEST, PARAMS_PER_CALL = 6000, 100  # MLflow's limits: characters of a parameter, parameters of one call
RETRIES = "MLFLOW_HTTP_REQUEST_MAX_RETRIES"


class MLflow:
    """A run of MLflow, in an experiment named after the environment unless MLFLOW_EXPERIMENT_NAME names another."""

    def start(self, run: RunInfo, key: str | None) -> str:
        os.environ.setdefault(RETRIES, "2")  # the default takes four minutes to report that a server is down
        self._client = MlflowClient()
        if key is not None:
            self._key = key  # its parameters stand already, and cannot be changed
            self._client.update_run(key, status="RUNNING")
            return key
        tags = {"group": run.group, **dict(zip(("architecture", "algorithm", "env"), run.tags, strict=True))}
        experiment = self._experiment(os.environ.get("MLFLOW_EXPERIMENT_NAME", run.env))
        self._key = str(self._client.create_run(experiment, tags=tags, run_name=run.name).info.run_id)
        self._params(run.options)
        return self._key

    def _experiment(self, name: str) -> str:
        """The id of an experiment, which is made where there is none."""
        for last in (False, True):
            if (experiment := self._client.get_experiment_by_name(name)) is not None:
                return str(experiment.experiment_id)
            try:
                return str(self._client.create_experiment(name))
            except MlflowException:  # another run has made it meanwhile
                if last:
                    raise
        raise AssertionError("either it is found or it is made")

    def _params(self, options: dict[str, Any]) -> None:
        rest = iter(options.items())
        while batch := [Param(name, str(value)[:LONGEST]) for name, value in islice(rest, PARAMS_PER_CALL)]:
            self._client.log_batch(self._key, params=batch)

    def write(self, scalars: Scalars, steps: int) -> None:
        now = int(time.time() * 1000)  # milliseconds
        self._client.log_batch(self._key, metrics=[Metric(name, v, now, steps) for name, v in scalars.items()])

    def close(self, outcome: RunEnding) -> None:
        self._client.set_terminated(self._key, STATUS[outcome])
