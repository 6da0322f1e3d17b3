"""Simulated actors and learners: nothing is lost or learned from twice, known limits, bounded lag, one line for what
cannot be."""

from __future__ import annotations

import json
import math
import random
import re
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import imageio.v2 as imageio
import numpy as np
import pytest
import torch
from some_parts import a_task
from sweeps import sweep

import gossamer
from gossamer import architectures, cli
from gossamer.algorithms import VTrace
from gossamer.data import Packed, Trajectory
from gossamer.launch.simulation import Faults, Simulation
from gossamer.runtime import Answer
from gossamer.system.errors import UserError
from gossamer.task import Left, Recovered
from gossamer.tools.simulate import simulate
from gossamer.tools.simulate.actors.figures import ACTORS, FIGURES
from gossamer.tools.simulate.actors.impala import IMPALA, network, program
from gossamer.tools.simulate.actors.scenario import ActorScenario
from gossamer.tools.simulate.actors.workers import Acted, Learned, Workload
from gossamer.tools.simulate.ledger import Ledger, Span, busy
from gossamer.tools.simulate.run import run

KEYS = {figure.key for figure in FIGURES} | {"lag", "bound_by", "units", "warnings", "scenario"}
FREE: dict[str, Any] = {"bandwidth": math.inf, "latency": 0.0, "jitter": 0.0}
SMALL: dict[str, Any] = {"actors": 4, "actors_per_host": 2, "batch_rollouts": 3, "batches": 24}


class Draining(Ledger):
    """Ends after a number of rollouts, when all of them have been learned from; keeps their positions."""

    def __init__(self, rollouts: int, simulation: Simulation) -> None:
        super().__init__(1, 10**9, simulation)
        self.left = rollouts
        self.acted, self.learned = Counter[int](), Counter[int]()

    def claim(self, worker: str, steps: int, *, idle: bool = True) -> int | Answer:  # type: ignore[override]
        if steps and not self.left:
            return Answer.END
        self.left -= bool(steps)
        return super().claim(worker, steps, idle=idle)

    def report(self, worker: str, record: Any) -> None:
        super().report(worker, record)
        if isinstance(record, Acted):
            self.acted[record.position] += 1
        elif not isinstance(record, Left):
            self.learned.update(record.positions)


@pytest.mark.parametrize("crashes", [False, True], ids=["", "crashes"])
@pytest.mark.parametrize(
    "given",
    [{}, {"actors_per_host": 0}, {"learners": 2}, {"reuse": 2, "updates": 2}, {"depth": 1}, {"bandwidth": 1e8}],
    ids=str,
)
def test_every_rollout_is_learned_from_once(given: dict[str, Any], crashes: bool) -> None:
    s = ActorScenario(**{**SMALL, **given})
    for seed in range(4):
        faults = Faults(crashes=[(0.3, "actors0", 0.5), (1.0, "actors1", 2.0)] if crashes and s.hosts else [])
        simulation = Simulation(seed, network(s), faults)
        ledger = Draining(100, simulation)
        simulation(program(s, "impala"), ledger)
        assert set(ledger.learned.values()) == {1}, seed
        assert ledger.acted.keys() <= ledger.learned.keys(), seed
        assert len(ledger.learned) - len(ledger.acted) <= 2 * len(simulation.crashes), seed  # died before its report
        assert len(ledger.learned) >= 100 - 2 * len(simulation.crashes), seed  # two actors on each host


class Deaf(Ledger):
    """Ignores what a learner says when it is restarted."""

    def report(self, worker: str, record: Any) -> None:
        if not isinstance(record, Recovered):
            super().report(worker, record)


@pytest.mark.parametrize("depth", [1, 2, 4])
@pytest.mark.parametrize("hosts", [1, 2])
@sweep(50, 4)
def test_after_a_restart_of_the_learner_s_host_no_actor_waits_for_parameters_that_are_lost(
    depth: int, hosts: int, seeds: range
) -> None:
    s = ActorScenario(actors=4, actors_per_host=4 // hosts, batch_rollouts=2, batches=60, depth=depth, latency=0.02)
    for seed in seeds:
        rng = random.Random(seed)
        crashes = [(rng.uniform(0.1, 4) + 15 * i, "learner", rng.choice([0.0, 0.3, 2.0])) for i in range(2)]
        simulation = Simulation(seed, network(s), Faults(crashes=crashes))
        ledger = Deaf(1, s.batches, simulation)
        simulation(program(s, "impala"), ledger)  # it ends: no actor waits for ever for parameters that are lost
        assert len(simulation.crashes) >= 1, seed
        beyond = sum(count for lag, count in ledger.totals.lag.items() if not 0 <= lag <= s.lag_bound)
        # What actors did while the learner took back the newest parameters
        assert beyond <= depth * s.batch_rollouts * len(simulation.crashes), seed


@pytest.mark.parametrize("name", ["impala", "appo"])
@pytest.mark.parametrize("given", [{"actors_per_host": 0}, {"learners": 2}, {}], ids=str)
def test_the_wiring_is_that_of_the_architecture(name: str, given: dict[str, Any]) -> None:
    s = ActorScenario(**{**SMALL, **given})
    here = s.here or 4
    kind = {"impala": architectures.IMPALA, "appo": architectures.APPO}[name]
    real = kind(hosts=s.hosts, learners=s.learners, actors=here // s.learners, num_envs=4 * here).program(
        a_task(algorithm=VTrace())
    )
    mine = program(s, name)
    assert mine.edges() == real.edges()
    assert [(node.name, node.host) for node in mine.services] == [(node.name, node.host) for node in real.services]
    assert [(copy.name, copy.node.host) for copy in mine.crew] == [(copy.name, copy.node.host) for copy in real.crew]


def test_one_actor_acts_at_the_rate_of_its_environments() -> None:
    # 4 environments, all stepped in 10 ms: 400 steps/s, if it never waits. A rollout of 80 steps takes 0.2 s.
    found = simulate("impala", actors=1, step_time="10ms", batch_rollouts=2, update_time="1ms", batches=40, **FREE)
    assert found["acted"] == pytest.approx(400, rel=0.02)
    assert found["actors_act"] == 1.0
    assert found["utilisation"] == pytest.approx(0.001 / 0.4, rel=0.1)
    assert found["bound_by"] == "actors"


@pytest.mark.parametrize(
    ("given", "rate"),
    [
        # A batch of 8 rollouts of 20 x 4 steps in 50 ms: 12,800 steps/s. 32 actors act up to 32 x 4 / 4 ms = 32,000.
        ({}, 12_800),
        ({"reuse": 2}, 6_400),  # each batch takes twice the time
        ({"learners": 2}, 25_600),
    ],
    ids=str,
)
def test_with_many_actors_the_learner_is_always_busy(given: dict[str, Any], rate: float) -> None:
    shape: dict[str, Any] = {"actors": 32, "batch_rollouts": 8, "batches": 60, **FREE}
    found = simulate("impala", **shape, **given)
    assert found["utilisation"] >= 0.99
    assert found["learned"] == pytest.approx(rate, rel=0.02)
    assert found["bound_by"] == "learners"
    assert found["waits_for_slots"] > 0.15


def test_on_a_slow_network_the_rate_is_that_of_the_link() -> None:
    # 1 MB/s into the learners' host. A rollout has 21 x 4 observations of 1 kB and 25 bytes for each step: 86.1 kB. So
    # 11.6 rollouts of 80 steps arrive in a second.
    s: dict[str, Any] = {"actors": 32, "batch_rollouts": 8, "batches": 60, "obs_size": "1kB", "parameters_size": "9kB"}
    found = simulate("impala", bandwidth="1MB/s", **s)
    assert found["downlink_busy"] == pytest.approx(1, abs=0.01)
    assert found["received"] == pytest.approx(1e6, rel=0.01)
    assert found["learned"] == pytest.approx(1e6 / 86_100 * 80, rel=0.05)
    assert found["actors_send"] > 0.9
    assert found["bound_by"] == "downlink"
    fast = simulate("impala", bandwidth="4MB/s", **s)
    assert fast["learned"] == pytest.approx(4 * found["learned"], rel=0.05)


def test_where_parameters_are_slow_actors_wait_for_them_and_a_deeper_queue_helps() -> None:
    # 2 MB of parameters need 2 s to each of 4 hosts, a batch needs 0.7 s to arrive.
    s: dict[str, Any] = {"actors": 32, "batch_rollouts": 8, "batches": 160, "obs_size": "1kB", "bandwidth": "1MB/s"}
    near, far = (simulate("impala", parameters_size="2MB", depth=depth, **s) for depth in (4, 40))
    assert near["waits_for_parameters"] > 0.3
    assert far["waits_for_parameters"] < 0.05
    assert far["learned"] > 2 * near["learned"]
    assert near["lag_max"] <= 3
    assert 3 < far["lag_max"] <= 39


def test_parameters_cross_the_uplink_once_for_all_actors_of_a_host() -> None:
    # One update each 50 ms, 1 MB to each of two hosts: 40 MB/s at most, and nearly as much, because actors of a host
    # take parameters more often than that.
    found = simulate(
        "impala", actors=16, batch_rollouts=4, batches=60, parameters_size="1MB", bandwidth="inf", latency=0.0
    )
    assert 0.9 * 40e6 <= found["sent"] <= 1.05 * 40e6


@pytest.mark.parametrize("depth", [1, 2, 5])
@pytest.mark.parametrize(("reuse", "updates", "learners"), [(1, 1, 1), (1, 3, 1), (2, 1, 1), (3, 2, 1), (1, 1, 2)])
def test_the_lag_is_within_its_bound_and_reaches_it(depth: int, reuse: int, updates: int, learners: int) -> None:
    if reuse > 1 and reuse >= depth:
        return
    s: dict[str, Any] = {"depth": depth, "reuse": reuse, "updates": updates, "learners": learners}
    for seed in range(3):
        found = simulate("impala", actors=12, actors_per_host=0, batch_rollouts=3, batches=40, seed=seed, **s)
        bound = ActorScenario(actors_per_host=0, **s).lag_bound
        assert found["lag_max"] <= bound, seed
        assert min(map(int, found["lag"])) >= 0, seed
    assert found["lag_max"] == bound  # 12 actors keep the learner busy, so that all credit is used


@pytest.mark.parametrize("depth", [1, 2, 5])
@pytest.mark.parametrize(("reuse", "updates", "learners"), [(1, 1, 1), (2, 2, 1), (1, 1, 2)])
@pytest.mark.parametrize("bandwidth", ["1Gb/s", "inf"])
def test_the_lag_is_within_its_bound_between_hosts(
    depth: int, reuse: int, updates: int, learners: int, bandwidth: str
) -> None:
    if reuse >= depth > 1:
        return
    s: dict[str, Any] = {"depth": depth, "reuse": reuse, "updates": updates, "learners": learners}
    if depth == 1:
        s["reuse"] = 1
    for seed, crash_rate in ((0, "0/h"), (1, "2/min")):
        found = simulate(
            "impala",
            actors=16,
            actors_per_host=4,
            batch_rollouts=4,
            batches=40,
            bandwidth=bandwidth,
            latency="5ms",
            crash_rate=crash_rate,
            seed=seed,
            **s,
        )
        assert found["lag_max"] <= ActorScenario(**s).lag_bound, seed
        assert min(map(int, found["lag"])) >= 0, seed


def test_shares_of_time_are_complete() -> None:
    found = simulate("impala", **SMALL, learners=2, reuse=2)
    for keys in (("utilisation", "waits_for_batches", "averaging"), ACTORS):
        assert sum(found[key] for key in keys) == pytest.approx(1, abs=0.002)
    assert found["lag_mean"] == pytest.approx(
        sum(int(lag) * count for lag, count in found["lag"].items()) / sum(found["lag"].values()), abs=0.001
    )
    assert found.keys() == KEYS
    json.dumps(found, allow_nan=False)


def test_the_same_seed_gives_the_same_figures() -> None:
    def run(seed: int) -> dict[str, Any]:
        found = simulate("impala", **SMALL, crash_rate="1/min", seed=seed)
        return {key: value for key, value in found.items() if key not in ("seconds", "scenario")}

    assert run(3) == run(3)
    assert run(3) != run(4)


def test_only_hosts_of_actors_crash_and_the_run_comes_to_its_end() -> None:
    s = ActorScenario(**{**SMALL, "batches": 200}, crash_rate=1 / 4, down=1.0)
    ran = run(IMPALA, s)
    assert {host for _, host in ran.simulation.crashes} == {"actors0", "actors1"}
    assert ran.ledger.stopping()


def test_a_rollout_has_the_bytes_of_a_real_one() -> None:
    real = Packed.of(Trajectory.empty(20, 4, (4, 84, 84), torch.uint8))
    assert ActorScenario().rollout_bytes == pytest.approx(real.nbytes, rel=1e-4)


def test_steps_take_their_time_on_average() -> None:
    # Of 20,000 steps with mean 4 ms and standard deviation 2 ms, the mean is within 4 x 2 / sqrt(20,000) = 0.06 ms.
    task = Workload(rollout_length=20_000, step_time=0.004, jitter=0.5, update_time=0.0, updates=1)
    assert task.rollout_seconds(np.random.default_rng(0)) / 20_000 == pytest.approx(0.004, abs=0.06e-3)
    even = Workload(rollout_length=10, step_time=0.004, jitter=0.0, update_time=0.0, updates=1)
    assert even.rollout_seconds(np.random.default_rng(0)) == pytest.approx(0.04)


def test_the_warm_up_does_not_count_and_nothing_after_the_end() -> None:
    simulation = Simulation()
    ledger = Ledger(1, 4, simulation, warm_up=1)
    for number in range(4):  # passes of 1 s after 1 s of waiting; the first batch is the warm-up
        start = 2.0 * number
        spans = (Span("learner_waits", start, start + 1), Span("update", start + 1, start + 2))
        ledger.report("learn", Learned((number,), 1, {number: 1}, 0, spans))
        if number == 1:  # began before the warm-up ended at 2 s
            ledger.report("act", Acted(7, (Span("act", 0.5, 3.5),)))
    assert ledger.stopping()
    ledger.report("act", Acted(8, (Span("act", 0.0, 99.0),)))
    totals = ledger.totals
    assert (totals.start, totals.end, totals.counts["acted"], totals.counts["learned"]) == (2.0, 8.0, 1, 3)
    assert dict(totals.seconds) == {"learner_waits": 3.0, "update": 3.0, "act": 1.5}
    assert totals.lag == {1: 1, 2: 1, 3: 1}


def test_how_busy_learners_are_in_each_interval() -> None:
    # Two learners: 0 to 1 and 0.5 to 3. In [0, 1]: 1 + 0.5; in [1, 2]: 1; in [2, 4]: half of the time 1
    spans = [Span("update", 0.0, 1.0), Span("update", 0.5, 3.0)]
    assert busy(spans, np.array([0.0, 1.0, 2.0, 4.0])).tolist() == [1.5, 1.0, 0.5]


@pytest.mark.parametrize("given", [{}, {"learners": 2, "reuse": 2}, {"actors_per_host": 0}], ids=str)
def test_the_plot(given: dict[str, Any], tmp_path: Path) -> None:
    simulate("impala", plot=tmp_path / "plot.png", **{**SMALL, **given})
    assert imageio.imread(tmp_path / "plot.png").std() > 10
    assert [path.name for path in tmp_path.iterdir()] == ["plot.png"]


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"actors": 4, "batch_rollouts": 1, "depth": 1}, r"--depth 1 is too small for 4 actors of each learner"),
        ({"actors": 4, "batch_rollouts": 1, "batches": 8, "depth": 4}, r"--batches 8: .*, 4 batches; use 16 or more"),
        ({**SMALL}, None),
    ],
    ids=str,
)
def test_warnings(given: dict[str, Any], told: str | None) -> None:
    found = simulate("impala", **{"actors_per_host": 0, "update_time": "50ms", "batches": 40, **given})
    assert [bool(re.search(str(told), warning)) for warning in found["warnings"]] == [True] * (told is not None)


BAD: list[tuple[dict[str, Any], str]] = [
    ({"actors": 0}, "--actors 0: must be at least 1"),
    ({"actors": 16, "actors_per_host": 4, "learners": 8}, "--actors-per-host 4: must be at least --learners 8"),
    ({"learners": 3}, "--actors 64: must be a multiple of --learners 3"),
    ({"reuse": 2, "depth": 2}, r"--reuse 2: needs --depth 3 or more \(now 2\)"),
    ({"depth": 0}, "--depth 0"),
    ({"step_time": 0.0}, "--step-time 0 us: must be at least 1 us"),
    ({"step_time": "4"}, "--step-time 4: the unit is missing"),
    ({"update_time": math.inf}, "--update-time"),
    ({"jitter": -1.0}, "--jitter"),
    ({"bandwidth": 0.0}, "--bandwidth"),
    ({"bandwidth": "10b/s"}, "--batches 200: at least .* too long to simulate"),
    ({"batches": 3}, "--batches 3"),
    ({"crash_rate": -1.0}, "--crash-rate"),
    ({"members": 4}, "unknown option --members"),
    ({"seed": -1}, "--seed"),
    ({"plot": "curves.pdf"}, "--plot curves.pdf: must end in .png"),
]


@pytest.mark.parametrize(("given", "told"), BAD, ids=str)
def test_bad_values(given: dict[str, Any], told: str) -> None:
    with pytest.raises(UserError, match=told):
        simulate("impala", **given)


def command(monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    monkeypatch.setattr(sys, "argv", ["gossamer", "simulate", *words])
    monkeypatch.setattr(sys, "path", list(sys.path))
    return cli.main()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("impala", "--graph", "ring"), "unknown option --graph; see gossamer simulate impala --help"),
        (("pala", "--actors", "4"), "unknown option --actors"),
        (("impala", "--actors", "many"), "--actors 'many': must be of type int"),
        (("impala", "--latency", "3"), "--latency 3: the unit is missing"),
        (("impla",), "simulate impla: must use a network: a2c, pala, impala, appo, gorila, sarsa; near: impala"),
        (("--actors", "4", "impala"), "simulate: the first word must be an architecture: a2c, pala, impala, appo,"),
        ((), "simulate: the first word must be an architecture"),
    ],
)
def test_the_command_says_what_cannot_be_used_in_one_line(
    words: tuple[str, ...], told: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    assert command(monkeypatch, *words) == 2
    out, err = capfd.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert told in err


def test_the_command_prints_figures(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    words = ["appo", "--actors=4", "--actors-per-host=2", "--batch-rollouts=3", "--batches=24", "--crash-rate=1/h"]
    assert command(monkeypatch, *words, "--json") == 0
    found = json.loads(capfd.readouterr().out)
    assert found.keys() == KEYS
    assert (found["scenario"]["bandwidth"], found["hosts"], found["depth"]) == ("1 Gb/s", 2, 4)
    assert command(monkeypatch, *words) == 0
    out, err = capfd.readouterr()
    actors, learners, network, faults, blank, *rows, bound = out.splitlines()
    assert actors == "actors:   4 on 2 hosts, 4 environments each, 4 ms a step"
    assert learners == "learners: 1, batches of 3 rollouts, 50 ms a pass, depth 4, reuse 1"
    assert network == "network:  1 Gb/s each way, 1 ms, 6.8 MB of parameters"
    assert faults == "faults:   1/h crashes of each host of actors, 10 s down"
    assert (blank, err) == ("", "")
    assert [row.split("  ")[0] for row in rows] == [figure.label for figure in FIGURES if figure.label]
    assert bound == f"bound by {found['bound_by']}"
    assert max(map(len, out.splitlines())) <= 80


def test_the_help_has_the_options_of_the_architecture(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def shown(*words: str) -> str:
        with pytest.raises(SystemExit):
            command(monkeypatch, *words, "--help")
        return capfd.readouterr().out

    actors, members = shown("impala"), shown("pala")
    assert "--batch-rollouts" in actors
    assert "--batch-rollouts" not in members
    assert "--graph" in members
    assert "--graph" not in actors


def test_the_page_documents_every_key() -> None:
    page = (Path(gossamer.__file__).parent.parent / "docs" / "architectures" / "impala.md").read_text()
    rows = [line.split("|")[1] for line in page.partition("Its keys:")[2].splitlines() if line.startswith("| `")]
    assert {key for row in rows for key in re.findall(r"`(\w+)`", row)} == KEYS


@pytest.mark.parametrize(
    ("actors", "learners", "most", "here", "hosts"),
    [
        (64, 1, 8, 8, 8),
        (100, 1, 8, 5, 20),
        (7, 1, 8, 7, 1),
        (11, 1, 8, 1, 11),
        (24, 2, 8, 8, 3),
        (20, 2, 8, 4, 5),
        (9, 3, 0, 0, 0),
    ],
)
def test_hosts_are_equal_and_have_as_many_actors_as_divide_them(
    actors: int, learners: int, most: int, here: int, hosts: int
) -> None:
    """(20, 2): each learner has 10 actors, of which 2 on each host are the most that divide them; 4 would be 8."""
    s = ActorScenario(actors=actors, learners=learners, actors_per_host=most)
    assert (s.here, s.hosts) == (here, hosts)
