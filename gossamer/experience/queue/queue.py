"""A queue of trajectories from actors to a learner. Services pass keys; `Slots` holds the memory.

Lag is bounded by credit: a slot of batch n is free only after batch n - depth has been trained on, and the actor that
leases it acts with parameters that are not older than this. They are then at most depth - 1 batches older than those
that learn from it, however slow the actor is. With depth 1, actors and learner take turns, and the lag is 0. After a
restart of the learner's host, actors use parameters of its earlier life until it has published new ones.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from gossamer.data import Packed, Rollout, Stamp, Version
from gossamer.experience.queue.slots import Slots
from gossamer.runtime import GONE, Uptime, Wait, waits

PATIENCE = 5.0  # seconds without a heartbeat after which an actor's slot is given to another one
FIRST = Stamp(0, 0)  # of a learner's parameters


@dataclass(frozen=True)
class Batching:
    """How rollouts make batches."""

    num_envs: int  # environments of each rollout: one slot
    slots: int  # rollouts of each batch
    depth: int  # batches that are being filled, full, or trained on


@dataclass(frozen=True)
class Full:
    """A batch to train on."""

    number: int  # 0, 1, ..
    places: tuple[int, ...]  # its slots that are full: all of them, except at the end of a run
    rollouts: tuple[Rollout, ...]  # in them
    waiting: int  # further batches that are full
    packed: Mapping[int, Packed]  # slots that other hosts have filled, by place: still to be unpacked

    @property
    def position(self) -> int:
        """Environment steps in the run's budget before it."""
        return min(rollout.position for rollout in self.rollouts)


@dataclass(frozen=True)
class Lease:
    """A slot that an actor fills."""

    slot: int  # its number
    stamp: Stamp  # the parameters that act must have this stamp or a later one


class TrajectoryQueue:
    """Service: which slots are free, which are being filled, and which batches are ready.

    Actors of other hosts send their rollouts with `deliver`, and heartbeats with `beat`. If there is no heartbeat for
    `PATIENCE` seconds, an actor's slot is given to another one; what it sends later is refused."""

    def __init__(self, *, actors: Mapping[str, int], batching: Batching) -> None:
        """`actors`: their names and ranks."""
        self._count, self._depth = batching.slots, batching.depth
        self._slots: Slots | None = None
        self._ranks = actors
        self._expected = set(actors.values())  # actors that have not ended
        self._next = 0  # first slot that has never been leased
        self._returned: list[int] = []  # slots that an actor has given back empty
        self._leased: dict[int, tuple[int, int]] = {}  # slot -> (actor, its restarts)
        self._lives: dict[int, int] = {}  # actor -> its restarts, of its newest life that has begun
        self._full: dict[int, dict[int, Rollout]] = {}  # batch -> place -> what is there
        self._at_learner: dict[int, tuple[Rollout, ...]] = {}  # batch that is taken and not trained on -> what is in it
        self._taken = self._released = 0  # batches that the learner has taken, and that it has trained on
        self._first = FIRST  # of the learner's parameters at the beginning
        self._versions: dict[int, Version] = {}  # batch -> version after it has been trained on; `depth` of them
        self._packed: dict[int, Packed] = {}  # slot -> what another host has sent for it
        self._heard: dict[int, float] = {}  # actor of another host -> time of its last heartbeat
        self._uptime = Uptime()
        self._closed = False  # whether the learner has ended

    # Called by the learner, and `memory` and `take` by a worker that assembles batches ahead of it

    def provide(self, slots: Slots, stamp: Stamp = FIRST) -> None:
        """Give the memory to the actors of this host. `stamp`: of the learner's parameters."""
        self._slots, self._first = slots, stamp

    def forget(self, ended: Collection[str]) -> None:
        """These workers had ended before this host restarted, and do not tell this queue."""
        self._expected -= {rank for name, rank in self._ranks.items() if name in ended}

    @waits
    def memory(self) -> Wait[Slots]:
        """Return the memory, as soon as the learner has provided it."""
        while self._slots is None:
            yield
        return self._slots

    @waits
    def take(self) -> Wait[Full | None]:
        """Return the next batch, as soon as it is full. Returns None after all actors have ended and every full slot
        has been taken; before that, incomplete batches. Returns None after the learner has ended, too."""
        while not self._complete(self._taken) and not self._ended() and not self._closed:
            yield
        while self._taken * self._count < self._next and not self._closed:
            number, self._taken = self._taken, self._taken + 1
            if filled := self._full.pop(number, {}):
                keys = {place: number * self._count + place for place in sorted(filled)}
                rollouts = self._at_learner[number] = tuple(filled[place] for place in keys)
                packed = {place: self._packed.pop(key) for place, key in keys.items() if key in self._packed}
                return Full(number, tuple(keys), rollouts, self.waiting(), packed)
        return None

    def waiting(self) -> int:
        """How many batches are full and have not been taken."""
        return sum(map(self._complete, range(self._taken, self._taken + self._depth)))

    def trained(self, number: int, version: Version) -> None:
        """Free the slots of a batch and of all earlier ones. `version`: of the parameters after that."""
        for each in range(self._released, number + 1):
            self._at_learner.pop(each, None)
        self._released = max(self._released, number + 1)
        self._versions[number] = version
        self._versions.pop(number - self._depth, None)

    def close(self) -> tuple[Rollout, ...]:
        """The learner ends: nothing will be taken any more, and nothing handed over. Returns what is here, with the
        batches that have been taken and not trained on so often as they were to be."""
        self._closed = True
        full = [rollout for filled in self._full.values() for rollout in filled.values()]
        return (*(each for taken in self._at_learner.values() for each in taken), *full)

    # Called by actors

    @waits
    def join(self, actor: int, restarts: int) -> Wait[Slots]:
        """Return the memory, as soon as the learner has provided it. Frees what an earlier life of the actor held."""
        self._begin(actor, restarts)
        while self._slots is None:
            yield
        return self._slots

    @waits
    def lease(self, actor: int, restarts: int) -> Wait[Lease | None]:
        """Return the earliest free slot, or the one that the actor has already. Waits until there is one. Returns None
        after the learner has ended, and for an actor that has begun again meanwhile."""
        while not self._closed and restarts >= self._lives.get(actor, 0):
            for key, who in self._leased.items():
                if who == (actor, restarts):
                    return self._lease(key)  # the answer to its last call did not arrive, or that call still waits
            if self._returned or self._next < (self._released + self._depth) * self._count:
                break
            yield
        else:
            return None
        if self._returned:
            key = self._returned.pop(0)
        else:
            key, self._next = self._next, self._next + 1
        self._leased[key] = actor, restarts
        return self._lease(key)

    def put(self, key: int, rollout: Rollout) -> bool:
        """Hand over a full slot. Returns False if it no longer belongs to this life of the actor, or if the learner has
        ended."""
        if self._leased.get(key) != (rollout.actor, rollout.life):
            return False
        del self._leased[key]
        if self._closed:
            return False
        number, place = divmod(key, self._count)
        self._full.setdefault(number, {})[place] = rollout
        return True

    def deliver(self, key: int, rollout: Rollout, packed: Packed) -> bool:
        """Hand over a slot's content from another host. Returns as `put`; False also if an earlier call whose answer
        did not arrive has handed it over."""
        if not self.put(key, rollout):
            return False
        self._packed[key] = packed
        return True

    def register(self, actor: int, restarts: int) -> None:
        """An actor of another host begins. Frees what an earlier life of it held."""
        self._begin(actor, restarts)
        self._hear({actor})

    def beat(self, actors: Collection[int]) -> bool:
        """A heartbeat of another host's actors. Returns whether there are any that have not ended."""
        expected = self._expected & set(actors)
        self._hear(expected)
        return bool(expected)

    def _hear(self, actors: Collection[int]) -> None:
        self._heard |= dict.fromkeys(actors, self._uptime.now)

    def tick(self, now: float) -> bool:
        """Take the slots of silent actors back at this time (seconds). Returns whether there are actors that have not
        ended. An actor may never be heard of: it cannot reach this host, or had ended before this host restarted. While
        the process is paused, no actor becomes silent: see `Uptime`."""
        now = self._uptime.tick(now)
        self._heard = {**dict.fromkeys(self._expected, now), **self._heard}
        for actor, heard in list(self._heard.items()):
            if now - heard > PATIENCE:
                self._give_back(actor, 2**31)
                if self._expected <= self._silent(now):
                    self._expected.discard(actor)  # no other actor is there to continue without it
        return not self._ended()

    def _silent(self, now: float) -> set[int]:
        """The actors that have not been heard of for a long time."""
        return {actor for actor, heard in self._heard.items() if now - heard > GONE}

    def give_back(self, key: int, actor: int, restarts: int) -> None:
        """Return a slot that has not been filled."""
        if self._leased.get(key) == (actor, restarts):
            self._free(key)

    def leave(self, actor: int, restarts: int) -> None:
        """The actor ends."""
        self._give_back(actor, restarts + 1)
        if restarts >= self._lives.get(actor, 0):
            self._expected.discard(actor)
            self._heard.pop(actor, None)

    def _begin(self, actor: int, restarts: int) -> None:
        """A life of an actor begins."""
        self._lives[actor] = max(self._lives.get(actor, 0), restarts)
        self._expected.add(actor)
        self._give_back(actor, restarts)

    def _give_back(self, actor: int, restarts: int) -> None:
        """Free the slots of an actor's lives before this number of restarts."""
        for key in [key for key, (who, life) in self._leased.items() if who == actor and life < restarts]:
            self._free(key)

    def _lease(self, key: int) -> Lease:
        version = self._versions.get(key // self._count - self._depth, self._first.version)
        return Lease(key, Stamp(self._first.life, version))

    def _free(self, key: int) -> None:
        del self._leased[key]
        self._returned = sorted([*self._returned, key])

    def _complete(self, number: int) -> bool:
        return len(self._full.get(number, ())) == self._count

    def _ended(self) -> bool:
        return not self._expected and not self._leased
