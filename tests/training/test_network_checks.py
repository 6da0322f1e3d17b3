"""What a run refuses of its network before it writes anything."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from some_runs import trained

import gossamer
from gossamer import commands
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


def test_hidden_sizes_are_typed_with_commas_and_kept_with_the_run(tmp_path: Path) -> None:
    words = [
        "train",
        "paac",
        "--env",
        "catch",
        "--network",
        "mlp",
        "--steps",
        "80",
        "--num-envs",
        "2",
        "--threads",
        "1",
    ]
    words += ["--run-dir", str(tmp_path / "run"), "--hidden-sizes", "24,12", "--activation", "relu"]
    assert commands.run(words[0], words[1:]) == 0
    kept = json.loads((tmp_path / "run" / "config.json").read_text())["network"]
    assert (kept["hidden_sizes"], kept["activation"]) == ([24, 12], "relu")
    again = gossamer.resume(tmp_path / "run", steps=160)
    weights = gossamer.load(again.directory).snapshot.weights
    assert [tuple(each.shape) for name, each in weights.items() if "torso" in name and each.dim() == 2] == [
        (24, 50),  # Catch's board has 10 x 5 cells
        (12, 24),
    ]
    assert trained(tmp_path / "list", hidden_sizes=[8], network="mlp").result["steps"] == 80


@pytest.mark.parametrize("given", [{"hidden_sizes": (64, 64)}, {"activation": "relu"}])
@pytest.mark.parametrize("network", ["linear", "autoencoder"])
def test_layers_of_a_network_that_has_none_to_choose_are_refused(
    given: dict[str, Any], network: str, tmp_path: Path
) -> None:
    (name, value) = next(iter(given.items()))
    shown = f"--{name.replace('_', '-')} {'64,64' if name == 'hidden_sizes' else value}"
    with pytest.raises(UserError, match=f"{shown}: not for --network {network}; use auto, nips, .*, mlp, resnet"):
        trained(tmp_path / "run", network=network, **given)


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
