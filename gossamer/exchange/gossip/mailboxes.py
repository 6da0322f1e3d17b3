"""Mailboxes: unread messages between the members of one process, in shared memory."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from gossamer.data import Tree
from gossamer.exchange.gossip.graphs import Members
from gossamer.exchange.gossip.messages import Message, merge, replaces
from gossamer.runtime import Wait, waits
from gossamer.system.errors import UserError

UNREAD = 8  # unread messages per sender and receiver before they are merged


class LayoutMismatch(UserError):
    """Members have different models, which cannot be averaged."""


@dataclass(frozen=True)
class Collected:
    """Result of `Post.collect`."""

    messages: tuple[Message, ...]  # previously unread, oldest first
    members: Members  # the active members
    view: int  # version of `members`, incremented at each change
    refused: int = 0  # packets rejected since the last report; each is reported to one member only
    alone: bool = False  # whether all other active members were restarted and have not sent a message since
    furthest: int = 0  # largest known iteration of a message sent by another member


class Post(Protocol):
    """A service that delivers messages between members. `send` never blocks."""

    def expect(self, rank: int) -> None:
        """The member has started, and will join."""

    def join(self, rank: int, layout: bytes, *, again: bool = False) -> Collected:
        """Add an active member whose model has this layout (`Flat.layout`). Unread messages are kept for it.

        `again`: the member was restarted, so the progress of the others is unknown. Raises `LayoutMismatch` if the
        layout differs from that of the other members."""

    def leave(self, rank: int) -> None:
        """Remove a member. Other members no longer wait for it."""

    def send(self, message: Message, to: Sequence[int]) -> None:
        """Send a message to these members and record the sender's progress, even if `to` is empty. Never blocks."""

    def collect(self, rank: int, needed: Mapping[int, int], view: int, upto: float = math.inf) -> Collected:
        """Return unread messages with iteration <= `upto`.

        Blocks until every active sender in `needed` has sent its message of iteration `needed[sender]`, to any
        receiver, or until the membership differs from `view`. Senders that joined or rejoined are not waited for until
        they have sent a first message."""


class Mailboxes:
    """Service: mailboxes of members that share memory (GALA). Messages are immutable and passed by reference, so
    nothing is copied or serialised while the service is locked."""

    def __init__(self, members: int, *, newest: bool = True, adds: bool = False) -> None:
        """`newest`: a new message replaces its sender's unread one, unless that alone has all parameters
        (`replaces`); otherwise all messages are kept in order.

        `adds`: if more than `UNREAD` messages of a sender are unread, the older ones are merged. This bounds the
        mailbox of a stalled receiver and conserves weights and weighted parameters."""
        self.newest, self.adds = newest, adds
        self.members: Members = tuple(range(members))  # all are active from the start, so late starters are waited for
        self.view = 0
        self.refused = 0
        self.layout: bytes | None = None
        self._recovering = set[int]()  # members that were restarted and have not sent a message since
        self._unread: dict[int, dict[int, list[Message]]] = {}  # receiver -> sender -> messages
        self._reached: dict[tuple[int, int], int] = {}  # (receiver, sender) -> iteration of its newest message
        # Sender -> iteration of its last known message, to any receiver. A sender's messages arrive in order, so its
        # earlier messages to members here have arrived too. Waiting on this instead of on a message to oneself avoids
        # deadlocks if the graph changes or members disagree on the membership. A rejoined sender has no entry at first.
        self.last: dict[int, int] = dict.fromkeys(range(members), 0)

    def expect(self, rank: int) -> None: ...

    def join(self, rank: int, layout: bytes, *, again: bool = False) -> Collected:
        if self.layout not in (None, layout):
            raise LayoutMismatch(f"model of member {rank} differs from the others in parameter names or shapes")
        self.layout = layout
        if again:
            self.last = {sender: k for sender, k in self.last.items() if k}
            self._recovering.add(rank)
        self.admit([rank])
        return Collected((), self.members, self.view, alone=self._alone(rank))

    def leave(self, rank: int) -> None:
        self.dismiss([rank])

    def admit(self, ranks: Iterable[int]) -> None:
        """Mark these members as active. Those that were not may send earlier iterations again, if they were restarted.
        Until then a retried message of a member that has left remains a duplicate."""
        new = set(ranks) - set(self.members)
        self._change({*self.members, *new})
        self._reached = {edge: k for edge, k in self._reached.items() if edge[1] not in new}

    def dismiss(self, ranks: Iterable[int]) -> None:
        """Mark these members as inactive. Their unread messages are kept."""
        gone = set(ranks)
        self._recovering -= gone
        self._change(set(self.members) - gone)

    def send(self, message: Message, to: Sequence[int]) -> None:
        self._recovering.discard(message.sender)
        for rank in to:
            box = self._unread.setdefault(rank, {}).setdefault(message.sender, [])
            edge = (rank, message.sender)
            if message.iteration <= self._reached.get(edge, 0):
                continue  # out of order, or a duplicate: a call without an answer is retried
            if self.newest:
                box[:] = [unread for unread in box if not replaces(message, unread)]
            elif self.adds and len(box) >= UNREAD:
                box[:] = [merge(box)]
            box.append(message)
            self._reached[edge] = message.iteration
        self.last[message.sender] = max(message.iteration, self.last.get(message.sender, 0))

    def passed(self, reached: Mapping[int, int]) -> None:
        """Raise the last known iterations of senders whose earlier messages have arrived or are lost."""
        for sender in reached.keys() & self.last.keys():
            self.last[sender] = max(reached[sender], self.last[sender])

    @waits
    def collect(self, rank: int, needed: Mapping[int, int], view: int, upto: float = math.inf) -> Wait[Collected]:
        while view == self.view and not self._has(needed):
            yield
        return self._take(rank, upto)

    def _has(self, needed: Mapping[int, int]) -> bool:
        return all(self.last.get(sender, k) >= k for sender, k in needed.items() if sender in self.members)

    def _take(self, rank: int, upto: float = math.inf) -> Collected:
        boxes = self._unread.pop(rank, {})
        messages = sorted((m for box in boxes.values() for m in box), key=lambda m: (m.iteration, m.sender))
        for late in reversed(messages):
            if late.iteration <= upto:
                break
            self._unread.setdefault(rank, {}).setdefault(late.sender, []).insert(0, messages.pop())
        refused, self.refused = self.refused, 0
        furthest = max((k for sender, k in self.last.items() if sender != rank), default=0)
        return Collected(tuple(messages), self.members, self.view, refused, self._alone(rank), furthest)

    # Part of checkpoints: `runtime.Saved`

    def settled(self) -> bool:
        return True

    def state_dict(self) -> Tree:
        unread = [[rank, m.state_dict()] for rank, boxes in self._unread.items() for box in boxes.values() for m in box]
        reached = [[rank, sender, k] for (rank, sender), k in self._reached.items()]
        return {"unread": unread, "reached": reached, "last": [list(pair) for pair in self.last.items()]}

    def load_state_dict(self, state: Tree) -> None:
        for rank, message in state["unread"]:
            m = Message.from_state(message)
            self._unread.setdefault(rank, {}).setdefault(m.sender, []).append(m)
        self._reached = {(rank, sender): k for rank, sender, k in state["reached"]}
        self.last |= dict(state["last"])

    def _alone(self, rank: int) -> bool:
        return set(self.members) - {rank} <= self._recovering

    def _change(self, members: set[int]) -> None:
        now = tuple(sorted(members))
        for member in set(now) ^ set(self.members):
            self.last.pop(member, None)
        if now != self.members:
            self.members, self.view = now, self.view + 1
