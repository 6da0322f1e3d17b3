"""All-reduce between processes: milliseconds for each exchange of a gradient, against torch.distributed's Gloo.

    .venv/bin/python -m benchmarks.all_reduce rate      # 2 to 8 hosts, in threads and on Ray, and Gloo on Ray
    .venv/bin/python -m benchmarks.all_reduce local     # 2 to 8 learners of one host
    .venv/bin/python -m benchmarks.all_reduce simulate  # 2 to 256 hosts in virtual time, on 1 Gb/s and 10 Gb/s

`rate`: learners that compute nothing average a gradient of the Nature network (6 actions) as often as they can, for
`--rounds` rounds after a warm-up of a quarter of them. Writes `all-reduce.json` after each case: the median time of a
round, of the slowest host. Gloo runs in the same processes, with a group that exists already; making one is measured
apart (`group_ms`), because each change of the membership needs a new one.

`local`: the mean of the gradients of learners that are threads of one process. Writes `all-reduce-local.json`.

`simulate` is not timed, so the machine may be busy: `gossamer simulate a2c`. Writes `all-reduce-simulated.json`.
"""

from __future__ import annotations

import argparse
import os
import socket
import statistics
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
import torch.distributed as distributed

from benchmarks.provenance import Results, add_out
from benchmarks.server import learner
from gossamer.exchange import AllReduce, Between, Gradients, Group, Learners, keep
from gossamer.launch.ray.launcher import Ray
from gossamer.launch.threads import threads
from gossamer.program import Program
from gossamer.runtime import Context, Observer, Silent
from gossamer.system.machine import KEEP_FREED_MEMORY, keep_freed_memory
from gossamer.tools.simulate import simulate

HOSTS, LEARNERS = (2, 4, 8), (2, 4, 8)
SIMULATED = (2, 4, 8, 16, 32, 64, 128, 256)
BANDWIDTHS = ("1Gb/s", "10Gb/s")
LAUNCHERS: dict[str, Callable[[Program, Observer], None]] = {"threads": threads, "ray": Ray(env=KEEP_FREED_MEMORY)}


class Times(Silent):
    """Observer: keeps what each host measures."""

    def __init__(self) -> None:
        self.found: list[dict[str, float]] = []

    def report(self, worker: str, record: Any) -> None:
        if isinstance(record, dict):
            self.found.append(record)

    def slowest(self) -> dict[str, float]:
        """The figures of the slowest host."""
        return {name: max(each[name] for each in self.found) for name in self.found[0]}


def median_ms(seconds: Sequence[float]) -> float:
    """Without the warm-up."""
    return round(1e3 * statistics.median(seconds[len(seconds) // 4 :]), 2)


def average(ctx: Context, exchange: AllReduce, rounds: int) -> None:
    """Worker: a learner that computes nothing."""
    torch.set_num_threads(1)
    mine, times = learner(), list[float]()
    link = exchange.join(ctx, mine)
    try:
        for _ in range(rounds):
            start = time.perf_counter()
            link.step(mine)
            times.append(time.perf_counter() - start)
        ctx.report({"ms": median_ms(times)})
        link.finish(mine)
    finally:
        link.leave()


def gloo(ctx: Context, port: int, rounds: int) -> None:
    """Worker: the same with a process group, the gradient as a vector and back included."""
    torch.set_num_threads(1)
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    mine, times = learner(), list[float]()
    start = time.perf_counter()
    store = distributed.TCPStore("127.0.0.1", port, ctx.copies, ctx.rank == 0)  # type: ignore[attr-defined]
    distributed.init_process_group("gloo", store=store, rank=ctx.rank, world_size=ctx.copies)
    made = time.perf_counter() - start
    for _ in range(rounds):
        start = time.perf_counter()
        vector = mine.flat.gradient()
        distributed.all_reduce(vector)
        mine.flat.set_gradient(vector.div_(ctx.copies))
        mine.apply()
        times.append(time.perf_counter() - start)
    ctx.report({"ms": median_ms(times), "group_ms": round(1e3 * made, 1)})
    distributed.barrier()
    distributed.destroy_process_group()


def between_hosts(hosts: int, rounds: int) -> Program:
    """One learner on each host."""
    p, groups = Program("all-reduce"), list[Group]()
    for h in range(hosts):
        with p.host(f"host{h}", cpus=0):
            groups.append(p.service(Group)(h, hosts))
    for h in range(hosts):
        with p.host(f"host{h}", cpus=0):
            p.worker(average)(AllReduce(p.service(Gradients)(1, h), between=Between(tuple(groups), h)), rounds)
            p.worker(keep)(groups, Learners.of(average, hosts, 1), host=h)
    return p


def with_gloo(hosts: int, rounds: int) -> Program:
    """One process on each host."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    p = Program("gloo")
    for h in range(hosts):
        with p.host(f"host{h}", cpus=0):
            p.worker(gloo)(port, rounds)
    return p


def rate(results: Results, rounds: int) -> None:
    """All cases in turn."""
    found: dict[str, Any] = {"network": "nature", "parameters": len(learner().flat.vector), "rows": []}
    for hosts in HOSTS:
        cases = [(name, between_hosts(hosts, rounds), launch) for name, launch in LAUNCHERS.items()]
        for name, program, launch in [*cases, ("gloo", with_gloo(hosts, rounds), LAUNCHERS["ray"])]:
            launch(program, seen := Times())
            found["rows"].append({"transport": name, "hosts": hosts, **seen.slowest()})
            print(found["rows"][-1], flush=True)
            results.write(found)


def local(results: Results, rounds: int) -> None:
    """Learners of one host: through the link, and how it was before one of them computed the mean."""
    rows = []
    for learners in LEARNERS:
        p = Program("all-reduce")
        p.worker(average, copies=learners)(AllReduce(p.service(Gradients)(learners)), rounds)
        threads(p, seen := Times())
        rows.append({"learners": learners, **seen.slowest(), "each_stacks_ms": stacked(learners, rounds)})
        print(rows[-1], flush=True)
        results.write({"network": "nature", "rows": rows})


def stacked(learners: int, rounds: int) -> float:
    """Milliseconds of a round in which each learner computes the mean of all."""
    all_of_them = [learner() for _ in range(learners)]
    vectors, barrier, times = [each.flat.vector for each in all_of_them], threading.Barrier(learners), list[float]()

    def run(rank: int) -> None:
        torch.set_num_threads(1)
        mine = all_of_them[rank]
        for _ in range(rounds):
            start = time.perf_counter()
            vectors[rank] = mine.flat.gradient()
            barrier.wait()
            mine.flat.set_gradient(torch.stack(vectors).mean(0))
            mine.apply()
            barrier.wait()
            if rank == 0:
                times.append(time.perf_counter() - start)

    crew = [threading.Thread(target=run, args=(rank,)) for rank in range(learners)]
    for each in crew:
        each.start()
    for each in crew:
        each.join()
    return median_ms(times)


def simulated(results: Results, most: int, iterations: int) -> None:
    """`gossamer simulate a2c` with its default options otherwise."""
    rows = []
    for bandwidth in BANDWIDTHS:
        for hosts in (each for each in SIMULATED if each <= most):
            found = simulate("a2c", hosts=hosts, bandwidth=bandwidth, iterations=iterations)
            rows.append({"hosts": hosts, "bandwidth": bandwidth, **{key: found[key] for key in found["units"]}})
            print(rows[-1], flush=True)
            results.write({"scenario": found["scenario"], "units": found["units"], "rows": rows})


def main() -> None:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("rate", "local", "simulate"))
    parser.add_argument("--rounds", type=int, default=200, help="rate, local: of each case")
    parser.add_argument("--most", type=int, default=256, help="simulate: hosts of the largest simulation")
    parser.add_argument("--iterations", type=int, default=20, help="simulate: steps of each learner")
    add_out(parser)
    given = parser.parse_args()
    keep_freed_memory()
    torch.set_num_threads(1)
    measure: dict[str, Callable[[], None]] = {
        "rate": lambda: rate(Results("all-reduce", given.out), given.rounds),
        "local": lambda: local(Results("all-reduce-local", given.out), given.rounds),
        "simulate": partial(simulated, Results("all-reduce-simulated", given.out), given.most, given.iterations),
    }
    measure[given.what]()


if __name__ == "__main__":
    main()
