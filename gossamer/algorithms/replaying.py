"""Options of algorithms that learn from a replay memory, each of which gives its default, as in
`save_replay: bool = SAVE_REPLAY(False)`; and checks of them."""

from __future__ import annotations

from functools import partial

from gossamer.system.errors import UserError
from gossamer.system.options import option

SAVE_REPLAY = partial(option, "The replay memory is part of each checkpoint, so that a resumed run goes on with it.")
REPLAY_DIR = partial(
    option, "Folder for the pictures of the replay memory, mapped into memory from files; empty: in host memory."
)


def check_starts(learning_starts: int, buffer_size: int) -> None:
    """Raise `UserError` if a memory never has enough to learn from."""
    if learning_starts > buffer_size:
        raise UserError(f"--learning-starts {learning_starts}: must be at most --buffer-size {buffer_size}")


def check_ring(capacity: int, num_envs: int, rollout_length: int, window: int, *, sequences: bool) -> None:
    """Raise `UserError` if a memory of so many steps keeps less of each environment than a rollout or a window."""
    # Of so many steps that follow each other, one starts a rollout and is followed by a whole window
    needed = rollout_length + window - 1 if sequences else max(rollout_length, window)
    what = "a rollout and a sequence take" if sequences else "rollouts and samples have up to"
    if capacity // num_envs < needed:
        raise UserError(
            f"--buffer-size {capacity}: keeps {capacity // num_envs} steps of each of {num_envs} environments, but "
            f"{what} {needed}; use at least {needed * num_envs}"
        )
