"""How many samples are drawn for each inserted step: either side waits for the other one."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from gossamer.algorithms.base import ReplayPlan
from gossamer.data import Rollout, Tree
from gossamer.experience.base import UNLEARNED
from gossamer.runtime import GONE, Uptime, Wait, waits

STARTING = 3600.0  # seconds until an actor that has never called counts as ended: its environments may start slowly


@dataclass(frozen=True)
class Inserted:
    """A rollout that an actor has stored."""

    number: int = 0  # of the actor's rollouts, from 1; 0: none
    steps: int = 0
    position: int = 0  # in the run's budget
    held: int = 0  # steps of the actor that its shard has now


@dataclass(frozen=True)
class Granted:
    """Leave to draw a batch."""

    rollouts: tuple[Rollout, ...]  # inserted since the last one
    position: int  # of the newest rollout that has been inserted

    @property
    def fresh(self) -> int:
        """Steps inserted since the last one."""
        return sum(rollout.steps for rollout in self.rollouts)


class Limiter:
    """Service: lets `samples_per_insert` samples be drawn for each step that is inserted from `learning_starts` steps
    on, between the actors and learners of a program.

    A learner waits until a batch is owed. An actor waits while more than `max_ahead` samples would be owed with its
    rollout and those that run. One side can always go on: if no rollout runs, a batch is owed or an actor may begin."""

    def __init__(
        self, plan: ReplayPlan, max_ahead: float, actors: Mapping[str, int], learners: Collection[str]
    ) -> None:
        """`actors`: their names and ranks; `learners`: their names. Raises `ValueError` if `max_ahead` is less
        than a batch."""
        if max_ahead < plan.batch_size:
            raise ValueError(f"max_ahead={max_ahead}: must be at least a batch of {plan.batch_size} samples")
        self._plan, self._max_ahead, self._ranks = plan, max_ahead, actors
        self._expected = set(actors.values())  # actors that have not ended
        self._running: dict[int, int] = {}  # actor -> steps of its running rollout
        self._lives: dict[int, int] = {}  # actor -> its restarts
        self._numbers: dict[int, int] = {}  # actor -> number of its last rollout in this life
        self._heard: dict[int, float] = {}  # actor -> seconds at the last tick before it called
        self._learners, self._uptime = set(learners), Uptime()  # those that have not ended
        self._asked = 0.0  # seconds, of the last tick before a learner asked for a batch, or while there were actors
        self._held: dict[int, int] = {}  # actor -> steps that its shard has of it
        self._inserted, self._owed = 0, 0.0  # steps; samples
        self._fresh, self._position = list[Rollout](), 0  # since the last batch; of the newest rollout
        self._granted: dict[str, tuple[tuple[int, int], Granted]] = {}  # learner -> life and number of its last batch

    # Called by actors

    @waits
    def insert(self, actor: int, life: int, before: Inserted, steps: int) -> Wait[bool]:
        """Begin a rollout of so many steps. `before`: the last one, which has been stored. Waits while learning is
        behind. Returns False after the learners have ended, and for an earlier life of the actor."""
        self._begin(actor, life)
        if self._is_current(actor, life):
            self._count(actor, before)
        while self._is_current(actor, life) and self._learners:
            self._heard[actor] = self._uptime.now
            if self._may_begin(actor, steps):
                self._running[actor] = steps
                return True
            yield
        return False

    def leave(self, actor: int, life: int, before: Inserted) -> bool:
        """The actor ends. `before`: see `insert`. Returns whether learners may still draw."""
        self._begin(actor, life)  # an actor that has been restarted may end before it inserts anything
        if self._is_current(actor, life):
            self._count(actor, before)
            self._running.pop(actor, None)  # it was not stored
            self._expected.discard(actor)
        return bool(self._learners)

    # Called by learners

    @waits
    def sample(self, learner: str, life: int, number: int) -> Wait[Granted | None]:
        """Take leave to draw a batch. Waits until one is owed. Returns None after all actors have ended and less than a
        batch is owed. `number`: of the learner's batch, from 1 in each of its lives; leave is given once, though the
        call may be executed twice."""
        due, self._asked = (life, number), self._uptime.now
        while self._last(learner) < due:
            if self._owed >= self._plan.batch_size:
                self._owed -= self._plan.batch_size
                fresh, self._fresh = tuple(self._fresh), []
                self._granted[learner] = due, Granted(fresh, self._position)
            elif not self._expected:
                return None
            else:
                yield
        return self._granted[learner][1] if self._last(learner) == due else None

    def starve(self) -> bool:
        """No shard has anything to draw: they have failed, or hold no whole window yet. What was owed is lost, and
        actors may go on. Returns whether there are actors that have not ended."""
        self._owed = 0.0
        return bool(self._expected)

    def close(self, learner: str) -> tuple[Rollout, ...]:
        """A learner ends. Returns what has been inserted since the last batch, if all learners have ended."""
        self._learners.discard(learner)
        return () if self._learners else tuple(self._fresh)

    # Called by `pace`

    def forget(self, ended: Collection[str]) -> None:
        """These workers had ended before this host restarted."""
        self._expected -= {rank for name, rank in self._ranks.items() if name in ended}
        self._learners -= set(ended)

    def tick(self, now: float) -> bool:
        """It is this time (seconds): actors that have been silent for `GONE` seconds, or for `STARTING` seconds before
        their first call, count as ended until they call. Pauses of the process do not count: see `Uptime`. Returns
        whether more ticks are needed. They are until all learners have ended, also after the actors: if this host
        restarts meanwhile, only `forget` tells the learners that no actor is left. Learners that ask for no batch for
        `GONE` seconds after that count as ended."""
        now = self._uptime.tick(now)
        self._heard = {**dict.fromkeys(self._expected, now), **self._heard}
        for actor in [actor for actor in self._expected if now - self._heard[actor] > self._patience(actor)]:
            self._running.pop(actor, None)
            self._expected.discard(actor)
        if self._expected:
            self._asked = now
        return bool(self._learners) and now - self._asked <= GONE

    def _patience(self, actor: int) -> float:
        """Seconds of silence after which an actor counts as ended."""
        return GONE if actor in self._lives else STARTING

    # See `Saved`

    def settled(self) -> bool:
        return True

    def state_dict(self) -> Tree:
        fresh = [list(rollout) for rollout in self._fresh] if self._plan.saved else []
        return {"inserted": self._inserted, "owed": self._owed, "position": self._position, UNLEARNED: fresh}

    def load_state_dict(self, state: Tree) -> None:
        self._inserted, self._owed = int(state["inserted"]), float(state["owed"])
        self._position = int(state["position"])
        self._fresh = [Rollout(*rollout) for rollout in state.get(UNLEARNED, ())]

    def _last(self, learner: str) -> tuple[int, int]:
        """Life and number of the last batch that the learner was given leave for."""
        return self._granted[learner][0] if learner in self._granted else (0, 0)

    def _begin(self, actor: int, life: int) -> None:
        if life >= self._lives.get(actor, 0):
            if life > self._lives.get(actor, 0):
                self._running.pop(actor, None)
                self._numbers.pop(actor, None)
            self._lives[actor] = life
            self._expected.add(actor)

    def _is_current(self, actor: int, life: int) -> bool:
        return life == self._lives.get(actor, 0)

    def _count(self, actor: int, inserted: Inserted) -> None:
        """Count an actor's last rollout. It is counted once, though the call may be executed twice."""
        self._held[actor] = inserted.held
        if inserted.number > self._numbers.get(actor, 0):
            self._numbers[actor] = inserted.number
            self._running.pop(actor, None)
            self._inserted += inserted.steps
            life, number = self._lives.get(actor, 0), inserted.number
            self._fresh.append(Rollout(actor, life, number, inserted.position, inserted.steps))
            self._position = max(self._position, inserted.position)
            if self._begun:
                self._owed += inserted.steps * self._plan.samples_per_insert

    @property
    def _begun(self) -> bool:
        """Whether there is enough to learn from. After a restart of this host the shards have more than was inserted
        since."""
        return max(self._inserted, sum(self._held.values())) >= self._plan.learning_starts

    def _may_begin(self, actor: int, steps: int) -> bool:
        """Whether all running rollouts, and one of so many steps, would leave no more samples owed than may be; or
        whether none runs, so that only it can go on."""
        others = sum(running for each, running in self._running.items() if each != actor)
        ahead = self._owed + (others + steps) * self._plan.samples_per_insert
        if not self._begun or ahead <= self._max_ahead:
            return True
        return not others and self._owed < self._plan.batch_size
