"""Replay memories and parameter servers on Ray: hosts that are killed in the middle of training."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from some_runs import learned

import gossamer
from gossamer.architectures import parameter_server
from gossamer.architectures.replaying import share_replay

pytestmark = pytest.mark.ray

DYING = """
import os, signal
from collections import Counter
from contextlib import suppress
from pathlib import Path
from gossamer.algorithms import DQN
from gossamer.exchange import ParameterShard
from gossamer.experience import ReplayShard
from gossamer.system.options import options

calls = Counter()  # of this process

def die(what):
    # The first process whose calls reach the number in this file ends as by kill -9
    calls[what] += 1
    file = Path(__file__).with_name(what)
    with suppress(FileNotFoundError):
        if calls[what] == int(file.read_text()):
            file.unlink()
            os.kill(os.getpid(), signal.SIGKILL)

@options
class Dying(DQN):
    def exploring(self, *given, **more):
        die("act")
        return super().exploring(*given, **more)

    def losses(self, *given, **more):
        die("learn")
        return super().losses(*given, **more)

class DyingReplay(ReplayShard):
    def insert(self, *given):
        die("store")
        return super().insert(*given)

class DyingServer(ParameterShard):
    def _update(self, *given):
        die("update")
        super()._update(*given)
"""
APEX: dict[str, Any] = {"hosts": 1, "actors": 1, "num_envs": 4}
BUNDLES: dict[str, Any] = {"bundles": 2, "num_envs": 8, "snapshot_seconds": 0.5}
# For each host that dies: architecture, its options, how often it has done what before it dies, and what the log says
CASES: dict[str, tuple[str, dict[str, Any], dict[str, int], list[str]]] = {
    "ape-x: learner, then actor": ("apex", APEX, {"learn": 80, "act": 180}, ["from an actor's host", "act died"]),
    "ape-x: replay shard": ("apex", {**APEX, "actors": 2, "replay_shards": 2}, {"store": 60}, []),
    "gorila: bundle": ("gorila", BUNDLES, {"learn": 80}, ["are acted again", "memory is empty"]),
    "gorila: actor": ("gorila", {"actors": 2, "num_envs": 4}, {"act": 60}, ["are acted again"]),
    "gorila: server shard": (
        "gorila",
        {**BUNDLES, "bundles": 1, "shards": 2},
        {"update": 120},
        ["the shard continues from update"],
    ),
}


@pytest.mark.parametrize(
    "case",
    [
        "ape-x: learner, then actor",
        pytest.param("ape-x: replay shard", marks=pytest.mark.long),
        pytest.param("gorila: bundle", marks=pytest.mark.long),
        pytest.param("gorila: actor", marks=pytest.mark.long),
        "gorila: server shard",
    ],
)
def test_a_run_goes_on_after_a_host_is_killed(case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    architecture, given, deaths, told = CASES[case]
    (tmp_path / "dying.py").write_text(DYING)
    for what, calls in deaths.items():
        (tmp_path / what).write_text(str(calls))
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "dying", raising=False)
    dying = import_module("dying")
    monkeypatch.setattr(sys.modules[share_replay.__module__], "ReplayShard", dying.DyingReplay)
    monkeypatch.setattr(parameter_server, "ParameterShard", dying.DyingServer)
    run = gossamer.train(
        architecture, env="catch", algorithm="dying:Dying", rollout_length=4, threads=1, steps=4_000, batch_size=32,
        samples_per_insert=2.0, learning_starts=200, cluster="auto", run_dir=tmp_path / "run", log="none", **given,
    )  # fmt: skip
    log = (run.directory / "run.log").read_text()
    assert not any((tmp_path / what).exists() for what in deaths)
    assert (run.result["ended"], run.result["steps"]) == ("all steps done", 4_000)
    assert run.result["replay"]["stored"] == 4_000
    own_memory = architecture == "gorila" and "learn" in deaths  # a bundle's, which dies with it
    assert (run.result["replay"]["lost"] > 0) == ("store" in deaths or own_memory)
    assert [text for text in told if text not in log] == []


@pytest.mark.parametrize(
    ("architecture", "given"),
    [("gorila", {"actors": 2}), ("r2d2", {"hosts": 2, "actors": 1})],
    ids=str,
)
def test_learners_learn_from_what_actors_on_other_hosts_have_stored(
    architecture: str, given: dict[str, Any], tmp_path: Path
) -> None:
    run = gossamer.train(
        architecture, env="catch", num_envs=4, rollout_length=4, threads=1, steps=800, batch_size=16,
        learning_starts=200, cluster="auto", run_dir=tmp_path / "run", log="none", **given,
    )  # fmt: skip
    found = run.result
    assert (found["ended"], found["steps"]) == ("all steps done", 800)
    assert (found["replay"]["stored"], found["replay"]["lost"]) == (800, 0)
    assert found["replay"]["drawn"] >= 800
    assert found["learned"] + found["dropped"] == 800
    assert found["learned"] >= 400


@pytest.mark.long
@pytest.mark.parametrize(("name", "given"), [("gorila", {}), ("apex", {}), ("apex", {"hosts": 1})], ids=str)
def test_catch_is_learned_with_the_default_settings(name: str, given: dict[str, Any], tmp_path: Path) -> None:
    learned(tmp_path, name, steps=60_000, cluster="auto", greedy=True, **given)
