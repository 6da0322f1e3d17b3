"""Simulated gossip: figures that make sense, the same ones for a seed, and one line for what cannot be used."""

from __future__ import annotations

import json
import math
import re
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import gossamer
from gossamer import cli
from gossamer.commands.measuring import SIMULATE_BRIEF
from gossamer.launch.simulation import Faults, Simulation
from gossamer.system.errors import UserError
from gossamer.tools.simulate import simulate
from gossamer.tools.simulate.gossip.figures import FIGURES
from gossamer.tools.simulate.gossip.pala import PALA
from gossamer.tools.simulate.run import SIMULATED
from gossamer.tools.simulate.scenario import from_text

NUMBERS = {
    "efficiency", "staleness_max", "staleness_mean", "distance", "waited", "exchanged", "sent", "delivered", "averaged",
    "members", "hosts", "iterations", "virtual_seconds", "crashes", "seconds", "seconds_to_distance",
    "bytes_to_distance", "crashes_to_distance",
}  # fmt: skip
KEYS = NUMBERS | {"graph", "units", "warnings", "scenario"}
PAIR: dict[str, Any] = {"members": 2, "learners": 1, "iterations": 20}
SMALL: dict[str, Any] = {"members": 4, "learners": 2, "iterations": 8}


def test_groups_are_the_members() -> None:
    given: dict[str, Any] = {"iterations": 12, "interval": 1, "latency": 0.001, "bandwidth": math.inf}
    grouped, single = (simulate(members=n, learners=n // 4, group_size=n // 8, **given) for n in (16, 8))
    assert grouped["members"] == single["members"] == 8
    assert grouped["sent"] == single["sent"] == 8 * 12  # one message for an iteration of a group, on a ring
    assert grouped["efficiency"] < 1  # the learners of a group wait for each other
    apart = simulate(members=8, learners=4, group_size=2, to_distance=0.01, **{**given, "iterations": 4})
    assert apart["seconds_to_distance"] is None  # the equal learners of a group are no members that have met


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
    assert found["units"].keys() == NUMBERS
    json.dumps(found, allow_nan=False)


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
        return {**simulate(**SMALL, **given), "seconds": 0, "scenario": {}}

    assert run(staleness=None, interval=None) == run(staleness=16.0, interval=4)
    assert run(staleness=math.inf, interval=2) != run(staleness=math.inf)  # an interval of any length


def test_crashes_happen_and_the_run_comes_to_its_end() -> None:
    found = simulate(members=8, learners=2, iterations=60, step_time=0.5, crash_rate="40/h", down=3.0, seed=1)
    assert found["crashes"] > 0
    assert found["virtual_seconds"] >= 60 * 0.5 * 0.9
    assert found["efficiency"] is not None


def test_lost_calls_are_made_again() -> None:
    found = simulate(**SMALL, loss=0.2, staleness=1)
    assert found["staleness_max"] <= 1
    assert found["waited"] > 0


def test_the_same_seed_gives_the_same_figures() -> None:
    def run(seed: int) -> dict[str, Any]:
        found = simulate(members=8, learners=2, iterations=30, step_time=0.5, crash_rate="1/min", loss=0.05, seed=seed)
        del found["seconds"]
        return found

    assert run(3) == run(3)
    assert run(3) != run(4)


BAD: list[tuple[dict[str, Any], str]] = [
    ({"architecture": "gala"}, "simulate gala"),
    ({"members": 1}, "--members 1"),
    ({"members": 0}, "--members 0"),
    ({"members": 9, "learners": 2}, "--learners 2"),
    ({"members": 8, "learners": 4, "group_size": 0}, "--group-size 0: must be at least 1"),
    ({"members": 8, "learners": 4, "group_size": 3}, "--group-size 3: must divide the 4 learners of each host"),
    ({"members": 4, "learners": 4, "group_size": 4}, "--group-size 4: with --members 4 there is only one group"),
    ({"learners": 0}, "--learners 0"),
    ({"learners": -2}, "--learners -2"),
    ({"graph": "rnig"}, "near: ring"),
    ({"bandwidth": 0.0}, "--bandwidth"),
    ({"latency": -1.0}, "--latency"),
    ({"latency": "40"}, "--latency 40: the unit is missing; write 40ms or 40s"),
    ({"plot": "curves.pdf"}, "--plot curves.pdf: must end in .png"),
    ({"plot": "nowhere/curves.png"}, "--plot nowhere/curves.png: there is no directory nowhere"),
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
        (("pala", "--latency", "40"), "--latency 40: the unit is missing; write 40ms or 40s"),
        (("pala", "--bandwidth", "10"), "--bandwidth 10: the unit is missing; write 10Mb/s (bits) or 10MB/s (bytes)"),
        (("pala", "--crash-rate", "3"), "--crash-rate 3: the unit is missing; write 3/h or 3/min"),
        (("pala", "--step-time", "0.1us"), "--step-time 0.1 us: must be at least 1 us"),
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
    words = ["gossamer", "simulate", "pala", "--members=4", "--learners=2", "--iterations=12", "--latency=1ms"]
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "argv", [*words, "--json", "--staleness", "inf", "--bandwidth", "8Gb"])
    assert cli.main() == 0
    found = json.loads(capfd.readouterr().out)
    assert found.keys() == KEYS
    assert found["efficiency"] == 1.0
    assert (found["scenario"]["bandwidth"], found["scenario"]["staleness"]) == ("8 Gb/s", "inf")
    monkeypatch.setattr(sys, "argv", words)
    assert cli.main() == 0
    out, err = capfd.readouterr()
    members, network, blank, *rows = out.splitlines()
    assert members == "members: 4 on 2 hosts, graph ring, 12 iterations of 30 ms"
    assert network == "network: 1 Gb/s each way, 1 ms between hosts, 6.8 MB a message"
    assert (blank, err) == ("", "")
    assert [row.split("  ")[0] for row in rows] == [figure.label for figure in FIGURES if figure.label]
    assert all(re.fullmatch(r"[a-z, ]+ +[\d,.]+ (%|[a-z]+),? .*", row) for row in rows), rows
    assert len({len(re.match(r"[a-z, ]+ +[\d,.]+ ", row)[0]) for row in rows}) == 1  # type: ignore[index]  # aligned
    assert max(map(len, out.splitlines())) <= 80


@pytest.mark.parametrize(
    ("given", "told"),
    [
        # 12 iterations of 30 ms; 40 s, or 6.8 MB at 10 bytes a second and 40 ms (188.9 h) for one message
        (
            {"latency": 40.0},
            r"0 messages delivered between hosts in .* of virtual time; one message takes at least 40.05 s",
        ),
        ({"bandwidth": 10.0}, r"0 messages delivered between hosts in .*; one message takes at least 188.9 h"),
        ({"learners": 4}, r"one host: no message crosses the network; --learners must be below --members 4"),
        ({"learners": 1, "latency": 0.05}, None),
    ],
)
def test_a_run_without_messages_between_hosts_says_so(
    given: dict[str, Any], told: str | None, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    found = simulate(**{**SMALL, "iterations": 12, **given})
    assert (found["delivered"] > 0) == (told is None)
    assert [bool(re.fullmatch(str(told), warning)) for warning in found["warnings"]] == [True] * (told is not None)


def test_the_command_warns_on_stderr(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    words = ["--members", "2", "--learners", "1", "--iterations", "4", "--latency", "40s", "--json"]
    monkeypatch.setattr(sys, "argv", ["gossamer", "simulate", "pala", *words])
    monkeypatch.setattr(sys, "path", list(sys.path))
    assert cli.main() == 0
    out, err = capfd.readouterr()
    (warning,) = json.loads(out)["warnings"]
    assert err == f"warning: {warning}\n"


def test_crashes_are_as_frequent_as_the_option_says() -> None:
    # A host that is up crashes at rate r. For N crashes while hosts were up for U seconds in all, N - r U has mean 0
    # and variance E[r U], so |N - r U| <= 4 sqrt(r U) but for 1 in 16,000 sets of seeds. With down=0 hosts are always
    # up: U = 2 hosts x the run's time. At 1/min about 55 crashes are expected, 26 to 84 pass: another unit is far off.
    crashes = expected = 0.0
    for seed in range(8):
        found = simulate(**PAIR, step_time="10s", interval=1, crash_rate="1/min", down="0s", seed=seed)
        crashes += found["crashes"]
        expected += 1 / 60 * 2 * found["virtual_seconds"]
    assert 45 < expected < 80
    assert abs(crashes - expected) <= 4 * math.sqrt(expected)


def test_the_short_help_has_every_architecture_that_can_be_simulated() -> None:
    listed = [line for line in SIMULATE_BRIEF.splitlines() if line.startswith("  ")]
    names = {name.strip(",") for line in listed for name in line.split("   ")[0].split()}
    assert names == set(SIMULATED) == {"pala", "sarsa", "impala", "appo", "gorila", "a2c"}


def test_simulate_is_exported() -> None:
    assert gossamer.simulate is simulate
    assert "simulate" in gossamer.__all__


def test_every_parcel_of_a_call_takes_its_time() -> None:
    # Eight members of a host send to the next one, 1 MB each over 1 MB/s: 8 s for what they have sent at one time
    found = simulate(members=16, learners=8, graph="exponential", bandwidth=1e6, message_size=1e6, step_time=1.0)
    assert found["staleness_max"] >= 8
    alone = simulate(members=4, learners=2, graph="ring", bandwidth=1e6, message_size=1e6, step_time=1.0)
    assert alone["staleness_max"] <= 6


def test_a_share_of_the_parameters_takes_a_share_of_the_time() -> None:
    # In lock-step each of 20 iterations takes 1 s to compute, and then 1 MB over 1 MB/s, or of a quarter of the
    # parameters, each with its index, half of that
    given = {**PAIR, "interval": 1, "step_time": 1.0, "jitter": 0.0, "latency": 0.0, "bandwidth": 1e6}
    found = simulate("sarsa", **given, message_size=1e6, share=0.25)
    assert found["virtual_seconds"] == pytest.approx(20 * 1.5, rel=0.01)
    assert found["delivered"] == found["averaged"] == 40
    whole, drawn = (simulate("pala", **given, message_size=1e6, share=share, staleness=16) for share in (1.0, 0.25))
    assert drawn["staleness_mean"] < whole["staleness_mean"]
    assert drawn["distance"] > whole["distance"]


@pytest.mark.parametrize("given", [{"share": 1.0}, {"share": 0.25, "select": "rotation"}], ids=str)
def test_sarsa_is_always_in_lock_step(given: dict[str, Any]) -> None:
    # 20 iterations of 1 s, and 4 exchanges of these bytes over 1 MB/s; the parameters sent need no index
    whole = {**PAIR, "interval": 5, "step_time": 1.0, "jitter": 0.0, "latency": 0.0, "bandwidth": 1e6}
    found = simulate("sarsa", **whole, message_size=1e6, **given)
    assert found["virtual_seconds"] == pytest.approx(20 + 4 * given["share"], rel=0.01)
    assert found["staleness_max"] == 0


def test_what_sarsa_in_lock_step_refuses() -> None:
    with pytest.raises(UserError, match="--graph ring: sarsa sends to all others"):
        simulate("sarsa", **PAIR, graph="ring")
    with pytest.raises(UserError, match="--staleness-decay 1: has no effect in lock-step"):
        simulate("sarsa", **PAIR, share=1.0, staleness_decay=1.0)
    with pytest.raises(UserError, match="--staleness 2: has no effect in lock-step"):
        simulate("sarsa", **PAIR, staleness=2.0)


def test_time_and_bytes_to_a_distance_of_members_that_begin_apart() -> None:
    def found(**given: Any) -> dict[str, Any]:
        given = {"graph": "complete", "latency": 1e-3, "bandwidth": math.inf, "jitter": 0.0, **given}
        return simulate(members=4, learners=1, iterations=60, interval=1, to_distance=0.2, message_size=4e6, **given)

    whole = found()
    # Averages of all are near each other after about two steps of 30 ms, and three messages to others for each
    assert 0.03 <= whole["seconds_to_distance"] <= 0.1
    assert 3 * 4e6 <= whole["bytes_to_distance"] <= 9 * 4e6
    sparse = found(share=1 / 16, select="rotation", message_format="int8", error_feedback=True)
    assert sparse["seconds_to_distance"] > 2 * whole["seconds_to_distance"]
    assert sparse["bytes_to_distance"] < whole["bytes_to_distance"]
    steps = round(sparse["seconds_to_distance"] / 0.03)  # at each, a message of a sixteenth to each of three others
    assert sparse["bytes_to_distance"] == pytest.approx(steps * 3 * 1e6 * (1 + 4 / 256) / 16, rel=0.1)
    assert found(graph="ring", latency=10.0)["seconds_to_distance"] is None  # no message arrives


def test_crashes_until_a_distance_is_reached() -> None:
    given: Any = {"members": 4, "learners": 2, "iterations": 200, "graph": "complete", "to_distance": 0.2}
    few, many = (simulate(**given, crash_rate=rate / 3600) for rate in (60, 1200))
    assert few["crashes_to_distance"] == 0
    assert 0 < many["crashes_to_distance"] <= many["crashes"]


def test_a_host_that_fails_again_after_its_members_have_ended_holds_up_nobody() -> None:
    """Host 1 has been restarted, and ends while host 0 is away: its couriers try to tell host 0, and its clock has
    ended. Then it fails."""
    scenario = from_text(PALA.scenario, {"members": 4, "learners": 2, "iterations": 100})
    faults = Faults(crashes=[(1.0, "host1", 1.0), (2.9, "host0", 20.0), (13.0, "host1", 1.0)])
    simulation = Simulation(scenario.seed, PALA.network(scenario), faults)
    ledger: Any = PALA.ledger(scenario, simulation)
    ledger.stopping = lambda: False
    simulation(PALA.program(scenario), ledger)
    assert all(seconds < 60 for seconds in simulation.clocks.values())


def test_the_caller_keeps_its_threads() -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        simulate(**PAIR)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_a_rounded_message_takes_the_time_of_its_bytes() -> None:
    # In lock-step 1 MB over 1 MB/s takes 1 s; as int8, with a scale of 4 bytes for 256, (1 + 4 / 256) / 4 of it
    given = {**PAIR, "step_time": 1.0, "jitter": 0.0, "latency": 0.0, "bandwidth": 1e6, "interval": 1, "staleness": 0}
    for feedback in (False, True):
        found = simulate(**given, message_size=1e6, message_format="int8", error_feedback=feedback)
        assert found["virtual_seconds"] == pytest.approx(20 * (1 + (1 + 4 / 256) / 4), rel=0.02)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"share": 0.0}, "--share 0.0: must be above 0"),
        ({"share": 0.5, "select": "most"}, "--select most: must be one of random, rotation, changed"),
        ({"share": 0.5, "select": "changed"}, "--select changed: needs --graph complete, not ring"),
        ({"message_format": "int4"}, "--message-format int4: must be one of fp32, bf16, int8"),
        ({"error_feedback": True}, "--error-feedback: has no effect with --message-format fp32"),
        ({"to_distance": 1.0}, "--to-distance 1.0: must be below 1"),
    ],
    ids=str,
)
def test_what_sparse_messages_do_not_work_with(given: dict[str, Any], told: str) -> None:
    with pytest.raises(UserError, match=told):
        simulate(**PAIR, **given)


def test_the_page_on_clusters_documents_every_key() -> None:
    page = (Path(gossamer.__file__).parent.parent / "docs" / "cluster.md").read_text()
    rows = [line.split("|")[1] for line in page.partition("Its keys:")[2].splitlines() if line.startswith("| `")]
    assert {key for row in rows for key in re.findall(r"`(\w+)`", row)} == KEYS
