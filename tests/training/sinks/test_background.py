"""A sink that fails or hangs costs training nothing but its rows."""

from __future__ import annotations

from pathlib import Path

import pytest
from some_sinks import Hangs, Kept, Loses, Refuses, info, wait

from gossamer.training.sinks import background
from gossamer.training.sinks.background import Background
from gossamer.training.sinks.base import Sink


class Beside:
    """A sink on its own thread, and what it tells."""

    def __init__(self, sink: Sink, folder: Path, key: str | None = None) -> None:
        self.told, self.keys = list[str](), list[str]()
        self.background = Background(sink, self.told.append, self.keys.append)
        self.background.start(info(folder), key)

    def write(self, *steps: int) -> None:
        for each in steps:
            self.background.write({"loss": float(each)}, each)

    def end(self) -> None:
        self.background.end("finished")
        self.background.wait(60)


def test_rows_arrive_in_order_and_then_the_end(tmp_path: Path) -> None:
    sink = Kept()
    beside = Beside(sink, tmp_path, "earlier")
    beside.write(1, 2, 3)
    beside.end()
    assert sink.rows == [({"loss": 1.0}, 1), ({"loss": 2.0}, 2), ({"loss": 3.0}, 3)]
    assert (sink.keys, sink.ends, beside.keys) == (["earlier"], ["finished"], ["key"])
    assert (beside.told, beside.background.failures) == ([], 0)


def test_a_sink_that_cannot_start_is_told_of_once_and_given_nothing(tmp_path: Path) -> None:
    sink = Refuses()
    beside = Beside(sink, tmp_path)
    wait(lambda: beside.background.failures == 1)
    beside.write(1, 2)
    beside.end()
    assert (sink.rows, sink.ends, beside.keys) == ([], [], [])
    assert (beside.told, beside.background.failures) == (["no such server"], 1)


def test_every_failure_is_counted_and_the_first_is_told(tmp_path: Path) -> None:
    sink = Loses()
    beside = Beside(sink, tmp_path)
    beside.write(1, 2, 3, 4)
    beside.end()
    assert [steps for _, steps in sink.rows] == [2, 4]
    assert (beside.told, beside.background.failures) == (["TimeoutError"], 3)  # steps 1 and 3, and the end


def test_a_sink_that_hangs_delays_neither_rows_nor_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background, "CAPACITY", 3)
    sink = Hangs()
    beside = Beside(sink, tmp_path)
    beside.write(*range(5))  # two more than fit
    assert (beside.told, beside.background.failures) == (["is too slow: rows are left out"], 2)
    beside.background.end("finished")
    beside.background.wait(0)
    assert beside.background.failures == 3
    sink.go.set()
    wait(lambda: sink.ends == ["finished"])
    assert [steps for _, steps in sink.rows] == [0, 1, 2]
