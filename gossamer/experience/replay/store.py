"""A replay store: the memories of several actors, from which windows are drawn together, uniformly or by priority."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from gossamer.algorithms.base import Prioritized, ReplayPlan
from gossamer.data import Array, Trajectory, Tree
from gossamer.envs.games import games_of
from gossamer.experience.replay.memory import ReplayMemory
from gossamer.experience.replay.priorities import PrioritiesOfGames
from gossamer.spaces import Spec

SMALLEST = 1e-6  # added to each |delta|, so that every window can be drawn


@dataclass(frozen=True)
class Drawn:
    """Windows that were drawn from a store."""

    keys: Tensor  # [W] int64
    mass: Tensor  # [W] float64  of each: p^alpha, scaled if there are several games; 1 if they are drawn uniformly
    data: Trajectory  # of W environments, on the host

    def weighted(self, priority: Prioritized | None, total_mass: float, windows: int) -> Trajectory:
        """The data with importance weights; without `priority` as it is. See `importance`."""
        if priority is None:
            return self.data
        return replace(self.data, weight=importance(self.mass, total_mass, windows, priority.correction))


def importance(mass: Tensor, total_mass: float, windows: int, beta: float) -> Tensor:
    """Importance weights [W] of prioritised samples, float32.

        w_i = (N P(i))^-beta / max_j w_j,   P(i) = mass_i / total_mass

    Schaul et al. 2016, section 3.4, with the maximum over the batch. Samples of several stores have one `total_mass`
    and number of `windows` N: the sums over all of them."""
    weight = (windows * mass.double() / total_mass) ** -beta
    return (weight / weight.max()).float()


class ReplayStore:
    """The newest steps of the environments of several writers, in the same number for each environment. Of several
    games, each is drawn as often as it has steps (`PrioritiesOfGames`).

    A window's key is unique: later windows have other keys, so that new priorities never reach the wrong window."""

    def __init__(self, spec: Spec, plan: ReplayPlan, writers: Mapping[int, int], capacity: int) -> None:
        """`writers`: the number of environments of each; `capacity`: steps of all of them together.

        Raises `ValueError` if the steps of an environment are fewer than a window."""
        self.spec, self._plan, self._length = spec, plan, plan.window
        self._envs, total = dict[int, tuple[int, int]](), 0  # of each writer: its first environment, and their number
        for writer, num_envs in writers.items():
            self._envs[writer], total = (total, num_envs), total + num_envs
        self._memory = ReplayMemory(
            spec, total, capacity, sequences=plan.sequences, whole=plan.whole, folder=plan.folder
        )
        if self._memory.length < plan.window:
            raise ValueError(f"{capacity} steps of {total} environments: a window has {plan.window} steps of one")
        weighed = plan.sequences or plan.priority is not None
        games = max(1, len(spec.games))
        self._priorities = PrioritiesOfGames(total * self._memory.rows, games) if weighed else None
        self._game = np.zeros(total, np.int64)  # of each environment, once it has a rollout
        self._windows = 0  # leaves that are not 0

    def __len__(self) -> int:
        """Steps that are stored."""
        return len(self._memory)

    @property
    def windows(self) -> int:
        """The number of windows that can be drawn."""
        return int(self._memory.windows(self._length).sum()) if self._priorities is None else self._windows

    @property
    def mass(self) -> float:
        """The sum of p^alpha of all windows, scaled if there are several games; their number if they are drawn
        uniformly."""
        return float(self.windows) if self._priorities is None else self._priorities.total(self._scales())

    def held(self, writer: int) -> int:
        """Steps of one writer that are stored."""
        first, count = self._envs[writer]
        return int(self._memory.windows(1)[first : first + count].sum())

    def add(self, writer: int, rollout: Trajectory) -> None:
        """Store a rollout that follows the writer's last one. See `ReplayMemory.add`."""
        first, count = self._envs[writer]
        before = self._memory.oldest.copy()
        self._memory.add(rollout, first)
        if self._priorities is None:
            return
        self._forget(self._priorities, before)
        self._game[first : first + count] = games_of(self.spec, rollout.obs[0].cpu().numpy())
        keys = self._memory.completed(self._length, first, count, rollout.reward.shape[0])
        if len(keys):
            self._set(self._priorities, self._memory.places(keys), self._first_mass(keys))
            self._windows += len(keys)

    def cut(self, writer: int) -> None:
        """The writer's next rollout does not follow its last one: it has begun anew."""
        before = self._memory.oldest.copy()
        self._memory.cut(*self._envs[writer])
        if self._priorities is not None:
            self._forget(self._priorities, before)

    def draw(self, count: int, rng: torch.Generator) -> Drawn:
        """Draw windows with replacement. Raises `ValueError` if there is none. `rng`: of the CPU."""
        if self._priorities is None:
            keys = self._memory.draw(count, self._length, rng)
            mass = torch.ones(count, dtype=torch.float64)
        else:
            places, masses = self._priorities.draw(count, rng, self._scales())
            keys, mass = self._memory.keys(places), torch.from_numpy(masses)
        return Drawn(keys, mass, self._memory.window(keys, self._length, inner=self._plan.inner))

    def update(self, keys: Tensor, priority: Tensor) -> None:
        """Change the priorities |delta| [W] of windows. Those that have been overwritten since are ignored. Without
        priorities it has no effect."""
        if self._priorities is None or self._plan.priority is None:
            return
        there = self._memory.there(keys)
        mass = self._mass_of(priority.cpu().double().numpy()[there])
        self._set(self._priorities, self._memory.places(keys)[there], mass)

    def state_dict(self) -> Tree:
        """Everything that is stored. The tensors are views, which the next `add` or `update` changes."""
        priorities = {} if self._priorities is None else {"priorities": self._priorities.leaves, "game": self._game}
        return {"memory": self._memory.state_dict(), **priorities}

    def load_state_dict(self, state: Tree) -> None:
        """Copy a state of `state_dict`, of a store with the same arguments."""
        self._memory.load_state_dict(state["memory"])
        if self._priorities is not None:
            leaves = np.asarray(state["priorities"])
            self._game[...] = np.asarray(state.get("game", 0))  # older ones have none: one tree for all games
            self._set(self._priorities, np.arange(len(leaves)), leaves)
            self._windows = int(np.count_nonzero(leaves))

    def _set(self, priorities: PrioritiesOfGames, places: Array, mass: Array | float) -> None:
        priorities.set(places, mass, self._game[places // self._memory.rows])

    def _scales(self) -> Array:
        """See `PrioritiesOfGames.scales`."""
        assert self._priorities is not None
        games = len(self.spec.games)
        steps = np.bincount(self._game, self._memory.windows(1), games) if games else np.zeros(1)
        return self._priorities.scales(steps, self._windows)

    def _forget(self, priorities: PrioritiesOfGames, before: Array) -> None:
        """Make the priorities of all windows 0 whose first step the memory has lost. `before` [B]: the first steps that
        were there."""
        lost = self._memory.oldest - before
        firsts = before + np.arange(int(lost.max()))[:, None]  # [.., B]
        envs = np.arange(len(before)) + np.zeros_like(firsts)
        keys = torch.from_numpy((firsts * len(before) + envs)[firsts < self._memory.oldest])
        places = np.unique(self._memory.places(keys))
        places = places[priorities.of(places) > 0]
        self._set(priorities, places, 0.0)
        self._windows -= len(places)

    def _first_mass(self, keys: Tensor) -> Array | float:
        """p^alpha [W] of new windows, from what was computed when acting."""
        if self._plan.priority is None:
            return 1.0
        found = self._memory.tensors(keys, self._length)
        if "chosen" not in found:
            raise ValueError("priorities need rollouts with `chosen`: see `Trajectory.with_chosen`")
        names = ("reward", "discount", "value", "chosen", "begins")
        errors = self._plan.priority.errors(**{name: found[name] for name in names})
        return self._mass_of(errors.double().numpy())

    def _mass_of(self, errors: Array) -> Array:
        """p^alpha for |delta| [W]."""
        assert self._plan.priority is not None
        mass: Array = (errors + SMALLEST) ** self._plan.priority.exponent
        return mass
