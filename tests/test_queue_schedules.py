"""Queue and broadcast in seeded schedules, with actors that crash: no deadlock, nothing is lost or trained on twice,
and the lag is never beyond its bound."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest
import torch
from some_parts import Watcher
from sweeps import sweep

from gossamer.exchange.broadcast import Parameters, Published, fetch
from gossamer.experience import Batching, TrajectoryQueue
from gossamer.launch.simulation import Faults, Network, Simulation
from gossamer.program import Context, Program
from gossamer.task import Report

STEPS = 60  # rollouts in a run
NOTHING = torch.zeros(1)


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
    parameters.publish(Published(0, NOTHING, {}))
    queue.provide(memory)  # type: ignore[arg-type]
    while (full := queue.take()) is not None:
        ctx.sleep(seconds * rng.random())
        for place in full.places:
            rollout, acted = memory.slots.pop(full.number * SLOTS + place)
            memory.trained.append(rollout)
            memory.lag.append(version - acted)
        version += 1
        parameters.publish(Published(version, NOTHING, {}))
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
        parameters.at_least(lease.version)
        key, newest = lease.slot, parameters.newer(-1)
        assert newest is not None
        ctx.sleep(seconds * rng.random())
        name = f"{ctx.name}.{ctx.restarts}.{number}"
        memory.slots[key] = (name, newest.version)
        if queue.put(key, *who, position):
            memory.made.append(name)
            ctx.report(Report(1))
    queue.leave(*who)
    parameters.leave()


SLOTS = 2
MODES = {"in turn": 1, "double buffer": 2, "deep": 5}


@pytest.mark.parametrize("depth", MODES.values(), ids=MODES)
@pytest.mark.parametrize("crashes", [False, True], ids=["", "crashes"])
@pytest.mark.parametrize("copies", [False, True], ids=["", "copies"])
@sweep(200, 25)
def test_every_schedule(depth: int, copies: bool, crashes: bool, seeds: range) -> None:
    """`copies`: actors follow a copy of the parameters, which a slow network brings to their host."""
    for seed in seeds:
        memory, actors = Memory(), 3
        program = Program("stand-in")
        with program.host("learner"):
            queue = program.service(TrajectoryQueue)(actors=range(actors), batching=Batching(1, SLOTS, depth))
            parameters = program.service(Parameters)()
            program.worker(learn)(queue, parameters, memory, seconds=0.3)
        for i in range(actors):
            with program.host(f"actor{i}"):
                followed = program.service(Parameters)(1) if copies else parameters
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
