"""The worker loops that every architecture is made of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Concatenate, TypeAlias

from gossamer.loops.act import act
from gossamer.loops.act_and_learn import act_and_learn
from gossamer.loops.learn import learn
from gossamer.loops.load import load
from gossamer.loops.roles import Envs, Role, role
from gossamer.runtime import Context

__all__ = ["ENV_WORKERS", "NUM_ENVS", "Envs", "Loop", "Role", "act", "act_and_learn", "learn", "load", "role"]

# Help texts of the options that every architecture with these loops has.
NUM_ENVS = "Environments side by side, of each learner (n_e)."
ENV_WORKERS = "Step them (n_w): threads for Atari (0: one a core), processes for Gymnasium (0 or 1: none)."

Loop: TypeAlias = Callable[Concatenate[Context, ...], None]  # what stands in for `act_and_learn` takes what it takes
