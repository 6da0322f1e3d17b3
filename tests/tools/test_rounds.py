"""The time left, and the line that says so."""

from __future__ import annotations

import io

from rich.console import Console

from gossamer.tools.rounds import Rounds, RoundsDisplay


class Watch:
    def __init__(self) -> None:
        self.time = 100.0

    def __call__(self) -> float:
        return self.time


def test_the_time_left() -> None:
    watch = Watch()
    rounds = Rounds(4, guess=10.0, now=watch)
    assert str(rounds) == "round 1 of 4: starting, about 0:40 left"
    rounds.enter(1, "updates alone")
    watch.time += 6  # 4 rounds of 10 s, less 6 s
    assert str(rounds) == "round 1 of 4: updates alone, about 0:34 left"
    assert rounds.fraction == 6 / 40
    watch.time += 14
    rounds.enter(2, "updates alone")  # the first round took 20 s: 3 more take 60
    assert (rounds.left, rounds.fraction) == (60.0, 20 / 80)
    watch.time += 100  # this round takes much longer
    assert rounds.left == 0.0


def test_a_terminal_has_one_live_line() -> None:
    screen = io.StringIO()
    with RoundsDisplay(Rounds(2, 5.0), Console(file=screen, force_terminal=True, width=80)) as display:
        display(1, "updates alone")
        display(1, "inference alone")
    text = screen.getvalue()
    assert "round 1 of 2: inference alone, about 0:" in text
    assert text.endswith("\x1b[2K")  # erased: what follows are the figures
