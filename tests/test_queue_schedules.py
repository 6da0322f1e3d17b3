"""Queue and broadcast in seeded schedules, with actors and learners that crash: no deadlock, nothing is lost or trained
on twice, and the lag is never beyond its bound."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from some_parts import Watcher
from sweeps import sweep

from gossamer import loops
from gossamer.architectures import IMPALA
from gossamer.data import Batch, NoBatch, Rollout, Stamp, Trajectory, Updated
from gossamer.exchange import Broadcast, Link
from gossamer.exchange.broadcast import Parameters, Published, fetch
from gossamer.experience import (
    Assembler,
    Batching,
    LearnerQueue,
    NextBatch,
    QueueReader,
    Replaying,
    Slots,
    TrajectoryQueue,
)
from gossamer.experience.base import untimed
from gossamer.launch.simulation import Faults, Network, Simulation
from gossamer.program import Program
from gossamer.runtime import Answer, Context, Silent, Stopped
from gossamer.task import WorkerReport
from gossamer.tools.simulate.actors.workers import Acted, Workload
from gossamer.tools.simulate.actors.workers import act as act_rollouts
from gossamer.tools.simulate.stand_in import Point, StandIn
from gossamer.training.budget import Budget

STEPS = 60  # rollouts in a run
NOTHING, NONE = torch.zeros(1), Stamp(-1, 0)


class Memory:
    """Stands in for `Slots`. Not a dataclass: containers of a program are copied for each worker."""

    def __init__(self) -> None:
        self.slots: dict[int, tuple[str, int]] = {}  # slot -> (rollout, version that acted)
        self.made: list[str] = []  # rollouts handed over
        self.trained: list[str] = []
        self.lag: list[int] = []  # in batches


def learn(ctx: Context, queue: TrajectoryQueue, parameters: Parameters, memory: Memory, seconds: float) -> None:
    """Stands in for the loop: one update a batch."""
    rng, version = random.Random(f"learn {ctx.rank}"), 0
    parameters.publish(Published(Stamp(0, 0), NOTHING, {}))
    queue.provide(memory)  # type: ignore[arg-type]
    while (full := queue.take()) is not None:
        ctx.sleep(seconds * rng.random())
        for place in full.places:
            rollout, acted = memory.slots.pop(full.number * SLOTS + place)
            memory.trained.append(rollout)
            memory.lag.append(version - acted)
        version += 1
        parameters.publish(Published(Stamp(0, version), NOTHING, {}))
        queue.trained(full.number, version)
    parameters.close()


def act(ctx: Context, queue: TrajectoryQueue, parameters: Parameters, seconds: float) -> None:
    """Stands in for the loop: a rollout is a name. `parameters`: the learner's, or a copy."""
    rng = random.Random(f"act {ctx.rank} {ctx.restarts}")
    who = (ctx.rank, ctx.restarts)
    memory: Any = queue.join(*who)
    parameters.first()
    for number in range(10**9):
        if (position := ctx.claim(1)) is None:
            break
        lease = queue.lease(*who)
        parameters.at_least(lease.stamp)
        key, newest = lease.slot, parameters.newer(NONE)
        assert newest is not None
        ctx.sleep(seconds * rng.random())
        name = f"{ctx.name}.{ctx.restarts}.{number}"
        memory.slots[key] = (name, newest.stamp.version)
        if queue.put(key, Rollout(*who, number, position, 1)):
            memory.made.append(name)
            ctx.report(WorkerReport(1))
    queue.leave(*who)
    parameters.leave()


SLOTS = 2
MODES = {"in turn": 1, "double buffer": 2, "deep": 5}


@pytest.mark.parametrize("depth", MODES.values(), ids=MODES)
@pytest.mark.parametrize("crashes", [False, True], ids=["", "crashes"])
@pytest.mark.parametrize("copies", [False, True], ids=["", "copies"])
@sweep(200, 10)
def test_every_schedule(depth: int, copies: bool, crashes: bool, seeds: range) -> None:
    """`copies`: actors follow a copy of the parameters, which a slow network brings to their host."""
    for seed in seeds:
        memory, actors = Memory(), 3
        program = Program("stand-in")
        with program.host("learner"):
            queue = program.service(TrajectoryQueue)(
                actors={f"act[{i}]": i for i in range(actors)}, batching=Batching(1, SLOTS, depth)
            )
            parameters = program.service(Parameters)()
            program.worker(learn)(queue, parameters, memory, seconds=0.3)
        for i in range(actors):
            with program.host(f"actor{i}"):
                followed = program.service(Parameters)([f"act[{i}]"]) if copies else parameters
                program.worker(act)(queue, followed, seconds=1.0)
                if copies:
                    program.worker(fetch)(parameters, followed)
        rng = random.Random(seed)
        faults = [(rng.random() * 8, f"actor{rng.randrange(actors)}", rng.random()) for _ in range(4 * crashes)]
        network = Network(latency=rng.random() * copies)
        Simulation(seed, network, Faults(crashes=faults))(program, Dying(steps=STEPS))
        assert not Counter(memory.made) - Counter(memory.trained), seed
        unheard = Counter(memory.trained) - Counter(memory.made)  # the actor crashed before it had the answer
        assert unheard.total() <= copies * len(faults), seed
        assert max(Counter(memory.trained).values()) == 1, seed
        assert STEPS <= len(memory.trained) <= STEPS + len(faults), seed  # what a crash took was acted again
        assert min(memory.lag) >= 0, seed
        assert max(memory.lag) <= depth - 1, seed


class Dying(Watcher):
    """An observer that takes back what dead workers had leased."""

    def died(self, worker: str) -> None:
        self.budget.release(worker)


# The wiring of IMPALA, with the real ends of the queue and the real broadcast; hosts of actors and of learners crash.

ROLLOUTS = 40  # in a run
HOSTS, LEARNERS = 2, 2
SIZE = 6  # rollouts kept for replay
WIRINGS: dict[str, dict[str, Any]] = {
    "in turn": {"depth": 1},
    "reuse": {"depth": 4, "reuse": 3},
    "replay": {"depth": 3, "replay_share": 0.5},
    "reuse and replay": {"depth": 3, "reuse": 2, "replay_share": 0.5},
    "learners": {"depth": 3, "reuse": 2, "learners": LEARNERS},
    "slow learners": {"depth": 4, "reuse": 3, "learners": LEARNERS, "step_time": 0.05},
    "loader": {"depth": 3, "parallel_loading": True},
    "loader in turn": {"depth": 1, "parallel_loading": True},
    "loader, reuse and replay": {"depth": 3, "reuse": 2, "replay_share": 0.5, "parallel_loading": True},
    "loaders": {"depth": 3, "reuse": 2, "learners": LEARNERS, "parallel_loading": True},
}


@dataclass(frozen=True)
class Passed:
    """A learner has passed over a batch."""

    number: int  # of the batch in the queue
    version: int  # of the learner's parameters
    rollouts: Sequence[tuple[int, int]]  # (number of the rollout, version that acted)
    fresh: int  # how many of these are new; 0 in later passes


def learn_rollouts(ctx: Context, task: Workload, experience: LearnerQueue, exchange: Broadcast) -> None:
    """Stands in for the loop, as that of `gossamer simulate` does, and reports the rollouts of every pass."""
    learner = Slow(ctx, random.Random(f"learn {ctx.rank} {ctx.restarts}"))
    batching, next_batch = experience.batching, experience.next_batch
    with closing_link(exchange.join(ctx, learner)) as link, suppress(Stopped):
        batches = [Trajectory.empty(1, batching.slots, (1,), torch.uint8) for _ in range(batching.depth)]
        replay = None if next_batch is not None else experience.replaying.memory(ctx, task)  # type: ignore[arg-type]
        how: dict[str, Any] = {"reuse": experience.reuse, "replay": replay, "next_batch": next_batch}
        how |= {"life": ctx.restarts, "ended": ctx.ended_before, "version": link.refresh}
        with closing(QueueReader(experience.queue, Slots(batches, batching.slots), **how)) as reader:
            while ctx.claim(0) is not None:
                batch = reader.batch()
                if not isinstance(batch, Batch):
                    assert batch is NoBatch.END
                    link.finish(learner)
                    ctx.save(link.refresh())
                    break
                ctx.sleep(task.update_time * learner.rng.random())
                numbers, acted = batch.data.action[0].tolist(), batch.data.version[0].tolist()
                found = tuple(zip(numbers, acted, strict=True))
                ctx.report(Passed(batch.key, link.refresh(), found, batch.fresh))
                link.step(learner)
                reader.trained(batch, Updated({}))


def load_rollouts(
    ctx: Context, task: Workload, queue: TrajectoryQueue, next_batch: NextBatch, replaying: Replaying
) -> None:
    """Stands in for the loop: assembling a batch takes virtual time."""
    if next_batch.forget(ctx.ended_before):
        return
    rng, replay = random.Random(f"load {ctx.rank} {ctx.restarts}"), replaying.memory(ctx, task)  # type: ignore[arg-type]
    assembler = Assembler(queue, queue.memory(), untimed, replay)
    while (batch := assembler.batch()) is not None:
        ctx.sleep(task.update_time * rng.random())
        next_batch.put(batch)
    next_batch.end()


class Slow(StandIn):
    """Learners that average their gradients do not end an optimizer step, and publish, at the same time."""

    def __init__(self, ctx: Context, rng: random.Random) -> None:
        super().__init__(Point())
        self._ctx, self.rng = ctx, rng

    def apply(self) -> None:
        self._ctx.sleep(self.rng.random())
        super().apply()


@contextmanager
def closing_link(link: Link) -> Iterator[Link]:
    try:
        yield link
    finally:
        link.leave()


class Passes(Silent):
    """Grants rollouts within a budget, to which those that a crash takes return, and counts the passes over each. Every
    rollout has a number of its own."""

    def __init__(self, share: float, *, crashing: bool = False) -> None:
        """`share`: of replayed rollouts in a batch; where hosts crash, it may be smaller."""
        self.budget, self.granted, self.share, self.crashing = Budget(ROLLOUTS), 0, share, crashing
        self.acted, self.passes, self.replayed = set[int](), Counter[int](), Counter[int]()
        self.lag: list[tuple[int, int]] = []  # (number of the batch, lag of one of its new rollouts)
        self.last: dict[str, int] = {}  # learner -> its version at the end
        self._versions: dict[int, int] = {}  # rollout -> version that acted
        self._known: dict[str, list[int]] = {}  # learner -> its new rollouts, since its host has been restarted
        self._fresh: dict[tuple[str, int], int] = {}  # learner and batch -> its new rollouts

    def claim(self, worker: str, steps: int, *, idle: bool = True) -> int | Answer:
        if self.budget.lease(worker, steps) is None:
            return Answer.END
        self.granted += bool(steps)
        return self.granted - bool(steps)

    def died(self, worker: str) -> None:
        self.budget.release(worker)
        self._known.pop(worker, None)

    def save(self, name: str, state: int) -> None:
        self.last[name] = state

    def report(self, worker: str, record: Any) -> None:
        if isinstance(record, Passed):
            self._passed(worker, record)
        elif isinstance(record, Acted):
            self.budget.report(worker, 1)
            self.acted.add(record.position)

    def _passed(self, learner: str, passed: Passed) -> None:
        known, batch, size = self._known.setdefault(learner, []), (learner, passed.number), len(passed.rollouts)
        if passed.fresh:
            self._fresh[batch] = passed.fresh
            assert self.crashing or not known or passed.fresh == size - round(self.share * size)
        fresh, old = passed.rollouts[: self._fresh[batch]], passed.rollouts[self._fresh[batch] :]
        assert all(self._versions.setdefault(number, version) == version for number, version in passed.rollouts)
        self.passes.update(number for number, _ in fresh)
        self.lag.extend((passed.number, passed.version - version) for _, version in fresh)
        self.replayed.update(number for number, _ in old)
        if passed.fresh:
            assert max((number for number, _ in old), default=0) < self.granted
            known += [number for number, _ in fresh]


@pytest.mark.parametrize("wiring", WIRINGS.values(), ids=WIRINGS)
@pytest.mark.parametrize("crashing", [False, True], ids=["", "crashes"])
@sweep(200, 10)
def test_every_schedule_between_hosts(wiring: dict[str, Any], crashing: bool, seeds: range) -> None:
    given = {"learners": 1, "reuse": 1, "replay_share": 0.0, "replay_size": SIZE, **wiring}
    step_time = given.pop("step_time", 1.0)  # seconds; the network is twice as fast or more
    learners, depth, reuse = given["learners"], given["depth"], given["reuse"]
    task = Workload(rollout_length=1, step_time=step_time, jitter=1.0, update_time=0.5, updates=1)
    for seed in seeds:
        rng, passes = random.Random(seed), Passes(given["replay_share"], crashing=crashing)
        hosts = [f"actors{i}" for i in range(HOSTS)] + ["learner"]
        slots = learners * HOSTS  # of a batch of each learner: a rollout of each actor
        half = ROLLOUTS / slots / 2  # seconds, about: no worker has ended before
        faults = [(rng.random() * half, rng.choice(hosts), rng.random() * 4) for _ in range(3 * crashing)]
        simulation = Simulation(seed, Network(latency=step_time * rng.random() / 2), Faults(crashes=faults))
        simulation(wired(replace(task, seed=seed), hosts=HOSTS, actors=1, num_envs=learners, **given), passes)
        crashes = Counter(host for _, host in simulation.crashes)
        died = learners * (crashes.total() - crashes["learner"])  # actors, each with a rollout at hand
        trained = set(passes.passes)
        assert passes.budget.acted == len(passes.acted) == ROLLOUTS, seed  # what a crash took was acted again
        # Each actor that died may have handed over the rollout of which it had not reported.
        assert len(trained - passes.acted) <= died, seed
        assert ROLLOUTS <= passes.granted <= ROLLOUTS + died, seed
        # With the learners, all that is in their queues is lost, and what the actors have at hand.
        assert len(passes.acted - trained) <= (depth + 1) * slots * crashes["learner"], seed
        if crashes["learner"]:
            assert max(passes.passes.values()) <= reuse, seed
        else:  # each batch is passed over so often, but for the last ones
            assert Counter(passes.passes.values()).most_common(1)[0][0] == max(passes.passes.values()) == reuse, seed
        # The slots of the first batches are free from the beginning: their actors do not wait for the learner, whose
        # first reuse - 1 rounds of passes are shorter than the others: 1, 2, .. reuse - 1 passes.
        first = reuse * (reuse - 1) // 2
        # Actors begin rollouts of the first batches before a restarted learner has parameters, which may be older than
        # those that act, or newer than those of the other host, which it has taken.
        found = [(number, lag) for number, lag in passes.lag if number >= depth or not crashes["learner"]]
        assert max((lag - first * (number < depth) for number, lag in found), default=0) <= (depth - 1) * reuse, seed
        assert min((lag for _, lag in found), default=0) >= 0, seed
        assert bool(passes.replayed) == bool(given["replay_share"]), seed
        assert len(passes.last) == learners, seed
        assert len(set(passes.last.values())) == 1, seed


def test_a_loader_without_further_batches_is_restarted_with_its_learner() -> None:
    # The learner's host dies 0.1 s after the last actor has ended. By then the loader has handed over the last batch,
    # the learner trains on it, and `watch` still runs: it finds out that no actor comes back.
    task = Workload(rollout_length=1, step_time=0.1, jitter=1.0, update_time=0.01, updates=1)
    found = 0
    for seed in range(20):
        quiet, dying = Simulation(seed), Simulation(seed)
        quiet(loading(replace(task, seed=seed)), Passes(0.0))
        died = max(when for worker, when in quiet.clocks.items() if worker.startswith("act")) + 0.1
        if died < min(quiet.clocks["watch"], quiet.clocks["learn"]):
            found += 1
            dying.faults = Faults(crashes=[(died, "learner", 1.0)])
            dying(loading(replace(task, seed=seed)), Passes(0.0))
            assert len(dying.crashes) == 1
            assert dying.clocks["load"] == dying.clocks["learn"] > died
    assert found > 0


def loading(task: Workload) -> Program:
    return wired(task, hosts=2, actors=1, num_envs=1, depth=1, parallel_loading=True)


def wired(task: Workload, **given: Any) -> Program:
    program = IMPALA(env_workers=1, **given).program(task)  # type: ignore[arg-type]  # the stand-ins' task
    return program.with_loops({loops.act: act_rollouts, loops.learn: learn_rollouts, loops.load: load_rollouts})
