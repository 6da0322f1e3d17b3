"""Checkpoints: safetensors for tensors, JSON for the rest, SHA-256 for trust. Never pickle.

A checkpoint is a folder, written beside its place and renamed into it: it is there whole or not at all."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor

from gossamer.data import Tree
from gossamer.errors import DamagedCheckpoint, UserError

TENSORS, STATE, MANIFEST = "tensors.safetensors", "state.json", "manifest.json"
_TENSOR, _ARRAY = "tensor", "array"


def flatten(tree: Tree, path: str = "") -> tuple[Any, dict[str, Tensor]]:
    """A tree as JSON with `{"tensor": path}` or `{"array": path}` in place of its tensors, and these by path."""
    if isinstance(tree, Tensor):  # a copy: safetensors refuses tensors that share memory, as tied weights do
        return {_TENSOR: path}, {path: tree.detach().clone(memory_format=torch.contiguous_format).cpu()}
    if isinstance(tree, np.ndarray):
        return {_ARRAY: path}, {path: torch.from_numpy(np.array(tree, order="C"))}
    if isinstance(tree, np.generic):
        return tree.item(), {}
    if isinstance(tree, dict):
        parts = {str(key): flatten(value, f"{path}/{quote(str(key), safe='')}") for key, value in tree.items()}
        return {"dict": {key: part for key, (part, _) in parts.items()}}, _union(t for _, t in parts.values())
    if isinstance(tree, list | tuple):
        items = [flatten(value, f"{path}/{i}") for i, value in enumerate(tree)]
        return [part for part, _ in items], _union(t for _, t in items)
    if tree is None or isinstance(tree, bool | int | float | str):
        return tree, {}
    raise TypeError(f"{path}: a checkpoint holds tensors, arrays, numbers and strings, not {type(tree).__name__}")


def unflatten(data: Any, tensors: dict[str, Tensor]) -> Tree:
    """The tree that `flatten` took apart (tuples come back as lists)."""
    if isinstance(data, list):
        return [unflatten(item, tensors) for item in data]
    if not isinstance(data, dict):
        return data
    ((kind, content),) = data.items()
    if kind == "dict":
        return {key: unflatten(value, tensors) for key, value in content.items()}
    return tensors[content] if kind == _TENSOR else tensors[content].numpy()


def _union(parts: Iterator[dict[str, Tensor]]) -> dict[str, Tensor]:
    return {key: value for part in parts for key, value in part.items()}


@dataclass(frozen=True)
class Checkpoint:
    """One folder on disk."""

    path: Path
    steps: int
    score: float | None  # mean return of the last 100 training episodes when it was written

    def load(self) -> Tree:
        """The tree that was saved; `DamagedCheckpoint` names the file that is not as it was written."""
        for name, digest in _manifest(self.path)["sha256"].items():
            file = self.path / name
            if not file.is_file():
                raise DamagedCheckpoint(f"{file} is missing: use another checkpoint of {self.path.parent}")
            if _digest(file.read_bytes()) != digest:
                raise DamagedCheckpoint(
                    f"{file} is truncated or altered (its checksum is not the one in {MANIFEST}): "
                    f"use another checkpoint of {self.path.parent}, or remove this folder"
                )
        try:
            return unflatten(json.loads((self.path / STATE).read_text()), load_file(self.path / TENSORS))
        except (SafetensorError, json.JSONDecodeError, KeyError, ValueError) as error:
            raise DamagedCheckpoint(f"{self.path} cannot be read ({error}): use another checkpoint") from error


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _manifest(path: Path) -> dict[str, Any]:
    file = path / MANIFEST
    try:
        manifest: dict[str, Any] = json.loads(file.read_text())
        if manifest["sha256"].keys() != {TENSORS, STATE} or path.name != _name(manifest["steps"]):
            raise ValueError("not what was written")
        manifest["score"] = None if manifest["score"] is None else float(manifest["score"])
    except (OSError, ValueError, KeyError, AttributeError, TypeError) as error:
        raise DamagedCheckpoint(f"{file} is missing, truncated or altered: use another checkpoint") from error
    return manifest


class Store:
    """The checkpoints of a run: the last `keep` of them, and the best."""

    def __init__(self, directory: Path, keep: int = 3) -> None:
        self.directory, self.keep = directory, keep

    def save(self, tree: Tree, *, steps: int, score: float | None) -> Path:
        """Write one, then let go of those no longer wanted. `OSError` (a full disk) leaves the others as they were."""
        path = self.directory / _name(steps)
        if path.exists():
            return path
        beside = self.directory / f".{path.name}.{os.getpid()}"
        shutil.rmtree(beside, ignore_errors=True)  # of a killed process that had our number: containers give it again
        try:
            beside.mkdir(parents=True)
            data, tensors = flatten(tree)
            contents = {TENSORS: save(tensors), STATE: json.dumps(data).encode()}
            digests = {name: _digest(content) for name, content in contents.items()}
            manifest = {"format": 1, "steps": steps, "score": score, "sha256": digests}
            for name, content in {**contents, MANIFEST: json.dumps(manifest, indent=1).encode()}.items():
                with open(beside / name, "wb") as file:
                    file.write(content)
                    file.flush()
                    os.fsync(file.fileno())
            beside.rename(path)
            _sync(self.directory)
        except BaseException:
            shutil.rmtree(beside, ignore_errors=True)
            raise
        self._prune()
        return path

    def all(self) -> list[Checkpoint]:
        """Whole checkpoints, oldest first. One with a damaged manifest is listed too, so that loading it says so."""
        found = []
        for path in sorted(self.directory.glob("step_" + 12 * "[0-9]")):
            try:
                manifest = _manifest(path)
                found.append(Checkpoint(path, int(manifest["steps"]), manifest["score"]))
            except DamagedCheckpoint:
                found.append(Checkpoint(path, int(path.name.removeprefix("step_")), None))
        return found

    def get(self, which: str = "last") -> Checkpoint:
        """`last`, `best`, or the name of a folder; `UserError` if there is none."""
        found = self.all()
        named = [c for c in found if c.path.name == which]
        if which not in ("last", "best") and not named:
            raise UserError(f"no checkpoint {which!r} in {self.directory}; there are: {_names(found)}, last, best")
        if not found:
            raise UserError(f"no checkpoint in {self.directory}: the run ended before its first one")
        return named[0] if named else self._best(found) if which == "best" else found[-1]

    def _best(self, found: list[Checkpoint]) -> Checkpoint:
        return max(found, key=lambda c: (float("-inf") if c.score is None else c.score, c.steps))

    def _prune(self) -> None:
        found = self.all()
        wanted = {self._best(found).path, *(c.path for c in found[-self.keep :])}
        for checkpoint in found:
            if checkpoint.path not in wanted:
                shutil.rmtree(checkpoint.path)
        for left_over in self.directory.glob(".step_*"):  # a process that was killed while writing
            shutil.rmtree(left_over, ignore_errors=True)


def _name(steps: int) -> str:
    return f"step_{steps:012d}"


def _names(found: list[Checkpoint]) -> str:
    return ", ".join(c.path.name for c in found) or "none"


def _sync(directory: Path) -> None:
    """Make the rename itself durable."""
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
