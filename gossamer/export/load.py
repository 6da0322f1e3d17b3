"""Reads a policy from a run directory, or from a folder that `gossamer export` wrote."""

from __future__ import annotations

from os import PathLike
from pathlib import Path

from gossamer.config.build import device as existing
from gossamer.config.build import device_of_run
from gossamer.evaluation.members import AVERAGE
from gossamer.export import folder
from gossamer.export.policy import TrainedPolicy
from gossamer.export.snapshot import of_run
from gossamer.system.errors import UserError


def load(
    path: str | PathLike[str],
    *,
    checkpoint: str = "last",
    member: str | int = AVERAGE,
    greedy: bool = False,
    seed: int = 0,
    device: str | None = None,
) -> TrainedPolicy:
    """The policy of a run directory, or of a folder written by `gossamer export`. It needs neither the environment nor
    its packages; only a network or algorithm of your own has to be importable.

    `checkpoint`, `member`, `greedy` and `seed`: as in `evaluate`; an export has one policy. `device`: None is that of
    the run; for a GPU that this machine lacks, and for an export, `auto`. Raises `UserError` if
    there is no such policy, or if it is damaged."""
    directory = Path(path)
    exported = folder.is_export(directory)
    if exported and (checkpoint, member) != ("last", AVERAGE):
        raise UserError(f"{directory}: an export has one policy; leave out checkpoint and member")
    snapshot = folder.read(directory) if exported else of_run(directory, checkpoint, member)
    trained_on = snapshot.description.config["run"]["device"]
    own = "auto" if exported else device_of_run(trained_on)
    return TrainedPolicy(snapshot, greedy=greedy, seed=seed, device=existing(device or own))
