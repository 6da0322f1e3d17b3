"""What a run refuses of its network before it writes anything."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from some_runs import trained

import gossamer
from gossamer.system.errors import UserError


def test_parameters_of_another_network_are_refused(tmp_path: Path) -> None:
    first = trained(tmp_path / "first")
    with pytest.raises(UserError, match=r"--init-from .*first: its network differs in .*; use its network options"):
        trained(tmp_path / "second", init_from=str(first.directory), memory="gru")
    assert not (tmp_path / "second").exists()


@pytest.mark.parametrize(("before", "after"), [(0, 3), (3, 0), (3, 3)])
def test_parameters_are_taken_from_a_run_with_or_without_a_target_network(
    tmp_path: Path, before: int, after: int
) -> None:
    first = trained(tmp_path / "first", algorithm="appo", target_period=before)
    second = trained(tmp_path / "second", algorithm="appo", target_period=after, init_from=str(first.directory))
    assert second.result["steps"] == 80


def test_a_run_can_be_resumed_without_the_run_whose_parameters_it_began_with(tmp_path: Path) -> None:
    first = trained(tmp_path / "first")
    second = trained(tmp_path / "second", init_from=str(first.directory))
    shutil.rmtree(first.directory)
    assert gossamer.resume(second.directory, steps=160).result["steps"] == 160


def test_a_network_that_cannot_take_several_parts_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "narrow.py").write_text("from torch import nn\ndef make(shape):\n    return nn.Linear(shape[0], 8)\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(UserError, match=r"--network narrow:make: does not fit observations .*last_action \[3\]"):
        trained(tmp_path / "run", network="narrow:make", last_action_reward=True)


MASKED = """
import gymnasium, numpy as np
from torch import nn
class Masked(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)
    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.ones(2, np.float32), {"action_mask": np.ones(2, np.int8)}
    def step(self, action):
        return np.ones(2, np.float32), 1.0, True, False, {"action_mask": np.ones(2, np.int8)}
def make(shape):
    return nn.Linear(3, 8)
"""


def test_a_network_is_not_said_to_get_masks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "masked.py").write_text(MASKED)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(UserError, match=r"--network masked:make: does not fit observations \w* ?\[2\] \("):
        trained(tmp_path / "run", env="masked:Masked", network="masked:make", action_masks=True)
