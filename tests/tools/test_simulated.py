"""A third architecture is one short module: bundles that send gradients to a parameter server of several shards."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import imageio.v2 as imageio
import numpy as np
import pytest

from gossamer import cli
from gossamer.launch.simulation import Faults, Network
from gossamer.program import Program
from gossamer.runtime import Context
from gossamer.system.options import option
from gossamer.tools.simulate import SIMULATED, simulate
from gossamer.tools.simulate.base import Run, Simulated
from gossamer.tools.simulate.figures import Figure, faults_line, lag, rate, shares
from gossamer.tools.simulate.ledger import Ledger, Span, Stopwatch, busy
from gossamer.tools.simulate.picture import Curve, Histogram, OverTime, Panel, Shares
from gossamer.tools.simulate.quantity import BYTES, SECONDS
from gossamer.tools.simulate.scenario import bandwidth, check_scenario, crash_rate, down, latency, measured, seed

SHARES = {"computing": "compute", "fetching": "fetch", "sending": "send"}
FIGURES = (
    Figure("computing", "fraction", "bundles compute", "% of their time", 1),
    Figure("fetching", "fraction", "bundles fetch", "% of their time, parameters", 1),
    Figure("sending", "fraction", "bundles send", "% of their time, gradients", 1),
    Figure("dropped", "fraction", "dropped", "% of the gradients, staler than --limit", 1),
    Figure("lag_mean", "updates", "staleness, mean", "updates since the parameters of a gradient", 2),
    Figure("lag_max", "updates", "staleness, max", "updates since the parameters of a gradient"),
    Figure("received", "bytes per second", "gradients", "MB/s into the servers' host", 1),
)


@dataclass(frozen=True)
class ServerScenario:
    """Bundles and shards."""

    bundles: int = option("Bundles, each on its own host.", 4, least=1)
    shards: int = option("Shards of the parameters.", 2, least=1)
    limit: int = option("Most updates that a gradient may be stale.", 100, least=0)
    step_time: float = measured("Time for one gradient.", "100ms", SECONDS)
    size: float = measured("Size of all parameters.", "1MB", BYTES)
    updates: int = option("Gradients of each bundle.", 40, least=4)
    bandwidth: float = bandwidth()
    latency: float = latency("1ms")
    crash_rate: float = crash_rate()
    down: float = down()
    seed: int = seed()

    def __post_init__(self) -> None:
        check_scenario(self)


class Shard:
    def __init__(self) -> None:
        self.version = 0

    def fetch(self) -> int:
        return self.version

    def send(self, version: int, limit: int) -> int:
        """The staleness of a gradient, which is applied if it is not staler than the limit."""
        stale = self.version - version
        self.version += stale <= limit
        return stale


@dataclass(frozen=True)
class Sent:
    spans: Sequence[Span]
    counts: Mapping[str, int]
    lag: Mapping[int, int]

    def progress(self, before: int) -> int:
        return before + 1


def bundle(ctx: Context, s: ServerScenario, shards: Sequence[Shard]) -> None:
    rng, watch = np.random.default_rng([s.seed, ctx.rank]), Stopwatch(ctx.now)
    while not ctx.stopped:
        with watch("fetch"):
            versions = [shard.fetch() for shard in shards]
        with watch("compute"):
            ctx.sleep(s.step_time * rng.uniform(0.5, 1.5))
        with watch("send"):
            stale = [shard.send(version, s.limit) for shard, version in zip(shards, versions, strict=True)]
        counts = {"sent": len(stale), "dropped": sum(each > s.limit for each in stale)}
        ctx.report(Sent(watch.take(), counts, {each: stale.count(each) for each in stale}))


def program(s: ServerScenario) -> Program:
    p = Program("server")
    with p.host("server"):
        shards = tuple(p.service(Shard)() for _ in range(s.shards))
    for number in range(s.bundles):
        with p.host(f"bundle{number}"):
            p.worker(bundle)(s, shards)
    return p


def size(s: ServerScenario, method: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> float:
    """Bytes of a gradient that is sent, and of the answer to `fetch`."""
    large = len(args) == 2 if method == "send" else len(args) == 1
    return s.size / s.shards if large else 0.0


def measure(ran: Run[ServerScenario]) -> dict[str, Any]:
    s, totals = ran.scenario, ran.ledger.totals
    received = rate(ran.simulation, totals, "send", s.size / s.shards)
    dropped = totals.counts["dropped"] / totals.counts["sent"]
    return {**shares(totals, SHARES), "dropped": dropped, **lag(totals.lag), "received": round(received)}


def panels(ran: Run[ServerScenario], figures: Mapping[str, Any]) -> tuple[Panel, ...]:
    s, edges = ran.scenario, np.linspace(0.0, ran.ledger.totals.end, 21)
    computing = [span for _, sent in ran.ledger.of(Sent) for span in sent.spans if span.what == "compute"]
    curve = Curve(100 * busy(computing, edges) / s.bundles)
    return (
        Shares("Who waits", {"bundles": {"computing": "compute", "fetching": "fetch", "sending": "send"}}, figures),
        Histogram("Staleness", figures["lag"], "updates", "% of the gradients", s.limit, "limit"),
        OverTime("Over time", "bundles compute, %", edges[1:], [curve], top=105, warm_up=ran.ledger.totals.start),
    )


SERVER = Simulated(
    scenario=ServerScenario,
    program=program,
    network=lambda s: Network(s.latency, s.bandwidth, size=partial(size, s)),
    faults=lambda s: Faults(crash_rate=s.crash_rate, down_seconds=s.down, spared=frozenset({"server"})),
    ledger=lambda s, simulation: Ledger(s.bundles, s.updates, simulation, warm_up=s.updates // 4),
    figures=FIGURES,
    measure=measure,
    warnings=lambda s, figures: [],
    summary=lambda figures: [
        f"bundles: {figures['scenario']['bundles']}",
        *faults_line("faults:  crashes", figures["scenario"]),
    ],
    title=lambda s, options: f"{s.bundles} bundles, {options['bandwidth']}",
    panels=panels,
)


@pytest.fixture(autouse=True)
def _known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SIMULATED, "server", SERVER)


def test_fewer_gradients_are_dropped_the_higher_the_limit() -> None:
    dropped = [simulate("server", limit=limit)["dropped"] for limit in (0, 1, 3, 100)]
    assert dropped == sorted(dropped, reverse=True)
    assert dropped[0] > 0.5  # of four bundles, three are late for most updates
    assert dropped[-1] == 0
    assert simulate("server", bundles=1, limit=0)["dropped"] == 0


def test_the_server_saturates() -> None:
    # A bundle fetches half a MB from each of two shards, 2 x (25 + 2) ms, computes for 100 ms, and sends as much back:
    # 1 MB each 208 ms. Ten bundles want 48 MB/s of a link that has 20: at best they compute 20 / 48 of 100 / 208 ms.
    few, many = (simulate("server", bundles=bundles, bandwidth="20MB/s") for bundles in (1, 10))
    assert few["received"] == pytest.approx(1e6 / 0.208, rel=0.05)
    assert many["received"] == pytest.approx(20e6, rel=0.02)
    assert many["computing"] < 0.25 < few["computing"]


def test_the_command_prints_and_draws_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    words = ["gossamer", "simulate", "server", "--bundles=2", "--crash-rate=1/h"]
    monkeypatch.setattr(sys, "argv", [*words, "--json", f"--plot={tmp_path / 'plot.png'}"])
    assert cli.main() == 0
    figures = json.loads(capfd.readouterr().out)
    assert figures["units"]["received"] == "bytes per second"
    assert figures["scenario"]["size"] == "1 MB"
    assert imageio.imread(tmp_path / "plot.png").shape[1] > 1200
    monkeypatch.setattr(sys, "argv", words)
    assert cli.main() == 0
    first, faults, blank, *rows = capfd.readouterr().out.splitlines()
    assert (first, faults, blank) == ("bundles: 2", "faults:  crashes, 10 s down", "")
    assert len(rows) == len(FIGURES)
