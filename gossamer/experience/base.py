"""Protocols for the transfer of experience from actors to learners.

The configuration of an experience is frozen, and its `join` creates the end of one worker: a `Writer` for an actor, a
`Reader` for a learner, and both in one for a worker that acts and learns."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Protocol, TypeAlias, runtime_checkable

from gossamer.data import Batch, NoBatch, Rollout, Trajectory, Tree, Updated, Version
from gossamer.runtime import Context
from gossamer.spaces import Spec
from gossamer.task import Task

# Key in the state of a replay memory, for what has not been learned from: the steps of its own worker, or rollouts of
# others as lists of the fields of `Rollout`
UNLEARNED = "unlearned"

Timer: TypeAlias = Callable[[str], AbstractContextManager[None]]  # `actor.Clock`


def untimed(what: str) -> AbstractContextManager[None]:
    """A `Timer` that measures nothing."""
    return nullcontext()


@dataclass(frozen=True)
class Kept:
    """What has become of an actor's steps since the last call."""

    stored: int | None = None  # environment steps; None: there is no memory
    lost: int = 0  # environment steps that had been stored in a memory that has failed since; below 0: found again
    held: int = 0  # environment steps that a memory of the worker itself has now: they are lost if it dies
    handed_over: tuple[Rollout, ...] = ()  # that learners elsewhere are to learn from
    refused: tuple[Rollout, ...] = ()  # of these: the learner's side did not take them


class Writer(Protocol):
    """An actor's end: trajectory slots, which are allocated once and filled in place."""

    def slot(self, position: int) -> AbstractContextManager[Trajectory]:
        """Return a trajectory to fill, submitted when the context exits without an error. May block (back-pressure).
        `position`: environment steps in the run's budget before it."""

    def kept(self) -> Kept:
        """What has become of the actor's steps since the last call."""

    def close(self) -> None:
        """The actor ends."""


class Reader(Protocol):
    """A learner's end."""

    def batch(self) -> Batch | NoBatch:
        """Return trajectories to learn from, or why there are none. May block, unless this worker has to act first."""

    def trained(self, batch: Batch, updated: Updated) -> None:
        """Release a batch after learning from it."""

    def close(self) -> None:
        """The learner ends."""


class End(Writer, Reader, Protocol):
    """The end of a worker that acts and learns."""

    def state_dict(self) -> Tree:
        """What `OwnExperience.join` continues from, as the entry `experience` of the worker's state; may be empty."""


class Participant(Protocol):
    """What an end needs of the worker that joins."""

    @property
    def task(self) -> Task:
        """The task, resolved for its machine."""

    @property
    def spec(self) -> Spec:
        """Of its environments."""

    @property
    def num_envs(self) -> int:
        """Environments that it acts in; 0 if it does not act."""

    @property
    def clock(self) -> Timer:
        """Measures the time that its ends wait."""

    def slot(self, num_envs: int) -> Trajectory:
        """An empty trajectory of the task's shapes, of so many environments, on the task's device."""

    def version(self) -> Version:
        """Of the parameters that it learns."""


@dataclass(frozen=True)
class Demand:
    """What a learner's end of an experience holds, and how a learner uses it."""

    batch_envs: int  # environments of a batch
    rollout_envs: int  # environments of the rollouts that it holds at one time, T steps each
    passes: float = 1.0  # how often each environment step is learned from
    window: int = 0  # steps of each trajectory of a batch; 0: those of a rollout
    sequences: bool = False  # these trajectories start where rollouts do, with recurrent states, and not at any step
    depth: int = 0  # batches that are filled, full or trained on; 0: without a queue
    replayed: int = 0  # rollouts of one environment that it keeps to learn from again
    elsewhere: int = 0  # rollouts of one environment that each host of its actors keeps for that
    stored: int = 0  # environment steps in a replay memory
    shard: int = 0  # of them in the memory of one host, where several share it
    capacity: int = 0  # environment steps of the whole memory, as given
    starts: int = 0  # environment steps in it before the first batch
    saved: bool = False  # whether it is part of checkpoints
    folder: str = ""  # for its pictures; empty: in host memory


class ActorExperience(Protocol):
    """Configuration of an experience, for actors."""

    def join(self, ctx: Context, worker: Participant) -> Writer:
        """Create an actor's end."""


@runtime_checkable
class LearnerExperience(Protocol):
    """Configuration of an experience, for learners. A worker that has one learns."""

    def join(self, ctx: Context, worker: Participant) -> Reader:
        """Create a learner's end."""

    def demand(self, num_envs: int) -> Demand:
        """What the end of a learner with so many environments of its own (0: it does not act) holds."""


@runtime_checkable
class OwnExperience(LearnerExperience, Protocol):
    """Configuration of an experience, for workers that act and learn."""

    def join(self, ctx: Context, worker: Participant) -> End:
        """Create the worker's end."""
