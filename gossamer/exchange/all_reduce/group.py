"""The service of one host in an all-reduce between hosts: membership, and a slice of each gradient."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from enum import Enum

from gossamer.data import Array, Version
from gossamer.exchange.all_reduce.given import Start
from gossamer.exchange.all_reduce.views import Beat, Coordinator, Epoch, View
from gossamer.nn.normalization import Observed
from gossamer.runtime import Wait, waits

HOLD = 2.0  # seconds that `take` waits at most: then the caller looks whether the group is still its own


class Standing(Enum):
    """The answer to a beat that has no group."""

    FORMING = "forming"  # this host coordinates
    ENDED = "ended"  # the learners of this host have ended


@dataclass(frozen=True)
class Follows:
    """The answer to a beat of a host that does not coordinate."""

    coordinator: int | None  # the host that does, if it knows


@dataclass(frozen=True)
class At:
    """Which state a host would continue from."""

    version: Version
    stepped: bool  # whether its optimizer has taken steps
    digest: int  # of parameters and optimizer


@dataclass(frozen=True)
class Part:
    """What a host gives for one slice."""

    vector: Array | None  # [S]  sum of its learners' gradients; None: there is none
    learners: int  # that the sum is of
    rate: float  # sum of their learning rates
    observed: tuple[Observed, ...] = ()  # only with the first slice


@dataclass(frozen=True)
class Reduced:
    """One slice of the mean."""

    vector: Array | None  # [S]
    learners: int
    rate: float
    observed: tuple[Observed, ...]


class Group:
    """Service: a host's view of the group, and the slices that it reduces for all."""

    def __init__(self, host: int, hosts: int) -> None:
        self._host, self._now = host, 0.0
        self._life = -1  # restarts of this host; -1: not known yet, so that no group has it
        self._coordinator = Coordinator(host, hosts)
        self._followed: int | None = None  # the host that coordinates
        self._ready = self._ended = False
        self._view: View | None = None  # the newest
        # The following are of this group:
        self._states: dict[int, At] = {}  # host -> the state that it would continue from
        self._offered: Start | None = None  # the state of this host
        self._given: dict[int, dict[int, Part]] = {}  # round -> host -> what it gave
        self._taken: dict[int, Reduced] = {}  # round -> what has come of it; the last two

    # Called by this host's clock (`workers.keep`)

    def tick(self, now: float, life: int, ended: Collection[int]) -> bool:
        """It is this time (seconds), in this life of the host. `ended`: hosts whose learners had ended before. Returns
        whether learners of this host have not ended."""
        self._now, self._life = now, life
        self._coordinator.ended = frozenset(ended)
        self._coordinator.tick(now)
        self._coordinate()
        return not self._ended

    def pulse(self) -> Beat:
        """What to tell the coordinator."""
        return Beat(self._host, self._life, self._ready, self._view)

    def coordinate(self) -> None:
        """No host with a lower number can be reached."""
        self._followed = self._host
        self._coordinator.begin(self._now)
        self._coordinate()

    def follow(self, host: int | None) -> None:
        """This host with a lower number coordinates; None: one is there, and it is not known yet which one does."""
        self._followed = host
        self._coordinator.yield_to_lower()

    def adopt(self, view: View) -> None:
        """There is a new group, or the known one."""
        if self._view is None or view.epoch > self._view.epoch:
            self._view, self._offered = view, None
            self._states.clear()
            self._given.clear()
            self._taken.clear()

    # Called by the clocks of other hosts

    def beat(self, beat: Beat) -> View | Standing | Follows:
        """A host is there."""
        if self._ended:
            return Standing.ENDED
        if not self._coordinator.active:
            return Follows(self._followed)
        self._coordinator.hear(beat, self._now)
        self._coordinate()
        view = self._view
        return view if view is not None and view.has(beat.host, beat.life) else Standing.FORMING

    # Called by the leading learner of this host

    def enter(self) -> None:
        """All learners of this host have joined."""
        self._ready = True

    def leave(self) -> None:
        """The learners of this host have ended."""
        self._ready, self._ended = False, True

    @waits
    def view(self, after: Epoch | None) -> Wait[View]:
        """Return a group that this host is in, and that is not `after`. Waits for it."""
        while self._view is None or self._view.epoch == after or not self._view.has(self._host, self._life):
            yield
        return self._view

    def current(self, epoch: Epoch) -> bool:
        """Whether this is still the group."""
        return self._view is not None and self._view.epoch == epoch

    def offer(self, epoch: Epoch, start: Start) -> None:
        """Other hosts of this group may continue from this state."""
        if self.current(epoch):
            self._offered = start

    # Called by the leading learners of all hosts

    def arrive(self, view: View, host: int, state: At) -> bool:
        """A host is in a new group. Returns False if this host is in a later one."""
        self.adopt(view)
        if self.current(view.epoch):
            self._states[host] = state
        return self.current(view.epoch)

    @waits
    def states(self, epoch: Epoch) -> Wait[dict[int, At] | None]:
        """Return the states of all hosts of a group, when all have arrived. None as in `take`."""
        since = self._now
        while self._waits(epoch, since) and self._view is not None and len(self._states) < len(self._view.members):
            yield
        complete = self._view is not None and len(self._states) == len(self._view.members)
        return dict(self._states) if complete and self.current(epoch) else None

    def give(self, view: View, number: int, host: int, part: Part) -> bool:
        """Give this host's slice in a round of a group; it may be given twice. Returns False if this host is in a later
        group."""
        self.adopt(view)
        if not self.current(view.epoch):
            return False
        if number not in self._taken:
            given = self._given.setdefault(number, {})
            given[host] = part
            if len(given) == len(view.members):
                del self._given[number]
                self._taken[number] = _mean([given[each] for each in view.members])
                self._taken.pop(number - 2, None)  # all have taken it: each has given something since
                self._offered = None  # all continue from the same state
        return True

    @waits
    def take(self, epoch: Epoch, number: int) -> Wait[Reduced | None]:
        """Return the mean of a slice in a round of a group, when all hosts have given it. Returns None if this host is
        in another group, and after `HOLD` seconds."""
        since = self._now
        while self._waits(epoch, since) and number not in self._taken:
            yield
        return self._taken.get(number) if self.current(epoch) else None

    @waits
    def fetch(self, epoch: Epoch) -> Wait[Start | None]:
        """Return the state that this host offers in a group. None as in `take`."""
        since = self._now
        while self._waits(epoch, since) and self._offered is None:
            yield
        return self._offered if self.current(epoch) else None

    def _waits(self, epoch: Epoch, since: float) -> bool:
        return self.current(epoch) and not self._ended and self._now - since <= HOLD

    def _coordinate(self) -> None:
        """Form a new group if there is to be one."""
        if self._coordinator.active and not self._ended:
            self._coordinator.hear(self.pulse(), self._now)
            if (view := self._coordinator.form(self._life, self._now)) is not None:
                self.adopt(view)
                self._coordinator.hear(self.pulse(), self._now)


def _mean(parts: list[Part]) -> Reduced:
    """The mean of what all hosts of a group gave, in their order, weighted by learners."""
    learners, mean = sum(part.learners for part in parts), None
    for part in parts:
        if part.vector is not None and mean is None:
            mean = part.vector.copy()
        elif part.vector is not None and mean is not None:
            mean += part.vector
    if mean is not None:
        mean /= learners
    rate = sum(part.rate for part in parts) / max(1, learners)
    return Reduced(mean, learners, rate, tuple(each for part in parts for each in part.observed))
