"""Trackio, a local tracker. Its own environment variables apply: TRACKIO_DIR, TRACKIO_SPACE_ID, TRACKIO_SERVER_URL."""

from __future__ import annotations

import secrets

import trackio

from gossamer.training.sinks.base import RunEnding, RunInfo, Scalars

PROJECT = "gossamer"


class Trackio:
    """A run of Trackio, in the project `gossamer`."""

    def start(self, run: RunInfo, key: str | None) -> str:
        # It continues a run by its name, so the name must be unique: other runs may be in directories of this name.
        name = key or f"{run.name.replace('/', '-')}-{secrets.token_hex(3)}"
        self._run = trackio.init(
            project=PROJECT,
            name=name,
            group=run.group,
            config=run.config,
            resume="must" if key else "never",
            embed=False,
            auto_log_gpu=False,
            auto_log_cpu=False,
        )
        return name

    def write(self, scalars: Scalars, steps: int) -> None:
        self._run.log(scalars, step=steps)

    def close(self, outcome: RunEnding) -> None:
        self._run.log({"outcome": outcome})  # it has no field for how a run ended
        self._run.finish()
