"""The progress display of a training run: a live panel on a terminal, elsewhere one plain line every ten seconds."""

from __future__ import annotations

import time
from collections.abc import Mapping
from itertools import cycle
from types import TracebackType

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.live import Live
from rich.markup import escape
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.segment import ControlType, Segment
from rich.table import Table
from rich.text import Text

from gossamer.system import usage
from gossamer.system.processes import cores
from gossamer.system.streams import Output, redrawn
from gossamer.training.progress import Progress

PLAIN_SECONDS = 10.0
RATED_SECONDS = 5.0  # over which the rate is measured that the duration of a run is estimated from
WARM_UP_SECONDS = 3.0  # before that
BLOCKS = "▁▂▃▄▅▆▇█"
COLOURS = ("green", "cyan", "magenta", "yellow", "blue", "bright_black")
WIDTH = 100  # columns of the panel, at most
MARGIN = 13  # columns of the panel beside the values: borders, padding, labels
NAMED = 8  # hosts, or metrics, that are listed by name


def duration(seconds: float | None) -> str:
    """1:02:03, or a dash."""
    if seconds is None:
        return "–"
    minutes, rest = divmod(int(max(0.0, seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def about(seconds: float) -> str:
    """A duration in words: `50 seconds`, `12 minutes`, `3.5 hours`, `2.0 days`."""
    if seconds < 90:
        return f"{seconds:.0f} seconds"
    if seconds < 5400:
        return f"{seconds / 60:.0f} minutes"
    return f"{seconds / 3600:.1f} hours" if seconds < 172_800 else f"{seconds / 86_400:.1f} days"


def estimate(progress: Progress, steps: int) -> str:
    """How long this session takes, which began after so many steps; empty until there is a rate to tell from."""
    if progress.acting < WARM_UP_SECONDS + RATED_SECONDS or progress.steps >= progress.total:
        return ""
    rate, session = progress.rate(RATED_SECONDS), progress.total - steps
    return f"about {about(session / rate)} for {session:,} steps at {rate:,.0f} steps/s" if rate > 0 else ""


def plain(progress: Progress) -> str:
    """The state of a run in one line."""
    mean = "–" if progress.mean_return is None else f"{progress.mean_return:.2f}"
    shares = " ".join(f"{part} {share:.0%}" for part, share in progress.shares().items())
    parts = (
        progress.activity,
        f"steps {progress.steps:,}/{progress.total:,}",
        f"frames {progress.steps * progress.frames_per_step:,}",
        f"{progress.speed:,.0f} steps/s (60 s: {progress.rate(60):,.0f})",
        f"return {mean} ({len(progress.recent)} of {progress.episodes:,} episodes{_after('; ', games(progress))})",
        own(progress),
        shares,
        f"left {duration(progress.left)}",
        _after("hosts ", hosts(progress)),
        members(progress),
        queue(progress),
        progress.gradients.told(),
        progress.replayed.told(),
        gossip(progress),
        usage.told(progress.usage, cores()),
        _after("evaluated ", evaluation(progress)),
    )
    return " | ".join(part for part in parts if part)


def games(progress: Progress) -> str:
    """The mean return of each of several games; nothing of a single one."""
    return ", ".join(f"{game} {value:.2f}" for game, value in progress.returns.items())


def hosts(progress: Progress) -> str:
    """How many hosts are up, and their addresses; nothing where one process runs everything."""
    known = progress.hosts.known
    if not known:
        return ""
    up, down = ([f"{h.name} {h.address}".strip() for h in known if h.up == state] for state in (True, False))
    return f"{len(up)} of {len(known)} up{_after(': ', _some(up))}{_after('; down: ', _some(down))}"


def members(progress: Progress) -> str:
    """How many members are present (learners, where others act or groups gossip), and how many are away because their
    host is down; nothing of a single one."""
    learners = progress.members.keys() - progress.actors
    known = {*learners, *(worker for host in progress.hosts.known for worker in host.learners)}
    away = len(progress.away)
    if len(known) < 2:
        return ""
    groups = len(set(progress.groups.values()))
    who = f"learners in {groups} groups" if groups > 1 else "learners" if progress.actors else "members"
    return f"{len(known) - away} of {len(known)} {who} present, {away} away" if away else f"{len(known)} {who}"


def queue(progress: Progress) -> str:
    """How old policies were when learned from, and how many batches wait; nothing before the first update."""
    row = progress.queue
    if "policy_lag_mean" not in row:
        return ""
    lag = f"lag {row['policy_lag_mean']:.1f} updates, at most {row['policy_lag_max']:.0f}"
    return f"{lag}; {row['queue']:.1f} batches wait" if "queue" in row else lag


def lags(progress: Progress, width: int) -> str:
    """A histogram of policy lag over the whole run, at most `width` columns wide; nothing where there is no lag."""
    counts = dict(progress.staleness.lag)
    greatest = max(counts, default=0)
    if greatest <= 0:
        return ""
    end = f"{greatest:,} updates"
    columns = min(greatest + 1, max(2, width - len(end) - 3))
    bins = [0] * columns
    for lag, count in counts.items():
        bins[max(0, lag) * columns // (greatest + 1)] += count  # below 0 after a learner restarted
    most = max(bins)
    shown = "".join(BLOCKS[count * (len(BLOCKS) - 1) // most] if count else " " for count in bins)
    return f"0 {shown} {end}"


def gossip(progress: Progress) -> str:
    """How far members are apart and how long they waited; nothing where they do not gossip or nothing is known yet."""
    row = {name.removeprefix("gossip/"): value for name, value in progress.gossip.items()}
    shown = {
        "distance": "{:.3g} apart",
        "bound": "at most {:.3g}",
        "kl": "KL {:.2g}",
        "staleness_mean": "{:.1f} stale",
        "waited": "waited {:.0%}",
    }
    if row.get("distance") is not None and row.get("bound") is None:
        shown["distance"] += " (no bound: messages have a share of the parameters)"
    known = [(text, row.get(name)) for name, text in shown.items()]
    return ", ".join(text.format(value) for text, value in known if value is not None)


def own(progress: Progress) -> str:
    """Metrics of the user's own; nothing without any."""
    return _listed({name.partition("/")[2]: value for name, value in progress.own_metrics().items()})


def evaluation(progress: Progress) -> str:
    """The result of the last evaluation beside training; nothing without one."""
    result = progress.evaluation
    if result is None:
        return ""
    games = f"{result['episodes']} game{'s' * (result['episodes'] != 1)}, {result['protocol']}"
    metrics = _after(", ", _listed(result.get("metrics", {})))
    return f"at step {result['steps']:,}: mean return {result['mean_return']:.2f}{metrics} ({games})"


def _listed(metrics: Mapping[str, float]) -> str:
    return _some([f"{name} {value:.3g}" for name, value in metrics.items()])


def _some(names: list[str]) -> str:
    """The first few of them."""
    more = len(names) - NAMED
    return ", ".join(names[:NAMED]) + (f" and {more} more" if more > 0 else "")


def _after(before: str, text: str) -> str:
    return before + text if text else ""


class ProgressDisplay:
    """Shows a run's progress while it is entered."""

    def __init__(self, progress: Progress, title: str, console: Console | None = None) -> None:
        self._progress, self._title = progress, title
        self._output = Output()
        self._console = console or Console(file=self._output)  # type: ignore[arg-type]  # it needs no more than this
        self._live: Live | None = None
        self._printed = self._sampled = time.monotonic()
        self._curve: list[float] = []  # mean return over time, for the sparkline
        self._activity = ""  # that was printed last
        self._before = progress.steps
        self._estimated = False
        self._screen = Screen()

    def __enter__(self) -> ProgressDisplay:
        if redrawn(self._console):
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
        """Print a sentence above the panel, where it stays."""
        if self._live:
            self._console.print(Text(text, style="yellow"))
        else:
            self._line(text)

    def tick(self) -> None:
        """Called after each report; samples the return and prints a line when it is time."""
        now = time.monotonic()
        if not self._estimated and (told := estimate(self._progress, self._before)):
            self._estimated = True
            self.note(told)
        if now - self._sampled >= 1.0 and self._progress.mean_return is not None:
            self._sampled = now
            self._curve.append(self._progress.mean_return)
            if len(self._curve) > 512:
                self._curve = self._curve[::2]
        if self._live is not None:
            return
        if self._progress.activity and self._progress.activity != self._activity:
            self._line(self._progress.activity)
        self._activity = self._progress.activity
        if now - self._printed >= PLAIN_SECONDS:
            self._printed = now
            self._line(plain(self._progress))

    def _line(self, text: str) -> None:
        self._output.write(f"{text}\n")  # at once: members may have something to say at the same time
        self._output.flush()

    def _render(self) -> RenderableType:
        """Called by the thread that draws, while others report."""
        width = min(self._console.width, WIDTH)
        return self._screen.draw(panel(self._progress, self._title, list(self._curve), width))


class Screen:
    """Draws the panel again and again. A terminal that became narrower has wrapped the old panel, which then takes more
    rows than were drawn: these are erased first."""

    def __init__(self) -> None:
        self._width = self._height = 0  # of what is on the screen
        self._panel: RenderableType = ""

    def draw(self, panel: RenderableType) -> Screen:
        self._panel = panel
        return self

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        rows = -(-self._width // options.max_width)  # of each line that was drawn
        if rows > 1:
            up = self._height * (rows - 1)
            yield Segment(f"\x1b[{up}A\x1b[J", None, [(ControlType.CURSOR_UP, up)])
        lines = console.render_lines(self._panel, options, pad=False)
        self._width, self._height = max(map(Segment.get_line_length, lines), default=0), len(lines)
        for line in lines:
            yield from line
            yield Segment.line()


def panel(p: Progress, title: str, curve: list[float], width: int) -> Panel:
    """The state of a run, `width` columns wide."""
    room = max(10, width - MARGIN)
    none = "not every game has ended an episode yet" if p.returns else "no episode has ended yet"
    mean = none if p.mean_return is None else f"[bold]{p.mean_return:.2f}[/bold]"
    rows: dict[str, RenderableType] = {
        "now": Text(p.activity, style="yellow"),
        "steps": f"{p.steps:,} of {p.total:,}   ({p.steps * p.frames_per_step:,} frames)",
        "rate": f"{p.speed:,.0f} steps/s, {p.rate(60):,.0f} over 60 s",
        "return": f"{mean}   (mean of the last {len(p.recent)} of {p.episodes:,} episodes)",
        "games": Text(games(p)),
        "": Text(sparkline(curve, room), style="cyan"),
        "metrics": Text(own(p)),
        "time in": _bars(p.shares(), room),
        "hosts": Text(hosts(p)),
        "members": Text(members(p)),
        "queue": Text(queue(p)),
        "lag": Text(lags(p, room), style="cyan"),
        "server": Text(p.gradients_told),
        "replay": Text(p.replayed.told()),
        "gossip": Text(gossip(p)),
        "machine": Text(usage.told(p.usage, cores())),
        "eval": Text(evaluation(p)),
        "passed": f"{duration(p.elapsed)}, left {duration(p.left)}",
    }
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim", justify="right", no_wrap=True)
    table.add_column(overflow="fold")
    for label, value in rows.items():
        if value or not label:
            table.add_row(label, value)
    bar = ProgressBar(total=max(1, p.total), completed=min(p.steps, p.total))
    return Panel(Group(table, bar), title=escape(title), title_align="left", border_style="blue", width=width)


def sparkline(values: list[float], width: int) -> str:
    """The values as a row of blocks, at most `width` of them."""
    if len(values) < 2:
        return ""
    picked = [values[i * (len(values) - 1) // (width - 1)] for i in range(width)] if len(values) > width else values
    low, high = min(picked), max(picked)
    span = (high - low) or 1.0
    return "".join(BLOCKS[int((value - low) / span * (len(BLOCKS) - 1))] for value in picked)


def _bars(shares: dict[str, float], width: int) -> Text:
    """A bar that is divided into the shares, and below it their names."""
    parts = list(zip(shares.items(), cycle(COLOURS), strict=False))
    bar, names, passed = Text(), Text("\n"), 0.0
    for (part, share), colour in parts:
        blocks = round((passed + share) * width) - round(passed * width)
        passed += share
        bar.append("█" * blocks, style=colour)
        names.append(f"{part} {share:.0%}  ", style=colour)
    return bar + names
