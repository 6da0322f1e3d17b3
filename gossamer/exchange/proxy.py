"""PALA's data proxy: the post of one host, which moves messages between hosts in its own time."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

import torch

from gossamer.data import Array
from gossamer.exchange.mailboxes import Collected, LayoutMismatch, Mailboxes
from gossamer.exchange.message import Format, Hello, Message, Parcel, merge
from gossamer.exchange.wire import HELLO, Refused, decode, encode, peek
from gossamer.program import Context, Stopped, Unreachable, Wait, waits

BEAT = 2.0  # seconds between two looks at the clock, and between two signs of life
PATIENCE = 8.0  # seconds of silence after which a host's members count as gone
RETRY = 2.0  # seconds until a host that did not answer is tried again
UNKNOWN = bytes(8)  # the layout of a host where no member has joined yet
BACKLOG = 64  # packets that may wait to be looked at; more are refused


@dataclass(frozen=True)
class Arrival:
    """Work for a courier: look at what has come."""

    packet: Array
    token: bytes
    layout: bytes


@dataclass(frozen=True)
class Transfer:
    """Work for a courier: take these to that host."""

    host: int
    items: tuple[Parcel | Hello, ...]
    token: bytes
    layout: bytes


@dataclass
class _Link:
    """What this host knows of another one."""

    heard: float  # when it last gave a sign of life
    members: tuple[int, ...]  # who takes part there, as it said last
    parcels: list[Parcel] = field(default_factory=list)  # to be taken there, oldest first
    greet: bool = True  # whether it is to get a sign of life
    busy: bool = False  # whether a courier is on its way there
    after: float = 0.0  # not before then


class Proxy:
    """Service: one on each host. To its own members it is their post; to other hosts' proxies `deliver` is its door.

    Hosts learn of each other's members, and of their end, by signs of life; whoever is silent for PATIENCE seconds
    counts as gone, and is back as soon as it is heard again. So a member that ends, dies or is cut off holds nobody up.
    """

    def __init__(self, *, host: int, hosts: int, learners: int, token: bytes, newest: bool = True, adds: bool = False):
        """`learners` on each of `hosts` hosts; `token`: 16 bytes that all proxies of this run know, and nobody else;
        `newest`, `adds`: as the members' exchange has it (`Gossip`)."""
        self.host, self.token, self.adds = host, token, adds
        self.boxes = Mailboxes(hosts * learners, newest=newest)
        self._own = set(range(host * learners, (host + 1) * learners))  # that have not ended
        self._home = {rank: rank // learners for rank in range(hosts * learners)}
        self._links = {h: _Link(0.0, self._on(h)) for h in range(hosts) if h != host}
        self._arrivals: deque[Array] = deque()
        self._now: float | None = None
        self._odd: int | None = None  # a host whose members have another model

    # what members call: `mailboxes.Post`

    def join(self, rank: int, layout: bytes) -> Collected:
        self._own.add(rank)
        collected = self.boxes.join(rank, layout)
        self._greet_all()
        return collected

    def leave(self, rank: int) -> None:
        self._own.discard(rank)
        self.boxes.leave(rank)
        self._greet_all()

    def send(self, message: Message, to: Sequence[int]) -> None:
        here = [rank for rank in to if self._home[rank] == self.host]
        self.boxes.send(message, here)
        for host, link in self._links.items():
            there = tuple(rank for rank in to if self._home[rank] == host)
            if there:
                self._queue(link, Parcel(message, there))

    @waits
    def collect(self, rank: int, needed: Mapping[int, int], view: int, upto: float = math.inf) -> Wait[Collected]:
        collected: Collected = yield from Mailboxes.collect.waits(self.boxes, rank, needed, view, upto)  # type: ignore[attr-defined]
        if self._odd is not None:
            raise LayoutMismatch(f"host {self._odd} has another model than host {self.host}: not the same program?")
        return collected

    # what couriers call

    @waits
    def job(self) -> Wait[Arrival | Transfer | None]:
        """The next thing to do; None once all members of this host have ended and the others know it."""
        while (job := self._next()) is None and not self._over():
            yield
        return job

    def file(self, parcel: Parcel) -> None:
        """A parcel that was found in order."""
        home = self._home.get(parcel.message.sender)
        if home not in self._links:
            self.refuse()
            return
        self._heard(home)
        self.boxes.send(parcel.message, [rank for rank in parcel.receivers if rank in self._own])

    def greeted(self, hello: Hello) -> None:
        """A sign of life that was found in order."""
        if hello.host not in self._links:
            self.refuse()
            return
        if UNKNOWN not in (hello.layout, self._layout) and hello.layout != self._layout:
            self._odd = hello.host
        self._links[hello.host].members = hello.members
        self._heard(hello.host)

    def refuse(self) -> None:
        """Count a packet that cannot be used."""
        self.boxes.refused += 1

    def done(self, transfer: Transfer, *, arrived: bool) -> None:
        """The end of a transfer. What did not arrive is tried again, unless something newer is waiting."""
        link = self._links[transfer.host]
        link.busy = False
        if arrived:
            return
        link.after = (self._now or 0.0) + RETRY
        link.greet = True
        waiting, link.parcels = link.parcels, []
        for parcel in [*(item for item in transfer.items if isinstance(item, Parcel)), *waiting]:
            self._queue(link, parcel)

    # what other hosts' couriers call

    def deliver(self, packet: Array) -> None:
        """The door: a packet as `wire.encode` makes it. Whatever else comes is refused and counted."""
        try:
            kind = peek(packet, self.token)
        except Refused:
            self.refuse()
            return
        if len(self._arrivals) >= BACKLOG:
            self.refuse()
        elif self._own and (kind == HELLO or self._layout != UNKNOWN):  # else nobody is there yet, or any more
            self._arrivals.append(packet)

    # what the watch calls

    def tick(self, now: float) -> bool:
        """Look at the clock: who has been silent too long, who is due a sign of life. False when all is over."""
        if self._now is None:
            for link in self._links.values():
                link.heard = now
        self._now = now
        for link in self._links.values():
            link.greet |= bool(self._own)
            if now - link.heard > PATIENCE:
                self.boxes.dismiss(link.members)
                link.parcels.clear()
        return not self._over()

    @property
    def _layout(self) -> bytes:
        return self.boxes.layout or UNKNOWN

    def _heard(self, host: int) -> None:
        link = self._links[host]
        link.heard = self._now or 0.0
        self.boxes.dismiss(set(self._on(host)) - set(link.members))
        self.boxes.admit(link.members)

    def _greet_all(self) -> None:
        for link in self._links.values():
            link.greet, link.after = True, 0.0

    def _on(self, host: int) -> tuple[int, ...]:
        return tuple(rank for rank, home in self._home.items() if home == host)

    def _queue(self, link: _Link, parcel: Parcel) -> None:
        """Add a parcel. Where only the newest counts, older ones of the sender are for those that it is not for."""
        sender = parcel.message.sender
        if self.boxes.newest:
            older = [p for p in link.parcels if p.message.sender == sender]
            link.parcels = [p for p in link.parcels if p.message.sender != sender]
            if older and older[-1].message.iteration > parcel.message.iteration:
                older, parcel = [parcel], older[-1]
            for p in older:
                rest = tuple(rank for rank in p.receivers if rank not in parcel.receivers)
                link.parcels += [replace(p, receivers=rest)] if rest else []
        elif self.adds:
            same = [p for p in link.parcels if (p.message.sender, p.receivers) == (sender, parcel.receivers)]
            if len(same) > 1:  # never more than two wait: beyond that they are added up
                link.parcels = [p for p in link.parcels if p not in same]
                parcel = Parcel(merge([*(p.message for p in same), parcel.message]), parcel.receivers)
        link.parcels.append(parcel)

    def _next(self) -> Arrival | Transfer | None:
        if self._arrivals:
            return Arrival(self._arrivals.popleft(), self.token, self._layout)
        now = self._now or 0.0
        for host, link in self._links.items():
            if not link.busy and link.after <= now and (link.parcels or link.greet):
                hello = Hello(self.host, tuple(sorted(self._own)), self._layout)
                greeting, parcels = ([hello] if link.greet else []), link.parcels
                link.busy, link.greet, link.parcels = True, False, []
                self._links[host] = self._links.pop(host)  # the others come first next time
                return Transfer(host, (*greeting, *parcels), self.token, self._layout)
        return None

    def _over(self) -> bool:
        """Whether all members have ended, and whoever can be reached has been told."""
        if self._own:
            return False
        now = self._now or 0.0
        return not any((link.greet or link.parcels or link.busy) and link.after <= now for link in self._links.values())


def carry(ctx: Context, proxy: Proxy, others: Sequence[Proxy], *, form: Format = "fp32") -> None:
    """A courier's loop: do what the proxy has to do, outside of it, so that it is never held up.

    `others`: every host's proxy, by host, the own one among them; `form`: of the numbers on their way."""
    torch.set_num_threads(1)
    with suppress(Stopped):
        while (job := proxy.job()) is not None:
            if isinstance(job, Arrival):
                _sort(proxy, job)
                continue
            try:
                for item in job.items:
                    others[job.host].deliver(encode(item, job.token, job.layout, form))
            except Unreachable:
                proxy.done(job, arrived=False)
            else:
                proxy.done(job, arrived=True)


def _sort(proxy: Proxy, job: Arrival) -> None:
    """Look at a packet that came, and let the proxy have what is in it."""
    try:
        item = decode(job.packet, job.token, job.layout)
    except Refused:
        proxy.refuse()
        return
    if isinstance(item, Hello):
        proxy.greeted(item)
    else:
        proxy.file(item)


def watch(ctx: Context, proxy: Proxy) -> None:
    """A clock's loop: tell the proxy the time, again and again."""
    while not ctx.stopped and proxy.tick(ctx.now()):
        ctx.sleep(BEAT)
