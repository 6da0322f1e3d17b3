"""Who is alive: a failure detector that gossips (van Renesse, Minsky and Hayden 1998).

Every host counts the beats of its clock, tells a few others all counts it knows at each beat, and takes the larger
ones from what it is told. A host whose count has not grown for a while is silent, whoever was to hear of it. News needs
about log n beats to reach n hosts, and so do doubts: `patience` grows with log n.

A host that was started again hears how far its clock had come before, and goes on from there, or it would not be
believed; and before that, perhaps sooner than anybody missed it, it lets everybody know that its members were away.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Mapping

from gossamer.exchange.gossip.messages import Pulse

BEAT = 1.0  # seconds between two looks at the clock
FAN_OUT = 4  # hosts that are told at each beat
CLOSE = 16  # up to so many hosts, changes are told to all of them at once


class Liveness:
    """What one host knows of the others. `now` is its time in seconds, 0 until the first beat."""

    def __init__(self, host: int, planned: Mapping[int, tuple[int, ...]]) -> None:
        """`planned`: the members on every host; they count as taking part until it is known better."""
        self.host, self.now = host, 0.0
        self.patience = BEAT * (4 + 2 * math.log2(max(2, len(planned))))
        self._pulses = {h: Pulse(h, 0, members, (0,) * len(members)) for h, members in planned.items()}
        self._heard = dict.fromkeys(planned, 0.0)
        self._others = [h for h in planned if h != host]
        random.Random(host).shuffle(self._others)
        self._beats = 0
        self._away = 0.0  # until then nobody is said to take part here
        self._spoke: set[int] = set()  # hosts that parcels came from

    def tick(self, now: float, sent: Mapping[int, int]) -> list[int]:
        """It is `now`, and these members take part here, each with the iteration of its last message: whom to tell."""
        if self.now == 0.0:  # a beat may come before the clock does
            self._heard = dict.fromkeys(self._heard, now)
        self.now, self._beats = now, self._beats + 1
        here = dict(sent) if now >= self._away else {}
        self._pulses[self.host] = Pulse(self.host, self._beats, tuple(here), tuple(here.values()))
        told = self._others[:FAN_OUT]
        self._others = self._others[FAN_OUT:] + told
        return told

    def heard(self, host: int) -> None:
        """Something came from that host."""
        self._heard[host] = self.now
        self._spoke.add(host)

    def merge(self, pulses: Iterable[Pulse]) -> None:
        """What another host knows."""
        for pulse in pulses:
            known = self._pulses.get(pulse.host)
            if pulse.host == self.host and pulse.beats > self._beats:  # of an earlier life
                self._beats, self._away = pulse.beats, self.now + self.patience / 2
            elif known is not None and pulse.host != self.host and pulse.beats > known.beats:
                self._pulses[pulse.host] = pulse
                self._heard[pulse.host] = self.now

    def pulses(self) -> tuple[Pulse, ...]:
        """All that is known, for others."""
        return tuple(self._pulses.values())

    def sent(self) -> dict[int, int]:
        """Of members of other hosts, the iteration of the last message they are known to have sent to anybody."""
        others = [pulse for pulse in self._pulses.values() if pulse.host != self.host]
        return {member: k for pulse in others for member, k in zip(pulse.members, pulse.sent, strict=True)}

    def members(self, host: int) -> tuple[int, ...]:
        """Who takes part there: nobody where it is silent."""
        return () if host in self.silent else self._pulses[host].members

    @property
    def silent(self) -> list[int]:
        """Hosts that have not been heard of for too long."""
        return [h for h, when in self._heard.items() if h != self.host and self.now - when > self.patience]

    @property
    def acquaintances(self) -> list[int]:
        """Whom to tell at once when something changes here."""
        return self._others if len(self._others) < CLOSE else sorted({*self._spoke, *self._others[:FAN_OUT]})
