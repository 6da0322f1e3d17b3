"""Outgoing queue of one host for another."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from gossamer.exchange.gossip.messages import Parcel, merge, replaces

RETRY, LONGEST = 2.0, 16.0  # seconds until a failed transfer is retried: RETRY at first, twice as long each time


@dataclass
class Outbox:
    """Parcels for one host, oldest first, and whether a `Hello` is due."""

    newest: bool = True  # whether a sender's new message replaces its queued ones (see `replaces`)
    adds: bool = False  # whether messages of one sender may be merged
    parcels: list[Parcel] = field(default_factory=list)
    unconfirmed: list[Parcel] = field(default_factory=list)  # may have arrived, so they must not be merged
    in_transit: list[Parcel] = field(default_factory=list)
    hello_due: bool = True
    busy: bool = False  # whether a transfer is in progress
    not_before: float = 0.0  # earliest time of the next transfer, seconds
    transfers: int = 0  # transfers started so far
    pause: float = 0.0  # seconds, after the last transfer; 0 if it arrived, or if the host has been heard since

    def ready(self, now: float) -> bool:
        """Whether a transfer should start now."""
        return not self.busy and self.pending(now)

    def pending(self, now: float) -> bool:
        """Whether a transfer is in progress or due now."""
        return self.busy or (self.not_before <= now and (self.has_parcels or self.hello_due))

    @property
    def has_parcels(self) -> bool:
        """Whether parcels are queued."""
        return bool(self.unconfirmed or self.parcels)

    def take(self) -> list[Parcel]:
        """Start a transfer and return its parcels. Unconfirmed parcels are sent first, on their own."""
        parcels, self.unconfirmed = self.unconfirmed, []
        if not parcels:
            parcels, self.parcels = self.parcels, []
        self.busy, self.hello_due, self.in_transit = True, False, parcels
        self.transfers += 1
        return parcels

    def finish(self, parcels: list[Parcel], *, arrived: bool, now: float) -> None:
        """End a transfer at time `now` (seconds). `parcels`: those to send again if it failed."""
        self.busy, self.in_transit = False, []
        self.pause = 0.0 if arrived else min(LONGEST, max(RETRY, 2 * self.pause))
        if not arrived:
            self.not_before, self.hello_due = now + self.pause, True
        if not arrived and self.adds:
            self.unconfirmed = parcels
        elif not arrived:
            since, self.parcels = self.parcels, []
            for parcel in [*parcels, *since]:
                self.put(parcel)

    def heard(self, now: float) -> None:
        """The host has been heard at time `now` (seconds): retry soon."""
        self.pause, self.not_before = 0.0, min(self.not_before, now + RETRY)

    @property
    def undelivered(self) -> list[Parcel]:
        """All parcels without confirmed delivery, oldest first."""
        return [*self.in_transit, *self.unconfirmed, *self.parcels]

    def clear(self) -> None:
        """Drop the queued parcels."""
        self.parcels, self.unconfirmed = [], []

    def put(self, parcel: Parcel) -> None:
        """Queue a parcel. With `newest` it replaces its sender's older ones for the receivers that they share."""
        sender = parcel.message.sender
        if self.newest:
            older, self.parcels = self.parcels, []
            for p in older:
                new = parcel.receivers if p.message.sender == sender and replaces(parcel.message, p.message) else ()
                rest = tuple(rank for rank in p.receivers if rank not in new)
                self.parcels += [replace(p, receivers=rest)] if rest else []
        elif self.adds:
            same = [p for p in self.parcels if (p.message.sender, p.receivers) == (sender, parcel.receivers)]
            if len(same) > 1:  # at most two are queued separately
                self.parcels = [p for p in self.parcels if p not in same]
                parcel = Parcel(merge([*(p.message for p in same), parcel.message]), parcel.receivers)
        self.parcels.append(parcel)
