"""Writes a policy, and what is known about it, to a folder of its own."""

from __future__ import annotations

import os
from os import PathLike
from pathlib import Path

from gossamer.evaluation.members import AVERAGE
from gossamer.export import folder
from gossamer.export.card import card
from gossamer.export.curve import curve
from gossamer.export.facts import facts
from gossamer.export.graph import TensorInfo, signature, to_onnx
from gossamer.export.snapshot import of_run
from gossamer.storage.contents import CONFIG, listed
from gossamer.storage.files import atomic_write
from gossamer.storage.runs import RunRecord
from gossamer.system.errors import UserError


def export(
    run_dir: str | PathLike[str],
    out: str | Path,
    *,
    checkpoint: str = "last",
    member: str | int = AVERAGE,
    onnx: bool = False,
    overwrite: bool = False,
) -> list[str]:
    """Write the policy of a run to the folder `out` (see `export.folder`); returns the names of the files.

    `checkpoint` and `member`: as in `evaluate`. `onnx`: also write `model.onnx`, for which the extra [onnx] is needed.
    `overwrite`: replace the files of an earlier export; others stay. Raises `UserError`, and writes nothing, for a
    folder that has files and is no export, a run without such a policy, parameters that do not fit the network or are
    not finite, or a network that ONNX cannot hold."""
    directory, target = Path(run_dir), Path(out)
    _check_free(target, overwrite)
    snapshot = of_run(directory, checkpoint, member)
    snapshot.model("cpu")  # what cannot be loaded is not written
    files = folder.contents(snapshot)
    graph = list[TensorInfo]()
    if onnx:
        files[folder.ONNX] = to_onnx(snapshot)
        graph = signature(files[folder.ONNX])
    if (picture := curve(RunRecord(directory))) is not None:
        files[folder.CURVE] = picture
    files[folder.CARD] = card(facts(directory, snapshot), files.keys(), graph).encode()
    _write(target, files)
    return list(files)


def _check_free(target: Path, overwrite: bool) -> None:
    """Raise `UserError` unless the folder is missing, empty, or an export that may be replaced."""
    if target.is_file():
        raise UserError(f"--out {target}: is a file; give a folder")
    there = sorted(os.listdir(target)) if target.is_dir() else []
    if not there:
        return
    if not folder.is_export(target):
        raise UserError(f"--out {target}: has files ({listed(there)}) and is not an export; give an empty folder")
    if not overwrite:
        raise UserError(f"--out {target}: has an export already; add --overwrite, or give another folder")


def _write(target: Path, files: dict[str, bytes]) -> None:
    """Write the files. `config.json` comes first: what an interrupted call leaves is an export, and can be replaced."""
    try:
        target.mkdir(parents=True, exist_ok=True)
        atomic_write(target / CONFIG, files[CONFIG])
        for name in folder.FILES[1:]:
            (target / name).unlink(missing_ok=True)
        for name in files.keys() - {CONFIG}:
            atomic_write(target / name, files[name])
    except OSError as error:
        raise UserError(f"--out {target}: cannot be written ({error.strerror}); give another folder") from error
