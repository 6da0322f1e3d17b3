"""What gossip costs, and how far it scales.

    python -m benchmarks.gossip exchange       # steps/s with and without it: GALA, PALA over threads and over Ray
    python -m benchmarks.gossip message        # one message between two hosts: bytes and milliseconds
    python -m benchmarks.gossip scale          # efficiency and staleness from 4 to 1,024 members, in virtual time
    python -m benchmarks.gossip rate           # steps until Catch is learned: one learner, GALA at two learning rates
    python -m benchmarks.gossip diagnostics    # bytes and processor time of what members report of their exchange

Each writes `results/gossip-WHAT.json`; `scale` a plot beside it. `message --address IP:PORT` measures between two
machines of a Ray cluster instead of two processes of this one.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.curves import median
from benchmarks.diagnostics import diagnostics
from benchmarks.provenance import RESULTS, keep, provenance
from gossamer.config.build import num_envs, program, task
from gossamer.config.config import Config
from gossamer.config.file import flat
from gossamer.config.resolve import configure
from gossamer.exchange import Alone
from gossamer.exchange.gossip.formats import Format
from gossamer.exchange.gossip.messages import Message, Parcel
from gossamer.exchange.proxy.wire import FORMATS, decode, encode
from gossamer.launch.ray.launcher import Ray
from gossamer.launch.threads import threads
from gossamer.loops import act_and_learn
from gossamer.machine import KEEP_FREED_MEMORY, keep_freed_memory
from gossamer.networks import ActorCritic, nature
from gossamer.program import Context, Program, Silent
from gossamer.task import Report
from gossamer.tools.simulate import simulate
from gossamer.training.experiment import train

WARM_UP = 2.0  # seconds of training before the first step that counts
TOKEN, LAYOUT = bytes(16), bytes(8)


class Steps(Silent):
    """Counts the steps of all members, for so many seconds once all of them train."""

    def __init__(self, members: int, seconds: float) -> None:
        self.members, self.seconds = members, seconds
        self._lock = threading.Lock()
        self._latest: dict[str, int] = {}
        self._begun: tuple[float, int] | None = None
        self._ended: tuple[float, int] | None = None
        self._warm = 0.0

    def report(self, worker: str, record: Any) -> None:
        if not isinstance(record, Report):
            return
        with self._lock:
            now = time.perf_counter()
            self._latest[worker] = record.steps
            if len(self._latest) < self.members:
                return
            self._warm = self._warm or now
            if self._begun is None and now - self._warm >= WARM_UP:
                self._begun = (now, sum(self._latest.values()))
            if self._begun is not None and self._ended is None and now - self._begun[0] >= self.seconds:
                self._ended = (now, sum(self._latest.values()))

    def stopping(self) -> bool:
        return self._ended is not None

    @property
    def rate(self) -> float:
        """Steps a second."""
        assert self._begun
        assert self._ended
        return (self._ended[1] - self._begun[1]) / (self._ended[0] - self._begun[0])


def exchange(
    rounds: int, seconds: float, given: Mapping[str, Any], write: Callable[[dict[str, Any]], object]
) -> dict[str, Any]:
    """Steps/s of four learners: each way in turn, in every round; ratios are of the same round. Kept after each."""
    gala = configure("gala", **given).with_run(steps=10**15)
    pala = configure("pala", **given).with_run(steps=10**15)

    def alone(hosts: int) -> Program:
        p, learners = Program("alone"), 4 // hosts
        for h in range(hosts):
            with p.host(f"host{h}", cpus=learners):
                p.worker(act_and_learn, copies=learners)(
                    task(gala), Alone(), num_envs=num_envs(gala), env_workers=flat(gala)["env_workers"]
                )
        return p

    ways: dict[str, Callable[[Any], None]] = {
        "threads, no exchange": lambda seen: threads(alone(1), seen),
        "gala": lambda seen: threads(program(gala), seen),
        "two processes, no exchange": lambda seen: Ray(env=KEEP_FREED_MEMORY)(alone(2), seen),
        "pala, two Ray hosts": lambda seen: Ray(env=KEEP_FREED_MEMORY)(program(pala), seen),
        "pala in threads": lambda seen: threads(program(pala), seen),
    }
    rates: dict[str, list[float]] = {name: [] for name in ways}
    for turn in range(rounds):
        order = list(ways) if turn % 2 == 0 else list(ways)[::-1]
        for name in order:
            seen = Steps(4, seconds)
            ways[name](seen)
            rates[name].append(round(seen.rate, 1))
            print(f"round {turn + 1}: {name}: {seen.rate:,.0f} steps/s", flush=True)
        write(found := _ratios(gala, rates))
    return found


def _ratios(gala: Config, rates: Mapping[str, list[float]]) -> dict[str, Any]:
    def ratio(one: str, other: str) -> dict[str, Any]:
        each = [round(a / b, 4) for a, b in zip(rates[one], rates[other], strict=True)]
        return {"median": statistics.median(each), "rounds": each}

    return {
        "settings": {
            **{name: flat(gala)[name] for name in ("env", "algorithm", "network")},
            "learners": 4,
            "num_envs": 16,
        },
        "steps_per_second": {name: {"median": statistics.median(r), "rounds": r} for name, r in rates.items()},
        "gala / threads without exchange": ratio("gala", "threads, no exchange"),
        "pala / processes without exchange": ratio("pala, two Ray hosts", "two processes, no exchange"),
        "pala / gala": ratio("pala, two Ray hosts", "gala"),
        "processes / threads, no exchange": ratio("two processes, no exchange", "threads, no exchange"),
        "pala in threads / threads without exchange": ratio("pala in threads", "threads, no exchange"),
    }


class Sink:
    """Service: takes packets, as a proxy's door does."""

    def deliver(self, packet: Any) -> None: ...


def ship(ctx: Context, sink: Sink, *, form: Format, elements: int, count: int) -> None:
    """Pack, send, and (here, for the time it takes) unpack a message, again and again."""
    torch.set_num_threads(1)
    vector = torch.randn(elements)
    parcel = Parcel(Message(0, 1, 0, 1.0, 0, time.time(), vector), (1,))
    packet = encode(parcel, TOKEN, LAYOUT, form)
    rows = []
    for _ in range(count):
        start = time.perf_counter()
        packet = encode(parcel, TOKEN, LAYOUT, form)
        packed = time.perf_counter()
        sink.deliver(packet)
        sent = time.perf_counter()
        decode(packet, TOKEN, LAYOUT)
        rows.append([packed - start, sent - packed, time.perf_counter() - sent])
    milliseconds = np.median(np.array(rows) * 1e3, axis=0).round(3).tolist()
    ctx.report({"bytes": int(packet.nbytes), **dict(zip(("pack", "send", "unpack"), milliseconds, strict=True))})


class Kept(Silent):
    """Keeps what is reported."""

    def __init__(self) -> None:
        self.records: list[Any] = []

    def report(self, worker: str, record: Any) -> None:
        self.records.append(record)


def message(count: int, address: str | None) -> dict[str, Any]:
    """Bytes, and medians in milliseconds, of one message with the Nature network's parameters between two hosts."""
    model = ActorCritic((4, 84, 84), 6, nature)
    elements = sum(p.numel() for p in model.parameters())
    found: dict[str, Any] = {"network": "nature", "parameters": elements, "messages": count, "milliseconds": {}}
    for form in FORMATS:
        p = Program("message")
        with p.host("receiver"):
            sink = p.service(Sink)()
        with p.host("sender"):
            p.worker(ship)(sink, form=form, elements=elements, count=count)
        Ray(address, env=KEEP_FREED_MEMORY)(p, seen := Kept())
        found["milliseconds"][form] = seen.records[-1]
        print(form, seen.records[-1], flush=True)
    return found


def scale(most: int, learners: int, iterations: int, write: Callable[[dict[str, Any]], object]) -> None:
    """`gossamer simulate pala` from 4 members on: 1 Gb/s, 40 ms, 30 ms a step, 6.8 MB a message; kept row by row."""
    rows = []
    for graph in ("ring", "exponential", "hierarchical"):
        for staleness in (float("inf"), 16.0):
            members = 4
            while members <= most:
                row = simulate(
                    members=members,
                    learners=min(learners, members // 2),
                    graph=graph,
                    staleness=staleness,
                    iterations=iterations,
                )
                rows.append({"bound": "none" if staleness == float("inf") else "16", **row})
                print(rows[-1], flush=True)
                found = {"network": "1 Gb/s, 40 ms one way", "step_time": "30 ms", "message": "6.8 MB", "rows": rows}
                write(found)
                members *= 4


def rate(seeds: int, algorithm: str) -> dict[str, Any]:
    """Agent steps until the mean return of the last 100 games of Catch is 0.8 or more, for several seeds."""
    plain = configure("paac", env="catch", algorithm=algorithm).optimization.learning_rate
    ways: dict[str, dict[str, Any]] = {
        "one learner, 64 environments": {"architecture": "paac", "num_envs": 64},
        "gala, 4 x 16, its rate": {"architecture": "gala", "learning_rate": plain},
        "gala, 4 x 16, twice its rate (the default)": {"architecture": "gala"},
        "gala, 4 x 16, lock-step, its rate": {"architecture": "gala", "sync": "lock-step", "learning_rate": plain},
        "gala, 4 x 16, lock-step, twice its rate": {"architecture": "gala", "sync": "lock-step"},
    }
    steps: dict[str, list[int | None]] = {name: [] for name in ways}
    for seed in range(1, seeds + 1):
        for name, way in ways.items():
            with tempfile.TemporaryDirectory() as place:
                more = {"env": "catch", "algorithm": algorithm, "steps": 300_000, "seed": seed, "stop_at_return": 0.8}
                result = train(**way, **more, run_dir=Path(place) / "run").result
            steps[name].append(result["steps"] if "return" in result["ended"] else None)
            print(f"seed {seed}: {name}: {steps[name][-1]}", flush=True)
    return {
        "settings": {"env": "catch", "algorithm": algorithm, "learning rate of one learner": plain},
        "steps": {name: {"median": median(each), "seeds": each} for name, each in steps.items()},
    }


def plot(found: Mapping[str, Any], path: Path) -> None:
    """Efficiency and staleness against the number of members, for each graph."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 4), layout="constrained")
    efficiency, staleness = figure.subplots(1, 2)
    for number, graph in enumerate(("ring", "exponential", "hierarchical")):
        for bound, style in (("none", "-"), ("16", "--")):
            rows = [row for row in found["rows"] if (row["graph"], row["bound"]) == (graph, bound)]
            label = f"{graph}, " + ("never waits" if bound == "none" else "bound 16")
            look: dict[str, Any] = {"color": f"C{number}", "linestyle": style, "marker": "o", "label": label}
            members = [row["members"] for row in rows]
            efficiency.plot(members, [row["efficiency"] for row in rows], **look)
            staleness.plot(members, [row["staleness_max"] for row in rows], **look)
    efficiency.set_ylim(0, 1.05)
    efficiency.set_ylabel("steps/s against members that compute alone")
    staleness.set_ylabel("oldest message averaged in (iterations)")
    efficiency.legend()
    for axes in (efficiency, staleness):
        axes.set_xscale("log", base=2)
        axes.set_xlabel("members, 8 on each host")
        axes.grid(alpha=0.25)
    figure.savefig(path, dpi=140)


def main() -> None:
    """Measure, and write it down."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["exchange", "message", "scale", "rate", "diagnostics"])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=15.0)
    parser.add_argument("--env", default="pong")
    parser.add_argument("--algorithm", default="a2c")
    parser.add_argument("--network", default=None)
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--address", default=None)
    parser.add_argument("--learners", type=int, default=16, help="of diagnostics")
    parser.add_argument("--most", type=int, default=1024)
    parser.add_argument("--iterations", type=int, help="of scale (default: 60) and diagnostics (default: 1,000)")
    parser.add_argument("--name", default=None, help="of the file under results/ (default: gossip-WHAT)")
    options = parser.parse_args()
    origin = provenance()
    keep_freed_memory()
    name = options.name or f"gossip-{options.what}"
    if options.what == "exchange":
        given = {"env": options.env, "algorithm": options.algorithm}
        if options.network:
            given["network"] = options.network
        found = exchange(options.rounds, options.seconds, given, lambda found: keep(name, {**origin, "figures": found}))
    elif options.what == "message":
        found = message(options.count, options.address)
    elif options.what == "rate":
        found = rate(options.seeds, options.algorithm)
    elif options.what == "diagnostics":
        given = {"env": options.env, "algorithm": options.algorithm, "network": options.network or "nature"}
        found = diagnostics(options.learners, options.iterations or 1000, given)
    else:
        torch.set_num_threads(1)
        scale(options.most, 8, options.iterations or 60, lambda found: keep(name, {**origin, "figures": found}))
        found = json.loads((RESULTS / f"{name}.json").read_text())["figures"]
        plot(found, RESULTS / f"{name}.png")
    print(keep(name, {**origin, "figures": found}))


if __name__ == "__main__":
    main()
