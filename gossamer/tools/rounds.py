"""Progress of a benchmark: round, part and time left. A live line on a terminal; else one line for each part of the
first round, and one for each later round."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from types import TracebackType

from rich.console import Console, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table

from gossamer.system.streams import redrawn
from gossamer.training.display import duration


class Rounds:
    """Progress of a benchmark. It assumes that each round takes as long as the mean of the finished ones."""

    def __init__(self, total: int, guess: float, now: Callable[[], float] = time.monotonic) -> None:
        """`guess`: estimated seconds of the first round."""
        self.total, self._guess, self._now = total, guess, now
        self.round, self.part = 0, "starting"
        self._start = self._round_start = now()

    def enter(self, round_: int, part: str) -> None:
        """A part of a round begins. Rounds are numbered from 1."""
        self.part = part
        if round_ != self.round:
            self.round, self._round_start = round_, self._now()

    @property
    def left(self) -> float:
        """Estimated seconds left."""
        ended = max(0, self.round - 1)
        each = (self._round_start - self._start) / ended if ended else self._guess
        return max(0.0, (self.total - ended) * each - (self._now() - self._round_start))

    @property
    def fraction(self) -> float:
        """Elapsed fraction of the estimated total time."""
        passed = self._now() - self._start
        return passed / max(passed + self.left, 1e-9)

    def __str__(self) -> str:
        return f"round {max(1, self.round)} of {self.total}: {self.part}, about {duration(self.left)} left"


class RoundsDisplay:
    """Context manager that shows `rounds` on stderr. Call it when a part begins, from any thread."""

    def __init__(self, rounds: Rounds, console: Console | None = None) -> None:
        self._rounds, self._console = rounds, console or Console(stderr=True)
        self._live: Live | None = None

    def __enter__(self) -> RoundsDisplay:
        if redrawn(self._console):
            self._live = Live(get_renderable=self._render, console=self._console, refresh_per_second=4, transient=True)
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live:
            self._live.stop()

    def __call__(self, round_: int, part: str) -> None:
        told = round_ == 1 or round_ != self._rounds.round  # of the first round every part
        self._rounds.enter(round_, part)
        if told and self._live is None:
            print(f"bench: {self._rounds}", file=sys.stderr, flush=True)

    def _render(self) -> RenderableType:
        table = Table.grid(padding=(0, 2))
        table.add_column(width=20)
        table.add_column(no_wrap=True, overflow="ellipsis")
        table.add_row(ProgressBar(total=1.0, completed=self._rounds.fraction), str(self._rounds))
        return table
