"""Learners on Ray that average their gradients or share their parameters: hosts that are killed, and learning with the
default settings."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from some_parts import differences
from some_runs import checkpoint, learned

import gossamer
from gossamer.architectures import a3c

pytestmark = [pytest.mark.ray, pytest.mark.long]

DYING = """
import os, signal
from contextlib import suppress
from pathlib import Path
from gossamer.algorithms import A2C, VTrace
from gossamer.exchange import SharedMemory
from gossamer.system.options import options

calls = 0  # of this process
first = False  # whether this is the process with the shared parameters

class FirstMemory(SharedMemory):
    def __init__(self, *given):
        global first
        first = True
        super().__init__(*given)

class Mortal:
    def losses(self, *given, **more):
        # The first process whose calls reach the number in this file ends as by kill -9
        global calls
        calls += 1
        file = Path(__file__).with_name("first" if first else "learn")
        with suppress(FileNotFoundError):
            if calls == int(file.read_text()):
                file.unlink()
                os.kill(os.getpid(), signal.SIGKILL)
        return super().losses(*given, **more)

@options
class Dying(Mortal, A2C):
    pass

@options
class DyingVTrace(Mortal, VTrace):
    pass
"""
GROUPS: dict[str, tuple[str, dict[str, Any]]] = {
    "a2c": ("a2c", {"algorithm": "dying:Dying", "hosts": 3, "learners": 1}),
    "impala": ("impala", {"algorithm": "dying:DyingVTrace", "learner_hosts": 2, "hosts": 2, "actors": 1}),
}


def module(folder: Path, monkeypatch: pytest.MonkeyPatch, **deaths: int) -> None:
    """Write the module, and after how many calls which process dies."""
    (folder / "dying.py").write_text(DYING)
    for file, calls in deaths.items():
        (folder / file).write_text(str(calls))
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.delitem(sys.modules, "dying", raising=False)


@pytest.mark.parametrize("name", GROUPS)
def test_a_killed_host_is_left_out_and_comes_back(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module(tmp_path, monkeypatch, learn=40)
    architecture, given = GROUPS[name]
    run = gossamer.train(
        architecture, env="catch", num_envs=4, rollout_length=4, threads=1, steps=150_000, cluster="auto",
        run_dir=tmp_path / "run", log="none", **given,
    )  # fmt: skip
    changes = [event for event in run.result["events"] if event["kind"] == "group_changed"]
    assert (run.result["ended"], run.result["steps"]) == ("all steps done", 150_000)
    assert [host for event in changes for host in event["left"]] == [host for e in changes for host in e["joined"]]
    assert changes
    assert all(event["waited"] < 15 for event in changes)
    first, *others = checkpoint(run.directory)["workers"].values()
    assert all(differences(first["learner"]["model"], other["learner"]["model"]) == [] for other in others)


@pytest.mark.parametrize("who", ["first", "learn"])
def test_a_process_of_shared_parameters_is_killed(who: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first process has made the memory, which lasts as long as the other one maps it: the one that comes back goes
    on with what the other has learned meanwhile."""
    module(tmp_path, monkeypatch, **{who: 200})
    monkeypatch.setattr(a3c, "SharedMemory", import_module("dying").FirstMemory)
    run = gossamer.train(
        "a3c", env="catch", algorithm="dying:Dying", hosts=2, learners=1, num_envs=4, rollout_length=4, threads=1,
        steps=20_000, checkpoint_every=0.5, cluster="auto", run_dir=tmp_path / "run", log="none",
    )  # fmt: skip
    assert not (tmp_path / who).exists()
    assert (run.result["ended"], run.result["steps"]) == ("all steps done", 20_000)
    died = [event["worker"] for event in run.result["events"] if event["kind"] == "worker_died"]
    assert died == ["act_and_learn[0]" if who == "first" else "act_and_learn[1]"]
    # All updates of all lives are in one memory. Those that had not been reported are not counted as applied
    memory, applied = checkpoint(run.directory)["services"]["FirstMemory"], run.result["gradients"]["applied"]
    assert applied <= memory["updates"].sum() <= applied + 100
    assert memory["updates"].min() > 200


def test_catch_is_learned_with_the_default_settings(tmp_path: Path) -> None:
    learned(tmp_path, "a2c", hosts=2, cluster="auto", steps=150_000)
