"""Hosts of actors that cannot reach the learner's host, from the start or after a while: the run ends, and says so."""

from __future__ import annotations

from typing import Any

import pytest
from some_parts import Slow, Watcher, a_task

from gossamer.algorithms import VTrace
from gossamer.architectures import IMPALA
from gossamer.launch.simulation import Faults, Network, Simulation
from gossamer.loops import act
from gossamer.task import Note

ROLLOUT = 4 * 4  # environments of an actor, steps
STEPS = 200 * ROLLOUT


def slow_act(ctx: Any, *args: Any, **given: Any) -> None:
    act(Slow(ctx), *args, **given)  # type: ignore[arg-type]


class Noting(Watcher):
    """It keeps notes, too."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        self.notes = list[str]()

    def report(self, worker: str, record: Any) -> None:
        super().report(worker, record)
        if isinstance(record, Note):
            self.notes.append(record.text)


def ended(faults: Faults, hosts: int = 1) -> tuple[float, int, list[str]]:
    """When a run ended, how many steps it learned from, and what it told. Raises `Deadlock` if it cannot end."""
    watcher = Noting(steps=STEPS)
    simulation = Simulation(0, Network(latency=0.01), faults, patience=1500.0)
    shape: dict[str, Any] = {"hosts": hosts, "actors": 2, "num_envs": 8, "depth": 2}
    simulation(IMPALA(**shape).program(a_task(algorithm=VTrace())).with_loops({act: slow_act}), watcher)
    return simulation.now, sum(report.learned for report in watcher.records), watcher.notes


def cut(start: float, end: float) -> Faults:
    return Faults(partitions=[(start, end, {"actors0"})])


def test_a_host_that_never_reaches_the_learner_does_not_keep_the_run_alive() -> None:
    now, learned, notes = ended(cut(0.0, 1e6))
    assert 300 < now < 400
    assert learned == 0
    assert notes == ["beat: no answer from the learner's host for 5 s; its actors wait"]


def test_the_others_do_its_part() -> None:
    now, learned, notes = ended(cut(0.0, 1e6), hosts=2)
    assert 300 < now < 400
    assert learned == STEPS
    assert [note.split(":")[0] for note in notes] == ["beat[0]"]


def test_after_a_short_cut_the_run_goes_on() -> None:
    now, learned, notes = ended(cut(10.0, 110.0))
    assert now < 200
    assert learned == STEPS
    assert notes[1:] == ["beat: the learner's host answers again"]


@pytest.mark.parametrize(
    "faults", [cut(10.0, 330.0), Faults(crashes=[(10.0, "actors0", 320.0)])], ids=["cut off", "crashed"]
)
def test_a_host_that_is_back_after_the_learner_has_ended_ends_too(faults: Faults) -> None:
    now, learned, _ = ended(faults)
    assert 300 < now < 400
    assert 0 < learned < STEPS


def test_both_sides_give_up_where_the_cut_does_not_end() -> None:
    now, learned, _ = ended(cut(10.0, 1e6))
    assert 300 < now < 400
    assert 0 < learned < STEPS


def test_in_a_healthy_run_nothing_is_told() -> None:
    now, learned, notes = ended(Faults(), hosts=2)
    assert (now < 60, learned, notes) == (True, STEPS, [])
