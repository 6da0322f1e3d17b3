"""Which hosts average their gradients now: groups, and the host that forms them.

Each host has a learner group's membership from one other host, the *coordinator*: the reachable host with the lowest
number. Every `BEAT` seconds a host tells it that it is there, and gets the newest group. The coordinator forms a new
group when a host is ready that was in none, and when one of the group has been silent for `PATIENCE` seconds, has been
restarted, or has ended. A group has an *epoch*, which no other group has, so that what is given in one group is never
taken for something of another one.

Two parts of a network that is cut form a group each. When they meet again, the coordinator with the lower number forms
one of both.
"""

from __future__ import annotations

from dataclasses import dataclass

BEAT = 0.5  # seconds between two beats
PATIENCE = 8.0  # seconds of silence after which a host is left out; longer than a call that fails
FIRST = 20.0  # seconds that the first group waits for hosts that have not been heard
SETTLE = 3.0  # seconds that a coordinator of the group waits for others after the one before; a new host `PATIENCE`
TRIES = 2  # calls that a host does not answer until it is given up: one may have been lost
AVOID = 10.0  # seconds until one that was given up is called again
AGAIN = 3.0  # the same if another host says that it coordinates


@dataclass(frozen=True, order=True)
class Epoch:
    """Identifies a group. A host only moves on to a later one."""

    number: int
    host: int  # that has formed the group
    life: int  # restarts of that host


@dataclass(frozen=True)
class View:
    """A group of hosts."""

    epoch: Epoch
    members: tuple[int, ...]  # host numbers, ascending
    lives: tuple[int, ...]  # restarts of each, so that one that lost its state is not taken for a member
    before: tuple[int, ...] = ()  # members of the group before

    def has(self, host: int, life: int) -> bool:
        """Whether a host is in it, in this life."""
        return (host, life) in zip(self.members, self.lives, strict=True)


@dataclass(frozen=True)
class Place:
    """A round of a group."""

    view: View
    round: int

    @property
    def next(self) -> Place:
        """The round after it."""
        return Place(self.view, self.round + 1)


@dataclass(frozen=True)
class Beat:
    """What a host tells the coordinator."""

    host: int
    life: int  # restarts
    ready: bool  # whether its learners have all joined and none has ended
    view: View | None  # the newest group that it knows


class Coordinator:
    """Forms groups, on one host. Times are its own, in seconds."""

    def __init__(self, host: int, hosts: int) -> None:
        self._host, self._planned = host, frozenset(range(hosts))
        self._beats: dict[int, Beat] = {}  # host -> what it told last
        self._heard: dict[int, float] = {}  # host -> seconds: when that was
        self._fresh: set[int] = set()  # hosts heard since the last tick
        self._since: float | None = None  # when this host began to coordinate; None: it does not
        self._formed: View | None = None
        self._life = 0
        self._number = 0  # highest of all epochs known
        self.ended: frozenset[int] = frozenset()  # hosts whose learners had ended when this one restarted

    @property
    def active(self) -> bool:
        """Whether this host coordinates."""
        return self._since is not None

    def begin(self, now: float) -> None:
        """No host with a lower number can be reached."""
        self._since = now if self._since is None else self._since

    def yield_to_lower(self) -> None:
        """A host with a lower number can be reached."""
        self._since = None

    def tick(self, now: float) -> None:
        """It is this time. The clock may have been late, while it called hosts that do not answer: what was heard since
        its last tick counts as heard now."""
        self._heard |= dict.fromkeys(self._fresh, now)
        self._fresh.clear()

    def hear(self, beat: Beat, now: float) -> None:
        """A host is there."""
        self._beats[beat.host], self._heard[beat.host] = beat, now
        self._fresh.add(beat.host)
        if beat.view is not None:
            self._number = max(self._number, beat.view.epoch.number)

    def form(self, life: int, now: float) -> View | None:
        """Return a new group if there is to be one. `life`: restarts of this host."""
        if self._since is None:
            return None
        self._life = life
        here = {host: beat for host, beat in self._beats.items() if now - self._heard[host] <= PATIENCE}
        known = [beat.view for beat in here.values() if beat.view is not None]
        newest = max(known, key=lambda view: view.epoch, default=None)
        ready = {host: here[host].life for host in sorted(here) if here[host].ready}
        if newest is not None and ready == dict(zip(newest.members, newest.lives, strict=True)):
            return None  # also if another coordinator has formed it
        own = newest is not None and newest == self._formed
        if not ready or not (own or self._complete(newest, here, now, self._since)):
            return None
        self._number += 1
        epoch = Epoch(self._number, self._host, life)
        before = () if newest is None else newest.members
        self._formed = View(epoch, tuple(ready), tuple(ready.values()), before)
        return self._formed

    def _complete(self, newest: View | None, here: dict[int, Beat], now: float, since: float) -> bool:
        """Whether to form a first group, or one in place of another coordinator's: all hosts are heard that should be
        in it, or have been silent for long. The first group waits for hosts that are still starting."""
        expected = self._expected(newest)
        starting = newest is None and any(not here[host].ready for host in expected & here.keys())
        return not starting and (expected <= here.keys() or now - since > self._wait(newest))

    def _wait(self, newest: View | None) -> float:
        """Seconds to wait for hosts that have not been heard."""
        if newest is None:
            return FIRST
        return SETTLE if newest.has(self._host, self._life) else PATIENCE

    def _expected(self, newest: View | None) -> frozenset[int]:
        members = self._planned if newest is None else frozenset(newest.members)
        return frozenset(host for host in members - self.ended if host >= self._host)  # lower ones are out of reach


class Seeking:
    """Which hosts a host calls to find its coordinator."""

    def __init__(self, host: int) -> None:
        self._host = host
        self._failed: dict[int, float] = {}  # host -> seconds: when it was given up
        self._follows: dict[int, float] = {}  # host -> seconds: since when it says that another one coordinates

    def targets(self, now: float) -> list[int]:
        """Hosts to call, in this order, until one coordinates. One at most that has not answered before, because such
        calls may take long."""
        due = [host for host, when in sorted(self._failed.items()) if now - when >= AVOID][:1]
        return [host for host in range(self._host) if host not in self._failed or host in due]

    def has_failed(self, host: int) -> bool:
        """Whether a host has been given up."""
        return host in self._failed

    def given_up(self, host: int, now: float) -> None:
        """A host does not answer, or has ended."""
        self._failed[host] = now
        self._follows.pop(host, None)

    def answered(self, host: int) -> None:
        """A host coordinates."""
        self._failed.pop(host, None)
        self._follows.pop(host, None)

    def follows(self, host: int, coordinator: int | None, now: float) -> bool:
        """A host is there that says that another one coordinates. Returns whether to wait until they agree: not for
        ever, because its clock may have ended."""
        if coordinator in self._failed and now - self._failed[coordinator] >= AGAIN:
            self._failed[coordinator] = now - AVOID
        if now - self._follows.setdefault(host, now) > 2 * PATIENCE:
            self.given_up(host, now)
            return False
        self._failed.pop(host, None)
        return True
