"""What one host has for another one."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from gossamer.exchange.gossip.messages import Parcel, merge

RETRY = 2.0  # seconds until a host that did not answer is tried again


@dataclass
class Outbox:
    """Parcels for one host, oldest first, and whether it is to get a sign of life."""

    newest: bool = True  # whether of one sender only the newest message counts
    adds: bool = False  # whether messages of one sender may be added up
    parcels: list[Parcel] = field(default_factory=list)
    tried: list[Parcel] = field(default_factory=list)  # not to be added up: they may have arrived, whatever it seemed
    carried: list[Parcel] = field(default_factory=list)  # on their way now
    greet: bool = True
    busy: bool = False  # whether a courier is on its way there
    after: float = 0.0  # not to be tried before then, in seconds
    turn: int = 0  # how often a courier has gone

    def ready(self, now: float) -> bool:
        """Whether a courier should go there now."""
        return not self.busy and self.pending(now)

    def pending(self, now: float) -> bool:
        """Whether something is to be taken there, or on its way, that is not put off."""
        return self.busy or (self.after <= now and (self.laden or self.greet))

    @property
    def laden(self) -> bool:
        """Whether there is a parcel."""
        return bool(self.tried or self.parcels)

    def take(self) -> list[Parcel]:
        """All there is, for one way; what was tried before goes first, and alone."""
        parcels, self.tried = self.tried, []
        if not parcels:
            parcels, self.parcels = self.parcels, []
        self.busy, self.greet, self.turn, self.carried = True, False, self.turn + 1, parcels
        return parcels

    def back(self, parcels: list[Parcel], *, arrived: bool, now: float) -> None:
        """The courier is back, with those parcels that did not arrive."""
        self.busy, self.carried = False, []
        if not arrived:
            self.after, self.greet = now + RETRY, True
        if not arrived and self.adds:
            self.tried = parcels
        elif not arrived:
            since, self.parcels = self.parcels, []
            for parcel in [*parcels, *since]:
                self.put(parcel)

    @property
    def undelivered(self) -> list[Parcel]:
        """All parcels that may not have arrived, oldest first."""
        return [*self.carried, *self.tried, *self.parcels]

    def clear(self) -> None:
        """Forget the parcels."""
        self.parcels, self.tried = [], []

    def put(self, parcel: Parcel) -> None:
        """Add a parcel. Where only the newest counts, it takes the place of its sender's older ones, but for receivers
        that it is not for."""
        sender = parcel.message.sender
        if self.newest:
            older = [p for p in self.parcels if p.message.sender == sender]
            self.parcels = [p for p in self.parcels if p.message.sender != sender]
            for p in older:
                rest = tuple(rank for rank in p.receivers if rank not in parcel.receivers)
                self.parcels += [replace(p, receivers=rest)] if rest else []
        elif self.adds:
            same = [p for p in self.parcels if (p.message.sender, p.receivers) == (sender, parcel.receivers)]
            if len(same) > 1:  # two may wait: beyond that they are added up
                self.parcels = [p for p in self.parcels if p not in same]
                parcel = Parcel(merge([*(p.message for p in same), parcel.message]), parcel.receivers)
        self.parcels.append(parcel)
