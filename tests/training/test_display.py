"""What is shown of a run: a panel on a terminal, plain lines elsewhere."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from gossamer.task import Episode, Report
from gossamer.training import display as panel_module
from gossamer.training.display import ProgressDisplay, duration, gossip, plain, sparkline
from gossamer.training.metrics import Progress


class Watch:
    def __init__(self) -> None:
        self.time = 50.0

    def __call__(self) -> float:
        return self.time


def progress(watch: Watch | None = None) -> Progress:
    """2 seconds in: 5,000 of 1,000,000 steps, one episode with a score of -20.5, half of the time in env."""
    watch = watch or Watch()
    made = Progress(1_000_000, frames_per_step=4, now=watch)
    watch.time += 2
    made.update("act_and_learn", Report(5_000, 5_000, 1, (Episode(-20.5, 900),), {}, {"env": 1.0}), 5_000)
    return made


def test_the_line_says_it_all() -> None:
    # 2,500 steps/s; 995,000 steps are left: 398 s, which is 6:38
    assert plain(progress()) == (
        "steps 5,000/1,000,000 | frames 20,000 | 2,500 steps/s (60 s: 2,500) | return -20.50 (1 of 1 episodes) | "
        "env 50% other 50% | left 6:38"
    )


def test_the_line_before_there_is_anything_to_say() -> None:
    assert plain(Progress(10, 1, now=Watch())) == (
        "steps 0/10 | frames 0 | 0 steps/s (60 s: 0) | return – (0 of 0 episodes) | other 100% | left –"
    )


GOSSIP = {
    "gossip/distance": 1.234567,
    "gossip/bound": 20.0,
    "gossip/kl": 0.00123,
    "gossip/staleness_mean": 2.51,
    "gossip/waited": 0.034,
    "gossip/mixed": 7,
}


def test_members_that_gossip_have_a_line() -> None:
    shown = progress()
    assert gossip(shown) == ""
    shown.update("another", Report(1, 1, 1), 1)
    shown.gossip = dict(GOSSIP)
    line = "2 members, 1.23 apart of at most 20, KL 0.0012, 2.5 stale, waited 3%"
    assert gossip(shown) == line
    assert plain(shown).endswith(f" | {line}")
    shown.gossip = {**dict.fromkeys(GOSSIP), "gossip/waited": 0.0}  # nothing but that is known at first
    assert gossip(shown) == "2 members, waited 0%"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(None, "–"), (0, "0:00"), (59.9, "0:59"), (61, "1:01"), (3600, "1:00:00"), (90061, "25:01:01"), (-5, "0:00")],
)
def test_durations(seconds: float | None, text: str) -> None:
    assert duration(seconds) == text


def test_sparklines() -> None:
    assert sparkline([0, 7, 3.5], 60) == "▁█▄"
    assert sparkline([2, 2, 2], 60) == "▁▁▁"
    assert sparkline([1], 60) == ""
    # of 101 values 5 are picked, the first and the last among them: 0, 25, 50, 75, 100
    assert sparkline([float(i) for i in range(101)], 5) == "▁▂▄▆█"


def test_without_a_terminal_there_is_a_line_every_ten_seconds(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    watch = Watch()
    shown = progress(watch)
    monkeypatch.setattr(panel_module.time, "monotonic", watch)
    with ProgressDisplay(shown, "the title", Console(file=io.StringIO())) as display:
        for _ in range(25):
            watch.time += 1
            display.tick()
        display.note("a note")
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "the title"
    assert [line.startswith("steps 5,000/") for line in lines[1:]] == [True, True, False, True]  # 10 s, 20 s, the end
    assert lines[3] == "a note"


def test_on_a_terminal_there_is_a_panel(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    screen, watch = io.StringIO(), Watch()
    shown = progress(watch)
    monkeypatch.setattr(panel_module.time, "monotonic", watch)
    with ProgressDisplay(shown, "the title", Console(file=screen, force_terminal=True, width=100)) as display:
        for score in (0.0, 10.0):
            watch.time += 2
            shown.update("act_and_learn", Report(500, 500, 1, (Episode(score, 9),)), 500)
            display.tick()
        shown.gossip = dict(GOSSIP)
        display.note("a note")
    text = screen.getvalue()
    for expected in (
        "the title",
        "6,000 of 1,000,000",
        "24,000 frames",
        "-3.50",
        "last 3 of 3",
        "a note",
        "env 17%",
        "1 members, 1.23 apart",
    ):
        assert expected in text
    assert capsys.readouterr().err == ""
