"""The states that workers and services start from."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from gossamer.config.config import Config
from gossamer.data import Tree
from gossamer.evaluation.members import newcomer
from gossamer.storage.checkpoint import Store
from gossamer.storage.contents import CHECKPOINTS


def restored(saved: Tree, config: Config, members: frozenset[str], log: Callable[[str], None]) -> dict[str, Tree]:
    """The states in the content of a checkpoint. A member that it lacks starts from the others' average; one of a run
    that ended before any member had a state begins anew."""
    workers, services = saved["workers"], saved.get("services", {})
    if not workers:
        log("no member is in the checkpoint: the run had ended before they learned, and begins anew")
        return {**services, **initial(config, members)}
    missing = members - workers.keys()
    for name in sorted(missing):
        log(f"{name} is not in the checkpoint: it starts from the average of the other members' parameters")
    return {**services, **workers, **dict.fromkeys(missing, newcomer(workers) if missing else None)}


def is_whole(state: Tree) -> bool:
    """Whether a member has saved this state: not one with others' parameters, which it has not started from yet."""
    return "learner" in state or "parameters" not in state


def initial(config: Config, members: frozenset[str]) -> dict[str, Tree]:
    """The states that members start from in a new run: none, or the parameters of another run (`--init-from`)."""
    if config.run.init_from is None:
        return {}
    workers = Store(Path(config.run.init_from) / CHECKPOINTS).get("last").load()["workers"]
    parameters = newcomer(workers)["parameters"]
    return {member: {"parameters": parameters} for member in members}
