"""Shared parameters: no update of a learner is lost, staleness is counted, what optimizers accumulate and target
networks are shared, processes map one file."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import torch
from some_messages import Place
from some_parts import Watcher, a_task, differences
from sweeps import sweep
from torch import Tensor

from gossamer.algorithms import NStepQ
from gossamer.algorithms.target import targets
from gossamer.exchange import AloneLink, Link, Shared, SharedMemory
from gossamer.exchange.shared import block, memory
from gossamer.exchange.shared.memory import Contents
from gossamer.launch.simulation import Faults, Network, Simulation
from gossamer.program import OnRestart, Program
from gossamer.runtime import Context
from gossamer.system.errors import UserError
from gossamer.task import Task, WorkerReport
from gossamer.tools.simulate.stand_in import Point, StandIn
from gossamer.workers.learner import Learner

LEARNERS, STEPS = 3, 60


def learn(ctx: Context, exchange: Shared) -> None:
    """Learner r takes 1 from element r of the parameters with each of its steps."""
    model = Point()
    learner = StandIn(model, rate=1.0)
    with ExitStack() as stack:
        link = exchange.join(ctx, learner)
        stack.callback(link.leave)
        while ctx.claim(1) is not None:
            ctx.sleep(1 + ctx.rank / 7)
            model.point.grad = torch.eye(len(model.point))[ctx.rank]
            stepped = link.step(learner)
            assert stepped.staleness is not None
            ctx.report(WorkerReport(1, updates=1, version=ctx.rank, staleness={stepped.staleness: 1}))


class Seen(Watcher):
    """An observer that takes back what dead workers had leased."""

    def died(self, worker: str) -> None:
        self.budget.release(worker)


def run(seed: int, *, hosts: int, crashes: list[tuple[float, str, float]]) -> Seen:
    name = f"test-{os.getpid()}-{seed}" if hosts > 1 else ""
    p, seen = Program("stand-in"), Seen(steps=STEPS)
    with p.host("host0"):
        service = p.service(SharedMemory, saved=True, on_restart=OnRestart.CHECKPOINT)(LEARNERS, name)
    for rank in range(LEARNERS):
        with p.host(f"host{rank % hosts}"):
            p.worker(learn)(Shared(service))
    Simulation(seed, Network(latency=0.01), Faults(crashes=crashes))(p, seen)
    assert not (name and list(memory.FOLDER.glob(f"gossamer-{name}*")))
    return seen


@pytest.mark.parametrize("hosts", [1, 3])
def test_no_update_is_lost_and_staleness_is_the_updates_of_others_since_the_copy(hosts: int) -> None:
    seen = run(1, hosts=hosts, crashes=[])
    found = seen.saved["SharedMemory"]
    made = Counter(report.version for report in seen.records)  # by rank
    assert found["updates"].tolist() == [made[rank] for rank in range(LEARNERS)]
    assert found["parameters"][:LEARNERS].tolist() == [-made[rank] for rank in range(LEARNERS)]
    assert found["parameters"][LEARNERS:].unique().tolist() == [0.0]
    before: dict[int, int] = dict.fromkeys(range(LEARNERS), -1)  # when each has copied the parameters last
    for index, report in enumerate(seen.records):
        rank = report.version or 0
        (staleness,) = report.staleness
        assert staleness == index - before[rank] - 1
        before[rank] = index


@sweep(200, 5)
def test_updates_survive_the_crash_of_any_process_but_their_own(seeds: range) -> None:
    """Of three processes, one of which has the service. A learner that dies between its step and its report takes the
    step once more."""
    for seed in seeds:
        rng = random.Random(seed)
        crashes = [(30 * rng.random(), f"host{rng.randrange(3)}", 5 * rng.random()) for _ in range(3)]
        seen = run(seed, hosts=3, crashes=crashes)
        updates, parameters = (seen.saved["SharedMemory"][name] for name in ("updates", "parameters"))
        assert sum(report.steps for report in seen.records) == STEPS, seed
        assert STEPS <= int(updates.sum()) <= STEPS + 3, seed
        assert parameters[:LEARNERS].tolist() == [-int(each) for each in updates], seed


def learner_of(task: Task, service: SharedMemory | None, rank: int = 0, **given: Any) -> tuple[Learner, Link]:
    learner = Learner(task, task.env.make(1).spec, rank=rank)
    if service is None:
        return learner, AloneLink()
    return learner, Shared(service, **given).join(Place(rank=rank), learner)  # type: ignore[arg-type]


def take(learner: Learner, link: Link, seed: int) -> None:
    """A step along a random gradient."""
    rng = torch.Generator().manual_seed(seed)
    for parameter in learner.model.parameters():
        if parameter.requires_grad:
            parameter.grad = torch.randn(parameter.shape, generator=rng)
    link.step(learner)


@pytest.mark.parametrize("optimizer", ["rmsprop-a3c", "rmsprop-tf", "rmsprop-dqn", "adam", "radam", "adagrad", "muon"])
def test_learners_that_step_in_turn_are_one_learner(optimizer: str) -> None:
    """What the optimizer accumulates is shared, also of optimizers that begin with their first step."""
    task, service = a_task(optimizer=optimizer), SharedMemory(2)
    alone, serial = learner_of(task, None)
    pair = [learner_of(task, service, rank) for rank in range(2)]
    for i in range(6):
        take(alone, serial, i)
        take(*pair[i % 2], i)
    shared = service.state_dict()
    last, _ = pair[1]
    assert differences(alone.model.state_dict(), last.model.state_dict()) == []
    assert differences(alone.optimizer_state(), last.optimizer_state()) == []
    kept = [tensor for state in last.optimizer_state().values() for tensor in state.values()]
    assert all(tensor.untyped_storage().nbytes() == tensor.nbytes for tensor in kept)  # not that of the whole block
    assert shared["updates"].tolist() == [3, 3]
    assert torch.equal(shared["parameters"], last.flat.vector)


def test_statistics_of_their_own_know_only_the_gradients_of_their_learner() -> None:
    task, service = a_task(optimizer="rmsprop-a3c"), SharedMemory(2)
    pair = [learner_of(task, service, rank, statistics="own") for rank in range(2)]
    for rank, (learner, link) in enumerate(pair):
        take(learner, link, rank)
    for rank, (learner, _) in enumerate(pair):
        alone, link = learner_of(task, None)
        take(alone, link, rank)
        assert differences(alone.optimizer_state(), learner.optimizer_state()) == []


def test_a_gradient_that_is_not_finite_changes_nothing() -> None:
    service = SharedMemory(1)
    learner, link = learner_of(a_task(), service)
    before = service.state_dict()
    for parameter in learner.model.parameters():
        parameter.grad = torch.full_like(parameter, float("nan"))
    assert not link.step(learner).finite
    assert differences(service.state_dict(), before) == []


def test_the_target_network_is_copied_once_for_all() -> None:
    """Every two updates of both learners together. Learner 1 has the older parameters: it does not copy them again."""
    task, service = a_task(algorithm=NStepQ(target_period=2)), SharedMemory(2)
    pair = [learner_of(task, service, rank) for rank in range(2)]

    def older(rank: int) -> Tensor:
        """A parameter of the target network that a learner has for its next gradient."""
        learner, link = pair[rank]
        (target,) = targets(learner.model)
        target.version = link.refresh()
        model: Any = target.followed(learner.model, 2)
        weight: Tensor = model.advantage.weight.clone()
        return weight

    begun = older(0)
    take(*pair[0], 0)
    assert torch.equal(older(0), begun)
    take(*pair[0], 1)
    copied = older(0)
    assert torch.equal(copied, pair[0][0].model.get_parameter("advantage.weight"))
    assert not torch.equal(copied, begun)
    assert pair[1][1].version == 0
    assert torch.equal(older(1), copied)
    assert int(service.state_dict()["age"]) == 2 + 1


@pytest.mark.parametrize("learners", [2, 3])
def test_a_resumed_run_goes_on_from_what_was_saved(learners: int) -> None:
    task, service = a_task(optimizer="adam"), SharedMemory(2)
    learner, link = learner_of(task, service, 1)
    take(learner, link, 0)
    again = SharedMemory(learners)
    again.load_state_dict(service.state_dict())
    other, restored = learner_of(task, again)
    assert restored.version == 1
    assert differences(learner.model.state_dict(), other.model.state_dict()) == []
    assert differences(learner.optimizer_state(), other.optimizer_state()) == []
    assert again.state_dict()["updates"].tolist() == ([0, 1] if learners == 2 else [1, 0, 0])


CONTENTS = Contents(torch.arange(32.0), torch.zeros(16), torch.zeros(0))


def test_a_restarted_service_finds_the_file_of_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    at_exit = list[Path]()
    monkeypatch.setattr(memory, "FOLDER", tmp_path)
    monkeypatch.setattr(memory.atexit, "register", lambda end, path: at_exit.append(path))
    place = SharedMemory(2, "x").create(CONTENTS)
    there = place.block()
    there.parameters[3] = 77.0
    there.updates[1] = 5
    again = SharedMemory(2, "x")
    assert at_exit == [tmp_path / "gossamer-x"] * 2  # some may have left before, of which it does not know
    again.load_state_dict({"parameters": torch.zeros(32)})  # of a checkpoint, which is older
    found = again.open("cpu")
    assert found is not None
    assert found.block().parameters[3] == 77.0
    assert again.state_dict()["updates"].tolist() == [0, 5]
    again.leave(0)
    assert [path.name for path in tmp_path.iterdir()] == ["gossamer-x"]
    again.leave(1)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has /proc")
def test_a_process_that_ends_leaves_the_file_to_those_that_learn_on(tmp_path: Path) -> None:
    path = tmp_path / "gossamer-run"
    path.write_bytes(bytes(4096))
    opened = f"file = open({str(path)!r}, 'r+b'); mapped = mmap.mmap(file.fileno(), 0)"
    program = f"import mmap; {opened}; print('here', flush=True); input()"
    other = subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert other.stdout is not None
    assert other.stdout.readline() == "here\n"
    memory._end(path)
    assert path.exists()
    other.communicate("\n")
    memory._end(path)
    assert not path.exists()


def test_processes_of_another_machine_cannot_share_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "FOLDER", tmp_path)
    place = SharedMemory(1, "x").create(CONTENTS)
    monkeypatch.setattr(block, "boot", lambda: "another")
    with pytest.raises(UserError, match=r"^--hosts: learners on several machines cannot share memory; add --shards 1$"):
        place.block()


def test_too_little_memory_is_told_before_anything_is_written(
    small_disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "FOLDER", small_disk)
    with pytest.raises(
        UserError, match=r"no room for 8 MB of shared parameters \(No space left on device\); use --hosts"
    ):
        SharedMemory(1, "x").create(Contents(torch.zeros(2_000_000), torch.zeros(0), torch.zeros(0)))
    assert list(small_disk.iterdir()) == []
