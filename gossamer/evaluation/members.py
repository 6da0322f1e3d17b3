"""The members of a run: which of them plays, or their average (PALA's model aggregation)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

import torch
from torch import Tensor

from gossamer.data import Tree
from gossamer.errors import UserError

AVERAGE, BEST = "average", "best"


def ranked(workers: Iterable[str]) -> list[str]:
    """Workers in the order of their ranks: `act_and_learn[2]` before `act_and_learn[10]`."""
    return sorted(workers, key=lambda worker: (rank(worker), worker))


def rank(worker: str) -> int:
    """Of `act_and_learn[2]` 2; of `act_and_learn`, the only one, 0."""
    found = re.search(r"\[(\d+)\]$", worker)
    return int(found[1]) if found else 0


def best(returns: dict[str, float | None]) -> str | None:
    """The worker with the highest mean return of its own last 100 episodes; None before any episode has ended."""
    known = {worker: mean for worker, mean in returns.items() if mean is not None}
    return max(ranked(known), key=lambda worker: known[worker], default=None)


def choose(checkpoint: Tree, member: str) -> dict[str, str]:
    """Whose parameters `member` means: {worker: its number}, all of them for `average`; where there is only one, it is
    its own average. `UserError` for a member that is not there."""
    numbers = {worker: str(rank(worker)) for worker in ranked(checkpoint["workers"])}
    if (len(numbers) == 1 and member in (AVERAGE, BEST)) or member == AVERAGE:
        return numbers
    if member == BEST:
        episodes = checkpoint["progress"].get("members", {})
        means = {w: sum(score for score, _ in played) / len(played) for w, played in episodes.items() if played}
        first = best({worker: means.get(worker) for worker in numbers})
        if first is None:
            raise UserError(f"--member {BEST}: no member has finished an episode; give average or a number")
        return {first: numbers[first]}
    found = {worker: number for worker, number in numbers.items() if number == member}
    if not found:
        there = ", ".join(numbers.values())
        raise UserError(f"--member {member}: no such member; there are: {AVERAGE}, {BEST}, {there}")
    return found


def average(checkpoint: Tree, workers: Iterable[str], parameters: Iterable[str]) -> dict[str, Tensor]:
    """The network's state with the plain mean of these workers' parameters (named so), computed in float64. What is no
    parameter, as the background that inputs are centred on, is the same for all and taken from the first."""
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
    """The state of a member that joins these: the average of their parameters, as many iterations as the one that has
    come farthest, nothing else."""
    (*_, names) = [state["learner"]["model"] for state in workers.values()]
    iteration = max(int(state.get("exchange", {}).get("iteration", 0)) for state in workers.values())
    parameters = average({"workers": workers}, workers, names)
    return {"parameters": parameters, "exchange": {"iteration": iteration}}
