"""Gossip-style failure detector (van Renesse, Minsky and Hayden 1998).

Every host counts its heartbeats. At each heartbeat it sends all counts that it knows to a few other hosts, which keep
the larger counts. A host is silent if its count has not increased for `patience` seconds. An update reaches n hosts
after about log n heartbeats, so `patience` grows with log n.

A restarted host learns its previous count from other hosts and continues from there, because smaller counts are
ignored. It first reports no members for a while, so that the other hosts notice the restart.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Mapping

from gossamer.exchange.gossip.messages import Pulse

BEAT = 1.0  # seconds between heartbeats
FAN_OUT = 4  # hosts notified at each heartbeat
BROADCAST_LIMIT = 16  # up to this number of hosts, changes are sent to all of them at once


class Liveness:
    """One host's knowledge of the others. `now` is its time in seconds, 0 until the first heartbeat."""

    def __init__(self, host: int, planned: Mapping[int, tuple[int, ...]]) -> None:
        """`planned`: the members on every host. They count as active until a host reports otherwise."""
        self.host, self.now = host, 0.0
        self.patience = BEAT * (4 + 2 * math.log2(max(2, len(planned))))
        self._pulses = {h: Pulse(h, 0, members, (0,) * len(members)) for h, members in planned.items()}
        self._heard = dict.fromkeys(planned, 0.0)
        self._others = [h for h in planned if h != host]
        random.Random(host).shuffle(self._others)
        self._beats = 0
        self._away_until = 0.0  # this host reports no members before this time
        self._senders: set[int] = set()  # hosts from which parcels were received

    def tick(self, now: float, sent: Mapping[int, int]) -> list[int]:
        """Count a heartbeat at time `now` and return the hosts to notify. `sent`: this host's active members, with the
        iteration of each one's last message."""
        if self.now == 0.0:  # heartbeats before the clock has started do not date other hosts
            self._heard = dict.fromkeys(self._heard, now)
        self.now, self._beats = now, self._beats + 1
        here = dict(sent) if now >= self._away_until else {}
        self._pulses[self.host] = Pulse(self.host, self._beats, tuple(here), tuple(here.values()))
        told = self._others[:FAN_OUT]
        self._others = self._others[FAN_OUT:] + told
        return told

    def heard(self, host: int) -> None:
        """Record that a parcel was received from this host."""
        self._heard[host] = self.now
        self._senders.add(host)

    def merge(self, pulses: Iterable[Pulse]) -> None:
        """Merge the knowledge of another host, keeping the higher counts."""
        for pulse in pulses:
            known = self._pulses.get(pulse.host)
            if pulse.host == self.host and pulse.beats > self._beats:  # from before this host was restarted
                self._beats, self._away_until = pulse.beats, self.now + self.patience / 2
            elif known is not None and pulse.host != self.host and pulse.beats > known.beats:
                self._pulses[pulse.host] = pulse
                self._heard[pulse.host] = self.now

    def pulses(self) -> tuple[Pulse, ...]:
        """Return the known state of all hosts."""
        return tuple(self._pulses.values())

    def sent(self) -> dict[int, int]:
        """Return the iteration of the last message, to any receiver, of each member of other hosts."""
        others = [pulse for pulse in self._pulses.values() if pulse.host != self.host]
        return {member: k for pulse in others for member, k in zip(pulse.members, pulse.sent, strict=True)}

    def members(self, host: int) -> tuple[int, ...]:
        """Return the active members of a host; empty if it is silent."""
        return () if host in self.silent else self._pulses[host].members

    @property
    def silent(self) -> list[int]:
        """Hosts without a new heartbeat or parcel for more than `patience` seconds."""
        return [h for h, when in self._heard.items() if h != self.host and self.now - when > self.patience]

    @property
    def to_notify(self) -> list[int]:
        """Hosts to notify at once of a change on this host."""
        if len(self._others) < BROADCAST_LIMIT:
            return self._others
        return sorted({*self._senders, *self._others[:FAN_OUT]})
