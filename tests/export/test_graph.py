"""ONNX graphs give what the network gives, for every kind of network."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from some_policies import KINDS, run_of, with_envs
from some_runs import trained

import gossamer
from gossamer import cli
from gossamer.algorithms import R2D2
from gossamer.data import Array
from gossamer.export import graph as module
from gossamer.export.graph import NEEDED, Graph, graph_of, to_onnx
from gossamer.export.snapshot import Snapshot, of_run
from gossamer.nn.networks import action_values
from gossamer.spaces.observations import MASK, Part
from gossamer.system.errors import UserError
from gossamer.system.installation import install

for needed in (*NEEDED, "onnxruntime"):
    pytest.importorskip(needed, reason="the extra [onnx] is not installed")

TORSOS: dict[str, dict[str, Any]] = {
    "nature": {"env": "pong", "network": "nature", "input": "unit"},
    "nips, centred": {"env": "pong", "network": "nips", "input": "background"},
    "resnet": {"env": "catch-pixels", "network": "resnet", "input": "unit"},
    "autoencoder": {"env": "catch-pixels", "network": "autoencoder", "input": "unit"},
    "normalised layers": {"env": "catch-pixels", "layer_norm": True, "input": "unit"},
    "appo's target": {"env": "catch", "algorithm": "appo", "target_period": 2},
}


def snapshot_of(kind: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Snapshot:
    with_envs(folder, monkeypatch)
    if TORSOS.get(kind, {}).get("env") == "pong":
        pytest.importorskip("ale_py", reason="the extra [atari] is not installed")
    made = run_of(kind, folder / "run") if kind in KINDS else trained(folder / "run", **TORSOS[kind]).directory
    return of_run(made, "last", "average")


def session(content: bytes) -> Any:
    import onnxruntime

    return onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])


def some_part(part: Part, count: int, rng: np.random.Generator) -> Array:
    most = 2 if part.name == MASK or not part.picture else 256
    shape = (count, *part.shape)
    return rng.integers(0, most, shape, np.uint8) if part.dtype == np.uint8 else rng.normal(size=shape).astype("f")


def some_inputs(graph: Graph, count: int, rng: np.random.Generator) -> dict[str, Array]:
    arrays = [some_part(part, count, rng) for part in graph.model.spec.parts]
    if graph.memory:
        state = graph.model.initial_state(count).values()
        arrays += [rng.random(count) < 0.5, *(rng.normal(size=tuple(each.shape)).astype("f") for each in state)]
    return dict(zip(graph.inputs, arrays, strict=True))


@pytest.mark.parametrize("kind", [*KINDS, *TORSOS])
def test_outputs_are_those_of_the_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    snapshot = snapshot_of(kind, tmp_path, monkeypatch)
    graph, run, rng = graph_of(snapshot), session(to_onnx(snapshot)), np.random.default_rng(0)
    model, network = snapshot.model("cpu", torch.float32), snapshot.description.options
    adapter = snapshot.description.interface.adapter
    assert [each.name for each in run.get_inputs()] == graph.inputs
    assert [each.name for each in run.get_outputs()] == graph.outputs
    for count in (1, 5):
        given = some_inputs(graph, count, rng)
        found = dict(zip(graph.outputs, run.run(None, given), strict=True))
        # the network as it acts, with packed observations and time
        parts = {part.name: given[name] for part, name in zip(model.spec.parts, graph.inputs, strict=False)}
        obs = model.spec.layout.pack(parts) if model.spec.layout else given["obs"]
        state = {name: torch.from_numpy(given[name]) for name in graph.memory}
        begins = torch.from_numpy(given.get("begins", np.zeros(count, bool)))
        with torch.no_grad():
            policy, value, after = model.unroll(torch.from_numpy(obs)[None], state, begins[None])
        _close(found["parameters"], policy.parameters.numpy())
        _close(found["value"], value.numpy(), relative=True)  # a value of 6.7 of `resnet` differs by 1.2e-5
        for name, each in after.items():
            _close(found[f"next_{name}"], each.numpy())
        for row, theirs in zip(found["action"], policy.mode().numpy(), strict=True):
            expected = np.asarray(adapter.action(theirs.item() if theirs.ndim == 0 else theirs))
            _close(row.reshape(expected.shape), expected)
    assert ("next_hidden" in graph.outputs) == (network.memory != "none")


def test_values_of_r2d2_are_returns(tmp_path: Path) -> None:
    run = trained(tmp_path / "run", env="catch", algorithm="r2d2", memory_units=8, batch_size=16).directory
    snapshot = of_run(run, "last", "average")
    graph, onnx, rng = graph_of(snapshot), session(to_onnx(snapshot)), np.random.default_rng(0)
    model, algorithm = snapshot.model("cpu", torch.float32), R2D2()
    given = some_inputs(graph, 5, rng)
    given["begins"][:] = False
    found = dict(zip(graph.outputs, onnx.run(None, given), strict=True))
    assert model.spec.layout is not None
    parts = {part.name: given[name] for part, name in zip(model.spec.parts, graph.inputs, strict=False)}
    obs = torch.from_numpy(model.spec.layout.pack(parts))
    state = {name: torch.from_numpy(given[name]) for name in graph.memory}
    with torch.no_grad():
        q, after = action_values(model, obs, state)
    _close(found["parameters"], q.numpy())
    _close(found["value"], algorithm.value(model, obs, state).numpy())
    for name, each in after.items():
        _close(found[f"next_{name}"], each.numpy())


def _close(found: Array, expected: Array, *, relative: bool = False) -> None:
    """Equal within 1e-5; if `relative`, within 1e-5 of each number that is larger than 1. An impossible logit (-1e9)
    is equal to the bit."""
    scale = np.maximum(1.0, np.abs(expected)) if relative else 1.0
    np.testing.assert_allclose(found / scale, expected / scale, rtol=0, atol=1e-5)


def test_greedy_actions_are_those_of_the_loaded_policy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with_envs(tmp_path, monkeypatch)
    directory = run_of("Box, normalised", tmp_path / "run", steps=400, precision="fp32")  # as ONNX
    monkeypatch.setattr(sys, "argv", ["gossamer", "export", str(directory), "--out", str(tmp_path / "out"), "--onnx"])
    assert cli.main() == 0
    assert {path.name for path in (tmp_path / "out").iterdir()} >= {"model.onnx", "model.safetensors"}
    assert "model.onnx" in (tmp_path / "out" / "README.md").read_text()
    run = session((tmp_path / "out" / "model.onnx").read_bytes())
    obs = np.random.default_rng(0).uniform(-2, 2, (6, 3)).astype("f")
    actions = gossamer.load(tmp_path / "out", greedy=True).act(obs)
    _close(run.run(["action"], {"obs": obs})[0], actions)


@pytest.mark.parametrize("env", ["odd_envs:Table", "odd_envs:Number"])
def test_actions_have_the_environment_s_shape(env: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(Path(__file__).parents[1] / "envs")
    run = trained(tmp_path / "run", env=env, precision="fp32").directory
    obs = np.random.default_rng(0).uniform(-1, 1, (6, 2)).astype("f")
    found = session(to_onnx(of_run(run, "last", "average"))).run(["action"], {"obs": obs})[0]
    expected = gossamer.load(run, greedy=True).act(obs)
    assert found.shape == expected.shape
    _close(found, expected)


def _no_package(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(module, "find_spec", lambda name: None)


def _no_steps(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Snapshot, "model", lambda *given: torch.nn.Linear(1, 1))


REFUSED: dict[str, tuple[Callable[[pytest.MonkeyPatch], None], str]] = {
    "no package": (_no_package, f"--onnx: onnx is not installed; run {re.escape(install('onnx'))}"),
    "no network with `step`": (
        _no_steps,
        "--onnx: only an ActorCritic, a QNetwork, or another network with `step` can be written, and the network is a "
        "Linear",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_written_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: str) -> None:
    snapshot = of_run(trained(tmp_path / "run").directory, "last", "average")
    patch, told = REFUSED[case]
    patch(monkeypatch)
    with pytest.raises(UserError, match=told):
        to_onnx(snapshot)


ODD = """
import torch
from torch import nn
class Odd(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.linear = nn.Linear(width, 4)
    def forward(self, x):
        return self.linear(x) if float(x.sum()) > 0 else torch.linalg.eigvals(torch.eye(4)).real + self.linear(x)
def odd(shape):
    return Odd(shape[0])
"""


FIXED = """
import torch
from torch import nn
class Fixed(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.linear = nn.Linear(width, 4)
    def forward(self, x):
        return self.linear(x).reshape(int(x.shape[0]), 4)
def fixed(shape):
    return Fixed(shape[0])
"""


def test_a_network_that_fixes_the_batch_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "fixed_torso.py").write_text(FIXED)
    monkeypatch.syspath_prepend(tmp_path)
    directory = trained(tmp_path / "run", network="fixed_torso:fixed", precision="fp32").directory
    told = r"--onnx: the network fixed_torso:fixed fixes the size of the batch \(obs is \[2, 50\]\), as len\(x\)"
    with pytest.raises(UserError, match=told):
        to_onnx(of_run(directory, "last", "average"))


def test_a_network_that_the_exporter_cannot_follow_is_refused_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "odd_torso.py").write_text(ODD)
    monkeypatch.syspath_prepend(tmp_path)
    directory = trained(tmp_path / "run", network="odd_torso:odd", precision="fp32").directory
    capsys.readouterr()
    monkeypatch.setattr(sys, "argv", ["gossamer", "export", str(directory), "--out", str(tmp_path / "out"), "--onnx"])
    assert cli.main() == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("gossamer: --onnx: the network odd_torso:odd cannot be written as ONNX (")
    assert err.count("\n") == 1
    assert not (tmp_path / "out").exists()
    assert json.loads((directory / "config.json").read_text())["network"]["torso"] == "odd_torso:odd"
