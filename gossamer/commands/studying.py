"""The commands `study` and `runs`."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from inspect import cleandoc
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from gossamer.commands.output import only_json, tell
from gossamer.commands.words import AsJson
from gossamer.config.command_line import help_text, left_open, parse
from gossamer.storage.files import to_json
from gossamer.system.errors import UserError
from gossamer.system.options import declared

if TYPE_CHECKING:
    from gossamer.studies.study import Study

OPEN = "(default: of the file, else {})"


@dataclass(frozen=True)
class Arguments:
    """The arguments of `gossamer study` before `--`."""

    compositions: Annotated[
        tuple[str, ...],
        tyro.conf.Positional,
        help_text(
            'Words of `gossamer train` in quotes, as in "paac --algorithm ppo", or "LABEL: words"; or a .toml file.',
            metavar="COMPOSITION",
            help_behavior_hint="(one or more)",
        ),
    ] = ()
    env: Annotated[
        tyro.conf.UseAppendAction[tuple[str, ...]],
        help_text("Environment; may be given several times.", metavar="ENV"),
    ] = ()
    seeds: Annotated[str | None, left_open("Number of seeds (1 to N), or the seeds: 1,2,11.", str, OPEN.format(5))] = (
        None
    )
    steps: Annotated[int | None, left_open("Length of each run. [steps]", int, OPEN.format("of each composition"))] = (
        None
    )
    dir: Annotated[Path | None, left_open("Directory of the study.", Path, OPEN.format("studies/study"))] = None
    jobs: Annotated[
        int | None, left_open("Runs at once; each gets an equal share of the cores.", int, OPEN.format(1))
    ] = None
    cluster: Annotated[
        str | None,
        left_open(
            "Place the hosts of every run on Ray, as in `train`: local, auto or IP:PORT.", str, OPEN.format("no")
        ),
    ] = None
    json: AsJson = False


def study(words: Sequence[str]) -> int:
    """Train several compositions on several environments with several seeds.

    Words after `--` are options of every run: gossamer study paac gala --env pong -- --stop-at-return 18. Run the same
    command again to continue a study."""
    own, options = divided(words)
    made = _parsed(own)
    keywords = _keywords(made, options)
    from gossamer.studies.study import study as conduct

    with only_json(made.json):
        done = conduct(**keywords)
    print(to_json(_content(done)) if made.json else "\n".join(_lines(done)))
    return done.exit_code


def _parsed(words: Sequence[str]) -> Arguments:
    try:
        return parse(Arguments, words, prog="gossamer study", description=cleandoc(study.__doc__ or ""))
    except UserError as error:
        from gossamer.config.config import Control  # imports torch
        from gossamer.config.keywords import Keywords

        name = re.match(r"unknown option --([a-z-]+)", str(error))
        if name and name[1].replace("-", "_") in {*Keywords.__annotations__, *declared(Control)}:
            raise UserError(f"--{name[1]}: options of every run come after `--`: ... -- --{name[1]} ...") from None
        raise


def divided(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """The words before and after `--`."""
    place = words.index("--") if "--" in words else len(words)
    return list(words[:place]), list(words[place + 1 :])


def _keywords(made: Arguments, options: list[str]) -> dict[str, Any]:
    """Of `gossamer.study`: those of a TOML file, replaced by those of the command line."""
    files = [Path(word) for word in made.compositions if word.endswith(".toml")]
    if files and len(made.compositions) > 1:
        raise UserError(f"{files[0]}: give one file, or compositions")
    found: dict[str, Any] = {"compositions": made.compositions, "envs": made.env, "directory": "studies/study"}
    if files:
        from gossamer.studies.file import load

        found = {"directory": Path("studies") / files[0].stem, "envs": (), "compositions": (), **load(files[0])}
    typed = {
        "envs": made.env or None,
        "seeds": None if made.seeds is None else as_seeds(made.seeds),
        "steps": made.steps,
        "directory": made.dir,
        "jobs": made.jobs,
        "cluster": made.cluster,
        "options": options or None,
    }
    return {**found, **{name: value for name, value in typed.items() if value is not None}}


def as_seeds(text: str) -> int | list[int]:
    """The value of `--seeds`. Raises `UserError` where it is neither a number nor a list of seeds."""
    try:
        numbers = [int(word) for word in text.split(",") if word.strip()]
    except ValueError:
        raise UserError(f"--seeds {text}: give their number, or the seeds with commas, as in 1,2,11") from None
    return numbers if "," in text or not numbers else numbers[0]


def _lines(done: Study) -> list[str]:
    counts = ", ".join(f"{count} {status}" for status, count in done.counts.items() if count)
    failed = [outcome for outcome in done.outcomes if outcome.status == "failed"]
    told = [f"failed: {outcome.run.directory}: {outcome.reason}" for outcome in failed]
    again = "run the same command again to train the missing runs"
    after = f"gossamer report {done.directory}" if done.complete else again
    return [*told, f"{done.planned} run{'s' * (done.planned != 1)}: {counts}; next: {after}"]


def _content(done: Study) -> dict[str, Any]:
    runs = [
        {"directory": o.run.directory, "status": o.status, "reason": o.reason, "mean_return": o.mean_return}
        for o in done.outcomes
    ]
    return {"directory": str(done.directory), "complete": done.complete, "counts": done.counts, "runs": runs}


@dataclass(frozen=True)
class Runs:
    """List the runs in a folder, with state, steps and return."""

    folders: Annotated[
        tuple[Path, ...], tyro.conf.Positional, help_text("Folders that hold runs.", metavar="[FOLDER ...]")
    ] = field(default=(Path("runs"),))
    json: AsJson = False

    def __call__(self) -> None:
        from gossamer.tools.runs import listed, table

        found, damaged = listed(self.folders, tell)
        for text in damaged:
            print(f"skipped: {text}", file=sys.stderr)
        if self.json:
            print(to_json([line.to_dict() for line in found]))
        else:
            table(found)
