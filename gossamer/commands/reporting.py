"""The command `report`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from gossamer.commands.output import tell
from gossamer.commands.words import AsJson
from gossamer.config.command_line import help_text, left_open
from gossamer.storage.files import to_json
from gossamer.system.errors import UserError


@dataclass(frozen=True)
class Report:
    """Compare runs: curves, statistics over seeds and figures, as one HTML page."""

    runs: Annotated[
        tuple[Path, ...],
        tyro.conf.Positional,
        help_text(
            "Run directories, folders with runs, or the folder of a study.",
            metavar="RUN",
            help_behavior_hint="(one or more)",
        ),
    ] = ()
    out: Annotated[Path | None, left_open("Folder of the report.", Path, "(default: STUDY/report, else report)")] = None
    threshold: Annotated[
        tuple[str, ...],
        tyro.conf.UseAppendAction,
        help_text(
            "Compare steps and seconds to this return: 18, or pong=18 for one environment. May be repeated.",
            metavar="RETURN",
            help_behavior_hint="(default: the return that runs were told to end at)",
        ),
    ] = ()
    label: Annotated[
        tuple[str, ...],
        tyro.conf.UseAppendAction,
        help_text(
            "Name the runs in a folder: LABEL=FOLDER. May be repeated.",
            metavar="LABEL=FOLDER",
            help_behavior_hint="(default: what differs)",
        ),
    ] = ()
    title: Annotated[str | None, left_open("Heading of the page.", str, "(default: methods and environments)")] = None
    metric: Annotated[
        str,
        help_text("What is compared: a key of metrics.jsonl, such as episode/is_success, in place of mean_return."),
    ] = "mean_return"
    json: AsJson = False

    def __call__(self) -> None:
        from gossamer.reporting.report import write

        labels = _labels(self.label)
        made = write(
            self.runs,
            out=self.out,
            thresholds=self.threshold,
            labels=labels,
            title=self.title,
            metric=self.metric,
            tell=tell,
        )
        if self.json:
            print(to_json(made.summary))
            return
        found = made.summary
        for each in found["left_out"]:
            print(f"left out: {each['directory']}: {each['reason']}")
        for note in found["notes"]:
            print(note)
        runs, methods = len({run["directory"] for run in found["runs"]}), len(found["methods"])
        print(f"{runs} run{'s' * (runs > 1)} of {methods} method{'s' * (methods > 1)}; open {made.page}")


def _labels(texts: Sequence[str]) -> dict[str, Path]:
    found = dict[str, Path]()
    for label, folder in map(_label, texts):
        if label in found:
            raise UserError(
                f"--label {label}={folder}: the label {label} names {found[label]} already; give another one"
            )
        found[label] = folder
    return found


def _label(text: str) -> tuple[str, Path]:
    label, equals, folder = text.partition("=")
    if not (label and equals and folder):
        raise UserError(f"--label {text}: must be LABEL=FOLDER, for example ours=runs/ours")
    return label, Path(folder)
