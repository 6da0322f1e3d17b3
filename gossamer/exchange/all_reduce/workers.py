"""Worker loop of a host in an all-reduce between hosts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from gossamer.exchange.all_reduce.group import Follows, Group, Standing
from gossamer.exchange.all_reduce.views import BEAT, TRIES, Beat, Seeking, View
from gossamer.program import copy_name
from gossamer.runtime import Context, Unreachable


def keep(
    ctx: Context, groups: Sequence[Group], host: int, *, loop: Callable[..., Any], learners: int, hosts: int
) -> None:
    """Clock of a host's `Group`, until its learners have ended: finds the coordinator, and learns the group from it.

    `loop`: the worker loop of the learners, of which each host has so many."""
    names = [[copy_name(loop, h * learners + i, hosts * learners) for i in range(learners)] for h in range(hosts)]
    ended = [h for h, of_host in enumerate(names) if ctx.ended_before.issuperset(of_host)]
    if host in ended:
        groups[host].leave()
    group, seeking = groups[host], Seeking(host)
    while group.tick(ctx.now(), ctx.restarts, ended) and not ctx.stopped:
        _beat(ctx, groups, host, seeking)
        ctx.sleep(BEAT)


def _beat(ctx: Context, groups: Sequence[Group], host: int, seeking: Seeking) -> None:
    """Tell the coordinator that this host is there, or coordinate if no lower host can be reached."""
    group = groups[host]
    for target in seeking.targets(ctx.now()):
        answer = _answer(ctx, groups, target, group.pulse(), tries=1 if seeking.has_failed(target) else TRIES)
        if answer is None or answer is Standing.ENDED:
            seeking.given_up(target, ctx.now())
        elif not isinstance(answer, Follows):
            seeking.answered(target)
            group.follow(target)
            if isinstance(answer, View):
                group.adopt(answer)
            return
        elif seeking.follows(target, answer.coordinator, ctx.now()):
            group.follow(None)
            return
    group.coordinate()


def _answer(
    ctx: Context, groups: Sequence[Group], target: int, beat: Beat, *, tries: int
) -> View | Standing | Follows | None:
    """Call a host; None if it does not answer so often."""
    for _ in range(tries):
        with suppress(Unreachable):
            return groups[target].beat(beat)
        if ctx.stopped:
            break
    return None
