"""Where messages lie until their receivers take them: the post of the members of one process, in shared memory."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from gossamer.data import Tree
from gossamer.exchange.gossip.graphs import Members
from gossamer.exchange.gossip.messages import Message, merge
from gossamer.program import Wait, waits

UNREAD = 8  # messages of one sender to one receiver that are kept apart before they are merged


class LayoutMismatch(ValueError):
    """Members that were to be averaged have different models."""


@dataclass(frozen=True)
class Collected:
    """What a member finds in its mailbox."""

    messages: tuple[Message, ...]  # unread until now, oldest first
    members: Members  # who takes part
    view: int  # counts the changes of `members`
    refused: int = 0  # packets that could not be used, each told to one member
    alone: bool = False  # whether all others that take part have been restarted too, and have sent nothing yet
    furthest: int = 0  # the largest iteration of which a message of another member is known to have been sent


class Post(Protocol):
    """A service that takes a member's messages at once and keeps what comes for it."""

    def join(self, rank: int, layout: bytes, *, again: bool = False) -> Collected:
        """Take part, with models of this layout (`Flat.layout`); what has come already stays to be collected.

        `again`: after a restart, when it is not known how far the others are. Raises `LayoutMismatch` where they
        differ."""

    def leave(self, rank: int) -> None:
        """Take part no more: nobody waits for this member from now on."""

    def send(self, message: Message, to: Sequence[int]) -> None:
        """Hand over a message to these members, be they none: whoever may wait for its sender hears how far it is.
        Never waits."""

    def collect(self, rank: int, needed: Mapping[int, int], view: int, upto: float = math.inf) -> Collected:
        """Take what is unread, of iterations `upto` and before. Waits until each of these senders that takes part is
        known to have sent its message of iteration `needed[sender]`, to whomever it was for; no longer than `view` is
        the present one. Nobody waits for one that has come or come back until it has sent its first message."""


class Mailboxes:
    """Service: mailboxes of members that share memory (GALA). What changes hands is a reference to a message that
    nobody changes any more, so nothing is copied or serialised, and the lock is held for no computation."""

    def __init__(self, members: int, *, newest: bool = True, adds: bool = False) -> None:
        """`newest`: an unread message is replaced by its sender's next one; else all are kept, in order. `adds`: when
        more than `UNREAD` messages are kept, the older ones are merged, so that a stalled receiver's mailbox stays
        bounded; weights and weighted parameters are conserved."""
        self.newest, self.adds = newest, adds
        self.members: Members = tuple(range(members))  # all count from the start: nobody runs ahead of who comes late
        self.view = 0
        self.refused = 0
        self.layout: bytes | None = None
        self._recovering = set[int]()  # members that were restarted and have not sent anything since
        self._unread: dict[int, dict[int, list[Message]]] = {}  # receiver -> sender -> messages
        self._reached: dict[tuple[int, int], int] = {}  # (receiver, sender) -> iteration of its newest message
        # Sender -> the iteration of the last message that it is known to have sent, to whomever. Messages of a sender
        # come in order, so by then whatever it had for a member here has come: nobody waits for ever where graphs
        # change, or members see each other come and go at different times. Who comes back is not in it at first.
        self.last: dict[int, int] = dict.fromkeys(range(members), 0)

    def join(self, rank: int, layout: bytes, *, again: bool = False) -> Collected:
        if self.layout not in (None, layout):
            raise LayoutMismatch(f"member {rank} has another model than the others: parameters differ in name or shape")
        self.layout = layout
        if again:
            self.last = {sender: k for sender, k in self.last.items() if k}
            self._recovering.add(rank)
        self.admit([rank])
        return Collected((), self.members, self.view, alone=self._alone(rank))

    def leave(self, rank: int) -> None:
        self.dismiss([rank])

    def admit(self, ranks: Iterable[int]) -> None:
        """These take part."""
        self._change({*self.members, *ranks})

    def dismiss(self, ranks: Iterable[int]) -> None:
        """These do not; what they sent before stays to be read."""
        gone = set(ranks)
        self._recovering -= gone
        self._change(set(self.members) - gone)
        self._reached = {edge: k for edge, k in self._reached.items() if edge[1] not in gone}

    def send(self, message: Message, to: Sequence[int]) -> None:
        self._recovering.discard(message.sender)
        for rank in to:
            box = self._unread.setdefault(rank, {}).setdefault(message.sender, [])
            edge = (rank, message.sender)
            if message.iteration <= self._reached.get(edge, 0):
                continue  # overtaken on its way, or come twice: a call that got no answer is made again
            if self.newest:
                box.clear()
            elif self.adds and len(box) >= UNREAD:
                box[:] = [merge(box)]
            box.append(message)
            self._reached[edge] = message.iteration
        self.last[message.sender] = max(message.iteration, self.last.get(message.sender, 0))

    def passed(self, reached: Mapping[int, int]) -> None:
        """Members are known to be this far (iterations), and what they have sent so far would have come by now."""
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

    # part of checkpoints: `program.Saved`

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
