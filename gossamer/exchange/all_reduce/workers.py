"""Worker loop of a host in an all-reduce between hosts."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass

from gossamer.exchange.all_reduce.group import Follows, Group, Standing
from gossamer.exchange.all_reduce.views import BEAT, TRIES, Beat, Seeking, View
from gossamer.program import copy_name
from gossamer.runtime import Context, Unreachable


@dataclass(frozen=True)
class Learners:
    """The names of all learners."""

    of_hosts: tuple[tuple[str, ...], ...]  # of each host

    @classmethod
    def of(cls, loop: Callable[..., None], hosts: int, learners: int) -> Learners:
        """So many copies of a loop on each host."""
        names = [copy_name(loop, rank, hosts * learners) for rank in range(hosts * learners)]
        return cls(tuple(tuple(names[host * learners : (host + 1) * learners]) for host in range(hosts)))

    def ended(self, ended: Collection[str]) -> list[int]:
        """The hosts whose learners have all ended."""
        return [host for host, names in enumerate(self.of_hosts) if set(names) <= set(ended)]


def keep(ctx: Context, groups: Sequence[Group], learners: Learners, *, host: int) -> None:
    """Clock of a host's `Group`, until its learners have ended: finds the coordinator, and learns the group from it."""
    group, seeking = groups[host], Seeking(host)
    ended = learners.ended(ctx.ended_before)
    if host in ended:
        group.leave()
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
