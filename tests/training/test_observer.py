"""When the observer writes, saves, and asks to end."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gossamer.storage.checkpoint import Store
from gossamer.task import Episode, Note, Phase, Report
from gossamer.training import observer as module
from gossamer.training.display import ProgressDisplay
from gossamer.training.metrics import Progress, Recorder
from gossamer.training.observer import RunObserver


class Kept:
    """A observer of a run of `members` in a folder, and a clock that the test turns."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, members: tuple[str, ...] = ("m",)) -> None:
        self.time, self.notes, self.folder = 0.0, list[str](), folder
        monkeypatch.setattr(module.time, "monotonic", lambda: self.time)
        progress = Progress(1000, 1, now=lambda: self.time)
        recorder, store = Recorder(folder), Store(folder / "checkpoints")
        display = ProgressDisplay(progress, "title")
        self.observer = RunObserver(progress, recorder, store, display, self.notes.append, frozenset(members))

    def rows(self) -> list[int]:
        return [json.loads(line)["steps"] for line in (self.folder / "metrics.jsonl").read_text().splitlines()]

    def saved(self) -> list[int]:
        return [checkpoint.steps for checkpoint in self.observer.store.all()]

    def workers(self) -> dict[str, Any]:
        found: dict[str, Any] = self.observer.store.get("last").load()["workers"]
        return found


def test_rows_are_two_seconds_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = Kept(tmp_path, monkeypatch)
    for steps in range(1, 11):
        kept.time += 0.5
        kept.observer.report("m", Report(steps, steps))
    assert kept.rows() == [4, 8]
    kept.observer.write()
    assert kept.rows() == [4, 8, 10]


def test_a_phase_is_shown_until_a_member_reports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = Kept(tmp_path, monkeypatch)
    kept.observer.report("m", Phase("measuring the background"))
    assert kept.observer.progress.phase == "measuring the background"
    kept.observer.report("m", Report(1, 1))
    assert kept.observer.progress.phase == ""


def test_checkpoints_are_a_minute_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = Kept(tmp_path, monkeypatch)
    due = []
    for steps in range(1, 14):
        kept.time += 10
        kept.observer.report("m", Report(steps, steps))
        due.append(kept.observer.due("m"))
        if due[-1]:
            kept.observer.save("m", {"steps": steps})
    assert [i + 1 for i, each in enumerate(due) if each] == [6, 12]
    assert kept.saved() == [6, 12]
    assert kept.workers() == {"m": {"steps": 12}}


def test_a_checkpoint_of_many_members_waits_for_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = Kept(tmp_path, monkeypatch, ("a", "b"))
    observer = kept.observer
    for member in "ab":
        observer.report(member, Report(10, 1))
    kept.time += 60
    assert observer.due("a")
    observer.save("a", 1)
    assert not observer.due("a")
    assert observer.due("b")
    assert kept.saved() == []
    observer.save("b", 2)
    assert kept.saved() == [20]
    assert kept.workers() == {"a": 1, "b": 2}
    assert not observer.due("a")


def test_members_that_have_ended_are_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = Kept(tmp_path, monkeypatch, ("a", "b", "c"))
    observer = kept.observer
    for member in "abc":
        observer.report(member, Report(10, 1))
    observer.save("c", "its end")  # nobody had asked
    kept.time += 60
    assert observer.due("a")
    observer.save("b", "its end, too")  # before it knew that it was asked
    assert kept.saved() == []
    observer.save("a", "under way")
    assert kept.workers() == {"a": "under way", "b": "its end, too", "c": "its end"}
    observer.report("a", Report(20, 2))
    kept.time += 60
    assert observer.due("a")
    observer.save("a", "later")
    assert kept.saved() == [30, 40]
    assert kept.workers() == {"a": "later", "b": "its end, too", "c": "its end"}


def test_a_member_that_is_silent_is_waited_for_a_minute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = Kept(tmp_path, monkeypatch, ("a", "b"))
    observer = kept.observer

    def goes_on(member: str, steps: int, *, due: bool) -> None:
        observer.report(member, Report(steps, 1))
        assert observer.due(member) == due
        if due:
            observer.save(member, f"{member} at {steps}")

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
    kept.observer.saved = {"m": "of the run before"}
    kept.observer.save("m", "of this run")
    assert kept.observer.restored("m") == "of this run"


def test_a_member_that_never_came_back_keeps_its_state_of_the_run_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = Kept(tmp_path, monkeypatch, ("a", "b"))
    kept.observer.saved = {"a": "before", "b": "before", "of another wiring": "before"}
    kept.observer.report("a", Report(10, 1))
    kept.observer.save("a", "now")
    kept.observer.keep()
    assert kept.workers() == {"a": "now", "b": "before"}


def test_what_members_exchange_goes_to_the_ball_and_into_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = Kept(tmp_path, monkeypatch, ("a", "b"))
    taken, written = list[tuple[str, object]](), list[int]()

    class Taker:
        def take(self, worker: str, record: object) -> None:
            taken.append((worker, record))

        def row(self) -> dict[str, float]:
            return {"gossip/mixed": len(taken)}

    kept.observer.consensus = Taker()  # type: ignore[assignment]
    kept.observer.kept = lambda: written.append(len(kept.saved()))
    kept.observer.report("a", Report(10, 1, exchange=("one", "two")))
    kept.observer.report("b", Report(10, 1, exchange=("three",)))
    assert taken == [("a", "one"), ("a", "two"), ("b", "three")]
    kept.observer.write()
    row = json.loads((tmp_path / "metrics.jsonl").read_text().splitlines()[-1])
    assert row["gossip/mixed"] == 3
    kept.observer.keep()
    assert written == [1]  # once the checkpoint is there


def test_what_members_save_at_their_end_is_kept_at_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = Kept(tmp_path, monkeypatch)
    kept.observer.report("m", Report(10, 1, (Episode(3.0, 5),)))
    kept.observer.save("m", "the end")
    assert kept.saved() == []
    kept.observer.keep()
    assert kept.workers() == {"m": "the end"}
    assert kept.observer.store.get("last").score == 3.0


def test_it_asks_to_end_once_a_hundred_episodes_are_good_enough(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    observer = Kept(tmp_path, monkeypatch).observer
    observer.stop_at_return = 5.0
    observer.report("m", Report(10, 1, tuple(Episode(9.0, 1) for _ in range(99))))
    assert not observer.stopping()  # not yet a hundred
    observer.report("m", Report(20, 2, tuple(Episode(0.0, 1) for _ in range(50))))
    assert not observer.stopping()  # a mean of 4.5
    observer.report("m", Report(30, 3, tuple(Episode(9.0, 1) for _ in range(60))))
    assert observer.stopping()
    assert observer.solved_steps == 30
    observer.report("m", Report(40, 4, tuple(Episode(0.0, 1) for _ in range(100))))
    assert observer.stopping()  # once true it stays true
    assert observer.solved_steps == 30


def test_notes_are_logged_and_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = Kept(tmp_path, monkeypatch)
    kept.observer.report("m", Note("something to know"))
    assert kept.notes == ["something to know"]
    assert capsys.readouterr().err == "something to know\n"


def test_members_go_on_from_what_was_saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    observer = Kept(tmp_path, monkeypatch).observer
    assert observer.restored("m") is None
    observer.saved = {"m": {"steps": 3}}
    assert observer.restored("m") == {"steps": 3}
    assert observer.restored("another") is None
