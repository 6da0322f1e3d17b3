"""All-reduce: learners on parts of a batch are one learner on the whole of it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from some_parts import Watcher, a_task, a_trajectory, differences
from torch import Tensor
from torch._subclasses import FakeTensorMode

from gossamer.algorithms import A2C, PPO
from gossamer.data import Trajectory
from gossamer.envs.toy import Catch
from gossamer.exchange import AllReduce, Alone, AloneLink, Between, Gradients, Group, Learners, keep
from gossamer.exchange.all_reduce import Contribution, Lead, RoundOutcome
from gossamer.exchange.all_reduce.given import Finished, added
from gossamer.launch.simulation import Network, Simulation
from gossamer.launch.threads import threads
from gossamer.program import Program
from gossamer.runtime import Context, WouldBlock
from gossamer.task import Task
from gossamer.workers.learner import Learner

SPEC = Catch().make(1).spec
LEARNERS = 3
GIVEN = Contribution(torch.zeros(2), 0.1)
launchers = pytest.mark.parametrize(
    "launch", [threads, *map(Simulation, range(5))], ids=["threads", *(f"simulation {seed}" for seed in range(5))]
)
normalizations = pytest.mark.parametrize(
    "normalized",
    [
        {},
        {"normalize_observations": True},
        {"normalize_returns": True},
        {"normalize_observations": True, "normalize_returns": True},
    ],
    ids=["", "observations", "returns", "both"],
)


def batches(count: int) -> list[Trajectory]:
    return [a_trajectory(SPEC, 4, 2 * LEARNERS, seed) for seed in range(count)]


def learn(ctx: Context, tasks: tuple[Task, ...], exchange: AllReduce, counts: tuple[int, ...]) -> None:
    """Learn from this learner's columns of so many batches, at a position of its own."""
    learner = Learner(tasks[ctx.rank], SPEC)
    told = list[tuple[int, Tensor]]()  # version and parameters at each call of `on_step`
    link = exchange.join(ctx, learner, None, lambda: told.append((link.refresh(), learner.flat.vector.clone())))
    for seed, batch in enumerate(batches(counts[ctx.rank])):
        learner.update(batch.columns(2 * ctx.rank, 2 * ctx.rank + 2), link, 30 * seed + 10 * ctx.rank)
    learner.finish(link)
    link.leave()
    ctx.save({"model": learner.model.state_dict(), "updates": link.refresh(), "told": told})


def apart(
    launch: Any, task: Task | tuple[Task, ...], counts: tuple[int, ...], layout: tuple[int, ...] = (LEARNERS,)
) -> list[dict[str, Any]]:
    """`layout`: learners of each host."""
    tasks = (task,) * LEARNERS if isinstance(task, Task) else task
    program, watcher, groups = Program("all-reduce"), Watcher(), list[Group]()
    for host in range(len(layout) if len(layout) > 1 else 0):
        with program.host(f"host{host}"):
            groups.append(program.service(Group)(host, len(layout)))
    for host, learners in enumerate(layout):
        with program.host(f"host{host}"):
            gradients = program.service(Gradients)(learners, sum(layout[:host]))
            exchange = AllReduce(gradients, between=Between(tuple(groups), host) if groups else None)
            program.worker(learn, copies=learners)(tasks, exchange, counts)
            if groups:
                program.worker(keep)(groups, Learners.of(learn, LEARNERS, 1), host=host)
    launch(program, watcher)
    return [watcher.saved[f"learn[{rank}]"] for rank in range(LEARNERS)]


@pytest.mark.parametrize(
    ("launch", "layout"),
    [
        *((launch, (3,)) for launch in (threads, *map(Simulation, range(5)))),
        (threads, (1, 2)),
        *((Simulation(seed, Network(latency=0.01, bandwidth=1e7)), (2, 1)) for seed in range(2)),
        (Simulation(0), (1, 1, 1)),
    ],
    ids=lambda value: str(value) if isinstance(value, tuple) else type(value).__name__,
)
@normalizations
def test_they_are_one_learner_on_the_whole_batch(
    launch: Any, layout: tuple[int, ...], normalized: dict[str, bool]
) -> None:
    # Clipping comes after averaging. The mean between hosts is that of all learners, not that of hosts.
    task = a_task(algorithm=A2C(), rate=0.05, anneal_steps=1000, max_grad_norm=0.1, **normalized)
    alone = Learner(task, SPEC)
    for seed, batch in enumerate(batches(5)):
        alone.update(batch, AloneLink(), 30 * seed + 10)  # the mean of the positions 0, 10, 20
    for found in apart(launch, task, (5, 5, 5), layout):
        assert found["updates"] == 5
        for name, tensor in alone.model.state_dict().items():
            torch.testing.assert_close(found["model"][name], tensor, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("layout", [(3,), (2, 1)], ids=["one host", "two hosts"])
@pytest.mark.parametrize("launch", [threads, *map(Simulation, range(3))], ids=lambda launch: type(launch).__name__)
@normalizations
def test_a_learner_without_batches_takes_the_steps_of_the_others(
    launch: Any, layout: tuple[int, ...], normalized: dict[str, bool]
) -> None:
    first, *others = apart(launch, a_task(rate=0.05, **normalized), (6, 1, 4), layout)
    assert first["updates"] == 6
    for other in others:
        assert other["updates"] == 6
        assert differences(first["model"], other["model"]) == []
    for found in (first, *others):  # those after the last batch, too
        assert_told_of_each_step(found, 6, first)


def assert_told_of_each_step(found: dict[str, Any], steps: int, first: dict[str, Any]) -> None:
    """Once each, in order, when its parameters were there: the same ones at all learners."""
    assert [version for version, _ in found["told"]] == list(range(1, steps + 1))
    assert len({tuple(vector.tolist()) for _, vector in found["told"]}) == steps
    assert differences(found["told"], first["told"]) == []


def go_on(ctx: Context, task: Task, exchange: AllReduce, states: tuple[Any, ...]) -> None:
    """Continue from the state of this learner, and learn from two batches."""
    learner, state = Learner(task, SPEC), states[ctx.rank]
    if "learner" in state:
        learner.load_state_dict(state["learner"])
    link = exchange.join(ctx, learner, {"iteration": state["iteration"]})  # type: ignore[arg-type]
    for seed in (8, 9):
        learner.update(a_trajectory(SPEC, 4, 2, seed + ctx.rank), link, 0)
    link.leave()
    ctx.save({"model": learner.model.state_dict(), "optimizer": learner.optimizer_state()})


@launchers
@pytest.mark.parametrize("newest", [0, 1])
@pytest.mark.parametrize("other", ["older", "newcomer"])
def test_learners_of_different_states_go_on_from_the_newest(launch: Any, newest: int, other: str) -> None:
    # As from a checkpoint that has an older state of one learner, or none: all have the newest one's optimizer, too.
    task = a_task(rate=0.05)
    whole = Learner(task, SPEC)
    states = []
    for seed in range(3):
        whole.update(a_trajectory(SPEC, 4, 2, seed), AloneLink(), 0)
        states.append({"learner": whole.state_dict(), "iteration": seed + 1})
    pair = [states[2], states[0] if other == "older" else {"iteration": 3}]
    program, watcher = Program("all-reduce"), Watcher()
    gradients = program.service(Gradients)(2)
    program.worker(go_on, copies=2)(task, AllReduce(gradients), tuple(pair if newest == 0 else reversed(pair)))
    launch(program, watcher)
    first, second = (watcher.saved[f"go_on[{rank}]"] for rank in range(2))
    assert differences(first, second) == []
    assert {int(each["step"]) for each in first["optimizer"].values()} == {5}


@launchers
def test_statistics_change_between_batches_although_one_has_fewer_minibatches(launch: Any) -> None:
    # As at the end of a run with memory, where a batch of one environment is one minibatch. A learner that has taken
    # its steps takes the others' too, before the statistics of all change.
    both = {"normalize_observations": True, "normalize_returns": True}
    tasks = tuple(a_task(algorithm=PPO(epochs=1, num_minibatches=count), **both) for count in (3, 1, 2))
    first, *others = apart(launch, tasks, (3, 3, 3))
    assert first["updates"] == 9
    assert first["model"]["centre.moments.rollouts"] == 3
    for found in (first, *others):  # also of the steps that it takes before the statistics change
        assert_told_of_each_step(found, 9, first)
    assert all(differences(first, other) == [] for other in others)


def test_it_waits_for_those_that_have_batches() -> None:
    gradients = Gradients(2)
    with pytest.raises(WouldBlock):
        gradients.exchange(0, 0, GIVEN)
    with pytest.raises(WouldBlock):
        gradients.exchange(1, 1, None)
    assert gradients.exchange(0, 2, GIVEN) == Lead((GIVEN,))  # the other one has no more batches
    outcome = RoundOutcome(Finished())
    assert gradients.publish(0, 2, outcome)
    assert gradients.exchange(1, 2, None) is outcome
    assert not gradients.leave(1)
    assert gradients.exchange(0, 3, None) == Lead(())
    assert gradients.leave(0)


def test_a_learner_that_was_stopped_has_given_nothing() -> None:
    # As when the program is stopped: the call of the first learner is closed while it waits for the second.
    gradients = Gradients(2)
    for rank in (0, 1):
        with pytest.raises(WouldBlock):  # the other one's gradient is not there
            gradients.exchange(rank, 0, GIVEN)
        gradients.leave(rank)


def test_no_learner_takes_a_step_if_one_was_stopped_while_another_computed_the_mean() -> None:
    gradients = Gradients(2)
    waiting = Gradients.exchange.waits(gradients, 1, 0, GIVEN)  # type: ignore[attr-defined]
    next(waiting)
    assert isinstance(gradients.exchange(0, 0, GIVEN), Lead)
    waiting.close()
    assert not gradients.publish(0, 0, RoundOutcome(Finished()))


def test_alone_has_nothing_to_finish() -> None:
    learner = Learner(a_task(), SPEC)
    before = {name: tensor.clone() for name, tensor in learner.model.state_dict().items()}
    learner.finish(Alone().join(None, learner))  # type: ignore[arg-type]
    assert all(torch.equal(tensor, before[name]) for name, tensor in learner.model.state_dict().items())


@pytest.mark.filterwarnings("ignore:PyTorch is not compiled with NCCL")
def test_gradients_of_several_gpus_are_added_on_the_leader_s() -> None:
    """Of GPUs that are not there: mixing tensors of two would be an error."""
    devices = ["cuda:1", "cuda:0", "cuda:1", "cuda:0"]
    for leader in ("cuda:0", "cuda:1", "cuda:2"):  # the last one has no gradient: its learner has no batches left
        with FakeTensorMode():
            found = added([torch.ones(5, device=device) for device in devices], torch.device(leader))
            assert (found.device, found.shape) == (torch.device(leader), (5,))


def test_gradients_are_added_in_the_order_of_the_ranks() -> None:
    vectors = [torch.tensor([1e8]), torch.tensor([1.0]), torch.tensor([-1e8])]
    assert added([each.clone() for each in vectors], torch.device("cpu")).item() == 0.0  # 1 is lost beside 1e8
    assert added([each.clone() for each in (vectors[0], vectors[2], vectors[1])], torch.device("cpu")).item() == 1.0
