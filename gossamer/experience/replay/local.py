"""Replay in the memory of a worker that acts and learns (Lin 1992; Mnih et al. 2015)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch

from gossamer.algorithms.base import ReplayPlan
from gossamer.data import Batch, NoBatch, Trajectory, Tree, Updated, copied
from gossamer.experience.base import UNLEARNED, Demand, Kept, Participant, Timer
from gossamer.experience.replay.store import ReplayStore
from gossamer.runtime import Context
from gossamer.task import Note


@dataclass(frozen=True)
class LocalReplay:
    """Rollouts are stored, and batches of windows are drawn from the newest steps."""

    plan: ReplayPlan

    def join(self, ctx: Context, worker: Participant) -> LocalReplayEnd:
        """See `OwnExperience`."""
        store = ReplayStore(worker.spec, self.plan, {0: worker.num_envs}, self.plan.capacity)
        state = ctx.restored() or {}
        saved, groups = state.get("experience"), state.get("groups", [state])
        slot = worker.slot(worker.num_envs)
        if self.plan.priority is not None:
            slot = slot.with_chosen()
        rng = torch.Generator().manual_seed(worker.task.stream(f"replay {worker.version()}", ctx.rank))
        if worker.version() and not saved:
            when = f"learning goes on when it has {self.plan.learning_starts:,} steps"
            ctx.report(Note(f"{ctx.name}: the replay memory is empty; {when}"))
        end = LocalReplayEnd(self.plan, store, slot, rng, worker.task.device, worker.clock)
        if saved:
            end.load_state_dict(saved, found=ctx.restarts > 0)
            if not all(each.get("actor") for each in groups):  # new episodes have begun
                store.cut(0)
        return end

    def demand(self, num_envs: int) -> Demand:
        """See `LearnerExperience`."""
        return Demand(
            batch_envs=self.plan.batch_size,
            rollout_envs=num_envs,
            passes=self.plan.samples_per_insert,
            window=self.plan.window,
            sequences=self.plan.sequences,
            stored=self.plan.capacity,
            capacity=self.plan.capacity,
            starts=self.plan.learning_starts,
            saved=self.plan.saved,
            folder=self.plan.folder,
        )


class LocalReplayEnd:
    """One slot, whose content is stored, and the store."""

    def __init__(
        self,
        plan: ReplayPlan,
        store: ReplayStore,
        slot: Trajectory,
        rng: torch.Generator,
        device: str,
        clock: Timer,
    ) -> None:
        """`rng`: of the CPU; `device`: where batches are needed; `clock`: measures the time of storing and drawing."""
        self._plan, self._store, self._slot, self._rng, self._device = plan, store, slot, rng, device
        self._clock = clock
        self._inserted, self._owed = 0, 0.0  # steps; windows that may be drawn
        self._stored = 0  # steps, since the last call of `kept`
        self._found = 0  # steps that were lost with an earlier life of the worker, and are in its saved state
        self._fresh = self._position = 0  # steps stored since the last batch; position of the last rollout

    @contextmanager
    def slot(self, position: int) -> Iterator[Trajectory]:
        """See `Writer`."""
        yield self._slot
        with self._clock("replay"):
            self._store.add(0, self._slot)
        self._position = position
        self._fresh += self._slot.steps
        self._stored += self._slot.steps
        self._inserted += self._slot.steps
        if self._inserted >= self._plan.learning_starts:
            self._owed += self._slot.steps * self._plan.samples_per_insert

    def kept(self) -> Kept:
        """See `Writer`."""
        kept = Kept(self._stored, lost=-self._found, held=len(self._store))
        self._stored = self._found = 0
        return kept

    def batch(self) -> Batch | NoBatch:
        """See `Reader`."""
        count = self._plan.batch_size
        if self._owed < count or not self._store.windows:
            return NoBatch.YET
        self._owed -= count
        with self._clock("replay"):
            drawn = self._store.draw(count, self._rng)
            data = drawn.weighted(self._plan.priority, self._store.mass, self._store.windows).to(self._device)
        fresh, self._fresh = self._fresh, 0
        return Batch(data, fresh, self._position, windows=drawn.keys)

    def trained(self, batch: Batch, updated: Updated) -> None:
        """See `Reader`."""
        if self._plan.priority is None:
            return
        assert batch.windows is not None
        assert updated.priority is not None, "the algorithm's losses give no priorities"
        with self._clock("replay"):
            self._store.update(batch.windows, updated.priority)

    def close(self) -> None: ...
    def state_dict(self) -> Tree:
        """See `End`: everything, or nothing if the memory is no part of checkpoints."""
        if not self._plan.saved:
            return {}
        counts = {"inserted": self._inserted, "owed": self._owed, "position": self._position, UNLEARNED: self._fresh}
        return {**counts, "rng": self._rng.get_state(), "store": copied(self._store.state_dict())}

    def load_state_dict(self, state: Tree, *, found: bool = False) -> None:
        """Restore a state of `state_dict`. `found`: the steps in it count as lost, as an earlier life had them. Those
        that had not been learned from count as dropped then, and are not counted again."""
        self._owed, self._position = float(state["owed"]), int(state["position"])
        self._rng.set_state(state["rng"])
        self._store.load_state_dict(state["store"])
        self._inserted = int(state.get("inserted", len(self._store)))  # runs of 0.1.0 have none
        self._fresh = 0 if found else int(state.get(UNLEARNED, 0))  # runs of 0.2 have none
        self._found = len(self._store) if found else 0
