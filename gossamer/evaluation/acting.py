"""How the games of an evaluation choose actions."""

from __future__ import annotations

from dataclasses import replace

from gossamer.algorithms.base import ByValue
from gossamer.config.build import device_of_run, task
from gossamer.config.config import Config
from gossamer.system.errors import UserError
from gossamer.task import Task


def task_here(config: Config, device: str | None = None) -> Task:
    """The task on this machine. `device`: None is that of the run, or `auto` if this machine lacks it."""
    return task(config.with_run(device=device_of_run(config.run.device) if device is None else device))


def acting(what: Task, *, greedy: bool, epsilon: float | None) -> tuple[Task, float | None]:
    """The task with the epsilon to evaluate with, and that epsilon: `epsilon` if given, 0 with `greedy`, else that of
    the algorithm; None for an algorithm without one. Raises `UserError` for an epsilon that the algorithm does not
    have, that is not a probability, or that contradicts `greedy`."""
    by_value = what.algorithm if isinstance(what.algorithm, ByValue) else None
    if epsilon is None:
        return what, None if by_value is None else 0.0 if greedy else by_value.epsilon_end
    if not 0 <= epsilon <= 1:
        raise UserError(f"--epsilon {epsilon:g}: must be from 0 to 1")
    if greedy:
        raise UserError(f"--epsilon {epsilon:g}: --greedy means --epsilon 0; leave one of them out")
    if by_value is None:
        raise UserError(f"--epsilon {epsilon:g}: {type(what.algorithm).__name__} has no epsilon; leave it out")
    return replace(what, algorithm=by_value.with_epsilon(epsilon)), epsilon


def actions(greedy: bool, epsilon: float | None) -> str:
    """How actions were chosen, in words. `epsilon`: probability of a random action, None for policies without one."""
    if epsilon is not None:
        return f"epsilon {epsilon:g}" if epsilon else "greedy actions"
    return "most probable actions" if greedy else "sampled actions"
