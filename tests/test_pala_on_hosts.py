"""PALA on real hosts, each with its own address: four, with two learners each; one is killed, the network is cut.

Real training (Catch), real Ray, real packets; only the machine is one.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
from namespaces import Net, hosts, missing

from gossamer.exchange.gossip.records import Cut
from gossamer.launch.ray.launcher import Ray
from gossamer.runtime import Silent
from gossamer.task import WorkerReport

pytestmark = [
    pytest.mark.hosts,
    pytest.mark.skipif(find_spec("ray") is None, reason="Ray is not installed (the extra `ray`)"),
]

HERE = Path(__file__).parent
HOSTS, MEMBERS = 4, 8
SECONDS = 300.0  # after which a test that waits for something fails


class Teller(Silent):
    """Prints who has come how far, and how far apart all are at each cut; ends the program when a file is there."""

    def __init__(self, end: str) -> None:
        self.end = Path(end)
        self.cuts: dict[int, dict[int, Cut]] = {}
        self.steps, self.updates = Counter[str](), Counter[str]()  # of each member, all its processes together

    def report(self, worker: str, record: Any) -> None:
        if not isinstance(record, WorkerReport):
            return
        self.steps[worker] += record.steps
        self.updates[worker] += record.updates
        self.tell(worker=worker, steps=self.steps[worker], updates=self.updates[worker])
        for part in record.exchange:
            if isinstance(part, Cut):
                self.tell(cut_by=worker, iteration=part.iteration)
                self.cuts.setdefault(part.epoch, {})[part.member] = part
                self.look(part.epoch)

    def look(self, epoch: int) -> None:
        cut = self.cuts[epoch]
        if all(set(part.members) == set(cut) for part in cut.values()):
            vectors = torch.stack([part.parameters for part in cut.values()])
            distance = float((vectors - vectors.mean(0)).norm(dim=1).max())
            self.tell(epoch=epoch, members=sorted(cut), distance=distance)

    def tell(self, **what: Any) -> None:
        line = json.dumps({"at": time.monotonic(), **what})  # the machine's time, which the tests compare with theirs
        sys.stdout.write(line + "\n")  # in one go: reports of several hosts come at once
        sys.stdout.flush()

    def stopping(self) -> bool:
        return self.end.exists()


def drive(cluster: str, end: str) -> None:
    """The driver of the tests, on the first host."""
    from gossamer.architectures import PALA
    from gossamer.config.build import task
    from gossamer.config.resolve import configure
    from gossamer.exchange.gossip.options import Gossiping

    config = configure("pala", env="catch", hosts=HOSTS, steps=10**9, threads=1)
    gossip = Gossiping(staleness=4, period=60, window=20)
    program = PALA(hosts=HOSTS, learners=2, num_envs=4).program(task(config), gossip=gossip)
    Ray(cluster, call_seconds=1.0)(program, Teller(end))


class Training:
    """`drive`, running on the first host."""

    def __init__(self, net: Net) -> None:
        self.net, self.end = net, net.folder / "end"
        script = f"import test_pala_on_hosts as t; t.drive({net.cluster!r}, {str(self.end)!r})"
        path = f"{HERE}:{HERE.parent}"
        self.process = net.run(0, [sys.executable, "-c", script], to="training", PYTHONPATH=path)

    def said(self) -> list[dict[str, Any]]:
        return self.net.records(0, "training")

    def reports(self, since: float = 0.0, until: float = float("inf")) -> dict[str, list[dict[str, Any]]]:
        """Member -> its reports that the driver got in that time."""
        found: dict[str, list[dict[str, Any]]] = {f"act_and_learn[{rank}]": [] for rank in range(MEMBERS)}
        for line in self.said():
            if "worker" in line and since <= line["at"] < until:
                found[line["worker"]].append(line)
        return found

    def distances(self, since: float = 0.0, until: float = float("inf")) -> list[float]:
        """Between all members, at the cuts of that time."""
        cuts = [line for line in self.said() if "epoch" in line and since <= line["at"] < until]
        return [line["distance"] for line in cuts if len(line["members"]) == MEMBERS]

    def until(self, what: Callable[[], bool]) -> None:
        end = time.monotonic() + SECONDS
        while not what():
            assert self.process.poll() is None, self.net.output(0, "training")[-5000:]
            assert time.monotonic() < end, self.net.output(0, "training")[-5000:]
            time.sleep(0.2)

    def all_train(self, since: float, updates: int = 5) -> bool:
        return all(len(lines) >= updates for lines in self.reports(since).values())


@pytest.fixture(scope="module")
def training() -> Iterator[Training]:
    if why := missing():
        pytest.skip(why)
    with hosts(HOSTS) as net:
        for host in range(HOSTS):
            net.start(host)
        running = Training(net)
        running.until(lambda: running.all_train(0.0, 20))
        running.until(lambda: len(running.distances()) >= 2)
        yield running
        running.end.touch()
        assert running.process.wait(timeout=SECONDS) == 0, net.output(0, "training")[-5000:]


def test_a_host_that_is_killed_holds_nobody_up_and_rejoins(training: Training) -> None:
    killed = time.monotonic()
    training.net.kill(HOSTS - 1)

    def late() -> set[str]:
        """Those that report after the 15 seconds in which the others notice."""
        return {worker for worker, lines in training.reports(killed + 15).items() if lines}

    training.until(lambda: len(late()) >= MEMBERS - 2)  # nobody waits for its two
    gone = training.reports().keys() - late()
    assert len(gone) == 2
    back = time.monotonic()
    training.net.start(HOSTS - 1)
    training.until(lambda: training.all_train(back))
    first = {worker: lines[0] for worker, lines in training.reports(back).items()}
    others = statistics.median(line["updates"] for worker, line in first.items() if worker not in gone)
    for worker in gone:  # with its neighbours' parameters and place, not from the start

        def cuts(worker: str = worker) -> list[dict[str, Any]]:
            return [line for line in training.said() if line.get("cut_by") == worker and line["at"] > back]

        training.until(lambda cuts=cuts: bool(cuts()))  # type: ignore[misc]
        assert cuts()[0]["iteration"] > 0.5 * others
    training.until(lambda: bool(training.distances(first[max(gone)]["at"])))
    assert training.distances(first[max(gone)]["at"])[-1] < 5 * statistics.median(training.distances(0, killed))


def test_two_halves_train_apart_and_agree_again(training: Training) -> None:
    before = time.monotonic()
    training.until(lambda: training.all_train(before))
    apart = statistics.median(training.distances(0, before))
    cut = time.monotonic()
    steps = {worker: lines[-1]["steps"] for worker, lines in training.reports().items()}
    training.net.cut([0, 1], [2, 3])
    training.until(lambda: time.monotonic() > cut + 20)
    training.net.heal()
    healed = time.monotonic()
    # What was done behind the cut is told within five seconds of the first report after it. Had a half stood still, it
    # would have done those five seconds' steps only: a quarter of the others' or less.
    told = 5.0

    def complete() -> bool:
        return all(lines and lines[-1]["at"] >= lines[0]["at"] + told for lines in training.reports(healed).values())

    training.until(complete)
    gained = {}
    for worker, lines in training.reports(healed).items():
        steps_told = [line["steps"] for line in lines if line["at"] < lines[0]["at"] + told]
        gained[worker] = steps_told[-1] - steps[worker]
    assert min(gained.values()) > 0.3 * max(gained.values()), gained  # both halves went on
    training.until(lambda: any(distance < 5 * apart for distance in training.distances(healed + 10)[-1:]))
