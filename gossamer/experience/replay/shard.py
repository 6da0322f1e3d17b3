"""A shard of a replay memory that several workers share (Nair et al. 2015, section 4.1; Horgan et al. 2018, fig. 1)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from uuid import uuid4

import torch

from gossamer.algorithms.base import ReplayPlan
from gossamer.data import Array, Packed, Tree, copied
from gossamer.experience.replay.store import ReplayStore
from gossamer.spaces import Spec


@dataclass(frozen=True)
class Amount:
    """What can be drawn from a shard."""

    mass: float  # of all windows, see `ReplayStore.mass`
    windows: int


@dataclass(frozen=True)
class Sample:
    """Windows that were drawn from a shard."""

    life: str  # of the shard, which the keys belong to
    keys: Array  # [W] int64
    mass: Array  # [W] float64  of each, see `Drawn.mass`
    data: Packed
    left: Amount  # of the whole shard


@dataclass(frozen=True)
class Learned:
    """Priorities of windows that have been learned from."""

    life: str  # of the shard that the keys belong to
    keys: Array  # [W] int64
    priority: Array  # [W] float32  |delta|


class ReplayShard:
    """Service: stores the rollouts of some actors. Each rollout is stored once, though the call may be executed twice.

    An actor says who it is before its first rollout, and again after the shard's host has been restarted: then the
    shard is empty."""

    def __init__(self, plan: ReplayPlan, writers: Mapping[int, int], capacity: int, seed: int) -> None:
        """`writers`: the number of environments of each actor, by rank; `capacity`: steps of all of them together."""
        self._plan, self._writers, self._capacity = plan, writers, capacity
        self._rng = torch.Generator().manual_seed(seed)
        self._store: ReplayStore | None = None  # made when the first actor says what its environments are like
        self._life = uuid4().hex
        self._saved: Tree | None = None  # of a store that is made later
        self._numbers: dict[int, tuple[int, int]] = {}  # actor -> its restarts, and the number of its last rollout

    # Called by actors

    def register(self, actor: int, life: int, spec: Spec) -> int:
        """An actor begins, in this life. `spec`: of its environments. Returns how many steps of it are stored."""
        if self._store is None:
            self._store = ReplayStore(spec, self._plan, self._writers, self._capacity)
            if self._saved is not None:
                self._store.load_state_dict(self._saved)
                self._saved = None
        if actor not in self._numbers or life > self._numbers[actor][0]:
            self._store.cut(actor)
            self._numbers[actor] = life, 0
        return self._store.held(actor)

    def insert(self, actor: int, life: int, number: int, rollout: Packed) -> int | None:
        """Store an actor's rollout of this number, from 1. Returns how many steps of the actor are stored; None if it
        has not said who it is."""
        if self._store is None or actor not in self._numbers:
            return None
        if (life, number) > self._numbers[actor]:
            self._store.add(actor, rollout.trajectory())
            self._numbers[actor] = life, number
        return self._store.held(actor)

    # Called by learners

    def amount(self) -> Amount:
        """What can be drawn now."""
        return Amount(0.0, 0) if self._store is None else Amount(self._store.mass, self._store.windows)

    def draw(self, count: int, learned: Sequence[Learned] = ()) -> Sample | None:
        """Draw windows, after changing priorities of those that were drawn in this life of the shard. None if there are
        no windows."""
        if self._store is None or not self._store.windows:
            return None
        for each in learned:
            if each.life == self._life:
                self._store.update(torch.tensor(each.keys), torch.tensor(each.priority))
        drawn = self._store.draw(count, self._rng)
        return Sample(self._life, drawn.keys.numpy(), drawn.mass.numpy(), Packed.of(drawn.data), self.amount())

    # See `Saved`

    def settled(self) -> bool:
        return True

    def state_dict(self) -> Tree:
        store = self._saved or {} if self._store is None else copied(self._store.state_dict())
        return {"store": store, "rng": self._rng.get_state()}

    def load_state_dict(self, state: Tree) -> None:
        self._rng.set_state(state["rng"])
        self._saved = state["store"] or None
