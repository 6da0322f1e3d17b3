"""Draws the pictures of stored learning curves again, as a report draws curves today.

    python -m benchmarks.redraw pong-appo-ppo pong-gossip

A result file holds at most 200 points of each run (`benchmarks.curves`).
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.curves import plot
from benchmarks.provenance import RESULTS
from gossamer.config.file import to_dict
from gossamer.config.resolve import configure
from gossamer.reporting.curves import WINDOW, Along
from gossamer.storage.contents import CONFIG, METRICS, RESULT


@dataclass(frozen=True)
class StoredCurve:
    """The curve of a run in a result file."""

    label: str
    env: str
    seed: int
    points: Sequence[Sequence[float]]  # steps, seconds, mean return
    frames_per_step: int = 1


def stand_in(directory: Path, curve: StoredCurve) -> Path:
    """A run directory with no more than this curve."""
    directory.mkdir(parents=True)
    steps, seconds, last = curve.points[-1]
    config = to_dict(configure("paac", env=curve.env, seed=curve.seed, steps=int(steps)))
    rows = [{"steps": s, "seconds": t, "mean_return": score, "episodes": WINDOW} for s, t, score in curve.points]
    result: dict[str, Any] = {"ended": "all steps done", "steps": steps, "short": 0, "seconds": seconds}
    result |= {"frames": steps * curve.frames_per_step, "mean_return": last, "config": config}
    (directory / CONFIG).write_text(json.dumps(config))
    (directory / RESULT).write_text(json.dumps(result))
    (directory / METRICS).write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return directory


def draw(curves: Sequence[StoredCurve], goal: float | None, path: Path, *, chosen: Sequence[Along] = ()) -> None:
    """Write the picture of these curves. `goal`: a threshold to draw; `chosen`: see `plot`."""
    runs: dict[str, list[Path]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for number, curve in enumerate(curves):
            runs.setdefault(curve.label, []).append(stand_in(Path(folder) / str(number), curve))
        plot(runs, goal, path, chosen=chosen)


def stored(found: dict[str, Any]) -> list[StoredCurve]:
    """The curves of a file that `benchmarks.curves` has written, all of Atari games with four frames a step."""
    return [
        StoredCurve(label, _env(each["trained"]), seed["seed"], seed["curve"], frames_per_step=4)
        for label, each in found["curves"].items()
        for seed in each["seeds"]
    ]


def _env(command: str) -> str:
    words = command.split()
    return words[words.index("--env") + 1]


def main() -> None:
    """Draw the pictures of these result files."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="+", help="names of result files that benchmarks.curves has written")
    for name in parser.parse_args().names:
        file = RESULTS / f"{name}.json"
        found = json.loads(file.read_text())
        chosen: tuple[Along, ...] = () if found.get("seconds_compare", True) else ("steps",)
        draw(stored(found), found["goal"], file.with_suffix(".png"), chosen=chosen)
        print(file.with_suffix(".png"))


if __name__ == "__main__":
    main()
