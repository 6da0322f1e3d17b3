"""All-reduce between hosts in seeded schedules with crashes, lost calls and partitions: no deadlock, no gradient of one
group in the mean of another, and no host that a group waits for in vain."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import inf
from typing import Any

import pytest
import torch
from some_parts import Watcher
from sweeps import sweep
from torch import Tensor

from gossamer.exchange import AllReduce, Between, Gradients, Group, Learners, keep
from gossamer.launch.simulation import Faults, Network, Simulation
from gossamer.program import Program
from gossamer.runtime import Context
from gossamer.task import Regrouped
from gossamer.tools.simulate.stand_in import Point, StandIn

HASH = 16  # elements of a gradient that tell which parameters it was computed at; then one for each host
TARGET = 30  # steps
LEFT_OUT = 15.0  # seconds until others go on without a host


@dataclass(frozen=True)
class Taken:
    """A step."""

    at: float  # seconds
    version: int  # after it
    hosts: tuple[int, ...]  # whose gradients are in the mean


class Telling(StandIn):
    """Its gradient tells the parameters that it was computed at and its host. Its step checks that those of the mean
    tell the same parameters, and adds them, so that groups of different hosts have different parameters."""

    def __init__(self, host: int, hosts: int) -> None:
        super().__init__(Point(HASH + 16 * hosts), rate=1.0)
        self.host, self.hosts, self.found = host, hosts, tuple[int, ...]()

    def told(self) -> Tensor:
        """Small whole numbers, of which sums and means are exact: a hash of the parameters."""
        rng = random.Random(self.flat.vector.numpy().tobytes())
        return torch.tensor([float(rng.randrange(-50, 50)) for _ in range(HASH)])

    def differentiate(self) -> None:
        """Compute the gradient."""
        own = torch.zeros(16 * self.hosts)
        own[16 * self.host] = 1.0
        self.point.grad = torch.cat([self.told(), own])

    @property
    def point(self) -> torch.nn.Parameter:
        assert isinstance(self.model, Point)
        return self.model.point

    def apply(self) -> None:
        mean = self.point.grad
        assert mean is not None
        assert torch.equal(mean[:HASH], self.told())
        shares = mean[HASH::16]
        self.found = tuple(shares.nonzero().flatten().tolist())
        assert set(shares[list(self.found)].tolist()) == {float(torch.ones(()) / len(self.found))}
        super().apply()


def learn(ctx: Context, exchange: AllReduce, host: int, hosts: int, learners: int) -> None:
    """Take part in steps until there have been `TARGET`."""
    rng, mine = random.Random(f"{ctx.name} {ctx.restarts}"), Telling(host, hosts)
    link = exchange.join(ctx, mine)
    try:
        while link.version < TARGET:
            ctx.sleep(rng.uniform(0.0, 1.0))
            mine.differentiate()
            mine.found = ()
            link.step(mine)
            if mine.found:
                ctx.report(Taken(ctx.now(), link.version, mine.found))
        ctx.save((link.version, mine.flat.vector.clone()))
    finally:
        link.leave()


class Steps(Watcher):
    """Keeps the steps of each learner, and the changes of the group."""

    def __init__(self) -> None:
        super().__init__()
        self.steps: dict[str, list[Taken]] = {}
        self.changes: list[Regrouped] = []

    def report(self, worker: str, record: Any) -> None:
        if isinstance(record, Taken):
            self.steps.setdefault(worker, []).append(record)
        if isinstance(record, Regrouped):
            self.changes.append(record)


def trained(seed: int, hosts: int, learners: int, faults: Faults, loss: float = 0.0) -> tuple[Simulation, Steps]:
    """Raises `Deadlock` if the program cannot end, and `AssertionError` of a mean of gradients that do not belong
    together."""
    p, groups = Program("groups"), list[Group]()
    for h in range(hosts):
        with p.host(f"host{h}"):
            groups.append(p.service(Group)(h, hosts))
    for h in range(hosts):
        with p.host(f"host{h}"):
            exchange = AllReduce(p.service(Gradients)(learners, h * learners), between=Between(tuple(groups), h))
            p.worker(learn, copies=learners)(exchange, h, hosts, learners)
            p.worker(keep)(groups, Learners.of(learn, hosts, learners), host=h)
    simulation = Simulation(seed, Network(latency=0.01, bandwidth=1e8, loss=loss), faults, patience=500.0)
    steps = Steps()
    simulation(p, steps)
    return simulation, steps


def assert_consistent(steps: Steps, learners: int) -> None:
    """A learner's own gradient is in each mean of it. Learners of one host take the same steps."""
    for name, taken in steps.steps.items():
        host = int(name[6:-1]) // learners
        assert all(host in each.hosts for each in taken)
        first = steps.steps[f"learn[{host * learners}]"]
        assert [(each.version, each.hosts) for each in taken] == [(each.version, each.hosts) for each in first]


@pytest.mark.parametrize("mode", ["crashes", "long crashes", "lost calls", "partitions"])
@sweep(200, 2)
def test_it_never_deadlocks_nor_mixes_groups(seeds: range, mode: str) -> None:
    for seed in seeds:
        rng = random.Random(seed)
        hosts, learners = rng.randint(2, 4), rng.randint(1, 2)
        names = [f"host{h}" for h in range(hosts)]
        loss, faults = 0.0, Faults(crash_rate=0.02, down_seconds=rng.uniform(0.1, 3.0))
        if mode == "long crashes":
            faults = Faults(crash_rate=0.01, down_seconds=rng.choice([12.0, 40.0, inf]), spared=names[:1])
        elif mode == "lost calls":
            loss, faults = 0.01, Faults(crash_rate=0.005, down_seconds=2.0)
        elif mode == "partitions":
            start = rng.uniform(2.0, 10.0)
            side = {*names[: rng.randint(1, hosts - 1)]}
            faults = Faults(partitions=[(start, start + rng.uniform(1.0, 60.0), side)])
        _, steps = trained(seed, hosts, learners, faults, loss)
        assert_consistent(steps, learners)
        assert steps.saved


def gaps(steps: Sequence[Taken]) -> list[float]:
    return [after.at - before.at for before, after in pairwise(steps)]


@pytest.mark.parametrize("down", [1.0, 20.0, inf])
@pytest.mark.parametrize("host", [0, 2])
@pytest.mark.parametrize("seed", range(2))
def test_a_host_that_dies_is_left_out_in_time_and_takes_over_the_others_state(
    seed: int, host: int, down: float
) -> None:
    # With the host that forms groups and with another one. TARGET steps of at most a second each end after 30 s.
    simulation, steps = trained(seed, 3, 2, Faults(crashes=[(5.3, f"host{host}", down)]))
    assert simulation.crashes
    others = [name for name in steps.steps if int(name[6:-1]) // 2 != host]
    assert max(gap for name in others for gap in gaps(steps.steps[name])) < LEFT_OUT
    ((version, vector), *more) = [state for name, state in steps.saved.items() if name in others]
    assert version == TARGET
    assert all(state[0] == version and torch.equal(state[1], vector) for state in more)
    left = [each for change in steps.changes for each in change.left]
    joined = [each for change in steps.changes for each in change.joined]
    if down == 1.0:  # it may be back before it is left out
        assert left == joined
    else:
        assert left == [host]
    if down < 20.0:
        of_host = [steps.saved[f"learn[{2 * host + i}]"] for i in range(2)]
        assert all(state[0] == version and torch.equal(state[1], vector) for state in of_host)
        assert all(host not in each.hosts or len(each.hosts) == 3 for each in steps.steps[others[0]])
