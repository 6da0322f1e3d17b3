"""Shows a study while it runs: a live table on a terminal, elsewhere a line for each run that begins or ends."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.markup import escape
from rich.progress_bar import ProgressBar
from rich.table import Table

from gossamer.storage.runs import Row, RunRecord
from gossamer.storage.studies import PlannedRun
from gossamer.studies.jobs import Job, JobOutcome
from gossamer.system.errors import UserError
from gossamer.system.streams import Output, redrawn
from gossamer.training.display import duration

REFRESH_SECONDS = 1.0
STYLES = {"finished": "green", "finished before": "green", "interrupted": "yellow", "failed": "red", "pruned": "blue"}


def named(run: PlannedRun) -> str:
    """Label, environment and seed."""
    return f"{run.label} on {run.env}, seed {run.seed}"


def told(outcome: JobOutcome) -> str:
    """An outcome in one line."""
    mean = "" if outcome.mean_return is None else f", mean return {outcome.mean_return:.2f}"
    steps = f": {outcome.steps:,} steps{mean}" if outcome.steps else ""
    return f"{outcome.status}{steps}{': ' + outcome.reason if outcome.reason else ''}"


@dataclass(frozen=True)
class Line:
    """A run that is being trained."""

    run: PlannedRun
    seconds: float  # since its process began
    row: Row  # its last row of metrics


class StudyDisplay:
    """Shows a study while it is entered."""

    def __init__(self, planned: int, directory: Path, console: Console | None = None) -> None:
        """`planned`: the number of its runs."""
        self._planned, self._directory = planned, directory
        self._console = console or Console(file=Output())  # type: ignore[arg-type]  # it needs no more than this
        self._live: Live | None = None
        self._ended, self._trained = 0, 0  # runs; those that were trained in this call
        self._lines: list[Line] = []
        self._began = self._drawn = time.monotonic()

    def __enter__(self) -> StudyDisplay:
        if redrawn(self._console):
            self._live = Live(get_renderable=self._render, console=self._console, refresh_per_second=2)
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._lines = []
        if self._live:
            self._live.stop()

    def started(self, run: PlannedRun) -> None:
        """A run begins."""
        if self._live is None:
            self._print(f"{named(run)}: training in {self._directory / run.directory}")

    def ended(self, outcome: JobOutcome) -> None:
        """A run has ended, or was finished before."""
        self._ended += 1
        self._trained += outcome.status == "finished"
        style = STYLES[outcome.status]
        self._print(f"[{self._ended}/{self._planned}] {named(outcome.run)}: ", f"[{style}]{escape(told(outcome))}[/]")

    def left_out(self, runs: int) -> None:
        """So many of the planned runs are not trained."""
        self._planned -= runs

    def note(self, text: str) -> None:
        """Print a line."""
        self._print(text)

    def update(self, running: Sequence[Job]) -> None:
        """Look at the runs that are being trained."""
        if self._live and time.monotonic() - self._drawn >= REFRESH_SECONDS:
            self._drawn = time.monotonic()
            self._lines = [Line(job.run, time.monotonic() - job.began, last_row(job.directory)) for job in running]

    def _print(self, text: str, styled: str = "") -> None:
        self._console.print(escape(text) + styled, soft_wrap=True, highlight=False)

    @property
    def _left(self) -> float | None:
        """Seconds until the end, if the other runs take as long as those trained so far; None before the first."""
        if not self._trained:
            return None
        return (time.monotonic() - self._began) / self._trained * (self._planned - self._ended)

    def _render(self) -> RenderableType:
        whole = Table.grid(padding=(0, 2))
        whole.add_column(width=20)
        runs = f"{self._ended} of {self._planned} run{'s' * (self._planned != 1)}"
        text = f"{runs}, left {duration(self._left)} · {self._directory}"
        whole.add_row(ProgressBar(total=max(1, self._planned), completed=self._ended), escape(text))
        table = Table.grid(padding=(0, 2))
        for line in self._lines:
            table.add_row(escape(named(line.run)), *_cells(line))
        return Group(whole, table)


def _cells(line: Line) -> tuple[str, str, str, str]:
    row = line.row
    if not row:
        return "starting", "", "", duration(line.seconds)
    mean = "–" if row.get("mean_return") is None else f"{row['mean_return']:.2f}"
    return (
        f"{row['steps']:,} steps",
        f"{row['steps'] / max(1e-9, row.get('seconds', 0)):,.0f} steps/s",
        f"return {mean}",
        duration(line.seconds),
    )


def last_row(directory: Path) -> Row:
    try:
        return RunRecord(directory).last_row
    except UserError:  # the run says so itself when it ends
        return {}
