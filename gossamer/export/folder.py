"""The folder that `gossamer export` writes, in the layout of the Hugging Face Hub.

model.safetensors  the network's parameters          README.md    model card
config.json        what `load` needs, and the run    curve.png    training curve
model.onnx         the network, with --onnx
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from gossamer.envs.interface import Interface
from gossamer.export.snapshot import Description, Snapshot, of_policy, read_json
from gossamer.storage.contents import CONFIG, EXPORTED
from gossamer.storage.files import to_json
from gossamer.system.errors import UserError
from gossamer.system.version import __version__

FORMAT = 1
MODEL, CARD, CURVE, ONNX = "model.safetensors", "README.md", "curve.png", "model.onnx"
FILES = (CONFIG, MODEL, CARD, CURVE, ONNX)


def is_export(directory: Path) -> bool:
    """Whether `config.json` is one of an export."""
    try:
        return EXPORTED in read_json(directory / CONFIG)
    except UserError:
        return False


def contents(snapshot: Snapshot) -> dict[str, bytes]:
    """The files that `read` needs."""
    tensors = save({name: _plain(tensor) for name, tensor in snapshot.weights.items()}, {"format": "pt"})
    config = {
        EXPORTED: FORMAT,
        "library_name": "gossamer",
        "library_version": __version__,
        "checkpoint": snapshot.checkpoint,
        "steps": snapshot.steps,
        "member": snapshot.member,
        "training_return": snapshot.training_return,
        "sha256": hashlib.sha256(tensors).hexdigest(),
        "spec": snapshot.description.interface.to_dict(),
        "run": snapshot.description.config,
    }
    return {CONFIG: (to_json(config, indent=2) + "\n").encode(), MODEL: tensors}


def read(directory: Path) -> Snapshot:
    """The policy of an export. Raises `UserError` if a file is missing or damaged."""
    file, content = directory / CONFIG, read_json(directory / CONFIG)
    if content[EXPORTED] != FORMAT:
        raise UserError(f"{file}: written by a later version of Gossamer; this one reads format {FORMAT}")
    try:
        return Snapshot(
            Description(content["run"], Interface.from_dict(content["spec"])),
            of_policy(_tensors(directory / MODEL, content["sha256"])),
            checkpoint=content["checkpoint"],
            steps=content["steps"],
            member=content["member"],
            training_return=content["training_return"],
        )
    except (KeyError, TypeError, ValueError) as error:
        if isinstance(error, UserError):
            raise
        raise UserError(f"{file}: truncated or altered ({error}); export again with --overwrite") from error


def _tensors(file: Path, digest: str) -> dict[str, Tensor]:
    try:
        content = file.read_bytes()
        if hashlib.sha256(content).hexdigest() != digest:
            raise UserError(f"{file}: truncated or altered (its checksum is not the one in {CONFIG}); export again")
        return load(content)
    except (OSError, SafetensorError) as error:
        raise UserError(f"{file}: cannot be read ({error}); export again with --overwrite") from error


def _plain(tensor: Tensor) -> Tensor:
    """A copy of its own: safetensors refuses tensors that share memory."""
    return tensor.detach().cpu().contiguous().clone()
