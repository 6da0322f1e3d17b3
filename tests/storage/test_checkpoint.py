"""Checkpoints come back as they were, or say which file is not; and they are there whole or not at all."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from some_parts import differences

from gossamer.storage import files
from gossamer.storage.checkpoint import FORMAT, Checkpoint, Store
from gossamer.storage.tree import flatten, unflatten
from gossamer.system.errors import DamagedCheckpoint, NewerCheckpoint, NonFiniteParameter, UserError

FILES = ("tensors.safetensors", "state.json", "manifest.json")


def a_tree(seed: int = 0) -> dict[str, Any]:
    """Everything that may stand in a checkpoint."""
    rng = torch.Generator().manual_seed(seed)
    weight = torch.randn(3, 4, generator=rng)
    return {
        "model": {"torso.0.weight": weight, "tied": weight, "half": weight.bfloat16(), "view": weight.T[1:]},
        "picture": torch.randn(2, 3, 5, 4, generator=rng).to(memory_format=torch.channels_last),
        "optimizer": {"0": {"step": torch.tensor(3.0), "moment": weight.square()}, "1": {}},
        "rng": rng.get_state(),
        "numpy": {
            "random": np.random.default_rng(7).bit_generator.state,
            "legacy": np.random.RandomState(3).get_state(),
        },
        "arrays": [np.arange(6, dtype=np.uint8)[::-2], np.array(5.5), np.zeros((0, 3)), np.array([True, False])],
        "numbers": {"steps": 10**12, "huge": 2**127 + 1, "third": 1 / 3, "tiny": 5e-324, "infinite": float("inf")},
        "scalars": {"count": np.int64(4), "mean": np.float32(0.5), "flag": np.bool_(True)},
        "plain": [None, True, False, "text é", [], {}, [[1], [2.5]]],
        "a/b": {"c": torch.ones(1)},
        "a": {"b/c": torch.zeros(1), "b": {"c": torch.full((1,), 2.0)}},
        "100%": torch.full((2,), 3.0),
    }


def stored(store: Store, steps: int = 100, score: float | None = None, seed: int = 0) -> Checkpoint:
    path = store.save(a_tree(seed), steps=steps, score=score)
    return Checkpoint(path, steps, score)


def names(store: Store) -> list[int]:
    return [checkpoint.steps for checkpoint in store.all()]


def test_a_tree_comes_back_as_it_was(tmp_path: Path) -> None:
    tree, loaded = a_tree(), stored(Store(tmp_path)).load()
    tree["scalars"] = {"count": 4, "mean": 0.5, "flag": True}  # NumPy's numbers come back as Python's
    assert differences(tree, loaded) == []
    assert loaded["optimizer"]["1"] == {}  # which has no leaf to compare
    assert [loaded["plain"][i] for i in (0, 4, 5)] == [None, [], {}]


def test_random_streams_go_on_from_what_comes_back(tmp_path: Path) -> None:
    loaded = stored(Store(tmp_path)).load()
    rng, expected = np.random.default_rng(), np.random.default_rng(7)
    rng.bit_generator.state = loaded["numpy"]["random"]
    np.testing.assert_array_equal(rng.integers(0, 1000, 10), expected.integers(0, 1000, 10))
    legacy, expected_legacy = np.random.RandomState(), np.random.RandomState(3)
    legacy.set_state(tuple(loaded["numpy"]["legacy"]))
    np.testing.assert_array_equal(legacy.random_sample(10), expected_legacy.random_sample(10))


def test_nan_comes_back(tmp_path: Path) -> None:
    path = Store(tmp_path).save({"loss": float("nan")}, steps=1, score=None)
    assert np.isnan(Checkpoint(path, 1, None).load()["loss"])


def test_what_no_checkpoint_can_hold_is_named() -> None:
    with pytest.raises(TypeError, match=r"/env/1: a checkpoint holds .*, not set"):
        flatten({"env": [1, {2}]})


def test_flat_trees_share_no_memory_with_what_they_were_made_of() -> None:
    weight, array = torch.ones(3), np.ones(3)
    data, tensors = flatten({"weight": weight, "array": array})
    weight.zero_()
    array[:] = 0
    assert {name: kept.tolist() for name, kept in unflatten(data, tensors).items()} == {
        "weight": [1, 1, 1],
        "array": [1, 1, 1],
    }


@pytest.mark.parametrize("name", FILES)
def test_a_truncated_file_is_named(tmp_path: Path, name: str) -> None:
    found = stored(Store(tmp_path))
    file = found.path / name
    file.write_bytes(file.read_bytes()[:-7])
    with pytest.raises(DamagedCheckpoint, match=f"{name} is .*truncated"):
        found.load()


@pytest.mark.parametrize("name", FILES[:2])
def test_any_altered_byte_is_noticed_and_its_file_named(tmp_path: Path, name: str) -> None:
    found = stored(Store(tmp_path))
    file, rng = found.path / name, np.random.default_rng(0)
    content = file.read_bytes()
    for place in rng.integers(0, len(content), 20):
        file.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
        with pytest.raises(DamagedCheckpoint, match=f"{name} is truncated or altered"):
            found.load()
    file.write_bytes(content)
    found.load()


@pytest.mark.parametrize(
    ("key", "value"),
    [("sha256", {}), ("sha256", None), ("sha256", []), ("steps", 101), ("steps", "100"), ("score", "good")],
)
def test_an_altered_manifest_is_named(tmp_path: Path, key: str, value: Any) -> None:
    found = stored(Store(tmp_path))
    file = found.path / "manifest.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), key: value}))
    with pytest.raises(DamagedCheckpoint, match=r"manifest\.json is .*altered"):
        found.load()


def test_an_altered_checksum_is_noticed(tmp_path: Path) -> None:
    found = stored(Store(tmp_path))
    file = found.path / "manifest.json"
    manifest = json.loads(file.read_text())
    manifest["sha256"]["state.json"] = 64 * "0"
    file.write_text(json.dumps(manifest))
    with pytest.raises(DamagedCheckpoint, match=r"state\.json is .*checksum is not the one in manifest\.json"):
        found.load()


@pytest.mark.parametrize("content", ["[]", "3", "null", '{"steps": 100}', ""])
def test_a_manifest_that_is_another_is_named(tmp_path: Path, content: str) -> None:
    found = stored(Store(tmp_path))
    (found.path / "manifest.json").write_text(content)
    with pytest.raises(DamagedCheckpoint, match=r"manifest\.json"):
        found.load()


@pytest.mark.parametrize("name", FILES)
def test_a_missing_file_is_named(tmp_path: Path, name: str) -> None:
    found = stored(Store(tmp_path))
    (found.path / name).unlink()
    with pytest.raises(DamagedCheckpoint, match=f"{name} is missing"):
        found.load()


def test_a_damaged_last_checkpoint_is_still_the_last(tmp_path: Path) -> None:
    # To go on silently from an older one would throw training away that somebody may yet rescue.
    store = Store(tmp_path)
    for steps in (100, 200):
        stored(store, steps)
    (tmp_path / "step_000000000200" / "manifest.json").write_text("")
    with pytest.raises(DamagedCheckpoint, match=r"step_000000000200/manifest\.json"):
        store.get("last").load()
    assert store.get("step_000000000100").load()


def test_the_last_few_and_the_best_are_kept(tmp_path: Path) -> None:
    store = Store(tmp_path, keep=2)
    for steps, score in ((100, None), (200, 5.0), (300, -1.0), (400, 3.0), (500, 4.0)):
        stored(store, steps, score)
    assert names(store) == [200, 400, 500]
    assert store.get("best").steps == 200
    assert store.get("last").steps == 500
    assert store.get("step_000000000400").steps == 400
    stored(store, 600, 6.0)
    assert names(store) == [500, 600]
    assert store.get("best").steps == 600


def test_of_equals_the_latest_is_the_best_and_no_score_is_the_worst(tmp_path: Path) -> None:
    store = Store(tmp_path, keep=1)
    for steps, score in ((100, None), (200, None)):
        stored(store, steps, score)
    assert store.get("best").steps == 200
    for steps, score in ((300, -21.0), (400, -21.0), (500, None)):
        stored(store, steps, score)
    assert store.get("best").steps == 400
    assert names(store) == [400, 500]


def test_the_same_tensors_are_not_written_twice(tmp_path: Path) -> None:
    store = Store(tmp_path)
    written = [stored(store, 100, score).path.stat().st_ino for score in (1.0, 2.0)]
    assert written[0] == written[1]
    assert [each.score for each in store.all()] == [1.0]


def test_what_was_learned_after_the_last_step_replaces_the_checkpoint_of_that_step(tmp_path: Path) -> None:
    store = Store(tmp_path)
    first, second = stored(store, 100, seed=0), stored(store, 100, seed=1)
    assert first.path == second.path
    assert torch.equal(second.load()["model"]["half"], a_tree(1)["model"]["half"])
    assert [path.name for path in tmp_path.iterdir()] == [second.path.name]


def test_where_the_new_one_cannot_be_written_the_checkpoint_of_that_step_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(contents: dict[str, bytes], folder: Path) -> None:
        folder.mkdir()
        raise OSError("no space")

    store = Store(tmp_path)
    first = stored(store, 100, seed=0)
    monkeypatch.setattr("gossamer.storage.checkpoint._write_folder", full)
    with pytest.raises(OSError, match="no space"):
        stored(store, 100, seed=1)
    assert torch.equal(first.load()["model"]["half"], a_tree(0)["model"]["half"])


def test_checkpoints_beyond_the_step_of_a_new_one_are_removed_because_the_run_went_on_before_them(
    tmp_path: Path,
) -> None:
    store = Store(tmp_path, keep=2)
    stored(store, 100, 5.0)
    stored(store, 200, 9.0)  # a run that is resumed from it acts steps again that were in a queue
    stored(store, 180, 4.0)
    assert names(store) == [100, 180]
    assert store.get("last").steps == 180


def test_what_there_is_not_is_told(tmp_path: Path) -> None:
    store = Store(tmp_path / "checkpoints")
    with pytest.raises(UserError, match=r"no checkpoint in .* before its first one"):
        store.get("last")
    stored(store, 100)
    with pytest.raises(UserError, match=r"no checkpoint 'bets' in .*; there are: step_000000000100, last, best"):
        store.get("bets")


def test_what_is_no_checkpoint_is_left_alone(tmp_path: Path) -> None:
    store = Store(tmp_path, keep=1)
    (tmp_path / "step_notes").mkdir()
    (tmp_path / "step_000000000100.old").mkdir()
    stored(store, 200)
    stored(store, 300)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "step_000000000100.old",
        "step_000000000300",
        "step_notes",
    ]


def test_what_a_killed_process_left_is_cleared_away(tmp_path: Path) -> None:
    # One of another process, one of a process that had our number, as the first one of every container has.
    for left in (".step_000000000100.1", f".step_000000000200.{os.getpid()}"):
        (tmp_path / left).mkdir()
        (tmp_path / left / "tensors.safetensors").write_bytes(b"half")
    store = Store(tmp_path)
    assert names(store) == []
    stored(store, 200)
    assert [path.name for path in tmp_path.iterdir()] == ["step_000000000200"]


@pytest.mark.parametrize("whole", [True, False])
def test_a_kill_while_a_checkpoint_replaces_another_loses_neither_step(
    whole: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(*given: Any) -> None:
        raise KeyboardInterrupt

    store = Store(tmp_path)
    for steps, seed in ((50, 0), (100, 1)):
        stored(store, steps, seed=seed)
    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", killed)
        patch.setattr(files, "_remove", lambda path: None)  # which a process that is killed does not
        with pytest.raises(KeyboardInterrupt):
            stored(store, 100, seed=2)
    assert names(store) == [50]
    if not whole:  # as after a power failure
        (new,) = (path for path in tmp_path.glob(".step*") if differences(a_tree(1)["model"], model_in(path)))
        (new / FILES[0]).write_bytes(b"half")
    store.recover()
    assert names(store) == [50, 100]
    assert differences(a_tree(2 if whole else 1)["model"], store.get("last").load()["model"]) == []
    store.recover()  # the other one stays hidden
    stored(store, 150)
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"step_{steps:012d}" for steps in (50, 100, 150)]


def model_in(path: Path) -> Any:
    return Checkpoint(path, 100, None).load()["model"]


@pytest.mark.parametrize("at", range(4))
def test_a_write_that_fails_leaves_nothing_and_harms_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    store = Store(tmp_path)
    before = stored(store, 100)
    calls = iter(range(10))

    def full(handle: int) -> None:
        if next(calls) == at:
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)  # where a full disk shows at the latest
    with pytest.raises(OSError, match="No space left"):
        stored(store, 200)
    monkeypatch.undo()
    assert [path.name for path in tmp_path.iterdir()] == ["step_000000000100"]
    before.load()
    stored(store, 200).load()


def test_a_full_disk_leaves_nothing_and_harms_nothing(small_disk: Path) -> None:
    store = Store(small_disk / "checkpoints")
    before = stored(store, 100)
    with pytest.raises(OSError, match="No space left"):
        store.save({"large": torch.zeros(400_000)}, steps=200, score=None)
    assert [path.name for path in store.directory.iterdir()] == ["step_000000000100"]
    before.load()
    stored(store, 200).load()  # there is room for a small one


def with_manifest(checkpoint: Checkpoint, **changed: Any) -> None:
    file = checkpoint.path / "manifest.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **changed}))


def test_the_manifest_has_the_format(tmp_path: Path) -> None:
    found = stored(Store(tmp_path))
    assert json.loads((found.path / "manifest.json").read_text())["format"] == FORMAT


def test_a_newer_format_is_refused_and_kept(tmp_path: Path) -> None:
    store = Store(tmp_path, keep=2)
    with_manifest(stored(store, 100), format=FORMAT + 1, sha256={"another": "file"})
    with pytest.raises(
        NewerCheckpoint, match=rf"step_.*100 has format {FORMAT + 1}, .* newer version; .*: update goss"
    ):
        store.get("last").load()
    stored(store, 200)
    assert names(store) == [100, 200]


@pytest.mark.parametrize("value", [0, -1, None, "two", []])
def test_a_format_that_never_was_is_damage(tmp_path: Path, value: Any) -> None:
    found = stored(Store(tmp_path))
    with_manifest(found, format=value)
    with pytest.raises(DamagedCheckpoint, match=r"manifest\.json is .*altered"):
        found.load()


def refuse(constant: str) -> None:
    raise AssertionError(f"{constant} is not JSON")


def test_all_json_of_a_checkpoint_is_strict(tmp_path: Path) -> None:
    numbers = {"nan": float("nan"), "most": [float("inf"), float("-inf")], "numpy": np.float32("inf")}
    path = Store(tmp_path).save(numbers, steps=1, score=float("nan"))
    for name in ("state.json", "manifest.json"):
        json.loads((path / name).read_text(), parse_constant=refuse)
    loaded = Checkpoint(path, 1, None).load()
    assert np.isnan(loaded["nan"])
    assert (loaded["most"], loaded["numpy"]) == ([float("inf"), float("-inf")], float("inf"))


def test_a_score_that_is_nan_is_never_the_best(tmp_path: Path) -> None:
    store = Store(tmp_path)
    stored(store, 100, 3.0)
    with_manifest(stored(store, 200), score=float("nan"))  # as 0.1.0 could write it
    assert store.get("best").steps == 100


def members(*weights: float) -> dict[str, Any]:
    """The state of learners with these parameters."""
    return {
        "workers": {
            f"act_and_learn[{i}]": {"learner": {"model": {"policy.weight": torch.tensor([1.0, weight])}}}
            for i, weight in enumerate(weights)
        }
    }


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
def test_a_parameter_that_is_not_finite_is_never_written(tmp_path: Path, bad: float) -> None:
    store = Store(tmp_path)
    store.save(members(1.0, 2.0), steps=100, score=None)
    told = r"step 1,200: parameter policy\.weight of act_and_learn\[1\] is NaN or infinite; the last .* step_0+100"
    with pytest.raises(NonFiniteParameter, match=told):
        store.save(members(1.0, bad), steps=1200, score=None)
    assert os.listdir(tmp_path) == ["step_000000000100"]


def test_other_tensors_may_be_infinite(tmp_path: Path) -> None:
    tree = members(1.0)
    tree["workers"]["act_and_learn[0]"]["actor"] = {"obs": np.array([np.nan]), "limit": torch.tensor(float("inf"))}
    assert Store(tmp_path).save(tree, steps=1, score=None).is_dir()


def test_one_of_format_1_that_is_not_finite_names_the_last_good_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Store(tmp_path, keep=9)
    store.save(members(1.0), steps=100, score=None)
    stored_badly(store, monkeypatch, 200)
    (store.get("last").path / "state.json").write_bytes(b"")
    stored_badly(store, monkeypatch, 300)
    told = (
        r"step_0+300: parameter policy\.weight of act_and_learn\[0\] is NaN .*; the last good checkpoint is step_0+100"
    )
    with pytest.raises(NonFiniteParameter, match=told):
        store.get("last").load()
    (tmp_path / "step_000000000100" / "state.json").unlink()
    with pytest.raises(NonFiniteParameter, match="no checkpoint of this run is good: train again"):
        store.get("last").load()


def stored_badly(store: Store, monkeypatch: pytest.MonkeyPatch, steps: int) -> None:
    """Write a parameter that is NaN, as 0.1.0 did."""
    with monkeypatch.context() as patch:
        patch.setattr("gossamer.storage.checkpoint.non_finite", lambda tensors: None)
        patch.setattr("gossamer.storage.checkpoint.FORMAT", 1)
        store.save(members(float("nan")), steps=steps, score=None)


def test_nothing_is_written_once_the_run_may_not(tmp_path: Path) -> None:
    def gone() -> None:
        raise UserError("gone")

    with pytest.raises(UserError, match="gone"):
        Store(tmp_path, check=gone).save(a_tree(), steps=1, score=None)
    assert os.listdir(tmp_path) == []


def test_a_run_directory_that_was_removed_is_not_made_again(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        stored(Store(tmp_path / "run" / "checkpoints"))
    assert os.listdir(tmp_path) == []
