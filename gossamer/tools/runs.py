"""Lists runs: where, what, how far."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.cells import cell_len
from rich.console import Console
from rich.markup import escape
from rich.measure import Measurement
from rich.padding import Padding
from rich.table import Table

from gossamer.config.file import flat
from gossamer.storage.contents import MOST_FOLDERS, search
from gossamer.storage.runs import RunRecord, State
from gossamer.system.errors import UserError
from gossamer.system.kwargs import titled

WIDTH = 150  # columns besides the directory, where the output is no terminal
STYLES = {"running": "cyan", "ended": "green", "interrupted": "yellow", "short": "yellow", "crashed": "red"}


@dataclass(frozen=True)
class Line:
    """One run of the list."""

    directory: str
    state: State
    architecture: str
    algorithm: str
    env: str
    seed: int
    steps: int  # acted
    total: int  # asked for
    mean_return: float | None  # of the last 100 training episodes
    seconds: float  # of training

    def to_dict(self) -> dict[str, Any]:
        """As `--json` prints it."""
        return asdict(self)


def listed(folders: Iterable[Path], tell: Callable[[str], None] = lambda text: None) -> tuple[list[Line], list[str]]:
    """The runs in these folders, and what was wrong with those that cannot be read. `tell`: called with a line while a
    search takes long. Raises `UserError` where a folder is missing, where it holds very many, or no run."""
    lines, skipped = list[Line](), list[str]()
    for directory in _directories(folders, tell):
        try:
            lines.append(line(directory))
        except UserError as error:
            skipped.append(str(error))
    if not lines and not skipped:
        raise UserError(f"{', '.join(map(str, folders))}: no runs here; gossamer train makes one")
    return lines, skipped


def _directories(folders: Iterable[Path], tell: Callable[[str], None]) -> Iterable[Path]:
    """The run directories in these folders, each once, although folders may overlap."""
    directories = dict[Path, Path]()
    for folder in folders:
        if not folder.is_dir():
            raise UserError(f"{folder}: no such folder; give one that holds runs")
        for directory in search(folder, most=MOST_FOLDERS, tell=tell):
            directories.setdefault(directory.resolve(), directory)
    return directories.values()


def line(directory: Path) -> Line:
    """One run. Raises `UserError` where its files are damaged."""
    record = RunRecord(directory)
    options = flat(record.config)
    seconds = (record.result or record.last_row).get("seconds") or 0.0
    return Line(
        directory=str(directory),
        state=record.state,
        architecture=options["architecture"],
        algorithm=options["algorithm"],
        env=titled(options["env"], options.get("env_kwargs")),
        seed=options["seed"],
        steps=record.steps,
        total=options["steps"],
        mean_return=record.mean_return,
        seconds=seconds,
    )


def table(lines: Sequence[Line], console: Console | None = None) -> None:
    """Print them: a table, or where the terminal is too narrow for it two lines for each run."""
    longest = max((cell_len(each.directory) for each in lines), default=0)
    console = console or Console(width=None if sys.stdout.isatty() else longest + WIDTH)
    made = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("run", "state", "architecture", "env"):
        made.add_column(name, no_wrap=True)
    for name in ("seed", "steps", "return", "time"):
        made.add_column(name, justify="right", no_wrap=True)
    rows = [_cells(each) for each in lines]
    for row in rows:
        made.add_row(*row)
    if Measurement.get(console, console.options.update(max_width=longest + WIDTH), made).maximum <= console.width:
        console.print(made)
        return
    for directory, state, what, env, seed, steps, mean, time in rows:
        console.print(directory, soft_wrap=True, highlight=False)
        told = f"{state}, {what} on {env}, seed {seed}, {steps} steps, return {mean}, {time}"
        console.print(Padding(told, (0, 0, 0, 2), expand=False), highlight=False)


def _cells(each: Line) -> list[str]:
    mean = "-" if each.mean_return is None else f"{each.mean_return:.2f}"
    hours, rest = divmod(int(each.seconds), 3600)
    return [
        escape(each.directory),
        f"[{STYLES[each.state]}]{each.state}[/]",
        escape(f"{each.architecture} {each.algorithm}"),
        escape(each.env),
        str(each.seed),
        f"{each.steps:,}" if each.state == "ended" else f"{each.steps:,} of {each.total:,}",
        mean,
        f"{hours}:{rest // 60:02}:{rest % 60:02}",
    ]
