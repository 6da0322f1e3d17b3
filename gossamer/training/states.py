"""The states that workers and services start from."""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path

from gossamer.config.config import Config
from gossamer.data import Rollout, Tree
from gossamer.evaluation.members import newcomer
from gossamer.experience.base import UNLEARNED
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


def unlearned(saved: Tree, members: Collection[str]) -> tuple[dict[str, int], list[Rollout]]:
    """What the replay memories in the content of a checkpoint have and nobody has learned from: steps of each member
    with a memory of its own, and rollouts in the others. These get the names of an earlier session's, in the content
    too, as actors count theirs anew."""
    own = {name: int(saved["workers"].get(name, {}).get("experience", {}).get(UNLEARNED, 0)) for name in members}
    rollouts = list[Rollout]()
    for state in saved.get("services", {}).values():
        if isinstance(state, dict) and UNLEARNED in state:
            first = len(rollouts) + 1
            some = [Rollout(*rollout) for rollout in state[UNLEARNED]]
            rollouts += [each._replace(life=-1, number=number) for number, each in enumerate(some, first)]
            state[UNLEARNED] = [list(rollout) for rollout in rollouts[first - 1 :]]
    return own, rollouts


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
