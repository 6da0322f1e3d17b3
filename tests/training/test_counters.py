"""Counters of parameter servers and replay memories, against worked-out numbers."""

from __future__ import annotations

from gossamer.task import WorkerReport
from gossamer.training.counters import Gradients, Replayed


def test_gradients_without_a_server_are_not_told_of() -> None:
    gradients = Gradients()
    gradients.update(WorkerReport(8))
    assert (gradients.row(), gradients.result(), gradients.told()) == ({}, None, "")


def test_gradients_are_counted_by_their_staleness_and_by_why_they_were_dropped() -> None:
    """Six at staleness 0, three at 1, one at 5: the mean is (3 + 5) / 10."""
    gradients = Gradients()
    gradients.update(WorkerReport(8, staleness={0: 6, 1: 1}, dropped={"stale": 2}))
    gradients.update(WorkerReport(8, staleness={1: 2, 5: 1}, dropped={"stale": 1, "outlier": 4}))
    row = gradients.row()
    assert row["gradients"] == 10
    assert row["gradient_staleness_mean"] == 0.8
    assert (row["dropped_stale"], row["dropped_outlier"]) == (3, 4)
    assert gradients.told() == "gradients 0.8 updates stale, at most 5; dropped: 4 outlier, 3 stale"
    again = Gradients()
    again.load_state_dict(gradients.state_dict())
    assert again.result() == gradients.result()


def test_gradients_of_an_all_reduce_have_no_staleness() -> None:
    gradients = Gradients()
    gradients.update(WorkerReport(8, dropped={"replaced": 2}))
    assert gradients.row() == {"dropped_replaced": 2}
    assert gradients.told() == "gradients dropped: 2 replaced"
    found = gradients.result()
    assert found is not None
    assert (found["applied"], found["dropped"]) == (None, {"replaced": 2})


def test_steps_without_a_memory_are_not_told_of() -> None:
    replayed = Replayed()
    replayed.update("act", WorkerReport(8))
    assert (replayed.row(), replayed.result(8), replayed.told()) == ({}, None, "")


def test_steps_are_counted_as_stored_drawn_and_lost() -> None:
    replayed = Replayed()
    replayed.update("act", WorkerReport(100, stored=90))
    replayed.update("learn", WorkerReport(0, drawn=450))
    replayed.update("act", WorkerReport(10, stored=10, lost=30))
    assert replayed.row() == {"stored": 100, "drawn": 450, "lost": 30}
    assert replayed.result(110) == {**replayed.row(), "unstored": 10, "replay_ratio": 4.5}
    assert replayed.told() == "100 steps stored, 30 lost, each drawn 4.5 times"
    again = Replayed()
    again.load_state_dict(replayed.state_dict())
    assert again.row() == replayed.row()


def test_what_a_worker_holds_is_lost_when_it_dies_but_for_what_it_finds_in_its_saved_state() -> None:
    replayed = Replayed()
    for worker in ("act_and_learn[0]", "act_and_learn[1]"):
        replayed.update(worker, WorkerReport(40, stored=40, held=40))
    replayed.update("act_and_learn[0]", WorkerReport(40, stored=40, held=64))
    replayed.died("act_and_learn[0]")
    assert replayed.lost == 64
    replayed.update("act_and_learn[0]", WorkerReport(8, stored=8, lost=-48, held=56))
    replayed.died("act")  # holds nothing
    assert replayed.row() == {"stored": 128, "drawn": 0, "lost": 16}


def test_no_more_steps_are_found_again_than_were_lost_when_the_worker_died() -> None:
    """A resumed run: a worker dies before its first report, and its next life finds what the run began with."""
    replayed = Replayed()
    replayed.load_state_dict({"stored": 128, "drawn": 0, "lost": 16})
    replayed.died("act_and_learn")
    replayed.update("act_and_learn", WorkerReport(8, stored=8, lost=-48, held=56))
    assert replayed.lost == 16
    replayed.died("act_and_learn")
    assert replayed.died("act_and_learn") == 0  # once more before its first report
    replayed.update("act_and_learn", WorkerReport(8, stored=8, lost=-48, held=56))
    assert replayed.lost == 16 + 8
