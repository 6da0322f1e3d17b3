"""An export has what another machine needs, says where it comes from, and replaces nothing that is not an export."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from hashlib import sha256
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.torch import load_file, save_file
from some_policies import Games, evaluated, played, run_of, with_envs
from some_runs import trained

import gossamer
from gossamer import cli
from gossamer.export.export import export
from gossamer.storage.checkpoint import Store
from gossamer.storage.contents import search
from gossamer.system.errors import DamagedCheckpoint, UserError

SEED = 3
ALONE = """
import sys
class Refuses:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("ale_py", "made", "more_envs", "some_envs", "pygame", "mujoco"):
            raise ImportError(f"{name} must not be imported")
sys.meta_path.insert(0, Refuses())
import numpy as np, gossamer
for folder in sys.argv[1:]:
    policy = gossamer.load(folder, greedy=True)
    space = policy.observation_space
    space.seed(0)
    print([np.asarray(policy.act(space.sample())).tolist() for _ in range(4)])
"""


@pytest.fixture(scope="module")
def cart(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that has been evaluated."""
    directory = trained(tmp_path_factory.mktemp("cart") / "run", env="CartPole-v1", steps=400).directory
    gossamer.evaluate(directory, episodes=3)
    return directory


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def front_matter(folder: Path) -> Any:
    yaml = pytest.importorskip("yaml", reason="PyYAML is not installed")
    _, front, _ = (folder / "README.md").read_text().split("---\n", 2)
    return yaml.safe_load(front)


@pytest.mark.parametrize("kind", ["GRU, last action and reward", "Dict, GRU", "Box, normalised", "masks"])
def test_an_export_acts_as_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    with_envs(tmp_path, monkeypatch)
    directory = run_of(kind, tmp_path / "run")
    export(directory, tmp_path / "out")
    policy = gossamer.load(tmp_path / "out", seed=SEED, device="cpu")
    expected = list(islice(evaluated(directory, 2, SEED, greedy=False), 8))
    found = list(islice(played(policy, Games(directory, 2, SEED), last="reward" in kind), 8))
    np.testing.assert_array_equal(np.array([r for _, r in found], np.float32), [scores for _, scores in expected])
    card = (tmp_path / "out" / "README.md").read_text()
    more = ', mask=info["action_mask"]' if kind == "masks" else ", reward=reward" if "reward" in kind else ""
    assert f"action = policy.act(obs{more})  # " in card


def test_parameters_that_do_not_fit_are_not_exported(cart: Path, tmp_path: Path) -> None:
    shutil.copytree(cart, tmp_path / "run")
    file = tmp_path / "run" / "config.json"
    config = json.loads(file.read_text())
    file.write_text(json.dumps({**config, "network": {**config["network"], "hidden_sizes": [7]}}))
    with pytest.raises(UserError, match="its parameters do not fit"):
        export(tmp_path / "run", tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(("algorithm", "kept"), [("nstep-q", "target."), ("sarsa-lambda", "traces.")])
def test_what_only_learning_needs_is_not_exported(algorithm: str, kept: str, tmp_path: Path) -> None:
    directory = trained(tmp_path / "run", env="catch", algorithm=algorithm).directory
    state = next(iter(Store(directory / "checkpoints").get("last").load()["workers"].values()))["learner"]["model"]
    export(directory, tmp_path / "out")
    exported = load_file(tmp_path / "out" / "model.safetensors")
    assert any(name.startswith(kept) for name in state)
    assert exported.keys() == {name for name in state if not name.startswith(kept)}
    obs = np.random.default_rng(0).random((20, 50), np.float32)
    actions = [gossamer.load(each, greedy=True).act(obs) for each in (directory, tmp_path / "out")]
    np.testing.assert_array_equal(*actions)
    save_file(state, tmp_path / "older.safetensors")  # as versions before wrote it
    whole = (tmp_path / "older.safetensors").read_bytes()
    (tmp_path / "out" / "model.safetensors").write_bytes(whole)
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    (tmp_path / "out" / "config.json").write_text(json.dumps({**config, "sha256": sha256(whole).hexdigest()}))
    np.testing.assert_array_equal(gossamer.load(tmp_path / "out", greedy=True).act(obs), actions[0])


@pytest.mark.parametrize("env", ["made:nested", "pong"])
def test_nothing_of_the_environment_is_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, env: str) -> None:
    if env == "pong":
        pytest.importorskip("ale_py", reason="the extra [atari] is not installed")
    with_envs(tmp_path, monkeypatch)
    directory = trained(tmp_path / "run", env=env, network="auto").directory
    export(directory, tmp_path / "out")
    quiet = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", ALONE, str(directory), str(tmp_path / "out")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=quiet)
    assert done.returncode == 0, done.stderr
    policy = gossamer.load(directory, greedy=True)
    policy.observation_space.seed(0)
    here = [np.asarray(policy.act(policy.observation_space.sample())).tolist() for _ in range(4)]
    assert done.stdout.splitlines() == [str(here)] * 2


def test_a_run_of_an_older_version_makes_its_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with_envs(tmp_path, monkeypatch)
    directory = run_of("Dict", tmp_path / "run")
    described = gossamer.load(directory).snapshot.description.interface
    (directory / "spec.json").unlink()
    assert gossamer.load(directory).snapshot.description.interface == described
    gossamer.resume(directory, steps=160)
    assert (directory / "spec.json").exists()
    old = Path(__file__).parents[1] / "data" / "format_1"
    for name in ("paac", "gala"):
        policy = gossamer.load(old / name)
        assert policy.act(policy.observation_space.sample()) in range(policy.action_space.n)


def test_the_card_has_the_score_with_its_protocol(cart: Path, tmp_path: Path) -> None:
    assert set(export(cart, tmp_path / "out")) == set(files(tmp_path / "out"))
    found = front_matter(tmp_path / "out")
    assert found["library_name"] == "gossamer"
    assert {"reinforcement-learning", "CartPole-v1", "paac", "a2c"} <= set(found["tags"])
    ((result,),) = ([model["results"] for model in found["model-index"]],)
    evaluation = json.loads((cart / "evaluation-plain.json").read_text())
    (metric,) = result[0]["metrics"]
    assert metric["value"] == f"{evaluation['mean_return']:.2f} +/- {evaluation['std_return']:.2f}"
    assert metric["name"] == "mean return (plain: 3 whole games, sampled actions)"
    assert result[0]["dataset"]["name"] == "CartPole-v1"
    text = (tmp_path / "out" / "README.md").read_text()
    assert "MIT (Gymnasium)" in text
    assert "![Training curve](curve.png)" in text
    assert (tmp_path / "out" / "curve.png").read_bytes().startswith(b"\x89PNG")


def test_the_card_has_the_score_of_an_evaluation_beside_training(tmp_path: Path) -> None:
    directory = trained(tmp_path / "run", eval_every=80, eval_episodes=4).directory
    *_, last = map(json.loads, (directory / "evaluations.jsonl").read_text().splitlines())
    assert last["checkpoint"] == Store(directory / "checkpoints").get().path.name
    export(directory, tmp_path / "out")
    (result,) = front_matter(tmp_path / "out")["model-index"][0]["results"]
    (metric,) = result["metrics"]
    assert metric["value"] == f"{last['mean_return']:.2f} +/- {last['std_return']:.2f}"
    assert metric["name"] == "mean return (plain: 4 whole games, sampled actions)"


def test_the_card_of_several_games_says_which_ones_a_score_is_of(tmp_path: Path) -> None:
    directory = trained(tmp_path / "run", env="counter,recall").directory
    gossamer.evaluate(directory, episodes=2, game="counter")
    export(directory, tmp_path / "out")
    (result,) = front_matter(tmp_path / "out")["model-index"][0]["results"]
    (metric,) = result["metrics"]
    assert metric["name"] == "mean return (plain: 2 whole games, counter, sampled actions)"


def test_the_card_of_several_games_has_the_score_of_each(tmp_path: Path) -> None:
    directory = trained(tmp_path / "run", env="counter,recall").directory
    found = gossamer.evaluate(directory, episodes=2)
    export(directory, tmp_path / "out")
    metrics = [result["metrics"][0] for result in front_matter(tmp_path / "out")["model-index"][0]["results"]]
    assert [metric["name"] for metric in metrics] == [
        "mean return (plain: 4 whole games, counter and recall, sampled actions)",
        "mean return (plain: 2 whole games, counter, sampled actions)",
        "mean return (plain: 2 whole games, recall, sampled actions)",
    ]
    assert found.games is not None
    means = [found.mean_return, *(each["mean_return"] for each in found.games.values())]
    assert [float(metric["value"].split()[0]) for metric in metrics] == pytest.approx(means, abs=0.005)


def test_without_an_evaluation_the_training_return_is_named_as_such(tmp_path: Path) -> None:
    directory = trained(tmp_path / "run").directory
    (directory / "evaluation-plain.json").write_text('{"checkpoint": "step_000000000080"')  # damaged
    other = {
        "checkpoint": "step_000000000008",
        "mean_return": 1.0,
        "std_return": 0.0,
        "protocol": "noop",
        "episodes": 1,
    }
    (directory / "evaluation-noop.json").write_text(json.dumps({**other, "greedy": False, "member": None}))
    export(directory, tmp_path / "out")
    (result,) = front_matter(tmp_path / "out")["model-index"][0]["results"]
    (metric,) = result["metrics"]
    assert "training return" in metric["name"]
    assert float(metric["value"]) == pytest.approx(Store(directory / "checkpoints").get().score, abs=0.005)
    assert "Apache-2.0 (part of Gossamer)" in (tmp_path / "out" / "README.md").read_text()


def test_before_an_episode_has_ended_there_is_no_score_and_no_curve(tmp_path: Path) -> None:
    pytest.importorskip("ale_py", reason="the extra [atari] is not installed")
    written = export(trained(tmp_path / "run", env="pong", screen_size=16).directory, tmp_path / "out")
    assert set(written) == {"config.json", "model.safetensors", "README.md"}
    assert "model-index" not in front_matter(tmp_path / "out")
    text = (tmp_path / "out" / "README.md").read_text()
    assert "GPL-2.0" in text
    assert "preprocessing()" in text


def test_environments_of_the_users_have_their_licence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with_envs(tmp_path, monkeypatch)
    export(run_of("discrete, from -1", tmp_path / "run"), tmp_path / "out")
    assert "Environment: unknown: yours." in (tmp_path / "out" / "README.md").read_text()


def test_only_an_export_is_replaced(cart: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    export(cart, out)
    (out / "model.onnx").write_bytes(b"of an earlier export")
    (out / "notes.txt").write_text("mine")
    with pytest.raises(UserError, match="has an export already; add --overwrite"):
        export(cart, out)
    export(cart, out, overwrite=True)
    assert not (out / "model.onnx").exists()
    assert (out / "notes.txt").read_text() == "mine"
    for folder in (cart, tmp_path):
        before = sorted(folder.rglob("*"))
        with pytest.raises(UserError, match="and is not an export; give an empty folder"):
            export(cart, folder, overwrite=True)
        assert sorted(folder.rglob("*")) == before
    assert search(out) == []  # an export is no run


DAMAGE: dict[str, tuple[Callable[[Path], Any], str]] = {
    "parameters": (
        lambda out: (out / "model.safetensors").write_bytes(b"?"),
        "model.safetensors: truncated or altered",
    ),
    "no parameters": (lambda out: (out / "model.safetensors").unlink(), "model.safetensors: cannot be read"),
    "config": (lambda out: (out / "config.json").write_text('{"gossamer_export": 1}'), "config.json: truncated or"),
    "later": (lambda out: (out / "config.json").write_text('{"gossamer_export": 2}'), "written by a later version"),
    "no config": (lambda out: (out / "config.json").unlink(), "neither a run nor an export|not a run directory"),
}


@pytest.mark.parametrize("case", DAMAGE)
def test_a_damaged_export_is_refused(cart: Path, tmp_path: Path, case: str) -> None:
    export(cart, tmp_path / "out")
    damage, told = DAMAGE[case]
    damage(tmp_path / "out")
    with pytest.raises(UserError, match=told):
        gossamer.load(tmp_path / "out")


def test_an_export_has_one_policy(cart: Path, tmp_path: Path) -> None:
    export(cart, tmp_path / "out")
    with pytest.raises(UserError, match="an export has one policy"):
        gossamer.load(tmp_path / "out", member="1")


def test_a_network_of_the_users_has_to_be_importable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_torso.py").write_text("from gossamer.nn.torsos import mlp\ndef mine(shape): return mlp(shape)\n")
    with monkeypatch.context() as patch:
        patch.syspath_prepend(tmp_path)
        directory = trained(tmp_path / "run", network="my_torso:mine").directory
        export(directory, tmp_path / "out")
        assert gossamer.load(tmp_path / "out").act(np.zeros(50)) in range(3)
    monkeypatch.delitem(sys.modules, "my_torso")
    for folder in (directory, tmp_path / "out"):
        with pytest.raises(UserError, match=r"the policy needs my_torso:mine \(No module named 'my_torso'\)"):
            gossamer.load(folder)


def test_a_damaged_checkpoint_is_refused(tmp_path: Path) -> None:
    directory = trained(tmp_path / "run").directory
    next((directory / "checkpoints").glob("*/tensors.safetensors")).write_bytes(b"?")
    with pytest.raises(DamagedCheckpoint, match="truncated or altered"):
        export(directory, tmp_path / "out")
    assert not (tmp_path / "out").exists()
    (directory / "spec.json").write_text("{}")
    with pytest.raises(UserError, match=r"spec.json: truncated or altered"):
        gossamer.load(directory)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("nowhere", "--out", "out"), "nowhere: not a run directory"),
        (("run",), "--out"),
        (("run", "--out", "out", "--member", "7"), "--member 7: no such member; there are: average, best, 0"),
        (("run", "--out", "out", "--checkpoint", "first"), "no checkpoint 'first'"),
        (("run", "--out", "file"), "--out file: is a file; give a folder"),
        (("run", "--out", "run"), "--out run: has files"),
    ],
)
def test_the_command_refuses_in_one_line(
    cart: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: tuple[str, ...],
    told: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run").symlink_to(cart)
    (tmp_path / "file").write_text("")
    monkeypatch.setattr(sys, "argv", ["gossamer", "export", *words])
    assert cli.main() == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("gossamer: ")
    assert told in err
    assert err.count("\n") == 1
    assert not (tmp_path / "out").exists()


def test_the_command_names_its_files(
    cart: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "folder" / "out"
    monkeypatch.setattr(sys, "argv", ["gossamer", "export", str(cart), "--out", str(out)])
    assert cli.main() == 0
    assert capsys.readouterr().out == f"{out}: config.json, model.safetensors, curve.png, README.md\n"
