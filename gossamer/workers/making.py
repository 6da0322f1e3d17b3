"""Waits for environments that other processes make, and tells how many there are."""

from __future__ import annotations

import time
from collections.abc import Sequence

from gossamer.envs.base import InTheMaking, VectorEnv
from gossamer.runtime import Context
from gossamer.task import Activity

QUIET_SECONDS = 1.0  # before the first number is told
LOOK_SECONDS = 0.05


def await_made(ctx: Context, groups: Sequence[VectorEnv]) -> None:
    """Wait until all environments exist. After a second, report how many do, whenever the number changes."""
    making = [env.made for env in groups if isinstance(env, InTheMaking)]
    count = sum(env.num_envs for env in groups if isinstance(env, InTheMaking))
    began, told = time.monotonic(), -1
    while (made := sum(each() for each in making)) < count:
        if made != told and time.monotonic() - began >= QUIET_SECONDS:
            ctx.report(Activity(f"making environments: {made} of {count}"))
            told = made
        time.sleep(LOOK_SECONDS)
