"""The live panel of a training run; one plain line every ten seconds where there is no terminal."""

from __future__ import annotations

import sys
import time
from types import TracebackType

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from gossamer.training.metrics import Progress

PLAIN_SECONDS = 10.0
BLOCKS = "▁▂▃▄▅▆▇█"


def duration(seconds: float | None) -> str:
    """1:02:03, or a dash."""
    if seconds is None:
        return "–"
    minutes, rest = divmod(int(max(0.0, seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def plain(progress: Progress) -> str:
    """The state of a run in one line."""
    mean = "–" if progress.mean_return is None else f"{progress.mean_return:.2f}"
    shares = " ".join(f"{part} {share:.0%}" for part, share in progress.shares().items())
    return (
        f"steps {progress.steps:,}/{progress.total:,} | frames {progress.steps * progress.frames_per_step:,} | "
        f"{progress.rate(10):,.0f} steps/s (60 s: {progress.rate(60):,.0f}) | "
        f"return {mean} ({len(progress.recent)} of {progress.episodes:,} episodes) | {shares} | "
        f"left {duration(progress.left)}{_if_any(' | ', gossip(progress))}"
    )


def gossip(progress: Progress) -> str:
    """How far members are apart, and what they waited; nothing where they do not gossip or nothing is known yet."""
    found = {name.removeprefix("gossip/"): value for name, value in progress.gossip.items()}
    shown = {
        "distance": ", {:.3g} apart",
        "bound": " of at most {:.3g}",
        "kl": ", KL {:.2g}",
        "staleness_mean": ", {:.1f} stale",
        "waited": ", waited {:.0%}",
    }
    known = [(text, found.get(name)) for name, text in shown.items()]
    parts = [text.format(value) for text, value in known if value is not None]
    return f"{len(progress.members)} members{''.join(parts)}" if parts else ""


def _if_any(before: str, text: str) -> str:
    return before + text if text else ""


class ProgressDisplay:
    """Shows a run's progress while it is entered."""

    def __init__(self, progress: Progress, title: str, console: Console | None = None) -> None:
        self._progress, self._title = progress, title
        self._console = console or Console(stderr=True)
        self._live: Live | None = None
        self._printed = self._sampled = time.monotonic()
        self._curve: list[float] = []  # mean return over time, for the sparkline

    def __enter__(self) -> ProgressDisplay:
        if self._console.is_terminal:
            self._live = Live(get_renderable=self._render, console=self._console, refresh_per_second=4)
            self._live.start()
        else:
            self._line(self._title)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live:
            self._live.stop()
        else:
            self._line(plain(self._progress))

    def note(self, text: str) -> None:
        """A sentence that stays."""
        if self._live:
            self._console.print(Text(text, style="yellow"))
        else:
            self._line(text)

    def tick(self) -> None:
        """Called whenever there is news; prints when it is time."""
        now = time.monotonic()
        if now - self._sampled >= 1.0 and self._progress.mean_return is not None:
            self._sampled = now
            self._curve.append(self._progress.mean_return)
            if len(self._curve) > 512:
                self._curve = self._curve[::2]
        if self._live is None and now - self._printed >= PLAIN_SECONDS:
            self._printed = now
            self._line(plain(self._progress))

    def _line(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    def _render(self) -> RenderableType:
        p = self._progress
        table = Table.grid(padding=(0, 2))
        table.add_column(style="dim", justify="right", no_wrap=True)
        table.add_column()
        table.add_row("steps", f"{p.steps:,} of {p.total:,}   ({p.steps * p.frames_per_step:,} frames)")
        table.add_row("rate", f"{p.rate(10):,.0f} steps/s over 10 s, {p.rate(60):,.0f} over 60 s")
        mean = "no episode has ended yet" if p.mean_return is None else f"[bold]{p.mean_return:.2f}[/bold]"
        table.add_row("return", f"{mean}   (mean of the last {len(p.recent)} of {p.episodes:,} episodes)")
        table.add_row("", Text(sparkline(self._curve, 60), style="cyan"))
        table.add_row("time in", _bars(p.shares()))
        if between := gossip(p):
            table.add_row("gossip", between)
        table.add_row("passed", f"{duration(p.elapsed)}, left {duration(p.left)}")
        bar = ProgressBar(total=max(1, p.total), completed=min(p.steps, p.total))
        return Panel(Group(table, bar), title=self._title, title_align="left", border_style="blue", width=92)


def sparkline(values: list[float], width: int) -> str:
    """The values as a row of blocks, at most `width` of them."""
    if len(values) < 2:
        return ""
    picked = [values[i * (len(values) - 1) // (width - 1)] for i in range(width)] if len(values) > width else values
    low, high = min(picked), max(picked)
    span = (high - low) or 1.0
    return "".join(BLOCKS[int((value - low) / span * (len(BLOCKS) - 1))] for value in picked)


def _bars(shares: dict[str, float]) -> Text:
    colours = ["green", "cyan", "magenta", "yellow", "white"]
    text = Text()
    for (part, share), colour in zip(shares.items(), colours, strict=False):
        text.append("█" * round(share * 24), style=colour)
        text.append(f" {part} {share:.0%}  ", style="dim")
    return text
