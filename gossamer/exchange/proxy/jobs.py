"""What a proxy asks its couriers to do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from gossamer.data import Array
from gossamer.exchange.gossip.messages import Hello, Parcel


@dataclass(frozen=True)
class Arrival:
    """Courier job: decode received packets."""

    packets: tuple[Array, ...]
    token: bytes
    layout: bytes


@dataclass(frozen=True)
class Transfer:
    """Courier job: send items to another host."""

    host: int
    items: tuple[Parcel | Hello, ...]
    token: bytes
    layout: bytes


@dataclass(frozen=True)
class FetchLast:
    """Courier job: fetch the last messages of members that have ended from the other proxies."""

    token: bytes
    layout: bytes


@dataclass(frozen=True)
class PackLast:
    """Courier job: encode the last messages of this host's members after all of them have ended."""

    items: tuple[Parcel, ...]
    token: bytes
    layout: bytes


Job: TypeAlias = Arrival | Transfer | FetchLast | PackLast
