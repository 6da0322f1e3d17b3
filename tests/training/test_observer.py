"""When the observer writes, saves, and asks to end."""

from __future__ import annotations

import json
import re
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from some_sinks import wait

from gossamer.runtime import Answer, Stage
from gossamer.storage.checkpoint import Store
from gossamer.task import Activity, Episode, Note, PredictorReplaced, Recovered, ShardRestored, WorkerReport
from gossamer.training.checkpoints import CHECKPOINT_SECONDS, Checkpoints
from gossamer.training.display import ProgressDisplay
from gossamer.training.hosts import Hosts
from gossamer.training.observer import FENCE_SECONDS, RunObserver
from gossamer.training.progress import Progress
from gossamer.training.recorder import Recorder
from gossamer.training.result import why_ended
from gossamer.training.writer import ROW_SECONDS, STATUS_SECONDS

STEPS = 10  # of one lease


class Kept:
    """An observer of a run of `members` in a folder, and a clock that the test turns."""

    def __init__(
        self,
        folder: Path,
        members: tuple[str, ...] = ("m",),
        services: tuple[str, ...] = (),
        *,
        host_of: dict[str, str] | None = None,
        seconds: float = CHECKPOINT_SECONDS,
        steps: int | None = None,
        consensus: Any = None,
        saved: dict[str, Any] | None = None,
        **given: Any,
    ) -> None:
        self.time, self.notes, self.folder = 0.0, list[str](), folder

        def now() -> float:
            return self.time

        self.progress = Progress(1000, 1, now=now, hosts=Hosts(host_of, members, now=now))
        self.store, recorder, log = Store(folder / "checkpoints"), Recorder(folder), self.notes.append
        display = ProgressDisplay(self.progress, "title")
        self.checkpoints = Checkpoints(
            self.store,
            self.progress,
            recorder,
            log,
            frozenset(members),
            frozenset(services),
            saved or {},
            seconds=seconds,
            steps=steps,
            consensus=consensus,
            now=now,
        )
        self.observer = RunObserver(
            self.progress, recorder, self.checkpoints, display, log, consensus=consensus, now=now, **given
        )

    def act(self, member: str = "m", steps: int = STEPS, *episodes: Episode) -> None:
        """The member claims steps, acts them, and says so."""
        assert isinstance(self.observer.claim(member, steps), int)
        self.observer.report(member, WorkerReport(steps, steps, 1, episodes))

    def claim(self, member: str) -> int | Answer:
        """A claim; where a state is asked for, one that says how far all have come is given, then claimed again."""
        answer = self.observer.claim(member, STEPS)
        if answer is Answer.SAVE:
            self.observer.save(member, f"{member} at {self.progress.steps}")
            answer = self.observer.claim(member, STEPS)
        return self.claim(member) if answer is Answer.GO else answer

    def rows(self) -> list[int]:
        return [json.loads(line)["steps"] for line in (self.folder / "metrics.jsonl").read_text().splitlines()]

    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.folder / "status.json").read_text())
        return found

    def saved(self) -> list[int]:
        return [checkpoint.steps for checkpoint in self.store.all()]

    def workers(self) -> dict[str, Any]:
        found: dict[str, Any] = self.store.get("last").load()["workers"]
        return found


def test_the_last_of_several_reports_at_once_is_in_the_status(tmp_path: Path) -> None:
    kept = Kept(tmp_path, services=("s",))
    with kept.observer.status_kept():
        assert kept.status()["row"]["steps"] == 0  # before the first report
        kept.time += 0.6
        kept.act(steps=1)
        assert kept.status()["row"]["steps"] == 1
        for _ in range(3):
            kept.act(steps=1)  # at the same time; nothing is reported after that
        wait(lambda: kept.status()["row"]["steps"] == 4)
        (tmp_path / "status.json").unlink()
        time.sleep(2 * STATUS_SECONDS)
        assert not (tmp_path / "status.json").exists()  # nothing new, so nothing is written


def test_rows_are_two_seconds_apart(tmp_path: Path) -> None:
    kept = Kept(tmp_path)
    for _ in range(10):
        kept.time += 0.5
        kept.act(steps=1)
    assert kept.rows() == [4, 8]
    kept.observer.writer.write_row()
    assert kept.rows() == [4, 8, 10]


def test_the_status_is_half_a_second_old_at_most(tmp_path: Path) -> None:
    kept, seen = Kept(tmp_path), []
    for _ in range(8):
        kept.time += 0.25
        kept.act(steps=1)
        seen.append(kept.status()["row"]["steps"] if (tmp_path / "status.json").exists() else 0)
    assert seen == [0, 2, 2, 4, 4, 6, 6, 8]
    assert [each["name"] for each in kept.status()["members"]] == ["m"]


def test_the_status_says_at_once_that_a_host_is_away(tmp_path: Path) -> None:
    kept = Kept(tmp_path, ("a", "b"), host_of={"a": "h0", "b": "h1"})
    kept.observer.host("h0", "10.0.0.1")
    kept.observer.host("h1", "10.0.0.2")
    kept.observer.host("h1", None)
    found = kept.status()
    assert [(host["name"], host["up"]) for host in found["hosts"]] == [("h0", True), ("h1", False)]
    assert [(member["name"], member["up"]) for member in found["members"]] == [("a", True), ("b", False)]
    assert found["absences"] == [{"host": "h1", "at_seconds": 0.0, "away_seconds": None, "came_back": False}]


def test_a_status_that_cannot_be_written_ends_the_run_like_a_row(tmp_path: Path) -> None:
    kept = Kept(tmp_path)
    (tmp_path / "status.json").mkdir()  # stands for a full disk: the file cannot be replaced
    kept.time += 1.0
    with pytest.raises(OSError, match=r"status\.json"):
        kept.act()


def test_a_phase_is_shown_until_a_member_reports(tmp_path: Path) -> None:
    kept = Kept(tmp_path)
    kept.observer.report("m", Activity("measuring the background"))
    assert kept.observer.progress.activity == "measuring the background"
    kept.observer.report("m", WorkerReport(1, 1))
    assert kept.observer.progress.activity == ""


def test_steps_count_once_and_only_those_that_were_leased(tmp_path: Path) -> None:
    kept = Kept(tmp_path)
    kept.observer.report("m", WorkerReport(STEPS, STEPS, 1))
    assert (kept.progress.steps, kept.progress.learned, kept.progress.uncounted) == (0, STEPS, STEPS)
    positions = [kept.claim("m") for _ in range(2)]
    assert positions == [0, STEPS]
    kept.observer.report("m", WorkerReport(3 * STEPS, 3 * STEPS, 1))
    assert (kept.progress.steps, kept.progress.uncounted) == (2 * STEPS, 2 * STEPS)


def test_what_a_worker_that_died_had_not_reported_is_told(tmp_path: Path) -> None:
    kept = Kept(tmp_path)
    kept.act()
    kept.observer.died("m")
    assert kept.observer.events.events == []
    kept.claim("m")
    kept.observer.died("m")
    (event,) = kept.observer.events.events
    assert (event["kind"], event["worker"], event["unreported"], event["steps"]) == ("worker_died", "m", STEPS, STEPS)
    assert kept.notes == [f"m died; {STEPS} steps that it had not reported are acted again"]


def test_what_an_actor_that_ends_had_leased_is_acted_by_others(tmp_path: Path) -> None:
    kept = Kept(tmp_path, ("learn",))
    assert [kept.observer.claim(worker, 600) for worker in ("act[0]", "act[1]")] == [0, 600]
    assert kept.observer.claim("act[1]", 600) is Answer.END
    kept.observer.ended("act[0]")  # it could not reach the learner
    assert kept.observer.claim("act[1]", 600) == 600


def test_the_end_is_when_all_steps_are_leased(tmp_path: Path) -> None:
    kept = Kept(tmp_path)
    assert [kept.observer.claim("m", 400) for _ in range(4)] == [0, 400, 800, Answer.END]
    kept.observer.died("m")
    assert kept.observer.claim("m", 400) == 0


@pytest.mark.parametrize("members", [("a", "b"), ("learn",)], ids=["members", "actors"])
def test_steps_of_a_worker_that_has_been_away_for_long_go_to_others(tmp_path: Path, members: tuple[str, ...]) -> None:
    kept = Kept(tmp_path, members)
    kept.observer.claim("a", 600)
    kept.observer.claim("b", 400)
    kept.observer.away("b")
    kept.time += FENCE_SECONDS - 1
    assert kept.observer.claim("a", 400) is Answer.WAIT  # after an end nobody would take them
    kept.time += 1
    assert kept.observer.claim("a", 400) == 600
    kept.observer.report("b", WorkerReport(400, 400, 1))  # it is back: too late
    assert kept.progress.steps == 0
    kept.observer.report("a", WorkerReport(1000, 1000, 1))
    assert kept.progress.steps == 1000


def test_a_worker_that_is_heard_of_again_keeps_its_steps(tmp_path: Path) -> None:
    kept = Kept(tmp_path, ("a", "b"))
    kept.observer.claim("a", 600)
    kept.observer.claim("b", 400)
    kept.observer.away("b")
    kept.observer.report("b", WorkerReport(100, 100, 1))
    kept.time += 2 * FENCE_SECONDS
    assert kept.observer.claim("a", 400) is Answer.END


def test_checkpoints_are_a_minute_apart(tmp_path: Path) -> None:
    kept = Kept(tmp_path)
    asked = []
    for minute in range(1, 14):
        kept.time += 10
        asked += [minute] if kept.observer.claim("m", STEPS) is Answer.WAIT else []
        kept.claim("m")
        kept.observer.report("m", WorkerReport(STEPS, STEPS, 1))
    assert asked == [6, 12]
    assert kept.saved() == [50, 110]
    assert kept.workers() == {"m": "m at 110"}


class Evaluated:
    """An evaluator whose evaluations the test ends."""

    def __init__(self) -> None:
        self.rows, self.new = list[dict[str, Any]](), list[dict[str, Any]]()

    def take(self) -> list[dict[str, Any]]:
        new, self.new = self.new, []
        self.rows += new
        return new


def test_an_evaluation_can_end_the_run(tmp_path: Path) -> None:
    evaluator = Evaluated()
    kept = Kept(tmp_path, evaluator=evaluator, stop_at_eval=18.0)
    row = {"protocol": "plain", "episodes": 2, "std_return": 0.0, "metrics": {}}
    evaluator.new += [{**row, "steps": 10, "mean_return": 17.5}]
    kept.time += ROW_SECONDS
    kept.act()
    assert not kept.observer.stopping()
    evaluator.new += [{**row, "steps": steps, "mean_return": mean} for steps, mean in ((20, 18.0), (30, 3.0))]
    kept.act()
    assert not kept.observer.stopping()  # results are taken with the next row
    kept.time += ROW_SECONDS
    kept.act()
    assert kept.observer.stopping()
    assert (kept.observer.eval_solved_steps, kept.observer.solved_steps) == (20, None)
    assert why_ended(kept.observer) == ("reached the return asked for", 0)


def test_workers_go_on_while_a_checkpoint_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept, write, went_on = Kept(tmp_path, ("a", "b")), Store.save, list[bool]()

    def act() -> None:
        assert kept.claim("a") == 2 * STEPS
        kept.observer.report("a", WorkerReport(STEPS, STEPS, 1))

    def slow(store: Store, *given: Any, **more: Any) -> Path:
        kept.time += 2 * CHECKPOINT_SECONDS  # the next one is due before this one is written
        other = threading.Thread(target=act, daemon=True)
        other.start()
        other.join(20)
        went_on.append(not other.is_alive())
        return write(store, *given, **more)

    for member in "ab":
        kept.act(member)
    kept.time += CHECKPOINT_SECONDS
    assert [kept.claim(member) for member in "aba"] == [Answer.WAIT] * 3
    monkeypatch.setattr(Store, "save", slow)
    assert kept.claim("b") is Answer.WAIT  # once this one is written, the next one begins
    assert (went_on, kept.saved(), kept.progress.steps) == ([True], [2 * STEPS], 3 * STEPS)
    assert kept.workers() == {"a": "a at 20", "b": "b at 20"}  # what a did meanwhile is not in it


def test_checkpoints_can_be_so_many_steps_apart(tmp_path: Path) -> None:
    kept = Kept(tmp_path, steps=3 * STEPS)
    for _ in range(7):
        kept.claim("m")
        kept.claim("m")
        kept.observer.report("m", WorkerReport(STEPS, STEPS, 1))
    assert kept.saved() == [3 * STEPS, 6 * STEPS]


def test_a_checkpoint_of_many_members_waits_for_all(tmp_path: Path) -> None:
    kept = Kept(tmp_path, ("a", "b"))
    for member in "ab":
        kept.act(member)
    kept.time += 60
    assert kept.claim("a") is Answer.WAIT
    assert kept.claim("a") is Answer.WAIT  # b is acting still
    kept.observer.report("b", WorkerReport(0))
    assert kept.saved() == []
    assert kept.claim("b") is Answer.WAIT
    assert kept.claim("a") is Answer.WAIT
    assert kept.saved() == []
    assert kept.claim("b") == 20
    assert kept.saved() == [20]
    assert kept.workers() == {"a": "a at 20", "b": "b at 20"}
    assert kept.claim("a") == 30


def test_services_save_once_all_members_have(tmp_path: Path) -> None:
    kept = Kept(tmp_path, ("m",), ("Post",))
    kept.act()
    kept.time += 60
    kept.claim("m")
    assert kept.observer.due("Post") is None
    assert kept.claim("m") is Answer.WAIT
    while (stage := kept.observer.due("Post")) is Stage.SETTLE:
        kept.observer.settled("Post")
    assert (stage, kept.saved()) == (Stage.SAVE, [])
    kept.observer.save("Post", "letters")
    assert kept.store.get("last").load()["services"] == {"Post": "letters"}
    assert kept.claim("m") == 10


def test_members_that_have_ended_are_not_waited_for(tmp_path: Path) -> None:
    kept = Kept(tmp_path, ("a", "b", "c"))
    for member in "abc":
        kept.act(member)
    kept.observer.save("c", "its end")
    kept.observer.ended("c")
    kept.time += 60
    assert kept.claim("a") is Answer.WAIT
    kept.observer.save("b", "its end, too")
    kept.observer.ended("b")
    assert kept.saved() == []
    assert kept.claim("a") == 30
    assert kept.workers() == {"a": "a at 30", "b": "its end, too", "c": "its end"}


def test_a_member_that_is_away_is_not_waited_for_until_it_is_back(tmp_path: Path) -> None:
    kept = Kept(tmp_path, ("a", "b"))
    kept.act("a")
    kept.time += 60
    for member in "abab":
        kept.claim(member)
    assert kept.workers() == {"a": "a at 10", "b": "b at 10"}
    kept.act("a")
    kept.observer.away("b")
    kept.time += 60
    kept.claim("a")
    kept.claim("a")
    assert kept.workers() == {"a": "a at 20", "b": "b at 10"}
    kept.act("b")  # it is back
    kept.time += 60
    assert [kept.claim("a"), kept.claim("a")] == [Answer.WAIT] * 2
    for member in "bab":
        kept.claim(member)
    assert kept.workers() == {"a": "a at 30", "b": "b at 30"}


def test_nothing_is_kept_before_something_has_been_acted(tmp_path: Path) -> None:
    kept = Kept(tmp_path, seconds=0.0)
    assert [kept.claim("m"), kept.claim("m")] == [0, 10]
    assert kept.saved() == []


def test_a_member_that_is_still_acting_after_a_while_is_named(tmp_path: Path) -> None:
    kept = Kept(tmp_path, ("a", "b"))
    kept.act("a")
    kept.time += 60
    while not kept.saved():
        kept.time += 0.1
        kept.claim("a")
    assert kept.notes == ["checkpoint lacks the newest state of b: away, or still acting after 10 s"]


def test_a_member_that_is_lost_while_it_saves_is_named(tmp_path: Path) -> None:
    kept = Kept(tmp_path, ("a", "b"))
    kept.act("a")
    kept.act("b")
    kept.time = 61.0
    assert [kept.observer.claim(each, STEPS) for each in "abb"] == [Answer.WAIT, Answer.WAIT, Answer.SAVE]
    kept.observer.away("b")
    kept.observer.died("b")
    assert kept.claim("a") == 2 * STEPS
    assert kept.workers() == {"a": "a at 20"}
    assert kept.notes == ["checkpoint lacks the newest state of b: away, or still acting after 10 s"]


def test_there_is_no_checkpoint_without_the_state_of_any_member(tmp_path: Path) -> None:
    kept = Kept(tmp_path)
    kept.act()
    kept.time = 61.0
    assert [kept.observer.claim("m", STEPS) for _ in range(2)] == [Answer.WAIT, Answer.SAVE]
    kept.observer.away("m")  # its host dies before the state has arrived
    kept.observer.died("m")
    assert kept.saved() == []
    assert kept.notes == ["no checkpoint: no member could be reached to save its state"]
    assert [kept.claim("m") for _ in range(2)] == [Answer.WAIT, 10]  # it is back
    assert kept.saved() == [10]


def test_a_checkpoint_lacks_a_member_that_has_only_the_parameters_it_starts_from(tmp_path: Path) -> None:
    start = {"parameters": {"w": 1}}
    kept = Kept(tmp_path, ("a", "b"), saved={"a": start, "b": start})
    kept.act("a")
    kept.observer.away("b")  # its host is lost before it has saved
    kept.time = 61.0
    assert [kept.claim("a") for _ in range(2)] == [Answer.WAIT, 10]
    assert kept.workers() == {"a": "a at 10"}


def test_a_member_that_is_started_again_goes_on_from_what_it_saved_last(tmp_path: Path) -> None:
    kept = Kept(tmp_path)
    kept.checkpoints.saved = {"m": "of the run before"}
    kept.observer.save("m", "of this run")
    assert kept.observer.restored("m") == "of this run"


def test_a_member_that_never_came_back_keeps_its_state_of_the_run_before(tmp_path: Path) -> None:
    kept = Kept(tmp_path, ("a", "b"), ("Post",))
    kept.checkpoints.saved = {"a": "before", "b": "before", "Post": "before", "of another wiring": "before"}
    kept.observer.save("a", "now")
    kept.observer.keep()
    assert kept.workers() == {"a": "now", "b": "before"}
    assert kept.store.get("last").load()["services"] == {"Post": "before"}


def test_hosts_that_were_away_are_listed(tmp_path: Path) -> None:
    kept = Kept(tmp_path)
    kept.observer.host("one", "10.0.0.1")
    kept.time += 5
    kept.observer.host("one", None)
    kept.observer.host("one", None)
    assert [host.name for host in kept.progress.hosts.known if not host.up] == ["one"]
    kept.time += 22
    kept.observer.host("one", "10.0.0.1")
    assert kept.progress.hosts.to_list() == [
        {"host": "one", "at_seconds": 5.0, "away_seconds": 22.0, "came_back": True}
    ]
    assert [str(each) for each in kept.progress.hosts.absences] == ["one away 22 s"]


def test_what_members_exchange_goes_to_the_ball_and_into_rows(tmp_path: Path) -> None:
    taken = list[tuple[str, object]]()

    class Taker:
        def take(self, worker: str, record: object) -> None:
            taken.append((worker, record))

        def row(self) -> dict[str, float]:
            return {"gossip/mixed": len(taken)}

        def traffic(self) -> dict[str, float]:
            return {"sent": 7}

        def to_dict(self) -> dict[str, float]:
            return {"taken": len(taken)}

    kept = Kept(tmp_path, ("a", "b"), consensus=Taker())
    kept.observer.report("a", WorkerReport(10, 10, 1, exchange=("one", "two")))
    kept.observer.report("b", WorkerReport(10, 10, 1, exchange=("three",)))
    assert taken == [("a", "one"), ("a", "two"), ("b", "three")]
    kept.observer.writer.write_row()
    row = json.loads((tmp_path / "metrics.jsonl").read_text().splitlines()[-1])
    assert row["gossip/mixed"] == 3
    assert kept.status()["traffic"] == {"sent": 7}
    kept.observer.keep()
    assert json.loads((tmp_path / "gossip.json").read_text()) == {"taken": 3}


def test_what_members_save_at_their_end_is_kept_at_the_end(tmp_path: Path) -> None:
    kept = Kept(tmp_path)
    kept.act("m", STEPS, Episode(3.0, 5))
    kept.observer.save("m", "the end")
    assert kept.saved() == []
    kept.observer.keep()
    assert kept.workers() == {"m": "the end"}
    assert kept.store.get("last").score == 3.0


def test_it_asks_to_end_once_a_hundred_episodes_are_good_enough(tmp_path: Path) -> None:
    kept = Kept(tmp_path, stop_at_return=5.0)
    observer = kept.observer
    kept.act("m", STEPS, *(Episode(9.0, 1) for _ in range(99)))
    assert not observer.stopping()  # not yet a hundred
    kept.act("m", STEPS, *(Episode(0.0, 1) for _ in range(50)))
    assert not observer.stopping()  # a mean of 4.5
    kept.act("m", STEPS, *(Episode(9.0, 1) for _ in range(60)))
    assert observer.stopping()
    assert observer.solved_steps == 30
    kept.act("m", STEPS, *(Episode(0.0, 1) for _ in range(100)))
    assert observer.stopping()  # once true it stays true
    assert observer.solved_steps == 30


def test_it_asks_to_end_after_the_seconds_given(tmp_path: Path) -> None:
    kept = Kept(tmp_path, max_seconds=90.0)
    kept.time += 89
    assert not kept.observer.stopping()
    kept.time += 1
    assert kept.observer.stopping()


def test_what_follows_training_does_not_take_its_time(tmp_path: Path) -> None:
    """An evaluation that ends after the limit does not make a whole run one that was cut off."""
    kept = Kept(tmp_path, max_seconds=90.0)
    kept.time += 89
    kept.observer.trained()
    kept.time += 60
    assert not kept.observer.out_of_time


def test_notes_are_logged_and_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kept = Kept(tmp_path)
    kept.observer.report("m", Note("something to know"))
    assert kept.notes == ["something to know"]
    assert capsys.readouterr().err == "something to know\n"


@pytest.mark.parametrize(
    ("record", "lost", "told"),
    [
        (
            Recovered(25, 20, copied=True),
            5,
            r"update 25 from an actor's host and the optimizer of update 20, .*lost: 5$",
        ),
        (Recovered(20, 20, copied=False), 10, r"from its last checkpoint, update 20; updates lost: 10$"),
        (Recovered(31, 20, copied=True), 0, r"updates lost: 0$"),  # one more than it had reported
    ],
)
def test_a_restarted_learner_says_how_many_updates_were_lost(
    tmp_path: Path, record: Recovered, lost: int, told: str
) -> None:
    kept = Kept(tmp_path)
    kept.observer.report("m", WorkerReport(0, 10, 4, waiting=0, version=30))
    kept.observer.report("m", record)
    (event,) = kept.observer.events.events
    assert (event["kind"], event["lost"], event["version"]) == ("learner_restarted", lost, record.version)
    (note,) = kept.notes
    assert re.search(told, note)
    kept.observer.report("m", record)  # restarted once more, before it has made another update
    assert kept.observer.events.events[-1]["lost"] == 0


def test_a_restored_shard_says_how_many_updates_were_lost(tmp_path: Path) -> None:
    kept = Kept(tmp_path)
    kept.observer.report("tend[1]", ShardRestored(4_000, 25))
    assert kept.notes == ["tend[1]: the shard continues from update 4,000; updates lost: 25"]
    (event,) = kept.observer.events.events
    assert (event["kind"], event["worker"], event["lost"]) == ("shard_restarted", "tend[1]", 25)


def test_a_replaced_predictor_is_an_event_with_its_error(tmp_path: Path) -> None:
    kept = Kept(tmp_path)
    kept.observer.report("predict[1]", PredictorReplaced("RuntimeError: out of memory", 3))
    (note,) = kept.notes
    assert note.startswith("predict[1]: the predictor failed and was replaced; requests that wait again: 3")
    (event,) = kept.observer.events.events
    assert (event["kind"], event["error"], event["requests"]) == (
        "predictor_replaced", "RuntimeError: out of memory", 3,
    )  # fmt: skip


def test_the_episodes_that_a_checkpoint_counts_are_on_disk_before_it(tmp_path: Path) -> None:
    kept = Kept(tmp_path)
    kept.act("m", STEPS, Episode(1.0, 5), Episode(2.0, 5))
    assert kept.rows() == []
    kept.observer.keep()  # the run may be killed after this
    lines = (tmp_path / "episodes.csv").read_text().splitlines()
    assert len(lines) == 1 + kept.store.get("last").load()["progress"]["episodes"] == 3


def test_members_go_on_from_what_was_saved(tmp_path: Path) -> None:
    kept = Kept(tmp_path)
    observer = kept.observer
    assert observer.restored("m") is None
    kept.checkpoints.saved = {"m": {"steps": 3}}
    assert observer.restored("m") == {"steps": 3}
    assert observer.restored("another") is None


def test_after_a_checkpoint_that_cannot_be_written_another_one_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = Kept(tmp_path)
    kept.act()
    kept.time += CHECKPOINT_SECONDS

    def full(*args: Any, **how: Any) -> None:
        raise OSError(28, "No space left on device")

    assert kept.observer.claim("m", STEPS) is Answer.WAIT
    with monkeypatch.context() as patched:
        patched.setattr(Store, "save", full)
        with pytest.raises(OSError, match="No space"):
            kept.claim("m")
    assert kept.saved() == []
    kept.claim("m")
    kept.observer.report("m", WorkerReport(STEPS, STEPS, 1))
    kept.time += CHECKPOINT_SECONDS
    assert kept.observer.claim("m", STEPS) is Answer.WAIT
    kept.claim("m")
    assert kept.saved() == [2 * STEPS]
