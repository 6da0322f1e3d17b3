"""Learners that average gradients, with actors on other hosts: batches that are not equally many, and resuming."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any

import pytest
import torch
from some_parts import Slow, Watcher, a_task, differences
from some_rollouts import Uneven
from sweeps import each_seed, sweep

from gossamer.algorithms import AsyncPPO, VTrace
from gossamer.architectures import IMPALA
from gossamer.launch.simulation import Faults, Network, Simulation
from gossamer.loops import act, learn, load
from gossamer.system.errors import UserError
from gossamer.task import Regrouped

FAR = Network(latency=0.02, bandwidth=1e8)
SHAPES: list[dict[str, Any]] = [
    {"actors": 1, "num_envs": 4, "depth": 2},
    {"actors": 1, "num_envs": 4, "depth": 1, "hosts": 2},
    {"actors": 2, "num_envs": 4, "depth": 2, "hosts": 3, "batch_rollouts": 1},
    {"actors": 1, "num_envs": 4, "depth": 2, "hosts": 0, "learner_hosts": 2},
    {"actors": 1, "num_envs": 4, "depth": 2, "hosts": 2, "learner_hosts": 2},
]


def trained(seed: int, watcher: Watcher, faults: Faults | None = None, **given: Any) -> Watcher:
    """Raises `Deadlock` if the program cannot end."""
    simulation = Simulation(seed, FAR, faults or Faults(), patience=500.0)
    simulation(IMPALA(**{"hosts": 1, "learners": 2, **SHAPES[0], **given}).program(a_task(algorithm=VTrace())), watcher)
    return watcher


def versions(saved: Mapping[str, Any]) -> set[int]:
    states = [state["exchange"] for name, state in saved.items() if name.startswith("learn")]
    return {version for state in states for version in (state["iteration"], state["inner"]["iteration"])}


def parameters(watcher: Watcher) -> list[Any]:
    """Of each learner, at the end."""
    return [watcher.saved[f"learn[{rank}]"]["learner"]["model"] for rank in range(2)]


@pytest.mark.parametrize("stop_after", [9, 12])
@pytest.mark.parametrize("hosts", [0, 1])
@each_seed(6, normal=2)
def test_learners_are_equal_after_a_stop(seed: int, hosts: int, stop_after: int) -> None:
    # One of them waits for the other's gradients while the other one ends, or the other way round.
    stopped = trained(seed, Watcher(steps=4000, stop_after=stop_after), hosts=hosts, depth=1)
    assert len(versions(stopped.saved)) == 1
    assert differences(*parameters(stopped)) == []


@pytest.mark.parametrize("ahead", [0, 1])
def test_learners_of_an_older_checkpoint_continue_from_the_newest_parameters(ahead: int) -> None:
    saved = trained(0, Watcher(steps=200)).saved
    other, state = saved[f"learn[{1 - ahead}]"], saved[f"learn[{ahead}]"]
    state["exchange"]["iteration"] += 1
    state["learner"]["model"]["policy.bias"] += 1
    assert differences(*(each["learner"]["model"] for each in (other, state))) == ["['policy.bias']"]
    again = trained(0, Watcher(saved, steps=200, acted=200))  # nothing is left to do
    assert versions(again.saved) == {state["exchange"]["iteration"]}
    for each in parameters(again):
        assert torch.equal(each["policy.bias"], state["learner"]["model"]["policy.bias"])


def test_actors_get_the_parameters_of_steps_that_are_taken_between_two_batches() -> None:
    # The first learner's last batch has fewer sequences, so fewer minibatches. It takes the others' steps while it
    # waits to share what it has observed. An actor of the second learner waits for the parameters after them.
    task = a_task(algorithm=AsyncPPO(num_minibatches=2), memory="gru", memory_units=8, normalize_returns=True)
    watcher = Uneven({"act[0]": 5, "act[1]": 4, "act[2]": 9, "act[3]": 9})
    simulation = Simulation(1, FAR, Faults(), patience=500.0)
    simulation(IMPALA(hosts=1, learners=2, actors=2, num_envs=4, depth=1).program(task), watcher)
    assert len(versions(watcher.saved)) == 1
    assert differences(*parameters(watcher)) == []


@pytest.mark.parametrize("given", SHAPES, ids=str)
@each_seed(3, normal=1)
def test_a_resumed_run_does_not_wait_for_parameters_that_another_learner_has(given: dict[str, Any], seed: int) -> None:
    first = trained(seed, Watcher(steps=200), **given)
    assert len(versions(first.saved)) == 1
    again = trained(seed, Watcher(first.saved, steps=400, acted=200), **given)
    assert len(versions(again.saved)) == 1


@pytest.mark.parametrize("rollouts", [(5, 6), (5, 8), (9, 5), (0, 6)])
def test_actors_of_a_learner_with_more_batches_get_the_parameters_that_the_others_take_part_in(
    rollouts: tuple[int, int],
) -> None:
    done = trained(1, Uneven({f"act[{rank}]": count for rank, count in enumerate(rollouts)}))
    assert sum(report.learned for report in done.records) == sum(rollouts) * 8
    assert len(versions(done.saved)) == 1
    assert differences(*parameters(done)) == []  # also with one that never had a batch


def test_an_actors_host_that_restarts_after_one_of_its_actors_has_ended_does_not_keep_the_run_alive() -> None:
    simulation = Simulation(2, FAR, Faults(crashes=[(2.0, "actors0", 1.0)]), patience=500.0)
    watcher = Uneven({"act[0]": 5, "act[1]": 30})
    simulation(IMPALA(actors=2, num_envs=4, depth=2, hosts=1).program(a_task(algorithm=VTrace())), watcher)
    assert simulation.crashes
    assert simulation.now < 60


def slow_act(ctx: Any, *args: Any, **given: Any) -> None:
    act(Slow(ctx), *args, **given)  # type: ignore[arg-type]


CRASHES = {"learner": [(6.0, "learner", 1.0)], "both": [(5.0, "actors0", 1.0), (9.0, "learner", 1.0)]}


@pytest.mark.parametrize(
    ("crashes", "given"),
    [
        (CRASHES["learner"], {"hosts": 0, "learners": 1}),  # the actors die with the learner
        (CRASHES["learner"], {"hosts": 2, "learners": 1, "actors": 1}),  # a host's only actor has ended
        (CRASHES["learner"], {"hosts": 1, "learners": 2, "actors": 1}),  # a learner's only one
        (CRASHES["both"], {"hosts": 1, "learners": 1}),
    ],
    ids=str,
)
def test_a_learner_s_host_that_restarts_after_an_actor_has_ended_does_not_wait_for_it(
    crashes: list[tuple[float, str, float]], given: dict[str, Any]
) -> None:
    simulation = Simulation(1, FAR, Faults(crashes=crashes), patience=500.0)
    watcher = Uneven({"act[0]": 1, "act[1]": 30})
    shape: dict[str, Any] = {"actors": 2, "num_envs": 4, "depth": 2, **given}
    simulation(IMPALA(**shape).program(a_task(algorithm=VTrace())).with_loops({act: slow_act}), watcher)
    assert len(simulation.crashes) == len(crashes)
    assert simulation.now < 100


def later(loop: Callable[..., None], rank: int = 0) -> Callable[..., None]:
    """The loop; the launcher hears of the end of this copy 0.2 s late."""

    @wraps(loop)
    def run(ctx: Any, *args: Any, **given: Any) -> None:
        loop(ctx, *args, **given)
        if ctx.rank == rank:
            ctx.sleep(0.2)

    return run


@pytest.mark.parametrize(
    ("first", "last", "loops", "given"),
    [
        ("load", "learn", {learn: later(learn)}, {"parallel_loading": True}),
        ("learn", "load", {load: later(load)}, {"parallel_loading": True}),
        ("learn[0]", "learn[1]", {learn: later(learn, 1)}, {"learners": 2, "num_envs": 4}),
        ("learn", "watch", {}, {}),
    ],
    ids=["loader first", "learner first", "other learner first", "learner before its queue's clock"],
)
@pytest.mark.parametrize("hosts", [0, 1])
def test_a_worker_whose_host_restarts_does_not_wait_for_one_that_had_ended(
    first: str, last: str, loops: dict[Any, Any], given: dict[str, Any], hosts: int
) -> None:
    options = IMPALA(**{"actors": 1, "num_envs": 2, "depth": 2, "hosts": hosts, **given})
    wired = options.program(a_task(algorithm=VTrace())).with_loops(loops)
    if last not in {copy.name for copy in wired.crew}:
        pytest.skip("only where actors are on other hosts")
    whole = Simulation(1, FAR)
    whole(wired, Watcher(steps=80))
    between, ended = (whole.clocks[first] + whole.clocks[last]) / 2, whole.clocks[last]
    again = Simulation(1, FAR, Faults(crashes=[(between, "learner", 1.0)]), patience=500.0)
    again(wired, Watcher(steps=80))  # raises `Deadlock` if it cannot end
    assert again.crashes
    assert again.now < ended + 30


class Restored(Watcher):
    """Workers go on from what they saved last. Keeps the changes of the group."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        self.changes: list[Regrouped] = []

    def restored(self, worker: str) -> Any | None:
        return self.saved.get(worker)

    def report(self, worker: str, record: Any) -> None:
        super().report(worker, record)
        if isinstance(record, Regrouped):
            self.changes.append(record)


@pytest.mark.parametrize("hosts", [0, 2])
@pytest.mark.parametrize("lost", [0, 1])
def test_a_host_of_learners_that_dies_is_left_out_and_takes_over_the_others_parameters(hosts: int, lost: int) -> None:
    watcher = Restored(steps=1000)
    given: dict[str, Any] = {"hosts": hosts, "learners": 1, "learner_hosts": 2, "actors": 1, "num_envs": 4, "depth": 2}
    simulation = Simulation(1, FAR, Faults(crashes=[(6.0, f"learner{lost}", 20.0)]), patience=500.0)
    simulation(IMPALA(**given).program(a_task(algorithm=VTrace())).with_loops({act: slow_act}), watcher)
    assert [(each.left, each.joined) for each in watcher.changes] == [((lost,), ()), ((), (lost,))]
    assert all(each.waited < 15 for each in watcher.changes)
    assert len(versions(watcher.saved)) == 1
    assert differences(*parameters(watcher)) == []


@pytest.mark.parametrize("hosts", [0, 2])
@sweep(200, 2)
def test_learners_of_several_hosts_end_whoever_dies(hosts: int, seeds: range) -> None:
    crashed = 0
    for seed in seeds:
        rng, watcher = random.Random(seed), Restored(steps=400)
        given: dict[str, Any] = {"hosts": hosts, "learners": 1, "learner_hosts": 2, "actors": 1, "num_envs": 4}
        program = IMPALA(**given, depth=2).program(a_task(algorithm=VTrace())).with_loops({act: slow_act})
        crashes = [(20 * rng.random(), rng.choice(list(program.hosts)), 10 * rng.random()) for _ in range(2)]
        simulation = Simulation(seed, FAR, Faults(crashes=crashes), patience=500.0)
        simulation(program, watcher)
        crashed += len(simulation.crashes)
        assert len(versions(watcher.saved)) == 1, seed
        assert differences(*parameters(watcher)) == [], seed
    assert crashed >= len(seeds)


def test_hosts_of_actors_are_shared_out_among_those_of_learners() -> None:
    with pytest.raises(UserError, match="--hosts 3: must be a multiple of --learner-hosts 2, each of which"):
        IMPALA(hosts=3, learner_hosts=2).program(a_task(algorithm=VTrace()))
