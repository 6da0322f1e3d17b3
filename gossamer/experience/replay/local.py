"""Replay in the memory of a worker that acts and learns (Lin 1992; Mnih et al. 2015)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch

from gossamer.algorithms.base import ReplayPlan
from gossamer.data import Batch, NoBatch, Trajectory, Updated
from gossamer.experience.base import Demand, Participant, Timer
from gossamer.experience.replay.memory import ReplayMemory
from gossamer.runtime import Context
from gossamer.task import Note


@dataclass(frozen=True)
class LocalReplay:
    """Rollouts are stored, and batches of windows are drawn uniformly from the newest steps."""

    plan: ReplayPlan

    def join(self, ctx: Context, worker: Participant) -> LocalReplayEnd:
        """See `OwnExperience`."""
        memory = ReplayMemory(worker.spec, worker.num_envs, self.plan.capacity)
        rng = torch.Generator().manual_seed(worker.task.stream(f"replay {worker.version()}", ctx.rank))
        if worker.version():
            when = f"learning goes on when it has {self.plan.learning_starts:,} steps"
            ctx.report(Note(f"{ctx.name}: the replay memory is empty; {when}"))
        return LocalReplayEnd(self.plan, memory, worker.slot(worker.num_envs), rng, worker.task.device, worker.clock)

    def demand(self, num_envs: int) -> Demand:
        """See `LearnerExperience`."""
        return Demand(
            batch_envs=self.plan.batch_size,
            rollout_envs=num_envs,
            passes=self.plan.samples_per_insert,
            window=self.plan.window,
            stored=self.plan.capacity,
        )


class LocalReplayEnd:
    """One slot, whose content is stored, and the memory."""

    def __init__(
        self,
        plan: ReplayPlan,
        memory: ReplayMemory,
        slot: Trajectory,
        rng: torch.Generator,
        device: str,
        clock: Timer,
    ) -> None:
        """`rng`: of the CPU; `device`: where batches are needed; `clock`: measures the time of storing and drawing."""
        self._plan, self._memory, self._slot, self._rng, self._device = plan, memory, slot, rng, device
        self._clock = clock
        self._owed = 0.0  # windows that may be drawn
        self._fresh = self._position = 0  # steps stored since the last batch; position of the last rollout

    @contextmanager
    def slot(self, position: int) -> Iterator[Trajectory]:
        """See `Writer`."""
        yield self._slot
        with self._clock("replay"):
            self._memory.add(self._slot)
        self._position = position
        self._fresh += self._slot.steps
        if len(self._memory) >= self._plan.learning_starts:
            self._owed += self._slot.steps * self._plan.samples_per_insert

    def batch(self) -> Batch | NoBatch:
        """See `Reader`."""
        count, length = self._plan.batch_size, self._plan.window
        if self._owed < count or not self._memory.windows(length).any():
            return NoBatch.YET
        self._owed -= count
        with self._clock("replay"):
            keys = self._memory.draw(count, length, self._rng)
            data = self._memory.window(keys, length).to(self._device)
        fresh, self._fresh = self._fresh, 0
        return Batch(data, fresh, self._position, windows=keys)

    def trained(self, batch: Batch, updated: Updated) -> None: ...
    def close(self) -> None: ...
