"""Rates, shares and means of a run, by a clock that the test turns; and the rows that are kept of it."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest

from gossamer.task import Episode, WorkerReport
from gossamer.training.hosts import Hosts
from gossamer.training.progress import Progress
from gossamer.training.recent import Recent
from gossamer.training.recorder import Recorder


class Watch:
    """A clock that stands until it is turned."""

    def __init__(self) -> None:
        self.time = 1000.0

    def __call__(self) -> float:
        return self.time


def begun(total: int = 1000) -> tuple[Progress, Watch]:
    watch = Watch()
    return Progress(total, frames_per_step=4, now=watch), watch


def go(progress: Progress, watch: Watch, seconds: float, steps: int, **seconds_in: float) -> None:
    """Let time pass, then report so many more steps."""
    watch.time += seconds
    progress.update("act_and_learn", WorkerReport(steps, steps, 1, seconds=seconds_in), steps)


def test_rates_are_those_of_their_windows() -> None:
    progress, watch = begun(total=10_000)
    for _ in range(60):
        go(progress, watch, 1, 10)
    for _ in range(10):
        go(progress, watch, 1, 40)
    assert progress.rate(10) == 40  # the last 10 s
    assert progress.rate(60) == (50 * 10 + 10 * 40) / 60
    assert progress.left == (10_000 - 1000) / progress.rate(60)


def test_at_the_beginning_the_window_is_what_there_was() -> None:
    progress, watch = begun()
    assert progress.rate(10) == 0
    assert progress.left is None
    go(progress, watch, 2, 100)
    assert progress.rate(10) == progress.rate(60) == 50
    assert progress.left == 900 / 50
    watch.time += 3  # nothing has been reported since, and time goes on
    assert progress.rate(10) == 20


def test_quick_reports_are_not_all_kept() -> None:
    progress, watch = begun()
    for _ in range(10_000):
        go(progress, watch, 1 / 64, 1)
    assert len(progress._marks) < 65 / 0.25 + 3
    assert progress.rate(10) == pytest.approx(64, rel=0.03)  # within a mark's quarter of a second of ten


def test_what_comes_before_training_counts_for_no_rate() -> None:
    progress, watch = begun()
    progress.enter("measuring the background")
    watch.time += 22
    assert (progress.activity, progress.rate(10), progress.left) == ("measuring the background", 0, None)
    progress.enter("")
    go(progress, watch, 2, 100)
    assert progress.rate(60) == 50  # not 100 steps in 24 s
    assert progress.left == 900 / 50
    progress.enter("starting again")  # of one member, while the others train
    go(progress, watch, 2, 100)
    assert (progress.activity, progress.rate(60)) == ("", 50)


def test_after_a_resume_the_rate_is_that_of_the_new_session() -> None:
    progress, watch = begun()
    go(progress, watch, 100, 400)
    resumed = Progress(1000, 1, now=watch)
    resumed.load_state_dict(progress.state_dict())
    go(resumed, watch, 2, 100)
    assert (resumed.steps, resumed.elapsed) == (500, 102)
    assert resumed.rate(60) == 50  # 100 steps in 2 s; the 400 before are no steps of this session
    assert resumed.left == 500 / 50


def test_members_of_a_host_that_is_down_are_away() -> None:
    progress, _ = begun()
    progress.hosts = Hosts({"ma": "a", "helper": "b", "mb": "b"}, {"ma", "mb"})
    progress.hosts.update("a", "10.0.0.1")
    progress.hosts.update("b", None)
    assert progress.away == ["mb"]


def test_when_it_all_stands_still_the_rate_falls_to_nothing() -> None:
    progress, watch = begun()
    go(progress, watch, 1, 100)
    watch.time += 1000
    assert progress.rate(10) == 0
    assert progress.left is None


def test_shares_are_of_all_the_time_that_passed() -> None:
    progress, watch = begun()
    go(progress, watch, 2, 10, env=1.0, inference=0.25)
    go(progress, watch, 2, 10, env=1.0, update=0.5)
    assert progress.shares() == {"env": 0.5, "inference": 0.0625, "update": 0.125, "other": 0.3125}
    assert list(begun()[0].shares().items()) == [("other", 1.0)]


def test_shares_of_a_resumed_run_are_of_all_its_sessions() -> None:
    before, watch = begun()
    go(before, watch, 3, 10, env=1.0)
    saved = json.loads(json.dumps(before.state_dict()))
    resumed, watch = begun()
    resumed.load_state_dict(saved)
    go(resumed, watch, 1, 10, env=0.5, update=0.5)
    assert resumed.shares() == {"env": 1.5 / 4, "update": 0.5 / 4, "other": 2 / 4}
    del saved["spent"]  # as checkpoints before this was saved
    old, watch = begun()
    old.load_state_dict(saved)
    go(old, watch, 1, 10, env=0.5)
    assert old.shares() == {"env": 0.5, "other": 0.5}


def test_shares_of_members_that_work_side_by_side_are_of_their_work() -> None:
    progress, watch = begun()
    go(progress, watch, 1, 10, env=3.0, update=1.0)  # 4 seconds of work within one
    assert progress.shares() == {"env": 0.75, "update": 0.25, "other": 0.0}


def test_the_mean_is_of_the_last_hundred_episodes() -> None:
    progress, _ = begun()
    assert progress.mean_return is None
    episodes = tuple(Episode(score, 10) for score in (1000, *range(100)))
    progress.update("act_and_learn", WorkerReport(10, 10, 1, episodes[:1]), 10)
    assert progress.mean_return == 1000
    progress.update("act_and_learn", WorkerReport(10, 10, 1, episodes[1:]), 10)
    assert progress.mean_return == 99 / 2  # of 0 .. 99
    assert progress.episodes == 101


def test_steps_of_members_add_up() -> None:
    progress, _ = begun()
    progress.update("act_and_learn[0]", WorkerReport(10, 10, 1), 10)
    progress.update("act_and_learn[1]", WorkerReport(20, 15, 3), 20)
    progress.update("act_and_learn[0]", WorkerReport(20, 20, 1), 20)
    assert (progress.steps, progress.learned, progress.updates) == (50, 45, 5)


def test_steps_that_do_not_count_bring_the_end_no_nearer() -> None:
    """As the budget has it: what was leased to others meanwhile."""
    progress, watch = begun(total=1000)
    progress.update("m[0]", WorkerReport(100, 100, 10), 100)
    watch.time += 10
    progress.update("m[1]", WorkerReport(50, 50, 5), 20)
    assert (progress.steps, progress.learned, progress.updates) == (120, 150, 15)
    assert progress.left == (1000 - 120) / 12  # 120 steps in 10 seconds


def test_each_member_has_its_own_last_hundred_episodes() -> None:
    progress, _ = begun()
    progress.update("m[0]", WorkerReport(10, 10, 1, tuple(Episode(score, 1) for score in (1000.0, *range(100)))), 10)
    progress.update("m[1]", WorkerReport(10, 10, 1), 10)
    progress.update("m[2]", WorkerReport(10, 10, 1, (Episode(3.0, 1), Episode(4.0, 1))), 10)
    assert progress.member_returns == {"m[0]": 99 / 2, "m[1]": None, "m[2]": 3.5}
    assert progress.episodes == 103
    assert len(progress.recent) == 100


def test_metrics_are_means_over_members() -> None:
    progress, _ = begun()
    progress.update("m[0]", WorkerReport(1, 1, 1, metrics={"loss": 1.0, "entropy": 0.5}), 1)
    progress.update("m[1]", WorkerReport(1, 1, 1, metrics={"loss": 7.0}), 1)
    progress.update("m[0]", WorkerReport(1, 1, 1, metrics={"loss": 3.0, "entropy": 0.25}), 1)
    row = progress.row()
    assert (row["loss"], row["entropy"]) == (5.0, 0.25)


def test_shares_of_members_are_of_the_time_of_all_of_them() -> None:
    progress, watch = begun()
    watch.time += 2
    progress.update("m[0]", WorkerReport(10, 10, 1, seconds={"env": 1.0}), 10)
    progress.update("m[1]", WorkerReport(10, 10, 1, seconds={"env": 0.5, "update": 0.5}), 10)
    assert progress.shares() == {"env": 1.5 / 4, "update": 0.5 / 4, "other": 0.5}


def test_shares_are_also_of_the_time_of_workers_that_neither_act_nor_learn() -> None:
    progress, watch = begun()
    watch.time += 2
    progress.update("learn", WorkerReport(0, 10, 1, seconds={"update": 1.0}), 0)
    progress.spend("load", {"load": 0.5})
    progress.spend("load", {"load": 0.5, "loader_waits": 1.0})
    assert progress.shares() == {"load": 0.25, "loader_waits": 0.25, "update": 0.25, "other": 0.25}
    assert list(progress.members) == ["learn"]
    assert progress.actors == set()


def test_a_row_says_how_far_members_are_apart() -> None:
    progress, _ = begun()
    progress.gossip = {"gossip/distance": 0.5, "gossip/kl": None}
    assert {"gossip/distance": 0.5, "gossip/kl": None}.items() <= progress.row().items()


def test_a_row() -> None:
    progress, watch = begun()
    watch.time += 2
    report = WorkerReport(100, 80, 7, (Episode(3.0, 9),), {"loss": 0.5, "learning_rate": 1e-3}, {"env": 1.0})
    progress.update("act_and_learn", report, 100)
    assert progress.row() == {
        "steps": 100,
        "frames": 400,
        "learned": 80,
        "reused": 0,
        "updates": 7,
        "seconds": 2.0,
        "steps_per_second": 50.0,
        "episodes": 1,
        "mean_return": 3.0,
        "loss": 0.5,
        "learning_rate": 1e-3,
        "time/env": 0.5,
        "time/other": 0.5,
    }


def test_a_resumed_run_goes_on_counting() -> None:
    before, watch = begun()
    before.update("act_and_learn", WorkerReport(100, 90, 5, (Episode(1.0, 9), Episode(2.0, 9))), 100)
    watch.time += 30
    saved = json.loads(json.dumps(before.state_dict()))

    after, later = begun()
    after.load_state_dict(saved)
    assert (after.steps, after.learned, after.updates) == (100, 90, 5)
    assert (after.episodes, after.mean_return) == (2, 1.5)
    later.time += 10
    assert after.elapsed == 40
    assert after.rate(10) == 0  # the hundred steps were not made in this session
    after.update("act_and_learn", WorkerReport(100, 100, 4, (Episode(6.0, 9),)), 100)
    assert after.rate(10) == 10
    assert (after.episodes, after.mean_return) == (3, 3.0)
    assert after.member_returns == {"act_and_learn": 3.0}


@pytest.mark.parametrize(("again", "steps"), [({}, 100), ({"again": {"act_and_learn": [50, 2]}}, 150)])
def test_a_run_from_before_there_was_one_budget_can_be_gone_on_with(again: dict[str, Any], steps: int) -> None:
    saved = {"counts": {"act_and_learn": [100, 5]}, "recent": [[1.0, 9]], "episodes": 1, "elapsed": 3.0, **again}
    after, _ = begun()
    after.load_state_dict(saved)
    assert (after.steps, after.learned, after.updates) == (steps, steps, 7 if again else 5)
    assert (after.mean_return, after.member_returns) == (1.0, {})


def rows(directory: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (directory / "metrics.jsonl").read_text().splitlines()]


def test_a_row_is_on_disk_at_once(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path)
    recorder.write({"steps": 10, "mean_return": None})
    assert rows(tmp_path) == [{"steps": 10, "mean_return": None}]
    recorder.close()


def test_rows_that_will_be_made_again_are_dropped(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path)
    for steps in (10, 20, 30, 40):
        recorder.write({"steps": steps})
    recorder.close()
    with open(tmp_path / "metrics.jsonl", "a") as file:
        file.write('{"steps": 5')  # cut off by a crash
    again = Recorder(tmp_path, keep_until=20)
    again.write({"steps": 25})
    again.close()
    assert [row["steps"] for row in rows(tmp_path)] == [10, 20, 25]
    assert not list(tmp_path.glob(".*"))


def test_a_resumed_run_knows_how_many_episodes_are_on_record(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path, keep_until=0)
    assert recorder.kept is None  # the run has no such file yet
    for steps in (10, 20, 30, 40):
        recorder.add("m", (Episode(1.0, 9), Episode(2.0, 9)), steps=steps, seconds=1.0)
    recorder.flush()
    recorder.close()
    again = Recorder(tmp_path, keep_until=20)
    again.close()
    assert again.kept == 4


@pytest.mark.parametrize("line", ["", "[1]", "3", '{"loss": 1}', '{"steps": null}', "\x00\x00"])
def test_lines_that_are_no_rows_are_dropped(tmp_path: Path, line: str) -> None:
    (tmp_path / "metrics.jsonl").write_text(f'{{"steps": 10}}\n{line}\n')
    Recorder(tmp_path, keep_until=20).close()
    assert rows(tmp_path) == [{"steps": 10}]


def test_rows_are_strict_json(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path)
    recorder.write({"steps": 10, "kl": float("nan"), "bound": float("inf")})
    recorder.close()
    assert (tmp_path / "metrics.jsonl").read_text() == '{"steps": 10, "kl": null, "bound": null}\n'


class Meddler:
    """An entry of a collection. While it is read for the first time, another thread tries to report."""

    def __init__(self, progress: Progress) -> None:
        self.progress, self.threads = progress, list[threading.Thread]()

    def meddle(self) -> float:
        if self.threads:
            return 1.0
        episodes = tuple(Episode(0.0, 1) for _ in range(3))
        report = WorkerReport(steps=9, updates=1, episodes=episodes, metrics={"loss": 1.0}, seconds={"env": 1.0})
        self.threads.append(threading.Thread(target=self.progress.update, args=("other", report, 9)))
        self.threads[-1].start()
        self.threads[-1].join(0.05)  # it has to wait until the reader is done
        return 1.0

    score = steps = property(meddle)
    metrics: ClassVar[dict[str, float]] = {}

    def __iter__(self) -> Iterator[float]:
        return iter((self.meddle(), 0))

    def __getitem__(self, index: int) -> float:
        return self.meddle()


@pytest.mark.parametrize(
    ("place", "read"),
    [
        ("recent", lambda progress: progress.mean_return),
        ("recent", lambda progress: progress.state_dict()),
        ("members", lambda progress: progress.member_returns),
        ("_marks", lambda progress: progress.rate(10)),
    ],
)
def test_it_can_be_read_while_another_thread_reports(place: str, read: Callable[[Progress], object]) -> None:
    progress, _ = begun()
    meddler: Any = Meddler(progress)
    if place in ("recent", "_marks"):
        getattr(progress, place).extend([meddler] * 3)
    elif place == "members":
        progress.members["one"] = Recent()
        progress.members["one"].extend([meddler] * 3)
    else:
        getattr(progress, place)["one"] = meddler
    read(progress)
    for thread in meddler.threads:
        thread.join()
    assert progress.episodes == 3


def episodes(directory: Path) -> list[str]:
    return (directory / "episodes.csv").read_text().splitlines()


def test_every_episode_is_kept_and_those_after_the_checkpoint_are_dropped_by_a_resumed_run(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path)
    pong = Episode(-20.5, 764, "pong", 3)
    recorder.add("m[1]", (pong, Episode(1e-9, 12)), steps=800, seconds=1.256)
    recorder.add("m[0]", (), steps=900, seconds=1.5)
    recorder.add("m[0]", (pong,), steps=1000, seconds=2.0)
    recorder.close()
    head, first = "steps,seconds,member,environment,index,return,length", "800,1.26,m[1],pong,3,-20.5,764"
    assert episodes(tmp_path) == [head, first, "800,1.26,m[1],,0,1e-09,12", "1000,2.00,m[0],pong,3,-20.5,764"]
    with open(tmp_path / "episodes.csv", "a") as file:
        file.write("800,1.3,m[1],pong,3,-20.5,7")  # cut off by a crash
    Recorder(tmp_path, keep_until=999).close()
    assert episodes(tmp_path) == [head, first, "800,1.26,m[1],,0,1e-09,12"]


def test_episodes_are_in_their_file_with_the_next_row(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path)
    recorder.add("m", (Episode(1.0, 9, "catch"),), steps=9, seconds=0.5)
    recorder.write({"steps": 9, "mean_return": 1.0})
    assert episodes(tmp_path)[1:] == ["9,0.50,m,catch,0,1,9"]
    recorder.close()


@pytest.mark.parametrize("seconds", [5.0, 12.0, 61.0, 200.0])
def test_the_rate_of_rare_reports_is_not_0(seconds: float) -> None:
    progress, watch = begun()
    for _ in range(4):
        go(progress, watch, seconds, 100)
        assert progress.rate(10) == pytest.approx(100 / seconds)
        assert progress.rate(60) == pytest.approx(100 / seconds)
        assert progress.left is not None


def test_steps_in_flight_are_given_back_and_those_learned_from_before_they_were_reported_count() -> None:
    for acted, learned, lost in ((10, 8, 2), (10, 10, 0), (8, 10, 0)):
        progress, _ = begun()
        progress.update("act", WorkerReport(acted), acted)
        progress.update("learn", WorkerReport(0, learned, 1), 0)
        assert progress.give_back() == lost
        assert progress.steps == learned


def test_steps_in_a_restored_memory_are_not_given_back() -> None:
    for acted, learned, unlearned, lost in ((10, 6, 4, 0), (10, 6, 3, 1), (8, 6, 4, 0)):
        progress, _ = begun()
        progress.update("act", WorkerReport(acted), acted)
        progress.update("learn", WorkerReport(0, learned, 1), 0)
        assert progress.give_back(unlearned) == lost
        assert (progress.steps, progress.uncounted) == (
            min(acted, learned + unlearned),
            max(0, learned + unlearned - acted),
        )


def test_steps_that_others_acted_in_the_place_of_do_not_count_after_a_resume_either() -> None:
    progress, _ = begun()
    progress.update("m0", WorkerReport(10, 10, 1), 10)
    progress.update("m1", WorkerReport(10, 10, 1), 0)  # it came back after its lease had been taken from it
    again, _ = begun()
    again.load_state_dict(progress.state_dict())
    assert (again.give_back(), again.steps, again.uncounted) == (0, 10, 10)


def test_episodes_that_are_not_on_record_are_uncounted() -> None:
    progress, _ = begun()
    progress.update("m", WorkerReport(10, episodes=tuple(Episode(float(i), 1) for i in range(8))), 10)
    progress.recount(5)
    assert progress.episodes == 5
    assert progress.mean_return == 2.0  # of 0 to 4


def test_lags_are_exact_while_they_are_small_and_never_too_many() -> None:
    progress, _ = begun()
    progress.update("learn", WorkerReport(0, 1, 1, lag=dict.fromkeys(range(257), 1)), 0)
    assert progress.staleness.lag == dict.fromkeys(range(257), 1)
    progress.update("learn", WorkerReport(0, 1, 1, lag=dict.fromkeys(range(257, 1000000), 1)), 0)
    assert progress.staleness.lag.total() == 1_000_000
    assert len(progress.staleness.lag) < 2000
    exact = (1_000_000 - 1) / 2
    assert exact <= progress.row()["policy_lag_mean"] <= exact * (1 + 1 / 128)
    assert 999_999 <= max(progress.staleness.lag) <= 999_999 * (1 + 1 / 128)


def test_the_mean_return_of_several_games_begins_with_an_episode_of_each() -> None:
    progress = Progress(1000, frames_per_step=4, games=2)
    for game, mean in (("long", None), ("short", 3.0)):
        progress.update("act_and_learn", WorkerReport(10, 10, 1, episodes=(Episode(3.0, 5, game),)), 10)
        assert progress.current()["mean_return"] == mean
    assert progress.returns == {"long": 3.0, "short": 3.0}
