"""Weights & Biases. Its own environment variables apply: WANDB_MODE, WANDB_PROJECT, WANDB_ENTITY, WANDB_DIR, .."""

from __future__ import annotations

import os
import secrets

import wandb

from gossamer.training.sinks.base import RunEnding, RunInfo, Scalars

EXIT_CODES = {"finished": 0, "interrupted": 255, "failed": 1}  # with 255, its pages show a run as killed
START_SECONDS = 60.0  # that the server may take to answer


class WandB:
    """A run of Weights & Biases, in the project `gossamer` unless WANDB_PROJECT names another."""

    def start(self, run: RunInfo, key: str | None) -> str:
        online = wandb.setup().settings.mode == "online"
        if online and not wandb.login(prompt=False, verify=False):  # it would ask on the terminal, over the display
            raise ConnectionError("not logged in; run `wandb login`, or set WANDB_MODE=offline")
        key = key or secrets.token_hex(4)
        self._run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", "gossamer"),
            id=key,
            resume="allow" if online else None,  # without a server there is nothing to look up
            name=run.name,
            group=run.group,
            job_type="train",
            tags=list(run.tags),
            config=run.config,
            allow_val_change=True,  # a resumed run may have more steps
            settings=wandb.Settings(console="off", silent=True, init_timeout=START_SECONDS),
        )
        self._run.define_metric("steps", hidden=True)
        self._run.define_metric("*", step_metric="steps")
        return key

    def write(self, scalars: Scalars, steps: int) -> None:
        self._run.log({"steps": steps, **scalars})

    def close(self, outcome: RunEnding) -> None:
        self._run.finish(exit_code=EXIT_CODES[outcome])
