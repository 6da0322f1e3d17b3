"""Simulated bundles and a parameter server: rates worked out by hand, staleness, one line for what cannot be."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import imageio.v2 as imageio
import pytest
from some_parts import a_task

import gossamer
from gossamer import architectures, cli
from gossamer.algorithms import DQN
from gossamer.launch.simulation import Faults, Simulation
from gossamer.system.errors import UserError
from gossamer.task import ShardRestored
from gossamer.tools.simulate import simulate
from gossamer.tools.simulate.server.figures import FIGURES
from gossamer.tools.simulate.server.gorila import ledger, network, program
from gossamer.tools.simulate.server.scenario import ServerScenario

KEYS = {figure.key for figure in FIGURES} | {"lag", "bound_by", "units", "warnings", "scenario"}
SMALL: dict[str, Any] = {"bundles": 8, "shards": 2, "iterations": 24}
FREE: dict[str, Any] = {"bandwidth": "inf", "latency": "0us", "apply_time": "0us", "jitter": 0.0}


def same(figures: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in figures.items() if key != "seconds"}


def test_equal_seeds_give_equal_figures() -> None:
    one, again, other = (simulate("gorila", **SMALL, crash_rate="60/h", seed=seed) for seed in (1, 1, 2))
    assert same(one) == same(again)
    assert same(one) != same(other)


def test_the_wiring_is_that_of_the_architecture() -> None:
    real = architectures.Gorila(bundles=8, shards=2, num_envs=8).program(a_task(algorithm=DQN()))
    mine = program(ServerScenario(**SMALL))
    assert mine.edges() == real.edges()
    assert [(node.name, node.host) for node in mine.services] == [(node.name, node.host) for node in real.services]
    assert [(copy.name, copy.node.host) for copy in mine.crew] == [(copy.name, copy.node.host) for copy in real.crew]


def test_one_bundle_is_never_stale() -> None:
    # It acts for 10 ms and computes for 20 ms: 33.3 gradients of 4 steps each second.
    found = simulate("gorila", **{**SMALL, **FREE, "bundles": 1, "max_delay": 0})
    assert found["updates"] == pytest.approx(1 / 0.03, rel=0.001)
    assert found["steps"] == pytest.approx(4 / 0.03, rel=0.001)
    assert (found["lag"], found["dropped"], found["bound_by"]) == (
        {"0": 48 - 12},
        0.0,
        "bundles",
    )  # without the warm-up


@pytest.mark.parametrize("shards", [1, 2, 8])
def test_two_pulls_and_a_push_of_all_shards_take_three_round_trips(shards: int) -> None:
    # Nothing but latency: 10 + 20 ms, and 3 calls of 2 ms to and fro. Of the two pulls, the one before acting finds
    # what the bundle itself has pushed, the one before the gradient nothing new.
    given = {"bundles": 1, "shards": shards, "latency": "1ms", "message_size": "1MB"}
    found = simulate("gorila", **{**SMALL, **FREE, **given})
    assert found["updates"] == pytest.approx(1 / 0.036, rel=0.001)
    assert found["pulling"] == pytest.approx(4 / 36, abs=0.001)
    assert found["pushing"] == pytest.approx(2 / 36, abs=0.001)
    assert found["sent"] == found["received"] == pytest.approx(1e6 / 0.036, rel=0.001)


def test_a_shard_applies_one_gradient_at_a_time() -> None:
    # A gradient takes 20 ms on one shard. A pull waits behind the pushes of all others, so the bundles act and compute
    # at the same time, for 30 ms, and then push in turn: 16 updates in 16 x 20 + 30 ms.
    found = simulate("gorila", **{**FREE, **SMALL, "bundles": 16, "shards": 1, "apply_time": "20ms"})
    assert found["updates"] == pytest.approx(16 / 0.350, rel=0.01)
    assert found["applying"] == pytest.approx(320 / 350, abs=0.01)
    assert found["bound_by"] == "shards"
    # On each of two shards 10 ms: at most 100 updates/s
    more = simulate("gorila", **{**FREE, **SMALL, "bundles": 64, "apply_time": "20ms"})
    assert 95 < more["updates"] < 100


def test_on_a_slow_network_the_rate_is_that_of_the_shards_links() -> None:
    # 1 MB in two parts, at 10 MB/s: each shard sends 10 / 0.5 = 20 parts each second. An update needs two.
    found = simulate("gorila", **SMALL, bandwidth="10MB/s", message_size="1MB")
    assert found["updates"] == pytest.approx(10, rel=0.05)
    assert found["uplink_busy"] == pytest.approx(1, abs=0.02)
    assert found["bound_by"] == "uplinks of shards"
    more = simulate("gorila", **{**SMALL, "shards": 4}, bandwidth="10MB/s", message_size="1MB")
    assert more["updates"] == pytest.approx(2 * found["updates"], rel=0.1)


def test_a_stricter_limit_drops_more_gradients() -> None:
    figures = [simulate("gorila", **SMALL, bandwidth="10Gb/s", max_delay=limit) for limit in (0, 2, 6, 100)]
    dropped = [each["dropped"] for each in figures]
    assert dropped == sorted(dropped, reverse=True)
    assert dropped[0] > 0.5
    assert dropped[-1] == 0
    assert [bool(each["warnings"]) for each in figures] == [each > 0.1 for each in dropped]


def test_between_two_gradients_of_a_bundle_come_those_of_all_others() -> None:
    # It computes for nearly all of its time, from the pull to the push
    found = simulate("gorila", **{**SMALL, **FREE, "jitter": 0.1, "act_time": "1us", "update_time": "1s"})
    assert found["lag_mean"] == pytest.approx(7, abs=0.2)


def test_updates_that_crashes_of_shards_undo_are_counted() -> None:
    s = ServerScenario(**{**SMALL, "iterations": 400, "bandwidth": 1.25e9, "snapshot_time": 2.0})
    simulation = Simulation(0, network(s), Faults(crashes=[(4.5, "shard1", 0.5), (6.0, "bundle3", 0.5)]))
    kept = ledger(s, simulation)
    simulation(program(s), kept)
    (restored,) = [each for each in kept.told if isinstance(each, ShardRestored)]
    rate = restored.version / 4.0  # it was read at 4 s, half a second before the crash
    assert restored.lost == pytest.approx(0.5 * rate, rel=0.2)
    assert kept.totals.counts["applied"] > 0


def test_crashes_lower_the_rate() -> None:
    found, calm = (simulate("gorila", **{**SMALL, "iterations": 80}, crash_rate=rate) for rate in ("200/h", "0/h"))
    assert found["crashes"] > 0
    assert found["updates"] < calm["updates"]


def test_the_plot(tmp_path: Path) -> None:
    simulate("gorila", plot=tmp_path / "plot.png", **SMALL)
    assert imageio.imread(tmp_path / "plot.png").std() > 10
    assert [path.name for path in tmp_path.iterdir()] == ["plot.png"]


BAD: list[tuple[dict[str, Any], str]] = [
    ({"bundles": 0}, "--bundles 0: must be at least 1"),
    ({"shards": 0}, "--shards 0: must be at least 1"),
    ({"max_delay": -1}, "--max-delay -1"),
    ({"act_time": "0ms"}, "--act-time 0 us: must be at least 1 us"),
    ({"update_time": "20"}, "--update-time 20: the unit is missing"),
    ({"apply_time": -1.0}, "--apply-time"),
    ({"message_size": "inf"}, "--message-size"),
    ({"bandwidth": 0.0}, "--bandwidth"),
    ({"crash_rate": "2"}, "--crash-rate 2: the unit is missing"),
    ({"down": "inf"}, "--down inf: must be finite"),
    ({"iterations": 3}, "--iterations 3"),
    (
        {"bundles": 100, "shards": 31, "iterations": 10_000},
        "--iterations 10000: 93,000,000 calls to shards, too many to simulate",
    ),
    ({"members": 4}, "unknown option --members"),
]


@pytest.mark.parametrize(("given", "told"), BAD, ids=str)
def test_bad_values(given: dict[str, Any], told: str) -> None:
    with pytest.raises(UserError, match=told):
        simulate("gorila", **given)


def command(monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    monkeypatch.setattr(sys, "argv", ["gossamer", "simulate", *words])
    monkeypatch.setattr(sys, "path", list(sys.path))
    return cli.main()


def test_the_command_prints_figures(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    words = ["gorila", "--bundles=2", "--shards=2", "--iterations=12", "--crash-rate=1/h"]
    assert command(monkeypatch, *words, "--json") == 0
    found = json.loads(capfd.readouterr().out)
    assert found.keys() == KEYS
    assert command(monkeypatch, *words) == 0
    out, err = capfd.readouterr()
    bundles, shards, net, faults, blank, *rows, bound = out.splitlines()
    assert bundles == "bundles: 2, 10 ms to act 4 steps, 20 ms a gradient"
    assert shards == "shards:  2, 5 ms to apply a gradient on one, at most 100 updates old"
    assert net == "network: 1 Gb/s each way, 100 us, 6.8 MB of parameters"
    assert faults == "faults:  1/h crashes of each host, 10 s down"
    assert (blank, err) == ("", "")
    assert [row.split("  ")[0] for row in rows] == [figure.label for figure in FIGURES if figure.label]
    assert bound == f"bound by {found['bound_by']}"
    assert max(map(len, out.splitlines())) <= 80


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--actors", "4"), "unknown option --actors; see gossamer simulate gorila --help"),
        (("--bundles", "many"), "--bundles 'many': must be of type int"),
        (("--latency", "3"), "--latency 3: the unit is missing"),
    ],
)
def test_the_command_says_what_cannot_be_used_in_one_line(
    words: tuple[str, ...], told: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    assert command(monkeypatch, "gorila", *words) == 2
    out, err = capfd.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert told in err


def test_the_page_documents_every_key() -> None:
    page = (Path(gossamer.__file__).parent.parent / "docs" / "architectures" / "gorila.md").read_text()
    rows = [line.split("|")[1] for line in page.partition("Its keys:")[2].splitlines() if line.startswith("| `")]
    assert {key for row in rows for key in re.findall(r"`(\w+)`", row)} == KEYS
