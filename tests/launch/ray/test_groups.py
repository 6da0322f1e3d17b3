"""Learners on Ray that average their gradients: a host that is killed, and learning with the default settings."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from some_parts import differences
from some_runs import checkpoint, learned

import gossamer

pytestmark = [pytest.mark.ray, pytest.mark.long]

DYING = """
import os, signal
from contextlib import suppress
from pathlib import Path
from gossamer.algorithms import A2C
from gossamer.system.options import options

calls = 0  # of this process

@options
class Dying(A2C):
    def losses(self, *given, **more):
        # The first process whose calls reach the number in this file ends as by kill -9
        global calls
        calls += 1
        file = Path(__file__).with_name("learn")
        with suppress(FileNotFoundError):
            if calls == int(file.read_text()):
                file.unlink()
                os.kill(os.getpid(), signal.SIGKILL)
        return super().losses(*given, **more)
"""


def test_a_killed_host_is_left_out_and_comes_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "dying.py").write_text(DYING)
    (tmp_path / "learn").write_text("40")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "dying", raising=False)
    run = gossamer.train(
        "a2c", env="catch", algorithm="dying:Dying", hosts=3, learners=1, num_envs=4, rollout_length=4, threads=1,
        steps=150_000, cluster="auto", run_dir=tmp_path / "run", log="none",
    )  # fmt: skip
    changes = [event for event in run.result["events"] if event["kind"] == "group_changed"]
    assert (run.result["ended"], run.result["steps"]) == ("all steps done", 150_000)
    assert [host for event in changes for host in event["left"]] == [host for e in changes for host in e["joined"]]
    assert changes
    assert all(event["waited"] < 15 for event in changes)
    first, *others = checkpoint(run.directory)["workers"].values()
    assert all(differences(first["learner"]["model"], other["learner"]["model"]) == [] for other in others)


def test_catch_is_learned_with_the_default_settings(tmp_path: Path) -> None:
    learned(tmp_path, "a2c", hosts=2, cluster="auto", steps=150_000)
