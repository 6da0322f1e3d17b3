"""Checkpoints: safetensors for tensors, JSON for the rest, SHA-256 for trust. Never pickle.

A checkpoint is a folder that exists completely or not at all. Its manifest has a format number:

1  written by 0.1.0: `state.json` may hold the words NaN and Infinity, which are not JSON
2  `state.json` is strict JSON; no parameter is NaN or infinite
"""

from __future__ import annotations

import hashlib
import json
import math
import shutil
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor

from gossamer.data import Tree
from gossamer.storage.contents import SAVED
from gossamer.storage.files import atomic_write, sync, temporary, to_json
from gossamer.storage.tree import flatten, non_finite, unflatten
from gossamer.system.errors import DamagedCheckpoint, NewerCheckpoint, NonFiniteParameter, UserError
from gossamer.system.paths import shown

FORMAT = 2
TENSORS, STATE, MANIFEST = "tensors.safetensors", "state.json", "manifest.json"


@dataclass(frozen=True)
class Checkpoint:
    """One folder on disk."""

    path: Path
    steps: int
    score: float | None  # mean return of the last 100 training episodes when it was written

    def load(self) -> Tree:
        """The tree that was saved. `DamagedCheckpoint` names the file that is not as it was written, `NewerCheckpoint`
        a format of a later version, `NonFiniteParameter` a parameter that is NaN or infinite (format 1 allowed it)."""
        data, tensors = self._read()
        if (bad := non_finite(tensors)) is not None:
            raise NonFiniteParameter(f"{self.path}: {bad} is NaN or infinite; {self._advice()}")
        return unflatten(data, tensors)

    def _read(self) -> tuple[Any, dict[str, Tensor]]:
        for name, digest in _manifest(self.path)["sha256"].items():
            file = self.path / name
            if not file.is_file():
                raise DamagedCheckpoint(f"{file} is missing: use another checkpoint of {self.path.parent}")
            if _digest_of(file) != digest:
                raise DamagedCheckpoint(
                    f"{file} is truncated or altered (its checksum is not the one in {MANIFEST}): "
                    f"use another checkpoint of {self.path.parent}, or remove this folder"
                )
        try:
            data, tensors = json.loads((self.path / STATE).read_text()), load_file(self.path / TENSORS)
            unflatten(data, tensors)
        except (SafetensorError, json.JSONDecodeError, KeyError, ValueError) as error:
            raise DamagedCheckpoint(f"{self.path} cannot be read ({error}): use another checkpoint") from error
        return data, tensors

    def _advice(self) -> str:
        good = [each.path.name for each in Store(self.path.parent).all() if each._good()]
        if not good:
            return "no checkpoint of this run is good: train again"
        return f"the last good checkpoint is {good[-1]}: use that, or remove this folder to go on from it"

    def _good(self) -> bool:
        try:
            return non_finite(self._read()[1]) is None
        except UserError:
            return False


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _digest_of(file: Path) -> str:
    """The digest of a file's content, which may be larger than the memory that is free."""
    with open(file, "rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def _has(path: Path, digest: str) -> bool:
    """Whether a checkpoint has these tensors."""
    try:
        return bool(_manifest(path)["sha256"][TENSORS] == digest)
    except (DamagedCheckpoint, NewerCheckpoint):
        return False


def _manifest(path: Path) -> dict[str, Any]:
    file = path / MANIFEST
    damaged = DamagedCheckpoint(f"{file} is missing, truncated or altered: use another checkpoint")
    try:
        manifest: dict[str, Any] = json.loads(file.read_text())
        written = int(manifest["format"])
    except PermissionError as error:
        raise DamagedCheckpoint(f"{file} cannot be read: {error.strerror}") from error
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise damaged from error
    if written > FORMAT:
        raise NewerCheckpoint(
            f"{path} has format {written}, written by a newer version; this one reads up to {FORMAT}: update gossamer"
        )
    try:
        if (
            manifest["sha256"].keys() != {TENSORS, STATE}
            or _shown(path).name != _name(manifest["steps"])
            or written < 1
        ):
            raise ValueError("not what was written")
        score = None if manifest["score"] is None else float(manifest["score"])
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        raise damaged from error
    return {**manifest, "score": score if score is not None and math.isfinite(score) else None}


class Store:
    """The checkpoints of a run: the last `keep` of them, and the best."""

    def __init__(self, directory: Path, keep: int = 3, check: Callable[[], None] = lambda: None) -> None:
        """`check` is called before a checkpoint is written; it raises where the run may not write any more."""
        self.directory, self.keep, self._check = directory, keep, check
        self._held = Counter[str]()  # names of checkpoints that stay, because something reads them
        self._lock = threading.Lock()  # so that none is removed while it becomes held

    def save(self, tree: Tree, *, steps: int, score: float | None) -> Path:
        """Write a checkpoint, then remove those that are no longer wanted. Where it raises (`OSError` on a full disk,
        `NonFiniteParameter` for a parameter that is NaN or infinite) the others stay as they were."""
        self._check()
        path = self.directory / _name(steps)
        data, tensors = flatten(tree)
        if (bad := non_finite(tensors)) is not None:
            raise NonFiniteParameter(f"no checkpoint at step {steps:,}: {bad} is NaN or infinite; {self.last()}")
        contents = {TENSORS: save(tensors), STATE: to_json(data).encode()}
        digests = {name: _digest(content) for name, content in contents.items()}
        if path.exists() and _has(path, digests[TENSORS]):
            return path
        manifest = to_json({"format": FORMAT, "steps": steps, "score": score, "sha256": digests}, indent=1)
        self.directory.mkdir(exist_ok=True)  # without parents: a run directory that was removed is not made again
        atomic_write(path, partial(_write_in_place_of, path, {**contents, MANIFEST: manifest.encode()}))
        with self._lock:
            self._prune(steps)
        return path

    def last(self) -> str:
        """Which checkpoint a run that ends here leaves, as a part of a message."""
        found = self.all()
        return f"the last checkpoint is {found[-1].path.name}" if found else "there is no checkpoint"

    def all(self) -> list[Checkpoint]:
        """Whole checkpoints, oldest first. One with a damaged manifest is listed too, so that loading it says so."""
        found = []
        for path in sorted(self.directory.glob(SAVED)):
            try:
                manifest = _manifest(path)
                found.append(Checkpoint(path, int(manifest["steps"]), manifest["score"]))
            except (DamagedCheckpoint, NewerCheckpoint):
                found.append(Checkpoint(path, int(path.name.removeprefix("step_")), None))
        return found

    def get(self, which: str = "last") -> Checkpoint:
        """`last`, `best`, or the name of a folder; `UserError` if there is none."""
        found = self.all()
        named = [c for c in found if c.path.name == which]
        if which not in ("last", "best") and not named:
            raise UserError(
                f"no checkpoint {which!r} in {shown(self.directory)}; there are: {_names(found)}, last, best"
            )
        if not found:
            raise UserError(f"no checkpoint in {shown(self.directory)}: the run ended before its first one")
        return named[0] if named else self._best(found) if which == "best" else found[-1]

    def recover(self) -> None:
        """Show whole checkpoints that were hidden when a process was killed: one that was about to be shown, or one of
        the same step that it was to replace. Only the process that writes checkpoints here may do this."""
        hidden = sorted(self.directory.glob(f".step_*/{MANIFEST}"), key=lambda file: file.stat().st_mtime, reverse=True)
        for folder in (file.parent for file in hidden):  # the newest first
            if not _shown(folder).exists() and Checkpoint(folder, 0, None)._good():
                folder.rename(_shown(folder))

    def hold(self, which: str) -> Checkpoint:
        """`get`; the checkpoint stays until it is released as often as it was held."""
        with self._lock:
            found = self.get(which)
            self._held[found.path.name] += 1
        return found

    def release(self, checkpoint: Checkpoint) -> None:
        """See `hold`. The checkpoint is removed with the next one that is written, if nothing else wants it."""
        with self._lock:
            self._held[checkpoint.path.name] -= 1

    def prune(self) -> None:
        """Remove checkpoints that are no longer wanted."""
        if found := self.all():
            with self._lock:
                self._prune(found[-1].steps)

    @contextmanager
    def holding(self, which: str) -> Iterator[Checkpoint]:
        """`hold` a checkpoint meanwhile."""
        found = self.hold(which)
        try:
            yield found
        finally:
            self.release(found)

    def _best(self, found: list[Checkpoint]) -> Checkpoint:
        return max(found, key=lambda c: (float("-inf") if c.score is None else c.score, c.steps))

    def _prune(self, steps: int) -> None:
        """Remove checkpoints that are no longer wanted, and those of later steps than this one: a resumed run repeats
        the steps that were in a queue, so a later step can be an older state."""
        everything = self.all()  # oldest first
        found = [each for each in everything if each.steps <= steps]
        for later in everything[len(found) :]:
            shutil.rmtree(later.path)
        wanted = {self._best(found).path, *(c.path for c in found[-self.keep :])}
        for checkpoint in found:
            if checkpoint.path not in wanted and not self._held[checkpoint.path.name]:
                shutil.rmtree(checkpoint.path)
        for left_over in self.directory.glob(".step_*"):  # a process that was killed while writing
            shutil.rmtree(left_over, ignore_errors=True)


def _name(steps: int) -> str:
    return f"step_{steps:012d}"


def _shown(path: Path) -> Path:
    """The path of a checkpoint that may be hidden: see `temporary`."""
    return path.with_name(path.name.removeprefix(".").partition(".")[0])


def _names(found: list[Checkpoint]) -> str:
    return ", ".join(c.path.name for c in found) or "none"


def _write_in_place_of(path: Path, contents: dict[str, bytes], folder: Path) -> None:
    """Write the folder that becomes `path`; only then move away a checkpoint of the same step, from before the learner
    had used what was in a queue. Killed in between, neither is shown: see `Store.recover`."""
    _write_folder(contents, folder)
    if path.exists():
        path.rename(temporary(path))


def _write_folder(contents: dict[str, bytes], folder: Path) -> None:
    folder.mkdir()
    for name, content in contents.items():
        (folder / name).write_bytes(content)
        sync(folder / name)
