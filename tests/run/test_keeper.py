"""When the keeper writes, saves, and asks to end."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gossamer.run import keeper as module
from gossamer.run.checkpoint import Store
from gossamer.run.keeper import Keeper
from gossamer.run.metrics import Progress, Recorder
from gossamer.run.panel import Monitor
from gossamer.task import Episode, Note, Report


class Kept:
    """A keeper of a run of `members` in a folder, and a clock that the test turns."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, members: tuple[str, ...] = ("m",)) -> None:
        self.time, self.notes, self.folder = 0.0, list[str](), folder
        monkeypatch.setattr(module.time, "monotonic", lambda: self.time)
        progress = Progress(1000, 1, now=lambda: self.time)
        recorder, store = Recorder(folder), Store(folder / "checkpoints")
        monitor = Monitor(progress, "title")
        self.keeper = Keeper(progress, recorder, store, monitor, self.notes.append, frozenset(members))

    def rows(self) -> list[int]:
        return [json.loads(line)["steps"] for line in (self.folder / "metrics.jsonl").read_text().splitlines()]

    def saved(self) -> list[int]:
        return [checkpoint.steps for checkpoint in self.keeper.store.all()]

    def workers(self) -> dict[str, Any]:
        found: dict[str, Any] = self.keeper.store.get("last").load()["workers"]
        return found


def test_rows_are_two_seconds_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = Kept(tmp_path, monkeypatch)
    for steps in range(1, 11):
        kept.time += 0.5
        kept.keeper.report("m", Report(steps, steps))
    assert kept.rows() == [4, 8]
    kept.keeper.write()
    assert kept.rows() == [4, 8, 10]


def test_checkpoints_are_a_minute_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = Kept(tmp_path, monkeypatch)
    due = []
    for steps in range(1, 14):
        kept.time += 10
        kept.keeper.report("m", Report(steps, steps))
        due.append(kept.keeper.due("m"))
        if due[-1]:
            kept.keeper.save("m", {"steps": steps})
    assert [i + 1 for i, each in enumerate(due) if each] == [6, 12]
    assert kept.saved() == [6, 12]
    assert kept.workers() == {"m": {"steps": 12}}


def test_a_checkpoint_of_many_members_waits_for_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = Kept(tmp_path, monkeypatch, ("a", "b"))
    keeper = kept.keeper
    for member in "ab":
        keeper.report(member, Report(10, 1))
    kept.time += 60
    assert keeper.due("a")
    keeper.save("a", 1)
    assert not keeper.due("a")
    assert keeper.due("b")
    assert kept.saved() == []
    keeper.save("b", 2)
    assert kept.saved() == [20]
    assert kept.workers() == {"a": 1, "b": 2}
    assert not keeper.due("a")


def test_members_that_have_ended_are_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = Kept(tmp_path, monkeypatch, ("a", "b", "c"))
    keeper = kept.keeper
    for member in "abc":
        keeper.report(member, Report(10, 1))
    keeper.save("c", "its end")  # nobody had asked
    kept.time += 60
    assert keeper.due("a")
    keeper.save("b", "its end, too")  # before it knew that it was asked
    assert kept.saved() == []
    keeper.save("a", "under way")
    assert kept.workers() == {"a": "under way", "b": "its end, too", "c": "its end"}
    keeper.report("a", Report(20, 2))
    kept.time += 60
    assert keeper.due("a")
    keeper.save("a", "later")
    assert kept.saved() == [30, 40]
    assert kept.workers() == {"a": "later", "b": "its end, too", "c": "its end"}


def test_a_member_that_is_silent_is_waited_for_a_minute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = Kept(tmp_path, monkeypatch, ("a", "b"))
    keeper = kept.keeper

    def goes_on(member: str, steps: int, *, due: bool) -> None:
        keeper.report(member, Report(steps, 1))
        assert keeper.due(member) == due
        if due:
            keeper.save(member, f"{member} at {steps}")

    kept.time += 60
    goes_on("a", 10, due=True)
    goes_on("b", 10, due=True)
    assert kept.saved() == [20]
    kept.time += 60
    goes_on("a", 20, due=True)  # and b has died
    kept.time += 59
    goes_on("a", 30, due=False)
    kept.time += 1
    goes_on("a", 40, due=True)  # anew: what it saved a minute ago is of another time
    assert kept.saved() == [20, 50]
    assert kept.workers() == {"a": "a at 40", "b": "b at 10"}
    kept.time += 60
    goes_on("a", 50, due=True)  # b is not waited for again
    assert kept.saved() == [20, 50, 60]

    goes_on("b", 15, due=False)  # it has been started again
    kept.time += 60
    goes_on("b", 20, due=True)
    goes_on("a", 60, due=True)
    assert kept.workers() == {"a": "a at 60", "b": "b at 20"}


def test_a_member_that_is_started_again_goes_on_from_what_it_saved_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = Kept(tmp_path, monkeypatch)
    kept.keeper.saved = {"m": "of the run before"}
    kept.keeper.save("m", "of this run")
    assert kept.keeper.restored("m") == "of this run"


def test_a_member_that_never_came_back_keeps_its_state_of_the_run_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = Kept(tmp_path, monkeypatch, ("a", "b"))
    kept.keeper.saved = {"a": "before", "b": "before", "of another wiring": "before"}
    kept.keeper.report("a", Report(10, 1))
    kept.keeper.save("a", "now")
    kept.keeper.keep()
    assert kept.workers() == {"a": "now", "b": "before"}


def test_what_members_exchange_goes_to_the_ball_and_into_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = Kept(tmp_path, monkeypatch, ("a", "b"))
    taken, written = list[tuple[str, object]](), list[int]()

    class Taker:
        def take(self, worker: str, record: object) -> None:
            taken.append((worker, record))

        def row(self) -> dict[str, float]:
            return {"gossip/mixed": len(taken)}

    kept.keeper.ball = Taker()  # type: ignore[assignment]
    kept.keeper.kept = lambda: written.append(len(kept.saved()))
    kept.keeper.report("a", Report(10, 1, exchange=("one", "two")))
    kept.keeper.report("b", Report(10, 1, exchange=("three",)))
    assert taken == [("a", "one"), ("a", "two"), ("b", "three")]
    kept.keeper.write()
    row = json.loads((tmp_path / "metrics.jsonl").read_text().splitlines()[-1])
    assert row["gossip/mixed"] == 3
    kept.keeper.keep()
    assert written == [1]  # once the checkpoint is there


def test_what_members_save_at_their_end_is_kept_at_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = Kept(tmp_path, monkeypatch)
    kept.keeper.report("m", Report(10, 1, (Episode(3.0, 5),)))
    kept.keeper.save("m", "the end")
    assert kept.saved() == []
    kept.keeper.keep()
    assert kept.workers() == {"m": "the end"}
    assert kept.keeper.store.get("last").score == 3.0


def test_it_asks_to_end_once_a_hundred_episodes_are_good_enough(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keeper = Kept(tmp_path, monkeypatch).keeper
    keeper.stop_at_return = 5.0
    keeper.report("m", Report(10, 1, tuple(Episode(9.0, 1) for _ in range(99))))
    assert not keeper.stopping()  # not yet a hundred
    keeper.report("m", Report(20, 2, tuple(Episode(0.0, 1) for _ in range(50))))
    assert not keeper.stopping()  # a mean of 4.5
    keeper.report("m", Report(30, 3, tuple(Episode(9.0, 1) for _ in range(60))))
    assert keeper.stopping()
    assert keeper.solved_steps == 30
    keeper.report("m", Report(40, 4, tuple(Episode(0.0, 1) for _ in range(100))))
    assert keeper.stopping()  # once true it stays true
    assert keeper.solved_steps == 30


def test_notes_are_logged_and_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = Kept(tmp_path, monkeypatch)
    kept.keeper.report("m", Note("something to know"))
    assert kept.notes == ["something to know"]
    assert capsys.readouterr().err == "something to know\n"


def test_members_go_on_from_what_was_saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keeper = Kept(tmp_path, monkeypatch).keeper
    assert keeper.restored("m") is None
    keeper.saved = {"m": {"steps": 3}}
    assert keeper.restored("m") == {"steps": 3}
    assert keeper.restored("another") is None
