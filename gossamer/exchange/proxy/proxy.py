"""PALA's data proxy: the post of one host, which moves messages between hosts in its own time."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from gossamer.data import Array, Tree
from gossamer.exchange.gossip.mailboxes import Collected, LayoutMismatch, Mailboxes
from gossamer.exchange.gossip.messages import Hello, Message, Parcel
from gossamer.exchange.proxy.liveness import BEAT, Liveness
from gossamer.exchange.proxy.outbox import Outbox
from gossamer.exchange.proxy.wire import HELLO, Refused, peek
from gossamer.program import Wait, waits

UNKNOWN = bytes(8)  # the layout of a host where no member has joined yet
COMEBACK = 60.0  # seconds after which a host that was started again counts only the members that have joined
BACKLOG = 64  # calls that may wait to be looked at; more are refused


@dataclass(frozen=True)
class Arrival:
    """Work for a courier: look at what has come."""

    packets: tuple[Array, ...]
    token: bytes
    layout: bytes


@dataclass(frozen=True)
class Transfer:
    """Work for a courier: take these to that host."""

    host: int
    items: tuple[Parcel | Hello, ...]
    token: bytes
    layout: bytes


@dataclass(frozen=True)
class Search:
    """Work for a courier: ask the other proxies for the last messages of members that have ended."""

    token: bytes
    layout: bytes


@dataclass(frozen=True)
class Remains:
    """Work for a courier: pack the last messages of this host's members, which have all ended."""

    items: tuple[Parcel, ...]
    token: bytes
    layout: bytes


Job: TypeAlias = Arrival | Transfer | Search | Remains


class Proxy:
    """Service: one on each host. To its own members it is their post; to other hosts' couriers `deliver` is its door.

    What it does takes no time: whatever is slow, couriers do outside of it (`couriers.carry`). Hosts learn from each
    other who takes part (`Liveness`), so a member that ends, dies or is cut off holds nobody up."""

    def __init__(
        self,
        *,
        host: int,
        hosts: int,
        learners: int,
        token: bytes,
        newest: bool = True,
        adds: bool = False,
    ) -> None:
        """`learners` on each of `hosts` hosts; `token`: 16 bytes that all proxies of this run know, and nobody else;
        `newest`, `adds`: as the members' exchange has it (`Gossip`)."""
        self.host, self.token = host, token
        self.boxes = Mailboxes(hosts * learners, newest=newest, adds=adds)
        self._learners = learners
        self._own = set(range(host * learners, (host + 1) * learners))  # that have not ended
        self._joined: set[int] = set()
        self._began: float | None = None  # the first look at the clock
        planned = {h: tuple(range(h * learners, (h + 1) * learners)) for h in range(hosts)}
        self._alive = Liveness(host, planned)
        self._told = deque[dict[int, int]](maxlen=math.ceil(self._alive.patience / BEAT))  # beat by beat
        self._outboxes = {h: Outbox(newest, adds) for h in range(hosts) if h != host}
        self._arrivals: deque[tuple[Array, ...]] = deque()
        self._early: deque[tuple[Array, ...]] = deque(maxlen=BACKLOG)  # that came before the first member of this host
        self._ended = False  # whether the couriers have
        self._unpacking = False  # one courier at a time, so that what comes keeps its order
        self._newest: dict[int, Message] = {}  # member of this host -> its newest message
        self._remains: tuple[Array, ...] | None = None  # of members that have ended, packed
        self._search = False  # whether to ask for those of other hosts
        self._packing = False  # whether a courier packs them
        self._odd: int | None = None  # a host whose members have another model

    # what members call: `mailboxes.Post`

    def join(self, rank: int, layout: bytes, *, again: bool = False) -> Collected:
        self._own.add(rank)
        self._joined.add(rank)
        self._search |= again
        collected = self.boxes.join(rank, layout, again=again)
        self._arrivals.extendleft(reversed(self._early))
        self._early.clear()
        self._say()
        return collected

    def leave(self, rank: int) -> None:
        self._joined.discard(rank)
        self._own.discard(rank)
        self.boxes.leave(rank)
        self._say()

    def send(self, message: Message, to: Sequence[int]) -> None:
        self._newest[message.sender] = message
        by_host: dict[int, list[int]] = {}
        for rank in to:
            by_host.setdefault(rank // self._learners, []).append(rank)
        self.boxes.send(message, by_host.pop(self.host, []))
        for host, ranks in by_host.items():
            self._outboxes[host].put(Parcel(message, tuple(ranks)))

    @waits
    def collect(self, rank: int, needed: Mapping[int, int], view: int, upto: float = math.inf) -> Wait[Collected]:
        waiting = Mailboxes.collect.waits  # type: ignore[attr-defined]  # its generator
        collected: Collected = yield from waiting(self.boxes, rank, needed, view, upto)
        if self._odd is not None:
            raise LayoutMismatch(f"host {self._odd} has another model than host {self.host}: not the same program?")
        return replace(collected, furthest=max([collected.furthest, *self._alive.sent().values()]))

    # what couriers call

    @waits
    def job(self) -> Wait[Job | None]:
        """The next thing to do; None once all members of this host have ended and the others have been told."""
        while (job := self._next()) is None and not self._over():
            yield
        self._ended = self._ended or job is None
        return job

    def file(self, parcel: Parcel) -> None:
        """A parcel that was found in order."""
        home = parcel.message.sender // self._learners
        if home not in self._outboxes:
            self.refuse()
            return
        self._alive.heard(home)
        self._agree()
        self.boxes.send(parcel.message, [rank for rank in parcel.receivers if rank in self._own])

    def inherit(self, parcel: Parcel) -> None:
        """The last message of a member that has ended: for the members here, which have been restarted."""
        self.boxes.send(parcel.message, sorted(self._own))

    def bequeath(self, packets: Sequence[Array]) -> None:
        """The end of `Remains`: keep them for hosts that are restarted."""
        self._remains = tuple(packets)

    def greeted(self, hello: Hello) -> None:
        """A sign of life that was found in order."""
        if hello.host not in self._outboxes:
            self.refuse()
            return
        if UNKNOWN not in (hello.layout, self._layout) and hello.layout != self._layout:
            self._odd, self.boxes.view = hello.host, self.boxes.view + 1  # nobody waits any longer
        self._alive.merge(hello.pulses)
        self._agree()

    def refuse(self) -> None:
        """Count a packet that cannot be used."""
        self.boxes.refused += 1

    def unpacked(self) -> None:
        """The end of an `Arrival`."""
        self._unpacking = False

    def done(self, transfer: Transfer, *, arrived: bool) -> None:
        """The end of a transfer. What did not arrive is tried again, unless something newer is waiting."""
        parcels = [] if arrived else [item for item in transfer.items if isinstance(item, Parcel)]
        self._outboxes[transfer.host].back(parcels, arrived=arrived, now=self._alive.now)

    # what other hosts' couriers call

    def remains(self) -> tuple[Array, ...]:
        """Packed last messages of this host's members, once all of them have ended."""
        return self._remains or ()

    def deliver(self, *packets: Array) -> None:
        """The door: packets as `wire.encode` makes them. Whatever else comes is refused and counted."""
        welcome, early = list[Array](), list[Array]()
        for packet in packets:
            try:
                kind = peek(packet, self.token)
            except Refused:
                self.refuse()
                continue
            (welcome if kind == HELLO or self._layout != UNKNOWN else early).append(packet)
        if early:
            self.boxes.refused += len(self._early[0]) if len(self._early) == BACKLOG else 0  # the oldest falls out
            self._early.append(tuple(early))
        if not self._own:
            return  # nobody is here any more
        if len(self._arrivals) >= BACKLOG:
            self.boxes.refused += len(welcome)
        elif welcome:
            self._arrivals.append(tuple(welcome))

    # what the watch calls

    def tick(self, now: float, restarts: int = 0) -> bool:
        """Look at the clock: who has been silent too long, who is due a sign of life. False once nobody is here and the
        others have been told: if the host dies before, its couriers are started again and need a clock to end by.

        `restarts` of this host: members that had ended before do not come back to say so, and are not waited for."""
        self._began = now if self._began is None else self._began
        if restarts and now - self._began > COMEBACK:
            self._own &= self._joined
        if not self._own:  # farewells need no clock; and after a restart those who carry them may have ended before
            return not (restarts or self._ended or self._over())
        for host in self._alive.tick(now, self._reached()):
            self._outboxes[host].greet = True
        self._agree()
        self._told.append(self._alive.sent())
        if len(self._told) == self._told.maxlen:  # so long ago that what was sent until then has come or never will
            self.boxes.passed(self._told[0])
        return True

    def _say(self) -> None:
        """Tell the others at once who takes part here."""
        self._alive.tick(self._alive.now, self._reached())
        for host in self._alive.acquaintances:
            self._outboxes[host].greet, self._outboxes[host].after = True, 0.0

    def _reached(self) -> dict[int, int]:
        """The members of this host, and how far they are."""
        return {rank: self.boxes.last.get(rank, 0) for rank in sorted(self._own)}

    def _agree(self) -> None:
        """Let the members be those of the hosts that are alive."""
        there = {rank for host in self._outboxes for rank in self._alive.members(host)}
        here = set(self.boxes.members) & self._own
        self.boxes.admit(there)
        self.boxes.dismiss(set(self.boxes.members) - there - here)
        for host in self._alive.silent:
            self._outboxes[host].clear()

    @property
    def _layout(self) -> bytes:
        return self.boxes.layout or UNKNOWN

    # part of checkpoints: `program.Saved`

    def settled(self) -> bool:
        here = self._arrivals or self._early or self._unpacking
        return not here and not any(box.busy or box.laden for box in self._outboxes.values())

    def state_dict(self) -> Tree:
        parcels = [
            [host, list(parcel.receivers), parcel.message.state_dict()]
            for host, box in self._outboxes.items()
            for parcel in box.undelivered
        ]
        return {"boxes": self.boxes.state_dict(), "parcels": parcels}

    def load_state_dict(self, state: Tree) -> None:
        self.boxes.load_state_dict(state["boxes"])
        for host, receivers, message in state["parcels"]:
            self._outboxes[host].put(Parcel(Message.from_state(message), tuple(receivers)))

    def _next(self) -> Job | None:
        if self._search:
            self._search = False
            return Search(self.token, self._layout)
        if self._arrivals and not self._unpacking:
            self._unpacking = True
            return Arrival(self._arrivals.popleft(), self.token, self._layout)
        ready = [h for h, box in self._outboxes.items() if box.ready(self._alive.now)]
        if not ready:
            return self._bequest()
        host = min(ready, key=lambda h: (not self._outboxes[h].laden, self._outboxes[h].turn))
        outbox = self._outboxes[host]
        items: list[Parcel | Hello] = [Hello(self.host, self._alive.pulses(), self._layout)] if outbox.greet else []
        return Transfer(host, (*outbox.take(), *items), self.token, self._layout)  # a farewell after the last parcel

    def _bequest(self) -> Remains | None:
        """The last messages of the members here, once all of them have ended."""
        if self._own or not self._newest or self._packing:
            return None
        self._packing = True
        return Remains(tuple(Parcel(m, ()) for m in self._newest.values()), self.token, self._layout)

    def _over(self) -> bool:
        """Whether all members have ended, and whoever can be reached has been told; then couriers end."""
        packed = self._remains is not None or not self._newest
        return not self._own and packed and not any(box.pending(self._alive.now) for box in self._outboxes.values())
