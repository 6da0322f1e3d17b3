"""The training queue of GA3C (Babaeizadeh et al. 2017, section 4.1): a pool of slots between agents and trainers.

A trainer takes what is full, from `least` to `most` rollouts, the oldest first. A slot is free after its batch has
been trained on, so that at most as many rollouts as there are slots are older than the parameters."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from gossamer.data import Rollout, Trajectory
from gossamer.runtime import Wait, waits


@dataclass(frozen=True)
class Sizes:
    """How much a pool holds, and how much of it makes a batch."""

    slots: int  # rollouts that are being filled, full, or trained on
    least: int  # rollouts of a batch
    most: int

    def __post_init__(self) -> None:
        if not 1 <= self.least <= self.most or self.least > self.slots:
            raise ValueError(f"{self}: needs 1 <= least <= most and least <= slots, or no batch is ever full")


@dataclass(frozen=True)
class Taken:
    """Rollouts to train on."""

    keys: tuple[int, ...]  # their slots, in the order of their agents
    rollouts: tuple[Rollout, ...]  # in them
    waiting: int  # batches of `most` rollouts that are left

    @property
    def position(self) -> int:
        """Environment steps in the run's budget before them."""
        return min(rollout.position for rollout in self.rollouts)


class Nothing(Enum):
    """Why an agent gets no slot, or a trainer no batch."""

    PARKED = "parked"  # enough others work; ask again later
    END = "end"  # there will be no more


class RolloutPool:
    """Service: which slots are free, being filled, full, or trained on; and how many agents and trainers work.

    Agents and trainers above these numbers are parked. Where a working one ends, a parked one takes its place, so that
    the steps that parked agents have leased of the run's budget are acted at its end."""

    def __init__(self, sizes: Sizes, *, agents: Mapping[str, int], trainers: Mapping[str, int]) -> None:
        """`agents`, `trainers`: their names and ranks."""
        self._sizes, self._ranks = sizes, {"agent": agents, "trainer": trainers}
        self._agents, self._trainers = sorted(agents.values()), sorted(trainers.values())  # that have not ended
        self._working = len(agents), len(trainers)
        self._provider: int | None = None  # trainer that allocates the memory
        self._slots: Sequence[Trajectory] | None = None
        self._free = list(range(sizes.slots))
        self._leased: dict[int, int] = {}  # slot -> agent
        self._full: dict[int, Rollout] = {}  # slot -> what is there; in the order of arrival
        self._trained = 0  # rollouts that have been trained on

    def forget(self, ended: Collection[str]) -> None:
        """These workers had ended before this host restarted."""
        gone = {kind: {rank for name, rank in ranks.items() if name in ended} for kind, ranks in self._ranks.items()}
        self._agents = [each for each in self._agents if each not in gone["agent"]]
        self._trainers = [each for each in self._trainers if each not in gone["trainer"]]

    def run(self, agents: int, trainers: int) -> None:
        """So many agents and trainers work from now on, those with the lowest ranks."""
        self._working = agents, trainers

    def trained_rollouts(self) -> int | None:
        """How many rollouts have been trained on; None after all agents or all trainers have ended."""
        return self._trained if self._agents and self._trainers else None

    # Called by trainers

    def provides(self, trainer: int) -> bool:
        """Whether this trainer allocates the memory: the first one that asks."""
        self._provider = trainer if self._provider is None else self._provider
        return trainer == self._provider

    def provide(self, slots: Sequence[Trajectory]) -> None:
        """Give the memory of all slots."""
        self._slots = slots

    @waits
    def memory(self) -> Wait[Sequence[Trajectory] | None]:
        """Return the memory, as soon as a trainer has provided it; None after all trainers have ended."""
        while self._slots is None and self._trainers:
            yield
        return self._slots

    @waits
    def take(self, trainer: int) -> Wait[Taken | Nothing]:
        """Return the next batch, as soon as there are `least` full slots, or fewer if no agent will fill another one;
        at once if the trainer is parked."""
        while True:
            if trainer not in self._trainers[: self._working[1]]:
                return Nothing.PARKED
            if len(self._full) >= self._sizes.least or not self._agents:
                break
            yield
        if not self._full:
            return Nothing.END
        first = list(self._full)[: self._sizes.most]
        found = {key: self._full.pop(key) for key in first}
        keys = sorted(found, key=lambda key: found[key])  # by agent
        return Taken(tuple(keys), tuple(found[key] for key in keys), len(self._full) // self._sizes.most)

    def trained(self, keys: Collection[int]) -> None:
        """Free the slots of a batch."""
        self._free = sorted([*self._free, *keys])
        self._trained += len(keys)

    def close(self, trainer: int) -> tuple[Rollout, ...]:
        """The trainer ends. Returns what is full and will not be taken, because all trainers have ended."""
        self._trainers = [each for each in self._trainers if each != trainer]
        return () if self._trainers else tuple(self._full.values())

    # Called by agents

    @waits
    def lease(self, agent: int) -> Wait[int | Nothing]:
        """Return a free slot, as soon as there is one; at once if the agent is parked, or all trainers have ended."""
        while self._trainers and agent in self._agents[: self._working[0]]:
            if self._free:
                key = self._free.pop(0)
                self._leased[key] = agent
                return key
            yield
        return Nothing.PARKED if self._trainers else Nothing.END

    def put(self, key: int, rollout: Rollout) -> bool:
        """Hand over a full slot. Returns False if all trainers have ended."""
        del self._leased[key]
        if self._trainers:
            self._full[key] = rollout
        return bool(self._trainers)

    def give_back(self, key: int) -> None:
        """Return a slot that has not been filled."""
        del self._leased[key]
        self._free = sorted([*self._free, key])

    def leave(self, agent: int) -> None:
        """The agent ends."""
        self._agents = [each for each in self._agents if each != agent]
