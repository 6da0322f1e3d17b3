"""Simulated gossip: figures that make sense, the same ones for a seed, and one line for what cannot be used."""

from __future__ import annotations

import json
import math
import sys
from typing import Any

import pytest

from gossamer import cli
from gossamer.errors import UserError
from gossamer.tools.scenario import quantity
from gossamer.tools.simulate import simulate

KEYS = {
    "efficiency", "staleness_max", "staleness_mean", "distance", "waited", "exchanged", "members", "hosts", "graph",
    "iterations", "virtual_seconds", "crashes", "seconds",
}  # fmt: skip
SMALL: dict[str, Any] = {"members": 4, "learners": 2, "iterations": 8}


@pytest.mark.parametrize(
    ("text", "unit", "value"),
    [
        ("1Gb", "bytes", 1.25e8),
        ("1Gbps", "bytes", 1.25e8),
        ("8 kb/s", "bytes", 1e3),
        ("125MB", "bytes", 1.25e8),
        ("6.8MB", "bytes", 6.8e6),
        ("1000", "bytes", 1e3),
        ("2M", "bytes", 2e6),
        ("1.5e3kB", "bytes", 1.5e6),
        ("inf", "bytes", math.inf),
        ("40ms", "seconds", 0.04),
        ("0.04s", "seconds", 0.04),
        ("30us", "seconds", 3e-5),
        (" 2 s ", "seconds", 2.0),
        ("3", "seconds", 3.0),
        ("1e-3s", "seconds", 1e-3),
        ("0s", "seconds", 0.0),
    ],
)
def test_quantities(text: str, unit: str, value: float) -> None:
    assert quantity("--x", text, unit) == pytest.approx(value)


@pytest.mark.parametrize(
    ("text", "unit"),
    [
        ("1Gb", "seconds"),
        ("40ms", "bytes"),
        ("fast", "bytes"),
        ("", "seconds"),
        ("-1s", "seconds"),
        ("1.2.3s", "seconds"),
        (".", "bytes"),
        ("1Xb", "bytes"),
        ("nan", "seconds"),
        ("1 2s", "seconds"),
        ("40msec", "seconds"),
    ],
)
def test_what_is_no_quantity(text: str, unit: str) -> None:
    with pytest.raises(UserError, match="--x"):
        quantity("--x", text, unit)


@pytest.mark.parametrize(("members", "learners"), [(4, 2), (6, 3), (8, 8), (16, 4), (64, 8)])
def test_figures_of_4_to_64_members(members: int, learners: int) -> None:
    found = simulate(members=members, learners=learners, iterations=12, bandwidth=math.inf, latency=0.001, interval=1)
    assert found.keys() == KEYS
    assert (found["members"], found["hosts"], found["iterations"]) == (members, members // learners, 12)
    assert found["efficiency"] == 1.0
    assert found["waited"] == 0.0
    assert -3 <= found["staleness_mean"] <= 3
    assert found["staleness_max"] <= 16
    assert 0.4 < found["exchanged"] <= 1  # a ring: one neighbour
    assert 0 < found["distance"] < 0.5
    assert 12 * 0.03 * 0.8 < found["virtual_seconds"] < 12 * 0.03 * 1.5
    assert found["crashes"] == 0
    json.dumps(found)


def test_a_small_bandwidth_holds_up_who_waits() -> None:
    # 6.8 MB take 2.7 s at 20 Mb/s, a step 30 ms
    slow = {**SMALL, "bandwidth": 2.5e6, "iterations": 16}
    bound = simulate(**slow, staleness=1)
    assert bound["waited"] > 0.5
    assert bound["efficiency"] < 0.5
    assert bound["staleness_max"] <= 1
    never = simulate(**slow, staleness=math.inf)
    assert (never["waited"], never["efficiency"]) == (0.0, 1.0)
    assert never["exchanged"] < bound["exchanged"]


def test_latency_makes_messages_old() -> None:
    free = {"members": 4, "learners": 1, "iterations": 60, "bandwidth": math.inf, "staleness": math.inf}
    old, new = (simulate(**free, latency=seconds) for seconds in (0.3, 0.001))  # a step takes 0.03
    assert old["staleness_mean"] > new["staleness_mean"] + 5
    assert old["distance"] > new["distance"]


def test_an_interval_leaves_the_network_time() -> None:
    def exchanged(**given: Any) -> dict[str, Any]:
        return simulate(members=4, learners=2, graph="exponential", latency=0.001, **given)

    every, fourth = (exchanged(bandwidth=math.inf, interval=n) for n in (1, 4))
    assert 0.2 < fourth["exchanged"] / every["exchanged"] < 0.3
    every, fourth = (exchanged(interval=n) for n in (1, 4))  # 1 Gb/s is too little for every one
    assert fourth["exchanged"] > 0.25 * every["exchanged"]  # more of those that are sent arrive


@pytest.mark.parametrize("graph", ["ring", "exponential", "one-peer", "complete", "hierarchical", "random-pairs"])
def test_every_graph(graph: str) -> None:
    found = simulate(**SMALL, graph=graph, latency=0.001, bandwidth=math.inf, interval=1)
    assert found["graph"] == graph
    assert found["exchanged"] > (1.2 if graph in ("exponential", "complete") else 0.2)


def test_what_is_left_open_is_pala_s_own() -> None:
    def run(**given: Any) -> dict[str, Any]:
        found = simulate(**SMALL, **given)
        del found["seconds"]
        return found

    assert run(staleness=None, interval=None) == run(staleness=16.0, interval=4)
    assert run(staleness=math.inf, interval=2) != run(staleness=math.inf)  # an interval of any length


def test_crashes_happen_and_the_run_comes_to_its_end() -> None:
    found = simulate(members=8, learners=2, iterations=60, step_time=0.5, crash_rate=40.0, down=3.0, seed=1)
    assert found["crashes"] > 0
    assert found["virtual_seconds"] >= 60 * 0.5 * 0.9
    assert found["efficiency"] is not None


def test_lost_calls_are_made_again() -> None:
    found = simulate(**SMALL, loss=0.2, staleness=1)
    assert found["staleness_max"] <= 1
    assert found["waited"] > 0


def test_the_same_seed_gives_the_same_figures() -> None:
    def run(seed: int) -> dict[str, Any]:
        found = simulate(members=8, learners=2, iterations=30, step_time=0.5, crash_rate=60.0, loss=0.05, seed=seed)
        del found["seconds"]
        return found

    assert run(3) == run(3)
    assert run(3) != run(4)


BAD: list[tuple[dict[str, Any], str]] = [
    ({"architecture": "gala"}, "simulate gala"),
    ({"members": 1}, "--members 1"),
    ({"members": 0}, "--members 0"),
    ({"members": 9, "learners": 2}, "--learners 2"),
    ({"learners": 0}, "--learners 0"),
    ({"learners": -2}, "--learners -2"),
    ({"graph": "rnig"}, "near: ring"),
    ({"bandwidth": 0.0}, "--bandwidth"),
    ({"latency": -1.0}, "--latency"),
    ({"latency": math.inf}, "--latency"),
    ({"latency": math.nan}, "--latency"),
    ({"loss": -0.1}, "--loss"),
    ({"loss": 1.0}, "--loss"),
    ({"step_time": 0.0}, "--step-time"),
    ({"step_time": math.inf}, "--step-time"),
    ({"jitter": -1.0}, "--jitter"),
    ({"jitter": math.inf}, "--jitter"),
    ({"message_size": math.inf}, "--message-size"),
    ({"iterations": 3}, "--iterations 3"),
    ({"staleness": -1.0}, "--staleness"),
    ({"staleness": math.nan}, "--staleness"),
    ({"interval": 0}, "--interval 0: must be at least 1"),
    ({"interval": 5}, "--interval 5: must be at most 4, a quarter of --staleness 16"),
    ({"interval": 2, "staleness": 7.9}, "--interval 2: must be at most 1, a quarter of --staleness 7.9"),
    ({"step": 1}, "unknown option --step"),
    ({"crash_rate": -1.0}, "--crash-rate"),
    ({"crash_rate": math.inf}, "--crash-rate"),
    ({"down": -1.0}, "--down"),
    ({"seed": -1}, "--seed"),
]


@pytest.mark.parametrize(("given", "told"), BAD, ids=lambda value: str(value))
def test_bad_values(given: dict[str, Any], told: str) -> None:
    with pytest.raises(UserError, match=told):
        simulate(**given)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("pala", "--bandwidth", "fast"), "--bandwidth fast"),
        (("pala", "--latency", "1.2.3s"), "--latency 1.2.3s"),
        (("pala", "--latency", "1e400s"), "--latency inf: must be finite"),
        (("pala", "--down", "-1s"), "--down -1s"),
        (("pala", "--members", "1"), "--members 1"),
        (("pala", "--seed", "-1"), "--seed -1"),
        (("paac",), "simulate paac"),
    ],
)
def test_the_command_says_what_cannot_be_used_in_one_line(
    words: tuple[str, ...], told: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["gossamer", "simulate", *words])
    monkeypatch.setattr(sys, "path", list(sys.path))
    assert cli.main() == 2
    out, err = capfd.readouterr()
    assert out == ""
    assert told in err
    assert err.count("\n") == 1


def test_the_command_prints_figures(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    words = ["gossamer", "simulate", "pala", "--members", "4", "--learners", "2", "--iterations", "6"]
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "argv", [*words, "--json", "--staleness", "inf", "--bandwidth", "8Gb"])
    assert cli.main() == 0
    found = json.loads(capfd.readouterr().out)
    assert found.keys() == KEYS
    assert found["efficiency"] == 1.0
    monkeypatch.setattr(sys, "argv", words)
    assert cli.main() == 0
    assert {line.split()[0] for line in capfd.readouterr().out.splitlines()} == KEYS


def test_every_parcel_of_a_call_takes_its_time() -> None:
    # Eight members of a host send to the next one, 1 MB each over 1 MB/s: 8 s for what they have sent at one time
    found = simulate(members=16, learners=8, graph="exponential", bandwidth=1e6, message_size=1e6, step_time=1.0)
    assert found["staleness_max"] >= 8
    alone = simulate(members=4, learners=2, graph="ring", bandwidth=1e6, message_size=1e6, step_time=1.0)
    assert alone["staleness_max"] <= 6
