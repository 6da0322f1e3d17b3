"""All-reduce between hosts: a reduce-scatter, then an all-gather, over the `Group` services of the hosts.

Each host of a group owns a slice of the vector. The leading learner of a host gives its host's sum of each slice to the
owner, which makes it the mean when all have given theirs, and takes the mean slices. A round that cannot be completed,
because a host is away, is given up when the group changes. Each new group begins with round 0, in which its hosts agree
on the state to continue from: the newest. A gradient is given again only if the host's parameters are still those that
it was computed at.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor
from xxhash import xxh3_64

from gossamer.data import Tree, on_host
from gossamer.exchange.all_reduce.given import RoundOutcome, Start, Total, moved, result_of
from gossamer.exchange.all_reduce.group import At, Group, Part, Reduced
from gossamer.exchange.all_reduce.views import Place, View
from gossamer.exchange.server.pull import most_shards, slices
from gossamer.runtime import Context, Stopped, Unreachable, together
from gossamer.task import Regrouped

RETRY = 0.2  # seconds between two looks whether the group has changed
PAUSE = 7.0  # seconds until a host is called again that did not answer; by then it is left out if it is away


@dataclass(frozen=True)
class Between:
    """Configuration of the part between hosts."""

    groups: tuple[Group, ...]  # of all hosts, in their order
    host: int  # this one

    def join(self, ctx: Context) -> BetweenLink:
        """Join as the leading learner of this host."""
        return BetweenLink(ctx, self.groups, self.host)


class BetweenLink:
    """The link of a learner that leads."""

    def __init__(self, ctx: Context, groups: Sequence[Group], host: int) -> None:
        self._ctx, self._groups, self._host, self._own = ctx, groups, host, groups[host]

    def begin(self, start: Start) -> RoundOutcome:
        """This host would continue from `start`. Returns what the group continues from, and the first round."""
        self._own.enter()
        place, adopted = self._enter(None, start, self._ctx.now())
        return RoundOutcome(start if adopted is None else adopted, place)

    def exchange(self, mine: Total, place: Place, start: Callable[[], Start]) -> RoundOutcome:
        """Give this host's sum in a round. Returns what all do after it, and the next round. `start`: this host's
        state, which others may have to continue from."""
        began = self._ctx.now()
        while True:
            outcome = self._round(mine, place)
            if outcome is not None:
                return outcome
            place, adopted = self._enter(place.view, start(), began)
            if adopted is not None:
                return RoundOutcome(adopted, place)

    def leave(self) -> None:
        """The learners of this host have ended."""
        self._own.leave()

    def _round(self, mine: Total, place: Place) -> RoundOutcome | None:
        """One round; None if the group has changed."""
        whole = None if mine.vector is None else mine.vector.detach().cpu().numpy()
        size = 0 if whole is None else len(whole)
        view, parts = place.view, dict[int, Part]()
        observed = tuple(moved(each, "cpu") for each in mine.observed)
        owners = view.members if whole is None else view.members[: most_shards(size)]
        cut = slices(size, len(owners)) if whole is not None else []
        for number, owner in enumerate(view.members):
            vector = whole[cut[number]] if whole is not None and number < len(cut) else None
            parts[owner] = Part(vector, mine.learners, mine.rate, observed if number == 0 else ())
        taken = self._reduce(view, place.round, parts)
        if taken is None:
            return None
        found = [taken[owner] for owner in view.members]
        of_mean = [each.vector for each in found if each.vector is not None]
        mean = torch.from_numpy(np.concatenate(of_mean)) if of_mean else None
        return RoundOutcome(result_of(mean, found[0].learners, found[0].rate, found[0].observed), place.next)

    def _reduce(self, view: View, number: int, parts: dict[int, Part]) -> dict[int, Reduced] | None:
        """Give each owner its part, and take what comes of it; None if the group has changed. Hosts begin with the
        owner after themselves, so that no link has the messages of all at once."""
        me, groups = view.members.index(self._host), self._groups
        order = view.members[me + 1 :] + view.members[: me + 1]
        gives = {owner: partial(groups[owner].give, view, number, self._host, parts[owner]) for owner in order}
        if self._ask(view, gives) is None:
            return None
        return self._ask(view, {owner: partial(groups[owner].take, view.epoch, number) for owner in order})

    def _ask(self, view: View, calls: Mapping[int, partial[Any]]) -> dict[int, Any] | None:
        """Call hosts at the same time until each has answered. An answer of None or False means to call again. Returns
        None if the group changes before. Raises `Stopped` if the program is stopped."""
        left, answers = dict(calls), dict[int, Any]()
        while True:
            end = self._ctx.now() + RETRY
            for host, answer in zip(list(left), together(list(left.values())), strict=True):
                if isinstance(answer, Unreachable):
                    end = self._ctx.now() + PAUSE
                elif answer is not None and answer is not False:
                    answers[host] = answer
                    del left[host]
            if not left:
                return answers
            while True:
                if not self._own.current(view.epoch):
                    return None
                if self._ctx.now() >= end:
                    break
                if self._ctx.stopped:
                    raise Stopped("while another host did not answer")
                self._ctx.sleep(RETRY)

    def _enter(self, last: View | None, start: Start, began: float) -> tuple[Place, Start | None]:
        """Wait for another group, and agree with it. Returns its first round, and the state to continue from if it is
        not `start`. `last`: the group before, if this host was in one; `began`: seconds, when it began to wait."""
        shown = Start(start.parameters.cpu(), start.version, on_host(start.optimizer), on_host(start.local))
        after = None if last is None else last.epoch
        while True:
            view = self._own.view(after)
            self._own.offer(view.epoch, shown)
            source = self._agree(view, start)
            if source is not None:
                adopted = None if source == self._host else self._fetch(view, source)
                if source == self._host or adopted is not None:
                    self._tell(view, view.before if last is None else last.members, began)
                    return Place(view, 1), adopted
            after = view.epoch

    def _agree(self, view: View, start: Start) -> int | None:
        """Round 0. Returns the host to continue from, this one if its state is the same; None if the group has
        changed."""
        first, mine = view.members[0], At(start.version, bool(start.optimizer), digest(start))
        if self._ask(view, {first: partial(self._groups[first].arrive, view, self._host, mine)}) is None:
            return None
        answer = self._ask(view, {first: partial(self._groups[first].states, view.epoch)})
        if answer is None:
            return None
        states: dict[int, At] = answer[first]
        source = chosen(states)
        return self._host if states[source] == mine else source

    def _fetch(self, view: View, source: int) -> Start | None:
        answer = self._ask(view, {source: partial(self._groups[source].fetch, view.epoch)})
        if answer is None:
            return None
        found: Start = answer[source]
        return replace(found, parameters=found.parameters.clone())

    def _tell(self, view: View, before: tuple[int, ...], began: float) -> None:
        """Report a change of the group, from one of its hosts. `before`: the hosts of the group before."""
        if before and self._host == view.members[0]:
            joined, left = set(view.members) - set(before), set(before) - set(view.members)
            waited = self._ctx.now() - began
            told = Regrouped(view.epoch.number, len(view.members), tuple(sorted(joined)), tuple(sorted(left)), waited)
            self._ctx.report(told)


def chosen(states: dict[int, At]) -> int:
    """The host to continue from: of those with the newest state the one with the lowest number, and of different states
    of one version the one that most hosts have."""
    votes = list(states.values())
    return max(states, key=lambda host: (states[host].version, states[host].stepped, votes.count(states[host]), -host))


def digest(start: Start) -> int:
    """Hash of the parameters and of the optimizer's state."""
    found = xxh3_64()
    for tensor in (start.parameters, *_tensors(start.optimizer)):
        found.update(np.ascontiguousarray(tensor.detach().cpu().numpy()).reshape(-1).view(np.uint8).data)
    return found.intdigest()


def _tensors(tree: Tree) -> list[Tensor]:
    """The tensors of a tree, in the order of their paths."""
    if isinstance(tree, dict):
        return [leaf for key in sorted(tree) for leaf in _tensors(tree[key])]
    return [tree] if isinstance(tree, Tensor) else []
