"""Parallel loading: the next batch is assembled while the learner trains (RLDM 2019)."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from gossamer.data import Batch
from gossamer.experience.base import Timer
from gossamer.experience.queue.queue import Full, TrajectoryQueue
from gossamer.experience.queue.replay import Mixed, Mixing
from gossamer.experience.queue.slots import Slots
from gossamer.runtime import Wait, waits


class Assembler:
    """Takes batches from a queue and assembles them: unpacks what other hosts sent, and adds old trajectories."""

    def __init__(
        self, queue: TrajectoryQueue, slots: Slots, clock: Timer, replay: Mixing | None, *, waits: str = "learner_waits"
    ) -> None:
        """`clock` measures the time of waiting for a full batch, as `waits`, and that of assembling it, as `load`."""
        self._queue, self._slots, self._clock, self._replay, self._waits = queue, slots, clock, replay, waits

    def batch(self) -> Batch | None:
        """Return the next batch; None if there will be no more. May block."""
        with self._clock(self._waits):
            full = self._queue.take()
        if full is None:
            return None
        with self._clock("load"):
            return self._assembled(full)

    def _assembled(self, full: Full) -> Batch:
        for place, packed in full.packed.items():
            packed.unpack(self._slots.at(full.number, place))
        data = self._slots.batch(full.number, full.places)
        mixed = Mixed(data) if self._replay is None else self._replay.mixed(data)
        return Batch(
            mixed.data,
            data.steps,
            full.position,
            full.number,
            full.waiting,
            windows=mixed.windows,
            rollouts=full.rollouts,
        )


class NextBatch:
    """Service: the next batch of a learner, which the worker `load` has assembled. It holds one batch at most, and
    gives no credit back: an assembled batch is in flight until it has been trained on."""

    def __init__(self, queue: TrajectoryQueue, loader: str, learner: str) -> None:
        """`queue`: that the batches come from; `loader`, `learner`: names of the two workers."""
        self._queue, self._loader, self._learner = queue, loader, learner
        self._batch: Batch | None = None
        self._last = self._closed = False  # whether the loader has no more batches; whether the learner has ended

    @waits
    def put(self, batch: Batch) -> Wait[None]:
        """Hand over a batch. Waits until the learner has taken it, or has ended."""
        self._batch = batch
        while self._batch is not None and not self._closed:
            yield

    @waits
    def take(self) -> Wait[Batch | None]:
        """Return the batch, as soon as there is one. Returns None after the last one has been taken."""
        while self._batch is None and not self._last:
            yield
        batch, self._batch = self._batch, None
        return None if batch is None else replace(batch, waiting=self._queue.waiting())

    @waits
    def end(self) -> Wait[None]:
        """There are no more batches. Waits until the learner has ended: if their host is restarted before that, it
        restarts the loader, too."""
        self._last = True
        while not self._closed:
            yield

    def close(self) -> None:
        """The learner ends: nothing will be taken any more."""
        self._closed = True

    def forget(self, ended: Collection[str]) -> bool:
        """These workers had ended before this host restarted. Returns whether the learner had."""
        self._last = self._last or self._loader in ended
        self._closed = self._closed or self._learner in ended
        return self._closed
