"""PALA's data proxy: delivers messages between hosts asynchronously."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from gossamer.data import Array, Tree
from gossamer.exchange.gossip.mailboxes import Collected, LayoutMismatch, Mailboxes
from gossamer.exchange.gossip.messages import Hello, Message, Parcel
from gossamer.exchange.proxy.jobs import Arrival, FetchLast, Job, PackLast, Transfer
from gossamer.exchange.proxy.liveness import BEAT, Liveness
from gossamer.exchange.proxy.outbox import Outbox
from gossamer.exchange.proxy.wire import HELLO, Refused, decoded, peek
from gossamer.runtime import Wait, waits

UNKNOWN = bytes(8)  # layout of a host before its first member joins
REJOIN = 60.0  # seconds that members have to start again after a restart of their host
BACKLOG = 64  # queued `deliver` calls, or two of each host if that is more: all say hello at the start


class Proxy:
    """Service: the `Post` of one host's members. Couriers of other hosts send packets to `deliver`.

    Its methods return quickly: slow operations are jobs for couriers (`workers.carry`). Hosts exchange their active
    members (`Liveness`), so members that end, fail or become unreachable do not block the others."""

    def __init__(
        self,
        *,
        host: int,
        hosts: int,
        members: int,
        token: bytes,
        newest: bool = True,
        adds: bool = False,
    ) -> None:
        """So many `members` on each of `hosts` hosts; `token`: shared secret of this run's proxies, 16 bytes;
        `newest`, `adds`: see `Mailboxes`."""
        self.host, self.token = host, token
        self._backlog = max(BACKLOG, 2 * hosts)
        self.boxes = Mailboxes(hosts * members, newest=newest, adds=adds)
        self._members = members
        self._own = set(range(host * members, (host + 1) * members))  # this host's members that have not ended
        self._expected: set[int] = set()  # of these, those that have started
        self._joined: set[int] = set()
        self._started: float | None = None  # time of the first heartbeat, seconds
        self._restarted = False  # whether this host was, as of the last heartbeat
        planned = {h: tuple(range(h * members, (h + 1) * members)) for h in range(hosts)}
        self._alive = Liveness(host, planned)
        # Progress of other hosts' members at the last heartbeats, oldest first
        self._progress = deque[dict[int, int]](maxlen=math.ceil(self._alive.patience / BEAT))
        self._outboxes = {h: Outbox(newest, adds) for h in range(hosts) if h != host}
        self._arrivals: deque[tuple[Array, ...]] = deque()
        self._early: deque[tuple[Array, ...]] = deque()  # received before the first member has joined
        self._couriers_ended = False
        self._unpacking = False  # one courier at a time decodes, so that packets stay in order
        self._newest: dict[int, Message] = {}  # member of this host -> its newest message
        self._last_messages: tuple[Array, ...] | None = None  # encoded, after all members of this host have ended
        self._fetch_last = False  # whether to fetch those of other hosts
        self._packing = False  # whether a courier has been asked to encode them
        self._mismatched: int | None = None  # a host whose model has another layout

    # Called by members: `mailboxes.Post`

    def expect(self, rank: int) -> None:
        self._expected.add(rank)

    def join(self, rank: int, layout: bytes, *, again: bool = False) -> Collected:
        self._own.add(rank)
        self._joined.add(rank)
        self._fetch_last |= again
        collected = self.boxes.join(rank, layout, again=again)
        self._arrivals.extendleft(reversed(self._early))
        self._early.clear()
        self._announce()
        return collected

    def leave(self, rank: int) -> None:
        self._expected.discard(rank)
        self._joined.discard(rank)
        self._own.discard(rank)
        self.boxes.leave(rank)
        self._announce()

    def send(self, message: Message, to: Sequence[int]) -> None:
        self._newest[message.sender] = message
        by_host: dict[int, list[int]] = {}
        for rank in to:
            by_host.setdefault(rank // self._members, []).append(rank)
        self.boxes.send(message, by_host.pop(self.host, []))
        for host, ranks in by_host.items():
            self._outboxes[host].put(Parcel(message, tuple(ranks)))

    @waits
    def collect(self, rank: int, needed: Mapping[int, int], view: int, upto: float = math.inf) -> Wait[Collected]:
        waiting = Mailboxes.collect.waits  # type: ignore[attr-defined]  # the generator function behind @waits
        collected: Collected = yield from waiting(self.boxes, rank, needed, view, upto)
        if self._mismatched is not None:
            raise LayoutMismatch(f"model of host {self._mismatched} differs from that of host {self.host}")
        return replace(collected, furthest=max([collected.furthest, *self._alive.sent().values()]))

    # Called by this host's couriers

    def forget(self, ended: Collection[str]) -> None:
        """These workers had ended before this host restarted. If its clock had, so had all its members: it does not
        start again, and couriers have no more to do than to notify the other hosts."""
        if f"watch[{self.host}]" in ended:
            self._own.clear()

    @waits
    def job(self) -> Wait[Job | None]:
        """Return the next job. Returns None after all members of this host have ended and other hosts are notified."""
        while (job := self._next()) is None and not self._finished():
            yield
        self._couriers_ended = self._couriers_ended or job is None
        return job

    def file(self, parcel: Parcel) -> None:
        """Put a decoded parcel into the mailboxes of its receivers."""
        home = parcel.message.sender // self._members
        if home not in self._outboxes:
            self.refuse()
            return
        self._alive.heard(home)
        self._outboxes[home].heard(self._alive.now)
        self._update_members()
        here = [rank for rank in parcel.receivers if rank // self._members == self.host]
        self.boxes.send(parcel.message, here)  # a member that has left receives it when the run is resumed

    def fetched_last(self, parcel: Parcel) -> None:
        """Put the last message of a member that has ended into the mailboxes of this host's restarted members."""
        self.boxes.send(parcel.message, sorted(self._own))

    def packed_last(self, packets: Sequence[Array]) -> None:
        """Complete a `PackLast` job: keep the packets for hosts that are restarted."""
        self._last_messages = tuple(packets)

    def hello(self, hello: Hello) -> None:
        """Process a decoded `Hello`."""
        if hello.host not in self._outboxes:
            self.refuse()
            return
        if UNKNOWN not in (hello.layout, self._layout) and hello.layout != self._layout:
            self._mismatched, self.boxes.view = hello.host, self.boxes.view + 1  # wakes members blocked in `collect`
        self._alive.merge(hello.pulses)
        self._outboxes[hello.host].heard(self._alive.now)
        self._update_members()

    def refuse(self) -> None:
        """Count a rejected packet."""
        self.boxes.refused += 1

    def unpacked(self) -> None:
        """Complete an `Arrival` job."""
        self._unpacking = False

    def done(self, transfer: Transfer, *, arrived: bool) -> None:
        """Complete a `Transfer` job. After a failure, parcels are sent again unless newer ones replace them."""
        parcels = [] if arrived else [item for item in transfer.items if isinstance(item, Parcel)]
        self._outboxes[transfer.host].finish(parcels, arrived=arrived, now=self._alive.now)

    # Called by couriers of other hosts

    def last_messages(self) -> tuple[Array, ...]:
        """Return the encoded last messages of this host's members; empty until all of them have ended."""
        return self._last_messages or ()

    def deliver(self, *packets: Array) -> str | None:
        """Receive packets made by `wire.encode`. Anything else is refused and counted.

        Returns None if all are kept, else why not: the caller has to deliver them again. After all members of this host
        have ended, parcels are kept for the checkpoint, and a `Hello` is of no use."""
        accepted, early = list[Array](), list[Array]()
        for packet in packets:
            try:
                kind = peek(packet, self.token)
            except Refused:
                self.refuse()
                continue
            if kind == HELLO:
                accepted += [packet] if self._own else []
            else:
                (early if self._layout == UNKNOWN else accepted).append(packet)
        queued = [(self._early, early), (self._arrivals, accepted)]
        for queue, each in queued:
            if each and len(queue) < self._backlog:
                queue.append(tuple(each))
                each.clear()
        return f"{self._backlog} are queued" if early or accepted else None

    # Called by the watch

    def tick(self, now: float, restarts: int = 0) -> bool:
        """Count a heartbeat at time `now` (seconds): schedule `Hello`s, and remove members of silent hosts.

        Returns whether to continue: False after all members of this host have ended and other hosts are notified. The
        clock runs until then because couriers of a restarted host rely on it to terminate. `restarts` of this host:
        members that ended before a restart do not start again, so they are dropped after `REJOIN` seconds."""
        self._started = now if self._started is None else self._started
        self._restarted = restarts > 0
        if restarts and now - self._started > REJOIN:
            self._own &= self._joined | self._expected
        if not self._own:  # final notifications need no clock; after a restart their couriers may have ended already
            return not (restarts or self._couriers_ended or self._finished())
        for host in self._alive.tick(now, self._reached()):
            self._outboxes[host].hello_due = True
        self._update_members()
        self._progress.append(self._alive.sent())
        if len(self._progress) == self._progress.maxlen:  # messages sent so long ago have arrived or are lost
            self.boxes.passed(self._progress[0])
        return True

    def _announce(self) -> None:
        """Notify other hosts of this host's active members without waiting for the next heartbeat."""
        self._alive.tick(self._alive.now, self._reached())
        silent = self._alive.silent
        for host in self._alive.to_notify:
            outbox = self._outboxes[host]
            outbox.hello_due, outbox.not_before = True, outbox.not_before if host in silent else 0.0

    def _reached(self) -> dict[int, int]:
        """Return the iteration of the last message of each member of this host. After a restart without those that have
        not joined again: others send all parameters to a member that is new to them, when it can receive them."""
        active = self._own & self._joined if self._restarted else self._own
        return {rank: self.boxes.last.get(rank, 0) for rank in sorted(active)}

    def _update_members(self) -> None:
        """Set the active members to those of this host and of hosts that are not silent."""
        there = {rank for host in self._outboxes for rank in self._alive.members(host)}
        here = set(self.boxes.members) & self._own
        self.boxes.admit(there)
        self.boxes.dismiss(set(self.boxes.members) - there - here)
        for host in self._alive.silent:
            self._outboxes[host].clear()

    @property
    def _layout(self) -> bytes:
        return self.boxes.layout or UNKNOWN

    # Part of checkpoints: `runtime.Saved`

    def settled(self) -> bool:
        if self._couriers_ended:  # what is still here stays here
            return not self._unpacking
        here = (self._arrivals and self._own) or self._early or self._unpacking
        return not here and not any(box.busy or box.has_parcels for box in self._outboxes.values())

    def state_dict(self) -> Tree:
        """Return the state. A parcel is in that of its receiver's host if the host has kept it, and else in that of its
        sender's host. So none is lost, also after couriers have ended (push-sum: their weights count)."""
        self._decode_rest()
        parcels = [
            [host, list(parcel.receivers), parcel.message.state_dict()]
            for host, box in self._outboxes.items()
            for parcel in box.undelivered
        ]
        return {"boxes": self.boxes.state_dict(), "parcels": parcels, "layout": self._layout.hex()}

    def load_state_dict(self, state: Tree) -> None:
        self.boxes.load_state_dict(state["boxes"])
        layout = bytes.fromhex(state.get("layout", UNKNOWN.hex()))  # couriers send parcels before a member has joined
        self.boxes.layout = None if layout == UNKNOWN else layout
        for host, receivers, message in state["parcels"]:
            self._outboxes[host].put(Parcel(Message.from_state(message), tuple(receivers)))

    def _decode_rest(self) -> None:
        """Decode what has arrived and no courier has decoded: they end with this host's members, or when the program is
        stopped."""
        packets = [packet for queue in (self._arrivals, self._early) for each in queue for packet in each]
        self._arrivals.clear()
        self._early.clear()
        for item in decoded(packets, self.token, self.boxes.layout, self.refuse):
            if isinstance(item, Hello):
                self.hello(item)
            else:
                self.file(item)

    def _next(self) -> Job | None:
        if self._fetch_last:
            self._fetch_last = False
            return FetchLast(self.token, self._layout)
        if self._arrivals and self._own and not self._unpacking:  # without members `state_dict` decodes them
            self._unpacking = True
            return Arrival(self._arrivals.popleft(), self.token, self._layout)
        # A transfer that fails takes long: one courier at a time tries the hosts that have not answered
        trying = any(box.busy and box.pause for box in self._outboxes.values())
        ready = [h for h, box in self._outboxes.items() if box.ready(self._alive.now) and not (trying and box.pause)]
        if not ready:
            return self._pack_last()
        host = min(ready, key=lambda h: (not self._outboxes[h].has_parcels, self._outboxes[h].transfers))
        outbox = self._outboxes[host]
        items: list[Parcel | Hello] = [Hello(self.host, self._alive.pulses(), self._layout)] if outbox.hello_due else []
        return Transfer(host, (*outbox.take(), *items), self.token, self._layout)  # a last `Hello` follows the parcels

    def _pack_last(self) -> PackLast | None:
        """Return the job to encode the last messages, once all members of this host have ended."""
        if self._own or not self._newest or self._packing:
            return None
        self._packing = True
        return PackLast(tuple(Parcel(m, ()) for m in self._newest.values()), self.token, self._layout)

    def _finished(self) -> bool:
        """Whether all members have ended and all reachable hosts are notified. The couriers then end."""
        packed = self._last_messages is not None or not self._newest
        return not self._own and packed and not any(box.pending(self._alive.now) for box in self._outboxes.values())
