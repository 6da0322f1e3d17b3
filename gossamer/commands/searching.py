"""The command `search`."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from inspect import cleandoc
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from gossamer.commands.output import only_json
from gossamer.commands.studying import as_seeds, divided
from gossamer.commands.words import AsJson
from gossamer.config.command_line import help_text, left_open, parse
from gossamer.storage.files import to_json

if TYPE_CHECKING:
    from gossamer.searches.search import Search
    from gossamer.storage.searches import TrialRecord

LISTED = 20  # trials in the table


@dataclass(frozen=True)
class Arguments:
    """The arguments of `gossamer search` before `--`."""

    composition: Annotated[
        str,
        tyro.conf.Positional,
        help_text('Words of `gossamer train` in quotes, as in "paac --algorithm ppo".', metavar="COMPOSITION"),
    ]
    env: Annotated[str, help_text("Environment, as in `train`.", metavar="ENV")]
    trials: Annotated[int, help_text("Number of trials, those of earlier calls included.")]
    vary: Annotated[
        tyro.conf.UseAppendAction[tuple[str, ...]],
        help_text(
            "An option and its range: gamma=0.9..0.999, learning-rate=1e-4..1e-2:log, num-envs=8..64:8 (steps of 8), "
            "or its values: num-envs=8,16,32. May be given several times.",
            metavar="NAME=RANGE",
        ),
    ] = ()
    seeds: Annotated[str, help_text("Number of seeds of each trial (1 to N), or the seeds: 1,2,11.")] = "1"
    steps: Annotated[int | None, left_open("Length of each run. [steps]", int, "(default: of the composition)")] = None
    dir: Annotated[Path, help_text("Directory of the search.")] = Path("studies/search")
    jobs: Annotated[int, help_text("Trials at once; each gets an equal share of the cores.")] = 1
    prune: Annotated[bool, help_text("End trials early whose running return is below the median of the others.")] = True
    json: AsJson = False


def search(words: Sequence[str]) -> int:
    """Search for the values of options with which a composition learns best.

    Words after `--` are options of every run. Run the same command again to continue a search, with more --trials if
    you like."""
    own, options = divided(words)
    made = parse(Arguments, own, prog="gossamer search", description=cleandoc(search.__doc__ or ""))
    from gossamer.searches.search import search as conduct

    with only_json(made.json):
        done = conduct(
            made.composition,
            env=made.env,
            vary=made.vary,
            trials=made.trials,
            seeds=as_seeds(made.seeds),
            steps=made.steps,
            directory=made.dir,
            jobs=made.jobs,
            options=options,
            prune=made.prune,
        )
    print(to_json(_content(done)) if made.json else "\n".join(_lines(done)))
    return done.exit_code


def _content(done: Search) -> dict[str, Any]:
    return {
        "directory": str(done.directory),
        "complete": done.complete,
        "best": None if done.best is None else asdict(done.best),
        "trials": [asdict(trial) for trial in done.trials],
    }


def _lines(done: Search) -> list[str]:
    """The table, then the best command, then what to do next."""
    counts = {state: sum(trial.state == state for trial in done.trials) for state in ("finished", "pruned", "failed")}
    told = ", ".join(f"{count} {state}" for state, count in counts.items() if count) or "none has ended"
    again = "run the same command again to continue"
    after = again if len(done.trials) < done.planned or any(each.state == "running" for each in done.trials) else ""
    lines = [
        *table(done.trials),
        f"{done.planned} trial{'s' * (done.planned != 1)}: {told}{after and f'; next: {after}'}",
    ]
    if done.best is None:
        return lines
    return [
        *lines,
        f"best: {done.best.value:.2f}, trial {done.best.number}",
        shlex.join(shlex.split(done.best.command)),
    ]


def table(trials: Sequence[TrialRecord]) -> list[str]:
    """The trials in lines of text, the best first."""
    from gossamer.searches.search import brief

    ordered = sorted(trials, key=lambda trial: (trial.state != "finished", -(trial.value or 0.0), trial.number))
    names = list(dict.fromkeys(name for trial in trials for name in trial.options))
    rows = [["trial", "state", "return", *(name.replace("_", "-") for name in names)]]
    for trial in ordered[:LISTED]:
        value = "–" if trial.value is None else f"{trial.value:.2f}"
        options = [brief(trial.options[name]) if name in trial.options else "–" for name in names]
        remark = trial.reason or ("" if trial.repeats is None else f"same values as trial {trial.repeats}")
        rows.append([str(trial.number), trial.state, value, *options, *([remark] if remark else [])])
    widths = [max(len(row[column]) for row in rows if column < len(row)) for column in range(len(names) + 3)]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, [*widths, 0], strict=False)).rstrip() for row in rows
    ]
    more = len(ordered) - LISTED
    return [*lines, f"and {more} more in search.json"] if more > 0 else lines
