"""Run directories as a training leaves them, without a training."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gossamer.config.file import to_dict
from gossamer.config.resolve import configure
from gossamer.training.recorder import COLUMNS

EPISODE = 10  # steps of an episode, and between two reports
Episode = tuple[int, float, float]  # steps, seconds, return


def episodes(returns: Sequence[float], *, seconds: float = 0.5) -> list[Episode]:
    """One every 10 steps and half a second."""
    return [(EPISODE * (k + 1), seconds * (k + 1), score) for k, score in enumerate(returns)]


def write_run(
    directory: Path,
    played: Sequence[Episode],
    *,
    architecture: str = "paac",
    result: dict[str, Any] | None = None,
    frames_per_step: int = 1,
    **options: Any,
) -> Path:
    """A run that ended after these episodes. `result`: other content of its result.json. `options`: its settings."""
    directory.mkdir(parents=True)
    steps, seconds, _ = played[-1]
    config = to_dict(configure(architecture, **{"env": "catch", "steps": steps, **options}))
    (directory / "config.json").write_text(json.dumps(config))
    lines = [",".join(COLUMNS), *(f"{s},{t},act_and_learn,{config['env']['name']},0,{r:.9g},10" for s, t, r in played)]
    (directory / "episodes.csv").write_text("\n".join(lines) + "\n")
    last = [score for _, _, score in played][-100:]
    ended: dict[str, Any] = {
        "ended": "all steps done", "steps": steps, "short": 0, "frames": steps * frames_per_step, "seconds": seconds,
        "episodes": len(played), "steps_per_second": round(steps / seconds, 1),
        "mean_return": sum(last) / len(last), "stop_at_return": None,
        "solved_steps": None, "policy_lag": {"mean": 1.5, "max": 3}, "version": "0.1.0", "config": config,
        "machine": {"processor": "Some CPU", "cores": 2, "gpu": None, "torch": "2.13.0"},
    }  # fmt: skip
    (directory / "result.json").write_text(json.dumps(ended | (result or {})))
    row = {"steps": steps, "seconds": seconds, "episodes": len(played), "mean_return": ended["mean_return"]}
    (directory / "metrics.jsonl").write_text(json.dumps(row | {"time/env": 0.25, "time/waits": 0.5}) + "\n")
    return directory


def rising(last: float, number: int = 300, first: float = 0.0) -> list[Episode]:
    """Episodes whose returns rise evenly."""
    return episodes([first + (last - first) * k / (number - 1) for k in range(number)])
