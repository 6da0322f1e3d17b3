"""A parameter server: pushes per second on this machine; and at scale, in virtual time.

    .venv/bin/python -m benchmarks.server rate      # 1 to 4 shards, 1 to 8 learners, in threads and on Ray
    .venv/bin/python -m benchmarks.server simulate  # 1 to 256 bundles in virtual time, on 1 Gb/s and 10 Gb/s

`rate`: learners that compute nothing push a constant gradient of the Nature network (6 actions), and pull the
parameters that all others have changed, as fast as they can, for `--seconds` after a warm-up. Writes `server.json`
after each case:

* `pushes`: gradients of all learners per second, each applied by all shards. `cores`: CPU seconds per second.
* `push_ms`, `pull_ms`: medians of one learner's calls to all shards.
* `alone`: the same calls without a launcher, one after the other, in milliseconds.
* `bytes`: of the frames of one push and one pull on Ray, without the headers of TCP.

`simulate` is not timed, so the machine may be busy: see `benchmarks.simulated_server`. Writes `gorila-simulated.json`
and a plot.
"""

from __future__ import annotations

import argparse
import statistics
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import psutil
import torch
from ray import cloudpickle

from benchmarks import simulated_server
from benchmarks.provenance import Results, add_out
from gossamer.exchange import Link, ParameterShard, Server, tend
from gossamer.exchange.server.pull import slices
from gossamer.launch.ray.calls import RemoteCall
from gossamer.launch.ray.launcher import Ray
from gossamer.launch.ray.messages import CallOutcome
from gossamer.launch.threads import threads
from gossamer.nn.networks import ActorCritic, Network
from gossamer.nn.optim import AdaGrad
from gossamer.nn.torsos import nature
from gossamer.program import Program, copy_name
from gossamer.runtime import Context, Observer, Silent
from gossamer.spaces import Discrete, Spec
from gossamer.system.machine import KEEP_FREED_MEMORY, keep_freed_memory
from gossamer.task import Optimization
from gossamer.tools.simulate.stand_in import StandIn

SHARDS, LEARNERS = (1, 2, 4), (1, 2, 4, 8)
WARM_UP = 1.0  # seconds
OPTIMIZATION = Optimization(AdaGrad().make, 1e-9, 0)
LAUNCHERS: dict[str, Callable[[Program, Observer], None]] = {"threads": threads, "ray": Ray(env=KEEP_FREED_MEMORY)}


@dataclass(frozen=True)
class Pushed:
    """A learner has pushed and pulled once."""

    push: float  # seconds
    pull: float


class Pushes(Silent):
    """Observer: keeps what learners report within `seconds`, from `WARM_UP` seconds after the last one started."""

    def __init__(self, learners: int, seconds: float) -> None:
        self._learners, self._seconds = learners, seconds
        self._lock, self._seen, self._warm = threading.Lock(), set[str](), 0.0
        self.kept: list[Pushed] = []
        self._busy: dict[int, float] = {}
        self.cores, self.took = 0.0, 0.0

    def report(self, worker: str, record: Any) -> None:
        with self._lock:
            now = time.perf_counter()
            self._seen.add(worker)
            if len(self._seen) < self._learners or self.took:
                return
            self._warm = self._warm or now
            if (since := now - self._warm - WARM_UP) < 0:
                return
            self._busy = self._busy or busy()
            self.kept.append(record)
            if since >= self._seconds:
                self.cores = sum(spent - self._busy.get(pid, 0.0) for pid, spent in busy().items()) / since
                self.took = since

    def stopping(self) -> bool:
        return self.took > 0

    def figures(self) -> dict[str, float]:
        """Of the measured time."""
        return {
            "pushes": round(len(self.kept) / self.took, 1),
            "cores": round(self.cores, 2),
            "push_ms": round(1e3 * statistics.median(each.push for each in self.kept), 2),
            "pull_ms": round(1e3 * statistics.median(each.pull for each in self.kept), 2),
        }


def busy() -> dict[int, float]:
    """CPU seconds of this process and of all its descendants, by their process id."""
    here = psutil.Process()
    found = {}
    for process in (here, *here.children(recursive=True)):
        with suppress(psutil.NoSuchProcess):  # it has ended
            times = process.cpu_times()
            found[process.pid] = times.user + times.system
    return found


def learner() -> StandIn:
    """The Nature network, with a gradient."""
    model = ActorCritic(Spec((4, 84, 84), np.dtype(np.uint8), Discrete(6)), Network(nature))
    for parameter in model.parameters():
        parameter.grad = torch.full_like(parameter, 1e-3)
    return StandIn(model)


def push_and_pull(ctx: Context, exchange: Server) -> None:
    """Worker: a learner that computes nothing."""
    torch.set_num_threads(1)
    mine = learner()
    link = exchange.join(ctx, mine)
    try:
        while not ctx.stopped:
            ctx.report(Pushed(*once(link, mine)))
    finally:
        link.leave()


def once(link: Link, mine: StandIn) -> tuple[float, float]:
    """Push and pull. Returns the seconds of both."""
    start = time.perf_counter()
    link.step(mine)
    pushed = time.perf_counter()
    link.refresh()
    return pushed - start, time.perf_counter() - pushed


def program(shards: int, learners: int) -> Program:
    """A parameter server with nothing but pushes and pulls."""
    p, services = Program("server"), []
    names = [copy_name(push_and_pull, rank, learners) for rank in range(learners)]
    for s in range(shards):
        with p.host(f"shard{s}", cpus=0):
            services.append(p.service(ParameterShard)(OPTIMIZATION, learners=names, max_delay=10**9))
            p.worker(tend)(services[-1])
    for number in range(learners):
        with p.host(f"learner{number}", cpus=0):
            p.worker(push_and_pull)(Server(tuple(services)))
    return p


@dataclass(frozen=True)
class Here:
    """A context of a worker without a launcher, as far as `Server.join` needs it."""

    rank: int = 0

    def now(self) -> float:
        return time.monotonic()


def alone(shards: int, count: int = 100) -> dict[str, float]:
    """Milliseconds of a push and a pull without a launcher: what all copies and the optimizer take."""
    services = [ParameterShard(OPTIMIZATION, learners=["learn"], max_delay=10**9) for _ in range(shards)]
    context: Any = Here()
    link = Server(services).join(context, mine := learner())
    times = [once(link, mine) for _ in range(count)]
    push, pull = (round(1e3 * statistics.median(each), 2) for each in zip(*times, strict=True))
    gradient = statistics.median(timed(mine.flat.gradient) for _ in range(count))
    return {"push_ms": push, "of which the gradient as a vector": round(1e3 * gradient, 2), "pull_ms": pull}


def timed(what: Callable[[], object]) -> float:
    """Seconds of a call."""
    start = time.perf_counter()
    what()
    return time.perf_counter() - start


def sizes(shards: int) -> dict[str, int]:
    """Bytes of a push and of a pull of all shards, with their answers."""
    vector = learner().flat.vector.numpy()
    counts = {"push": 0, "pull": 0}
    for part in slices(len(vector), shards):
        shard = ParameterShard(OPTIMIZATION, learners=["learn"], max_delay=0)
        shard.offer(vector[part], 0, {})
        stamp = shard.pull(0, None).stamp  # type: ignore[union-attr]
        for method, args in (("push", (0, vector[part], stamp, 1e-9)), ("pull", (0, stamp))):
            answer = CallOutcome(getattr(shard, method)(*args))
            counts[method] += packed(RemoteCall(0, method, args)) + packed(answer)
    return counts


def packed(what: Any) -> int:
    """Bytes of a pickle and its arrays."""
    arrays: list[Any] = []
    pickled = cloudpickle.dumps(what, protocol=5, buffer_callback=arrays.append)  # type: ignore[no-untyped-call]
    return int(len(pickled) + sum(array.raw().nbytes for array in arrays))


def rate(results: Results, seconds: float) -> None:
    """All cases in turn. Writes the figures after each."""
    torch.set_num_threads(1)
    found: dict[str, Any] = {
        "network": "nature",
        "parameters": len(learner().flat.vector),
        "optimizer": "adagrad",
        "bytes": {str(shards): sizes(shards) for shards in SHARDS},
        "alone": {str(shards): alone(shards) for shards in SHARDS},
        "rows": [],
    }
    for launcher, launch in LAUNCHERS.items():
        for learners in LEARNERS:
            for shards in SHARDS:
                launch(program(shards, learners), seen := Pushes(learners, seconds))
                found["rows"].append({"launcher": launcher, "learners": learners, "shards": shards, **seen.figures()})
                print(found["rows"][-1], flush=True)
                results.write(found)


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("rate", "simulate"))
    parser.add_argument("--seconds", type=float, default=6.0, help="rate: of each case")
    parser.add_argument("--most", type=int, default=256, help="simulate: bundles of the largest simulation")
    parser.add_argument("--iterations", type=int, default=40, help="simulate: gradients of each bundle")
    add_out(parser)
    given = parser.parse_args()
    keep_freed_memory()
    measure: dict[str, Callable[[], None]] = {
        "rate": lambda: rate(Results("server", given.out), given.seconds),
        "simulate": partial(simulated_server.measure, given.out, given.most, given.iterations),
    }
    measure[given.what]()


if __name__ == "__main__":
    main()
