"""What is shown of a run: a panel on a terminal, plain lines elsewhere."""

from __future__ import annotations

import io
import re

import pytest
from rich.console import Console

from gossamer.task import Episode, WorkerReport
from gossamer.training import display as panel_module
from gossamer.training.display import (
    ProgressDisplay,
    Screen,
    _bars,
    about,
    duration,
    estimate,
    evaluation,
    gossip,
    hosts,
    lags,
    members,
    panel,
    plain,
    queue,
    sparkline,
)
from gossamer.training.hosts import Hosts
from gossamer.training.progress import Progress


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
    made.update("act_and_learn", WorkerReport(5_000, 5_000, 1, (Episode(-20.5, 900),), {}, {"env": 1.0}), 5_000)
    return made


def test_the_line_says_it_all() -> None:
    # 2,500 steps/s; 995,000 steps are left: 398 s, which is 6:38
    assert plain(progress()) == (
        "steps 5,000/1,000,000 | frames 20,000 | 2,500 steps/s (60 s: 2,500) | return -20.50 (1 of 1 episodes) | "
        "env 50% other 50% | left 6:38"
    )


def test_the_estimate_waits_for_a_rate() -> None:
    watch = Watch()
    made = progress(watch)  # acting since 50 s, 5,000 steps at 52 s
    assert estimate(made, 0) == ""
    watch.time = 55
    made.update("act_and_learn", WorkerReport(6_000), 6_000)
    watch.time = 60  # 11,000 steps more within the last 5 s, 10 s after the first
    made.update("act_and_learn", WorkerReport(11_000), 11_000)
    # 2,200 steps/s: 1,000,000 steps take 454.5 s, or 7.6 minutes
    assert estimate(made, 0) == "about 8 minutes for 1,000,000 steps at 2,200 steps/s"
    # resumed at step 890,000: 110,000 steps take 50 s
    assert estimate(made, 890_000) == "about 50 seconds for 110,000 steps at 2,200 steps/s"
    made.steps = made.total
    assert estimate(made, 0) == ""


def test_the_estimate_is_shown_once(capfd: pytest.CaptureFixture[str]) -> None:
    watch = Watch()
    made = progress(watch)
    display = ProgressDisplay(made, "title")
    watch.time = 60
    made.update("act_and_learn", WorkerReport(5_000), 5_000)
    for _ in range(2):
        display.tick()
    assert capfd.readouterr().err.count("about ") == 1


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(50, "50 seconds"), (89, "89 seconds"), (90, "2 minutes"), (720, "12 minutes"), (5400, "1.5 hours"),
     (172_799, "48.0 hours"), (172_800, "2.0 days")],
)  # fmt: skip
def test_durations_in_words(seconds: float, words: str) -> None:
    assert about(seconds) == words


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
    shown.update("another", WorkerReport(1, 1, 1), 1)
    shown.gossip = dict(GOSSIP)
    line = "1.23 apart, at most 20, KL 0.0012, 2.5 stale, waited 3%"
    assert gossip(shown) == line
    assert plain(shown).endswith(f" | 2 members | {line}")
    shown.gossip = {**GOSSIP, "gossip/bound": None}
    assert gossip(shown).startswith("1.23 apart (no bound: messages have a share of the parameters), KL")
    shown.gossip = {**dict.fromkeys(GOSSIP), "gossip/waited": 0.0}  # nothing but that is known at first
    assert gossip(shown) == "waited 0%"


def test_learners_with_actors_are_called_so() -> None:
    shown = Progress(total=100, frames_per_step=1)
    for worker in ("learn[0]", "learn[1]"):
        shown.update(worker, WorkerReport(0, 10, 1), 0)
    assert members(shown) == "2 members"
    shown.update("act[0]", WorkerReport(10), 10)
    assert members(shown) == "2 learners"


def test_the_last_evaluation_has_a_line() -> None:
    shown = progress()
    assert evaluation(shown) == ""
    shown.evaluation = {"steps": 20_000, "mean_return": 1.234, "episodes": 10, "protocol": "noop"}
    assert evaluation(shown) == "at step 20,000: mean return 1.23 (10 games, noop)"
    assert plain(shown).endswith(f" | evaluated {evaluation(shown)}")


def test_a_lag_of_zero_is_told_as_well() -> None:
    shown = Progress(total=100, frames_per_step=1)
    assert queue(shown) == ""
    shown.update("learn", WorkerReport(10, 10, 1, lag={0: 4}), 10)
    shown.row()
    assert queue(shown) == "lag 0.0 updates, at most 0"


def test_a_queue_has_a_line_with_the_lag_of_the_last_row() -> None:
    shown = progress()
    shown.update("act", WorkerReport(10), 10)  # an actor is no member
    assert queue(shown) == members(shown) == ""
    for lag, waiting in (({0: 3, 4: 1}, 2), ({2: 4}, 1)):
        shown.update("learn", WorkerReport(0, 10, 1, lag=lag, waiting=waiting), 0)
    assert queue(shown) == ""
    # Of 8 trajectories: 3 of lag 0, 1 of 4, 4 of 2, in the mean 1.5
    row = shown.row()
    assert (row["policy_lag_mean"], row["policy_lag_max"], row["queue"]) == (1.5, 4, 1.5)
    assert row["policy_lag_trajectories"] == {"0": 3, "2": 4, "4": 1}
    assert row["queue_updates"] == {"1": 1, "2": 1}
    again = shown.row()  # without an update since: figures are repeated, counts are not
    assert again["policy_lag_mean"] == 1.5
    assert "policy_lag_trajectories" not in again
    assert "queue_updates" not in again
    assert queue(shown) == "lag 1.5 updates, at most 4; 1.5 batches wait"
    assert plain(shown).endswith(f" | {queue(shown)}")
    shown.row()  # nothing new
    assert queue(shown) == "lag 1.5 updates, at most 4; 1.5 batches wait"


def test_the_panel_has_a_histogram_of_the_whole_run_s_lag() -> None:
    shown = progress()
    assert lags(shown, 40) == ""
    shown.update("learn", WorkerReport(0, 10, 1, lag={0: 3}), 0)
    assert lags(shown, 40) == ""  # no lag at all
    shown.update("learn", WorkerReport(0, 10, 1, lag={1: 1, 3: 7}), 0)
    assert lags(shown, 40) == "0 ▄▂ █ 3 updates"
    shown.update("learn", WorkerReport(0, 10, 1, lag={-5: 4}), 0)  # a learner went on from an older version: 3 + 4 of 7
    assert lags(shown, 40) == "0 █▂ █ 3 updates"
    shown.update("learn", WorkerReport(0, 10, 1, lag=dict.fromkeys(range(200), 1)), 0)
    for width in (20, 40, 300):
        assert len(lags(shown, width)) <= width
        assert lags(shown, width).endswith(" 199 updates")


def on_hosts(count: int, down: tuple[int, ...] = ()) -> Progress:
    """Two members on each host, of which only the first has reported."""
    shown, host_of = progress(), dict[str, str]()
    for h in range(count):
        pair = tuple(f"act_and_learn[{rank}]" for rank in (2 * h, 2 * h + 1))
        host_of |= dict.fromkeys(pair, f"host{h}")
    shown.hosts = Hosts(host_of, host_of.keys())
    for h in range(count):
        shown.hosts.update(f"host{h}", f"10.0.0.{h + 1}")
        if h in down:
            shown.hosts.update(f"host{h}", None)
    del shown.members["act_and_learn"]
    shown.update("act_and_learn[0]", WorkerReport(1, 1, 1), 1)
    return shown


@pytest.mark.parametrize(
    ("shown", "expected_hosts", "expected_members"),
    [
        (progress(), "", ""),
        (on_hosts(2), "2 of 2 up: host0 10.0.0.1, host1 10.0.0.2", "4 members"),
        (on_hosts(2, (1,)), "1 of 2 up: host0 10.0.0.1; down: host1 10.0.0.2", "2 of 4 members present, 2 away"),
        (on_hosts(1, (0,)), "0 of 1 up; down: host0 10.0.0.1", "0 of 2 members present, 2 away"),
    ],
)
def test_hosts_and_members_that_are_away(shown: Progress, expected_hosts: str, expected_members: str) -> None:
    assert (hosts(shown), members(shown)) == (expected_hosts, expected_members)
    assert ("hosts " in plain(shown), "members" in plain(shown)) == (bool(expected_hosts), bool(expected_members))


def test_many_hosts_are_counted_and_a_few_are_named() -> None:
    line = hosts(on_hosts(40, (39,)))
    assert line.startswith("39 of 40 up: host0 10.0.0.1, host1 ")
    assert line.endswith(" and 31 more; down: host39 10.0.0.40")


@pytest.mark.parametrize("width", [50, 80, 100])
def test_nothing_of_the_panel_is_cut_off(width: int) -> None:
    shown = on_hosts(3, (2,))
    shown.gossip, shown.total = dict(GOSSIP), 100_000_000
    shown.enter("measuring the background (random play)")
    shown.spent = {"env": 0.9, "exchange": 0.1, "inference": 0.4, "update": 0.6}
    console = Console(file=io.StringIO(), width=width, force_terminal=False)
    console.print(panel(shown, "the title", [0.0, 1.0, 2.0], width))
    lines = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert {len(line) for line in lines} == {width}
    words = " ".join(line.strip("│╭╮╰╯─ ") for line in lines).split()
    for part in ("measuring the background (random play)", hosts(shown), members(shown), gossip(shown), "100,000,000"):
        assert [word for word in part.split() if word not in words] == []
    assert "…" not in words


def test_the_bar_is_divided_without_a_gap() -> None:
    for width in (10, 47, 67, 87):
        bar = str(_bars({"a": 0.335, "b": 0.333, "c": 0.332}, width)).split("\n")[0]
        assert len(bar) == width


def test_a_narrower_terminal_has_wrapped_the_panel() -> None:
    # 3 lines of 40 columns take 2 rows each on 25 columns: 3 rows more than were drawn
    screen, drawn = Screen(), "\n".join(["x" * 40] * 3)
    for width, erased in ((40, ""), (40, ""), (25, "\x1b[3A\x1b[J"), (60, "")):
        console = Console(file=io.StringIO(), width=width, force_terminal=True)
        with console.capture() as capture:
            console.print(screen.draw(drawn), end="")
        assert capture.get().partition("x")[0] == erased
        screen.draw(drawn)


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
            shown.update("act_and_learn", WorkerReport(500, 500, 1, (Episode(score, 9),)), 500)
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
        "1.23 apart",
    ):
        assert expected in text
    assert capsys.readouterr().err == ""


def test_without_a_terminal_each_phase_has_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    shown = Progress(10, 1)
    with ProgressDisplay(shown, "the title", Console(file=io.StringIO())) as display:
        for phase in ("starting the environments", "measuring the background", "measuring the background", ""):
            shown.enter(phase)
            display.tick()
    _, *phases, last = capsys.readouterr().err.splitlines()
    assert phases == ["starting the environments", "measuring the background"]
    assert last.startswith("steps 0/10")


def test_the_panel_names_the_phase_until_members_train() -> None:
    def text() -> str:
        console = Console(file=io.StringIO(), width=80)
        console.print(panel(shown, "the title", [], 80))
        return str(console.file.getvalue())  # type: ignore[attr-defined]

    shown = Progress(10, 1)
    shown.enter("measuring the background (random play)")
    assert "measuring the background (random play)" in text()
    shown.update("m", WorkerReport(1, 1, 1), 1)
    assert "measuring" not in text()


def test_the_use_of_the_machine_is_in_the_line_and_in_the_panel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(panel_module, "cores", lambda: 2)
    shown = progress()
    shown.usage = {"cores_busy": 1.84, "gpu_utilization": 0.65, "gpu_memory_gb": 3.0, "gpu_watts": 250.0}
    told = "1.8 of 2 cores busy; GPU 65%, 3.0 GB, 250 W"
    assert plain(shown).endswith(f" | {told}")
    console = Console(file=io.StringIO(), width=100)
    console.print(panel(shown, "the title", [], 100))
    assert re.search(rf"machine +{re.escape(told)}", console.file.getvalue())  # type: ignore[attr-defined]


def test_a_terminal_that_cannot_move_its_cursor_gets_lines(capsys: pytest.CaptureFixture[str]) -> None:
    console = Console(file=io.StringIO(), force_terminal=True, _environ={"TERM": "dumb"})
    with ProgressDisplay(Progress(10, 1), "the title", console):
        pass
    title, last = capsys.readouterr().err.splitlines()
    assert (title, last[:10]) == ("the title", "steps 0/10")
