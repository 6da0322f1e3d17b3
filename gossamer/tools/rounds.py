"""Progress of a benchmark: the round, its part and the time left. On a terminal one live line, else a line a round."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from types import TracebackType

from rich.console import Console, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table

from gossamer.training.display import duration


class Rounds:
    """How far a benchmark is. Rounds take as long as the mean of those that have ended."""

    def __init__(self, total: int, guess: float, now: Callable[[], float] = time.monotonic) -> None:
        """`guess`: seconds that the first round will take."""
        self.total, self._guess, self._now = total, guess, now
        self.round, self.part = 0, "starting"
        self._start = self._round_start = now()

    def enter(self, round_: int, part: str) -> None:
        """A part of round 1, 2, .. begins."""
        self.part = part
        if round_ != self.round:
            self.round, self._round_start = round_, self._now()

    @property
    def left(self) -> float:
        """Seconds, an estimate."""
        ended = max(0, self.round - 1)
        each = (self._round_start - self._start) / ended if ended else self._guess
        return max(0.0, (self.total - ended) * each - (self._now() - self._round_start))

    @property
    def fraction(self) -> float:
        """Of the whole time, passed."""
        passed = self._now() - self._start
        return passed / max(passed + self.left, 1e-9)

    def __str__(self) -> str:
        return f"round {max(1, self.round)} of {self.total}: {self.part}, about {duration(self.left)} left"


class RoundsDisplay:
    """Shows `rounds` on stderr while it is entered. Call it where a part begins; any thread may."""

    def __init__(self, rounds: Rounds, console: Console | None = None) -> None:
        self._rounds, self._console = rounds, console or Console(stderr=True)
        self._live: Live | None = None

    def __enter__(self) -> RoundsDisplay:
        if self._console.is_terminal:
            self._live = Live(get_renderable=self._render, console=self._console, refresh_per_second=4, transient=True)
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live:
            self._live.stop()

    def __call__(self, round_: int, part: str) -> None:
        new = round_ != self._rounds.round
        self._rounds.enter(round_, part)
        if new and self._live is None:
            print(f"bench: {self._rounds}", file=sys.stderr, flush=True)

    def _render(self) -> RenderableType:
        table = Table.grid(padding=(0, 2))
        table.add_column(width=20)
        table.add_column(no_wrap=True, overflow="ellipsis")
        table.add_row(ProgressBar(total=1.0, completed=self._rounds.fraction), str(self._rounds))
        return table
