"""One budget in seeded schedules: with crashes, checkpoints and a resume, the steps add up and no mass is lost."""

from __future__ import annotations

import itertools
import math
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from some_gossip import gossiping
from some_parts import a_task, differences
from sweeps import sweep

from gossamer.architectures import GALA, PAAC, PALA, SynchronousA2C
from gossamer.envs.toy import Recall
from gossamer.exchange import Exchange
from gossamer.exchange.gossip.graphs import Complete
from gossamer.exchange.gossip.mixing import PushSum
from gossamer.exchange.gossip.options import Gossiping
from gossamer.exchange.gossip.outer import Outer
from gossamer.exchange.gossip.sparse import Sparse
from gossamer.launch.simulation import Faults, Network, Simulation
from gossamer.loops import act_and_learn
from gossamer.program import Program
from gossamer.runtime import Context
from gossamer.storage.checkpoint import Store
from gossamer.task import Task, WorkerReport
from gossamer.tools.simulate.gossip.members import Workload
from gossamer.tools.simulate.stand_in import Point, StandIn
from gossamer.training.checkpoints import Checkpoints
from gossamer.training.display import ProgressDisplay
from gossamer.training.observer import RunObserver
from gossamer.training.progress import Progress
from gossamer.training.recorder import Recorder

LEASE = 8  # steps
FIGURES = ["gala", "pala"]


def worker(ctx: Context, task: Workload, policy: Any, experience: Any, exchange: Exchange, **more: Any) -> None:
    """Leases, takes its time, exchanges, reports: what `act_and_learn` does, with a model of 16 numbers."""
    exchange.begin(ctx)
    learner, saved = StandIn(Point(), 1.0), ctx.restored() or {}
    (point,) = learner.model.parameters()
    if "point" in saved:
        point.data.copy_(saved["point"])
    link = exchange.join(ctx, learner, saved.get("exchange"))

    def state() -> dict[str, Any]:
        return {"point": point.detach().clone(), "exchange": link.state_dict()}

    rng = random.Random(f"{task.seed} {ctx.name}")
    try:
        while ctx.claim(LEASE, state) is not None:
            ctx.sleep(task.step_time * rng.uniform(1 - task.jitter, 1 + task.jitter))
            point.grad = -torch.ones(16)  # every step moves a member by 1: the sum over members counts the steps
            link.step(learner)
            ctx.report(WorkerReport(LEASE, LEASE, 1, exchange=link.take()))
        link.finish(learner)
        ctx.save(state())
    finally:
        link.leave()


def figure(name: str, *, step_time: float = 0.0, jitter: float = 0.0, size: int = 1, **mode: Any) -> Program:
    """`size`: learners of each of the four members."""
    work: Any = Workload(0, step_time=step_time, jitter=jitter)
    program = wired(name, work, {"env_workers": 1}, Gossiping(**{"period": 0, **mode}), size)
    return program.with_loops({act_and_learn: worker})


def wired(name: str, task: Task, options: dict[str, Any], gossip: Gossiping, size: int = 1) -> Program:
    if name == "gala":
        return GALA(learners=4 * size, group_size=size, **options).program(task, gossip=gossip)
    pala = PALA(hosts=2, learners=2 * size, group_size=size, **options)
    return pala.program(task, gossip=gossip, couriers=1)


class Time:
    """A clock for the observer that goes on whenever it is looked at, the same in every run."""

    def __init__(self, tick: float) -> None:
        self.tick, self.now = tick, 0.0

    def __call__(self) -> float:
        self.now += self.tick
        return self.now


def observer(
    folder: Path, program: Program, steps: int, *, saved: Any = None, every: int | None = None, together: bool = False
) -> RunObserver:
    """As a training run has it; `every`: a checkpoint each time so many steps have been acted."""
    folder.mkdir(exist_ok=True)
    now = Time(0.001)
    progress = Progress(steps, 1, now=now)
    if saved:
        progress.load_state_dict(saved["progress"])
    recorder, display = Recorder(folder), ProgressDisplay(progress, "title")
    checkpoints = Checkpoints(
        Store(folder / "checkpoints", keep=100),
        progress,
        recorder,
        lambda text: None,
        program.saved_workers,
        program.saved_services,
        {**saved["workers"], **saved["services"]} if saved else {},
        seconds=math.inf,
        steps=every,
        together=together,
        now=now,
    )
    return RunObserver(progress, recorder, checkpoints, display, lambda text: None, now=now)


class Counted:
    """An observer that checks that no step counts twice: every lease is answered once, by one report at most."""

    def __init__(self, inner: RunObserver) -> None:
        self.inner, self.leased, self.reported = inner, Counter[str](), Counter[str]()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def claim(self, who: str, steps: int, *, idle: bool = True) -> Any:
        answer = self.inner.claim(who, steps, idle=idle)
        self.leased[who] += steps if isinstance(answer, int) else 0
        return answer

    def report(self, who: str, record: Any) -> None:
        self.reported[who] += record.steps if isinstance(record, WorkerReport) else 0
        self.inner.report(who, record)


class Stopping(Counted):
    """Stops the run after so many reports of this session."""

    def __init__(self, inner: RunObserver, reports: int) -> None:
        super().__init__(inner)
        self.reports = LEASE * reports

    def stopping(self) -> bool:
        return self.reported.total() >= self.reports


@sweep(total=100, normal=8)
@pytest.mark.parametrize("name", FIGURES)
def test_with_crashes_the_steps_acted_are_the_budget_exactly(name: str, seeds: range, tmp_path: Path) -> None:
    """A host dies every 100 seconds of a run that takes about 80."""
    crashes = 0
    for seed in seeds:
        mode: dict[str, Any] = [{}, {"staleness": 2}, {"lock_step": True}, {"mixing": PushSum()}][seed % 4]
        program = figure(name, step_time=4.0, **mode)
        watch = Counted(observer(tmp_path / str(seed), program, steps=LEASE * 80, every=LEASE * 25))
        simulation = Simulation(seed, Network(latency=0.01), Faults(crash_rate=0.01, down_seconds=1.0))
        simulation(program, watch)
        crashes += len(simulation.crashes)
        budget = watch.inner.budget
        assert (budget.acted, budget.missing, budget.granted) == (LEASE * 80, 0, LEASE * 80)
        assert watch.reported.total() == budget.acted + watch.inner.progress.uncounted
        assert watch.leased.total() >= budget.acted
        assert watch.inner.progress.steps == budget.acted
        watch.inner.recorder.close()
    assert crashes > len(seeds) / 2


def gossip_states(tree: Any) -> list[tuple[Any, torch.Tensor]]:
    """Of each member: the state of its gossip, and its parameters. Of a group, those of the learner that gossips."""
    states = [(s["exchange"], s["point"]) for s in tree["workers"].values()]
    within = [(exchange if "weight" in exchange else exchange["inner"], point) for exchange, point in states]
    return [(gossip, point) for gossip, point in within if "weight" in gossip]


def mass(tree: Any) -> tuple[float, torch.Tensor]:
    """Push-sum weight, and weight times parameters, of all members and unread messages in a checkpoint, with what
    members owe."""
    states = gossip_states(tree)
    members = [(gossip["weight"], point) for gossip, point in states]
    owed = sum((gossip["owed"] for gossip, _ in states if "owed" in gossip), torch.zeros(16))
    boxes = [box for s in tree["services"].values() if "unread" in (box := s.get("boxes", s))]
    unread = [message for box in boxes for _, message in box["unread"]]
    parcels = [(len(to), p) for s in tree["services"].values() for _, to, p in s.get("parcels", [])]
    members += [(m["weight"], m["parameters"]) for m in unread]
    members += [(receivers * m["weight"], m["parameters"]) for receivers, m in parcels]
    return sum(w for w, _ in members), sum((w * x for w, x in members), owed)


def due(tree: Any, outer: Outer | None, interval: int = 1) -> float:
    """What the members' steps of 1 add up to, by the outer optimizer's recursion for each member."""
    outer, total = outer or Outer(), 0.0
    for gossip, _ in gossip_states(tree):
        momentum = 0.0
        exchanges, since = divmod(gossip["iteration"], interval)
        for _ in range(exchanges):
            momentum = outer.momentum * momentum + interval
            total += outer.learning_rate * (interval + outer.momentum * momentum)
        total += since
    return total


@pytest.mark.parametrize("name", FIGURES)
@sweep(total=200, normal=12)
def test_a_checkpoint_and_a_resumed_run_conserve_push_sum_s_mass(name: str, seeds: range, tmp_path: Path) -> None:
    """With each combination of the other parts."""
    parts = itertools.product((1, 3), (None, "int8", "bf16"), (None, Outer(0.5, 0.7)), (1, 2))
    combinations = [dict(zip(("interval", "rounding", "outer", "size"), each, strict=True)) for each in parts]
    random.Random(0).shuffle(combinations)
    for seed in seeds:
        chosen = combinations[seed % len(combinations)]
        assert_mass_is_conserved(name, seed, chosen, tmp_path / str(seed))


def assert_mass_is_conserved(name: str, seed: int, more: dict[str, Any], tmp_path: Path) -> None:
    tmp_path.mkdir()
    rng = random.Random(seed)
    more = {**more, "staleness": rng.choice([math.inf, 8]), "jitter": rng.choice([0.0, 0.9])}
    program, outer, interval = figure(name, step_time=0.1, mixing=PushSum(), **more), more["outer"], more["interval"]
    network = Network(latency=0.05, work=lambda *call: rng.expovariate(1 / 0.05))
    size = more["size"]
    first = observer(tmp_path / "run", program, size * LEASE * 40, every=LEASE * 15)
    Simulation(seed, network)(program, first)
    first.keep()
    kept = first.checkpoints.store.all()
    assert len(kept) >= 3
    for checkpoint in kept:  # while nobody acts, everything is somewhere
        weight, total = mass(checkpoint.load())
        assert weight == pytest.approx(4)
        assert outer or size > 1 or due(checkpoint.load(), outer) == checkpoint.steps / LEASE
        torch.testing.assert_close(
            total, torch.full((16,), due(checkpoint.load(), outer, interval)), rtol=1e-4, atol=1e-3
        )
    saved = kept[1].load()
    again = observer(tmp_path / "again", program, size * LEASE * 80, saved=saved, every=LEASE * 15)
    Simulation(seed + 1, network)(program, again)
    assert again.budget.acted == size * LEASE * 80
    later = again.checkpoints.store.all()[1]
    weight, total = mass(later.load())
    assert weight == pytest.approx(4)
    torch.testing.assert_close(total, torch.full((16,), due(later.load(), outer, interval)), rtol=1e-4, atol=1e-3)


STOPPED: dict[str, dict[str, Any]] = {
    "never": {"mixing": PushSum()},
    "bounded": {"mixing": PushSum(), "staleness": 1},
    "lock-step": {"mixing": PushSum(), "lock_step": True},
    "lock-step, outer momentum": {"mixing": PushSum(), "lock_step": True, "outer": Outer(0.9, 0.7)},
}


@pytest.mark.parametrize("mode", STOPPED.values(), ids=STOPPED)
@pytest.mark.parametrize("name", FIGURES)
@sweep(total=100, normal=4)
def test_sessions_that_are_stopped_conserve_push_sum_s_mass(
    name: str, mode: dict[str, Any], seeds: range, tmp_path: Path
) -> None:
    """Members that wait for each other are stopped in the midst of an exchange, and the run is resumed, three times."""
    for seed in seeds:
        saved, steps = None, 0
        for session in range(3):
            program = figure(name, step_time=0.1, **mode)
            watch = observer(tmp_path / f"{seed} {session}", program, LEASE * 1000, saved=saved)
            Simulation(10 * seed + session, Network(latency=0.05))(program, Stopping(watch, 17 + seed))
            watch.keep()
            saved, steps = watch.checkpoints.store.all()[-1].load(), steps + 17 + seed
            assert saved["progress"]["steps"] >= LEASE * steps
            weight, total = mass(saved)
            assert weight == pytest.approx(4)
            torch.testing.assert_close(total, torch.full((16,), due(saved, mode.get("outer"))), rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("name", ["a2c", "gala"])
@sweep(total=50, normal=4)
def test_a_stopped_run_reports_all_steps_that_were_acted(name: str, seeds: range, tmp_path: Path) -> None:
    """A learner that waits for another one has acted a rollout: its environments are saved after it."""
    options: dict[str, Any] = {"num_envs": 2, "env_workers": 1}
    for seed in seeds:
        if name == "a2c":
            program = SynchronousA2C(learners=4, **options).program(a_task())
        else:
            program = GALA(learners=4, **options).program(a_task(), gossip=gossiping(name, lock_step=True))
        watch = Stopping(observer(tmp_path / str(seed), program, 10_000), 9 + seed)
        Simulation(seed)(program, watch)
        watch.keep()
        assert watch.reported.total() > watch.reports
        assert watch.reported == watch.leased
        progress = watch.checkpoints.store.all()[-1].load()["progress"]
        assert progress["steps"] == watch.leased.total()


def trained(folder: Path, program: Program, steps: int, saved: Any = None) -> list[Any]:
    """The checkpoints of a run, the first half way, the last at the end."""
    watch = observer(folder, program, steps, saved=saved, every=steps // 2, together=True)
    Simulation(5, Network(latency=0.01, bandwidth=1e7))(program, watch)
    watch.keep()
    return [checkpoint.load() for checkpoint in watch.checkpoints.store.all()]


MODES: list[dict[str, Any]] = [
    {},
    {"staleness": 4, "interval": 2, "outer": Outer(0.5, 0.7), "decay": 0.5},
    {"lock_step": True},
    {"mixing": PushSum(), "rounding": "int8", "outer": Outer(0.5)},
    {"sparse": Sparse(0.2, "rotation"), "rounding": "int8", "period": 20, "window": 10},
    {"sparse": Sparse(0.2, "random"), "staleness": 4},
    {"sparse": Sparse(0.2, "changed"), "graph": Complete(), "lock_step": True},
]


@pytest.mark.parametrize(
    ("name", "mode"), [("paac", {}), *((name, mode) for name in FIGURES for mode in MODES)], ids=str
)
def test_a_resumed_run_ends_as_the_uninterrupted_one(name: str, mode: dict[str, Any], tmp_path: Path) -> None:
    """To the bit, in any mode: who goes on when is decided anew at every checkpoint, by the seed and the position."""

    assert_resumed_is_whole(name, mode, a_task(rollout_length=4, anneal_steps=1_000), tmp_path)


@pytest.mark.parametrize("name", ["paac", *FIGURES])
def test_a_resumed_run_with_memory_and_statistics_ends_as_the_uninterrupted_one(name: str, tmp_path: Path) -> None:
    statistics = {"normalize_observations": True, "normalize_returns": True}
    task = a_task(Recall(6), rollout_length=4, anneal_steps=1_000, memory="gru", memory_units=8, **statistics)
    assert_resumed_is_whole(name, {}, task, tmp_path)


def assert_resumed_is_whole(name: str, mode: dict[str, Any], task: Task, tmp_path: Path) -> None:
    def program() -> Program:
        options: dict[str, Any] = {"num_envs": 2, "env_workers": 1}
        if name == "paac":
            return PAAC(**options).program(task)
        return wired(name, task, options, gossiping(name, **mode))

    whole = trained(tmp_path / "whole", program(), 8 * 4 * 16)
    resumed = trained(tmp_path / "resumed", program(), 8 * 4 * 16, saved=whole[0])
    assert whole[0]["progress"]["steps"] < 8 * 4 * 12
    assert resumed[-1]["progress"]["steps"] == whole[-1]["progress"]["steps"] == 8 * 4 * 16
    for member, state in whole[-1]["workers"].items():
        assert differences(resumed[-1]["workers"][member], state) == [], member
