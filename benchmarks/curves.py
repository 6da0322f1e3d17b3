"""Learning curves: trains the same options with several seeds, one run after the other, and stores the curves. With
several options, each seed trains all of them before the next seed does, so that their times are comparable.

    python -m benchmarks.curves train pong-paac --seeds 1 2 3 --stop-at-return 18 \\
        --run "ppo: paac --env pong --algorithm ppo --steps 1500000" --run "a2c: paac --env pong --steps 6000000"
    python -m benchmarks.curves build pong-paac --run ppo=runs/ppo --run a2c=runs/a,runs/b

`train` skips finished runs and resumes an interrupted one, so it can be started again at any time. Both commands write
`NAME.json` and a plot from the run directories. `build` is for existing runs, and takes all runs below a folder; use it
at the commit and on the machine that trained them.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import math
import shlex
import statistics
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from benchmarks.provenance import add_out, keep, provenance
from gossamer.config.file import flat, from_dict
from gossamer.config.resolve import configure
from gossamer.reporting import measures
from gossamer.reporting.comparison import compare
from gossamer.reporting.curves import Along, of_rows
from gossamer.reporting.runs import RunFolder
from gossamer.reporting.runs import load as load_runs
from gossamer.reporting.summary import summary
from gossamer.system.options import in_words

T = TypeVar("T")
Row: TypeAlias = Mapping[str, Any]  # a line of metrics.jsonl; lines are two seconds apart

POINTS = 200  # of a stored curve
ALWAYS_SHOWN = ("architecture", "env", "preset", "algorithm", "steps")  # options that the command of a run contains
UNSHOWN = ("architecture", "seed", "log")  # not an option, in place of it SEED, no effect on what is learned


def thinned(rows: Sequence[Row], points: int = POINTS) -> list[list[float]]:
    """[steps, seconds, mean return] of at most `points` rows, evenly spaced, including the first and the last."""
    known = spread([row for row in rows if row["mean_return"] is not None], points)
    return [[row["steps"], round(row["seconds"], 1), round(row["mean_return"], 3)] for row in known]


def spread(items: Sequence[T], points: int = POINTS) -> Sequence[T]:
    """At most `points` of the items, evenly spaced, including the first and the last."""
    if len(items) <= points:
        return items
    return [items[i * (len(items) - 1) // (points - 1)] for i in range(points)]


def median(values: Sequence[float | None]) -> float | None:
    """The median, where None means never and is greater than any number. None if the median is never."""
    found = statistics.median(math.inf if value is None else value for value in values)
    return None if math.isinf(found) else found


def load(directory: Path, goal: float) -> dict[str, Any]:
    """The results of one run. Raises `FileNotFoundError` if it has not ended."""
    result = json.loads((directory / "result.json").read_text())
    rows = [json.loads(line) for line in (directory / "metrics.jsonl").read_text().splitlines()]
    steps, seconds = of_rows(rows).reached(goal) or (None, None)
    if result.get("stop_at_return") == goal and result["solved_steps"]:  # from all reports, not only from rows
        steps = result["solved_steps"]
        seconds = next(row["seconds"] for row in rows if row["steps"] >= steps)
    return {
        "seed": result["config"]["run"]["seed"],
        "ended": result["ended"],
        "steps": result["steps"],
        "seconds": result["seconds"],
        "steps_per_second": result["steps_per_second"],
        "mean_return": result["mean_return"],
        "goal_steps": steps,
        "goal_seconds": seconds,
        "machine": result["machine"],
        "curve": thinned(rows),
    }


def command(config: Mapping[str, Any]) -> str:
    """The command that trains with this configuration (of `config.json`), for any seed. It has the options that differ
    from the presets of this commit, but for those in `UNSHOWN`."""
    settings = flat(from_dict(config)[0])
    named = {name: settings[name] for name in ALWAYS_SHOWN}
    presets = flat(configure(**named))
    changed = {name: value for name, value in settings.items() if value != presets.get(name)}
    options = {name: value for name, value in {**named, **changed}.items() if name not in UNSHOWN}
    words = [word for name, value in options.items() for word in in_words(name, value)]
    return shlex.join(["gossamer", "train", settings["architecture"], *words]) + " --seed SEED"


def build(runs: Mapping[str, Sequence[Path]], goal: float) -> dict[str, Any]:
    """Curves and medians by label. Raises `ValueError` if runs of one label differ in more than their seed."""
    curves = {}
    for label, directories in runs.items():
        configs = [json.loads((d / "result.json").read_text())["config"] for d in directories]
        commands = {command(config) for config in configs}
        if len(commands) > 1:
            raise ValueError(f"{label}: the runs differ in more than their seed: {'; '.join(sorted(commands))}")
        seeds = [load(directory, goal) for directory in directories]
        curves[label] = {
            "trained": commands.pop(),
            "config": configs[0],  # the others differ in their seed
            "median_goal_steps": median([seed["goal_steps"] for seed in seeds]),
            "median_goal_seconds": median([seed["goal_seconds"] for seed in seeds]),
            "seeds": seeds,
        }
    return {
        "goal": goal,
        "points": "[agent steps, seconds, mean return of the last 100 training episodes: whole games, unclipped]",
        "curves": curves,
    }


def plot(runs: Mapping[str, Sequence[Path]], goal: float | None, path: Path, *, chosen: Sequence[Along] = ()) -> None:
    """Plot the curves as a report does: the seeds and their interquartile mean, against steps and seconds, or against
    what is `chosen`."""
    import matplotlib as mpl  # imported here because it is slow

    from gossamer.reporting import lines, style
    from gossamer.reporting.report import curves

    labelled = [RunFolder(directory, label) for label, directories in runs.items() for directory in directories]
    comparison = compare(*load_runs(labelled))
    scores = measures.scores(comparison)
    found = summary(comparison, scores, {} if goal is None else dict.fromkeys(comparison.envs, goal))
    with mpl.rc_context(style.STYLE):
        drawn = lines.curves(comparison, found, curves(comparison), style.Palette(list(runs)), chosen=chosen)
    style.save(drawn.figure, path)


def finished(directory: Path) -> bool:
    """Whether a run ended without a signal."""
    result = directory / "result.json"
    return result.exists() and not json.loads(result.read_text())["ended"].startswith("SIG")


def train(options: Sequence[str], seed: int, directory: Path, stop_at_return: float | None) -> None:
    """Finish one run, from the start or from its last checkpoint. A finished run is not changed."""
    if finished(directory):
        print(f"{directory}: already finished", flush=True)
        return
    if any(directory.glob("checkpoints/step_*")):
        words = ["resume", str(directory)]
    else:
        words = ["train", *options, "--seed", str(seed), "--run-dir", str(directory), "--overwrite"]
    if stop_at_return is not None:
        words += ["--stop-at-return", str(stop_at_return)]
    print(shlex.join(["gossamer", *words]), flush=True)
    with subprocess.Popen([sys.executable, "-m", "gossamer.cli", *words]) as process:
        try:
            code = process.wait()
        except KeyboardInterrupt:
            code = process.wait()  # the child was interrupted too, and saves a checkpoint
    if code or not finished(directory):
        raise SystemExit(code or f"{directory}: interrupted; run the same command again to continue")


def runs_below(folder: Path) -> list[Path]:
    """The run in this folder, or all runs below it, by name and seed. Raises FileNotFoundError if there is none."""
    if (folder / "result.json").exists():
        return [folder]
    runs = [result.parent for result in folder.rglob("result.json")]
    if not runs:
        raise FileNotFoundError(f"no finished run in {folder}")
    return sorted(runs, key=lambda run: (run.parent, len(run.name), run.name))  # seed-2 before seed-11


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(dest="verb", required=True)
    for verb, form in (("train", '"LABEL: OPTIONS of gossamer train"'), ("build", "LABEL=DIR[,DIR...]")):
        made = verbs.add_parser(verb)
        made.add_argument("name", help="name of the result files")
        add_out(made)
        made.add_argument("--run", action="append", required=True, metavar=form, help="may be repeated")
        made.add_argument("--goal", type=float, default=18.0, help="return whose first steps and seconds are stored")
        made.add_argument("--note", help="what a reader has to know about these runs")
        made.add_argument("--no-seconds", action="store_true", help="runs shared the machine: plot steps only")
    verbs.choices["train"].add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    verbs.choices["train"].add_argument("--stop-at-return", type=float, help="end a run at this mean return")
    verbs.choices["train"].add_argument("--work", type=Path, default=Path("runs/curves"), help="directory of the runs")
    return parser


def main() -> None:
    """Train if requested, then write the figures and the plot."""
    parser = _parser()
    given = parser.parse_args()
    if importlib.util.find_spec("matplotlib") is None:
        parser.error("matplotlib is not installed: make bench-install")
    origin = provenance()
    options = {}
    for text in given.run:
        label, separator, rest = text.partition(":" if given.verb == "train" else "=")
        if not separator:
            parser.error(f"--run {text}: must start with a label; see --help")
        options[label] = rest
    if given.verb == "build":
        runs = {
            label: [run for folder in found.split(",") for run in runs_below(Path(folder))]
            for label, found in options.items()
        }
    else:
        work = given.work / given.name
        runs = {label: [work / label / f"seed-{seed}" for seed in given.seeds] for label in options}
        for i, seed in enumerate(given.seeds):
            for label, words in options.items():
                train(shlex.split(words), seed, runs[label][i], given.stop_at_return)
    found = build(runs, given.goal)
    note = {"note": given.note} if given.note else {}
    path = keep(given.name, {**origin, **note, "seconds_compare": not given.no_seconds, **found}, given.out)
    plot(runs, given.goal, path.with_suffix(".png"), chosen=("steps",) if given.no_seconds else ())
    print(f"{path} and {path.with_suffix('.png').name}")
    for label, curve in found["curves"].items():
        print(f"{label}: return {given.goal:g} at {curve['median_goal_steps']} steps (median of {len(curve['seeds'])})")


if __name__ == "__main__":
    main()
