"""Selects a member of a run, or the average of all (PALA's model aggregation)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from gossamer.algorithms.traces import STATE as TRACES
from gossamer.data import Tree
from gossamer.system.errors import UserError

AVERAGE, BEST = "average", "best"


def ranked(workers: Iterable[str]) -> list[str]:
    """Workers in the order of their ranks: `act_and_learn[2]` before `act_and_learn[10]`."""
    return sorted(workers, key=lambda worker: (rank(worker), worker))


def rank(worker: str) -> int:
    """The rank of a worker: 2 for `act_and_learn[2]`, 0 for `act_and_learn`, the only worker."""
    found = re.search(r"\[(\d+)\]$", worker)
    return int(found[1]) if found else 0


def best(returns: dict[str, float | None]) -> str | None:
    """The worker with the highest mean return; None if no worker has finished an episode."""
    known = {worker: mean for worker, mean in returns.items() if mean is not None}
    return max(ranked(known), key=lambda worker: known[worker], default=None)


def mean_return(checkpoint: Tree, worker: str) -> float | None:
    """Mean return of a worker's last 100 training episodes, the mean over several games; None if it has finished
    none, or none of a game that others have finished."""
    members: Tree = checkpoint["progress"].get("members", {})
    scores: dict[str, list[float]] = {_game(row): [] for played in members.values() for row in played}
    for row in members.get(worker, ()):
        scores[_game(row)].append(row[0])
    means = [sum(each) / len(each) for each in scores.values() if each]
    return sum(means) / len(means) if means and len(means) == len(scores) else None


def _game(row: Sequence[Any]) -> str:
    """The game of an episode in a checkpoint (`Recent.to_list`); empty for one game."""
    return next((each for each in row[2:] if isinstance(each, str)), "")


def group(state: Tree) -> int | None:
    """The group of the worker with this state (`Exchange.group`)."""
    found: int | None = state.get("group")
    return 0 if state.get("equal") else found  # in older checkpoints: whether all are one group


def equal(workers: Mapping[str, Tree]) -> bool:
    """Whether the workers of these states are one group."""
    groups = set(map(group, workers.values()))
    return len(groups) == 1 and None not in groups


def distinct(workers: Mapping[str, Tree]) -> list[str]:
    """The workers of these states that have parameters of their own, in the order of their ranks. Of each group that
    keeps equal parameters it is one with the newest."""
    chosen = dict[int | str, str]()
    for worker in ranked(workers):
        number = group(workers[worker])
        key = worker if number is None else number
        if key not in chosen or _iteration(workers[worker]) > _iteration(workers[chosen[key]]):
            chosen[key] = worker
    return list(chosen.values())


def _iteration(state: Tree) -> int:
    return int(state.get("exchange", {}).get("iteration", 0))


def choose(checkpoint: Tree, member: str | int) -> dict[str, str]:
    """The workers that `member` selects, as {worker: its number}: all `distinct` ones for `average`. A single one is
    also its own average. Of several groups each worker can be selected. Raises `UserError` if there is no such
    member."""
    member = str(member)
    numbers = {worker: str(rank(worker)) for worker in distinct(checkpoint["workers"])}
    _check_any(checkpoint["workers"])
    if (len(numbers) == 1 and member in (AVERAGE, BEST)) or member == AVERAGE:
        return numbers
    if len(numbers) > 1:
        numbers = {worker: str(rank(worker)) for worker in ranked(checkpoint["workers"])}
    if member == BEST:
        first = best({worker: mean_return(checkpoint, worker) for worker in numbers})
        if first is None:
            raise UserError(f"--member {BEST}: no member has finished an episode; use average or a number")
        return {first: numbers[first]}
    found = {worker: number for worker, number in numbers.items() if number == member}
    if not found:
        there = ", ".join(numbers.values())
        raise UserError(f"--member {member}: no such member; there are: {AVERAGE}, {BEST}, {there}")
    return found


def named(checkpoint: Tree, whose: Mapping[str, str]) -> str | None:
    """The name of what `choose` returned: `average`, or a member's number; None if there is only one member."""
    if len(distinct(checkpoint["workers"])) == 1:
        return None
    return AVERAGE if len(whose) > 1 else next(iter(whose.values()))


def _check_any(workers: Mapping[str, Tree]) -> None:
    if not workers:
        raise UserError("the checkpoint has no policy: the run ended before it had learned anything; resume it")


def average(checkpoint: Tree, workers: Iterable[str], parameters: Iterable[str]) -> dict[str, Tensor]:
    """The network's state with the mean of these workers' `parameters` (names), computed in float64. Other tensors,
    such as the background that inputs are centred on, are equal for all workers and taken from the first."""
    first, *others = [checkpoint["workers"][worker]["learner"]["model"] for worker in workers]
    if not others:
        return dict(first)
    means: dict[str, Tensor] = dict(first)
    for name in parameters:
        whole = torch.zeros_like(first[name], dtype=torch.float64)
        for state in (first, *others):
            whole += state[name]
        means[name] = (whole / (1 + len(others))).to(first[name].dtype)
    return means


def newcomer(workers: Mapping[str, Tree]) -> Tree:
    """The state of a member that joins these: the average of their parameters, and the highest iteration of them."""
    _check_any(workers)
    (*_, newest) = [state["learner"]["model"] for state in workers.values()]
    names = [name for name in newest if name != TRACES]  # each member's own, which new episodes begin without
    iteration = max(map(_iteration, workers.values()))
    parameters = average({"workers": workers}, distinct(workers), names)
    return {"parameters": parameters, "exchange": {"iteration": iteration}}
