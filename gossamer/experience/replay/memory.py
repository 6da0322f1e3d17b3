"""A replay memory: rings of the newest steps of some environments, from which windows of steps are read.

A *piece* is a run of steps that follow each other. It ends where an actor restarts (`cut`). No window leaves its piece.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from gossamer.data import Array, Final, Trajectory, Tree, first_episode
from gossamer.experience.replay.pictures import Pictures
from gossamer.experience.replay.starts import Starts
from gossamer.spaces import Spec

NAMES = ("action", "reward", "discount", "behaviour", "value", "begins", "version")  # of tensors that are stored
COUNTS = ("written", "oldest", "_since", "_newest", "_finals")  # attributes of a memory that are saved


class Piece(NamedTuple):
    """Steps begin .. end - 1 of environments first .. last - 1, after which their rollouts were cut."""

    first: int
    last: int
    begin: int
    end: int


class Runs(NamedTuple):
    """Runs of windows: those of environment `envs[i]` that begin with step `firsts[i]` and the following ones."""

    envs: Array
    firsts: Array
    counts: Array


class ReplayMemory:
    """The newest `capacity` steps of `num_envs` environments together, in host memory.

    A memory of short episodes may hold fewer: an episode takes `Spec.history` - 1 pictures more than it has steps, and
    there is room for 5 % more pictures than steps. The environments may be those of several actors, which add rollouts
    independently of each other. A window's key is the number of its first step * num_envs + environment."""

    def __init__(
        self,
        spec: Spec,
        num_envs: int,
        capacity: int,
        *,
        sequences: bool = False,
        whole: bool = False,
        folder: str = "",
    ) -> None:
        """`sequences`: windows have recurrent states, and masks unless they are `whole` rollouts. `folder`: see
        `Pictures`. Raises `ValueError` if the capacity is less than a step of each environment, or if the channels of
        an observation are no multiple of its history."""
        self.num_envs, self.length = num_envs, capacity // num_envs
        if self.length < 1:
            raise ValueError(f"a replay memory of {capacity} steps: {num_envs} environments need at least {num_envs}")
        self._pictures = Pictures(spec, num_envs, self.length, folder)
        self.rows = self.length + 1  # the observation after the newest step has a row, too
        self._newest = np.zeros((num_envs, self.rows), np.int64)  # number of the newest picture of x_t
        self._finals = np.full((num_envs, self.rows), -1, np.int64)  # and of a final observation; -1: there is none
        self._final_values = torch.zeros((num_envs, self.rows))
        self._starts, self._whole = Starts(num_envs, self.rows) if sequences else None, whole
        self._steps: dict[str, Tensor] = {}  # the trajectory's other tensors, [B, rows, ...]; made with the first one
        self.written = np.zeros(num_envs, np.int64)  # [B] steps so far, with a gap of one for each cut
        self.oldest = np.zeros(num_envs, np.int64)  # [B] first step that is still there
        self._since = np.zeros(num_envs, np.int64)  # [B] first step of the piece that is written
        self._closed: list[Piece] = []  # earlier pieces

    def __len__(self) -> int:
        """Steps that are stored."""
        return int(self._runs(1).counts.sum())

    def add(self, rollout: Trajectory, first: int = 0) -> None:
        """Store a rollout of environments `first`, .. that follows the last one of these. Raises `ValueError` if it has
        more steps of each environment than the memory, or a recurrent state that the memory does not keep."""
        steps, count = rollout.reward.shape
        envs = slice(first, first + count)
        self._check(rollout)
        obs, begins = rollout.obs.cpu(), rollout.begins.cpu().numpy()
        finals = {(final.t, final.b): final for final in rollout.finals}
        start = int(self.written[first])
        if start == self._since[first]:
            self._newest[envs, start % self.rows] = self._pictures.add(obs[0], np.ones(count, bool), first)
        for t in range(steps):
            row = (start + t) % self.rows
            self._finals[envs, row] = -1
            for b in np.flatnonzero(begins[t + 1]) if finals else ():
                if (t, int(b)) in finals:
                    self._add_final(finals[t, int(b)], first + int(b), start + t)
            self._newest[envs, (row + 1) % self.rows] = self._pictures.add(obs[t + 1], begins[t + 1], first)
        self._write(rollout, envs, torch.arange(start, start + steps) % self.rows)
        if self._starts is not None:
            self._starts.add(rollout, envs, start)
        self.written[envs] += steps
        self._forget(envs)

    def cut(self, first: int = 0, count: int | None = None) -> None:
        """The next rollout of environments `first`, .. (`count` of them; None: all) does not follow their last one: the
        actor has begun anew."""
        last = self.num_envs if count is None else first + count
        begin, end = int(self._since[first]), int(self.written[first])
        if begin == end:
            return
        self._closed.append(Piece(first, last, begin, end))
        self.written[first:last] += 1  # the observation after the last step keeps its row
        self._since[first:last] = end + 1
        self._forget(slice(first, last))

    def windows(self, length: int) -> Array:
        """The number of windows of so many steps in each environment [B]."""
        runs = self._runs(length)
        found: Array = np.bincount(runs.envs, runs.counts, self.num_envs).astype(np.int64)
        return found

    def draw(self, count: int, length: int, rng: torch.Generator) -> Tensor:
        """Keys [count] of windows of `length` steps, drawn uniformly with replacement. Raises `ValueError` if there is
        none."""
        envs, firsts, counts = self._runs(length)
        ends = np.cumsum(counts)
        if not ends[-1]:
            raise ValueError(f"the replay memory has no window of {length} steps")
        drawn = torch.randint(int(ends[-1]), (count,), generator=rng).numpy()
        run = np.searchsorted(ends, drawn, side="right")
        return torch.from_numpy((firsts[run] + drawn - ends[run] + counts[run]) * self.num_envs + envs[run])

    def completed(self, length: int, first: int, count: int, steps: int) -> Tensor:
        """Keys of the windows of `length` steps that the last `steps` steps of environments `first`, .. (`count` of
        them) have completed. Of sequences: of those that may be learned from."""
        envs = np.arange(first, first + count)
        firsts = self.written[envs] - length - np.arange(steps)[::-1, None]  # [steps, count]
        there = firsts >= np.maximum(self._since[envs], self.oldest[envs])
        if self._starts is not None:
            rows = firsts % self.rows
            starts = self._starts.at(envs, rows)
            there &= starts if self._whole else starts | self._steps["begins"].numpy()[envs, rows]
        return torch.from_numpy((firsts * self.num_envs + envs)[there])

    def there(self, keys: Tensor) -> Array:
        """Whether the windows with these keys [W], which were there once, are still there."""
        firsts, envs = np.divmod(keys.numpy(), self.num_envs)
        found: Array = firsts >= self.oldest[envs]
        return found

    def places(self, keys: Tensor) -> Array:
        """A number 0 .. num_envs * rows - 1 for each of the windows [W], which no other one has that is there."""
        firsts, envs = np.divmod(keys.numpy(), self.num_envs)
        found: Array = envs * self.rows + firsts % self.rows
        return found

    def keys(self, places: Array) -> Tensor:
        """The inverse of `places`, for windows that are there."""
        envs, rows = np.divmod(places, self.rows)
        written = self.written[envs]
        return torch.from_numpy((written - (written - rows) % self.rows) * self.num_envs + envs)

    def window(self, keys: Tensor, length: int, *, inner: bool = True) -> Trajectory:
        """The windows with these keys [W] as a trajectory of `length` steps of W environments, copied. Without `inner`
        it has only the observations x_0 and x_T, [2, W, *O]."""
        firsts, envs, rows = self._rows_of(keys, length)
        masked = self._starts is not None and not self._whole
        tensors = self.tensors(keys, length)
        return Trajectory(
            **tensors,
            obs=self._pictures.stacks(envs, self._newest[envs, rows if inner else rows[[0, -1]]]),
            state=self._starts.states(envs, rows[0]) if self._starts is not None else {},
            finals=self._window_finals(envs, firsts, rows[:length]),
            mask=first_episode(tensors["begins"][:length]) if masked else None,
        )

    def tensors(self, keys: Tensor, length: int) -> dict[str, Tensor]:
        """The tensors of the windows with these keys [W] by name, but for observations and recurrent states."""
        _, envs, rows = self._rows_of(keys, length)
        places = torch.from_numpy(envs * self.rows + rows)  # in the flattened rings
        upto = {name: length + (name in ("value", "begins")) for name in self._steps}
        return {name: ring.flatten(0, 1)[places[: upto[name]]] for name, ring in self._steps.items()}

    def state_dict(self) -> Tree:
        """Everything that is stored. The tensors are views, which the next `add` changes."""
        return {
            "pictures": self._pictures.state_dict(),
            "steps": dict(self._steps),
            "starts": {} if self._starts is None else self._starts.state_dict(),
            "final_values": self._final_values,
            "closed": np.array(self._closed, np.int64).reshape(-1, len(Piece._fields)),
            **{name: getattr(self, name) for name in COUNTS},
        }

    def load_state_dict(self, state: Tree) -> None:
        """Copy a state of `state_dict`, of a memory with the same arguments."""
        self._pictures.load_state_dict(state["pictures"])
        self._steps = {name: ring.clone() for name, ring in state["steps"].items()}
        if self._starts is not None:
            self._starts.load_state_dict(state["starts"])
        self._final_values.copy_(state["final_values"])
        self._closed = [Piece(*map(int, each)) for each in state["closed"]]
        for name in COUNTS:
            getattr(self, name)[...] = np.asarray(state[name])

    def _rows_of(self, keys: Tensor, length: int) -> tuple[Array, Array, Array]:
        """First steps [W], environments [W] and rows [T+1, W] of windows."""
        firsts, envs = np.divmod(keys.numpy(), self.num_envs)
        return firsts, envs, (firsts + np.arange(length + 1)[:, None]) % self.rows

    def _runs(self, length: int) -> Runs:
        """Where windows of `length` steps begin."""
        envs, begins, ends = [np.arange(self.num_envs)], [self._since], [self.written]
        for piece in self._closed:
            envs.append(np.arange(piece.first, piece.last))
            begins.append(np.full(piece.last - piece.first, piece.begin))
            ends.append(np.full(piece.last - piece.first, piece.end))
        which = np.concatenate(envs)
        firsts = np.maximum(np.concatenate(begins), self.oldest[which])
        return Runs(which, firsts, np.maximum(0, np.concatenate(ends) - length + 1 - firsts))

    def _check(self, rollout: Trajectory) -> None:
        steps = rollout.reward.shape[0]
        if rollout.state and self._starts is None:
            raise ValueError("a replay memory of windows keeps no recurrent state")
        if steps > self.length:
            raise ValueError(f"a rollout of {steps} steps: the memory keeps {self.length} of each environment")

    def _write(self, rollout: Trajectory, envs: slice, rows: Tensor) -> None:
        """Store a rollout's tensors in these rows of the rings, but for observations and recurrent states."""
        for name in NAMES if rollout.chosen is None else (*NAMES, "chosen"):
            tensor = getattr(rollout, name)
            if name not in self._steps:
                self._steps[name] = torch.zeros((self.num_envs, self.rows, *tensor.shape[2:]), dtype=tensor.dtype)
            ring = self._steps[name][envs]
            ring[:, rows] = tensor[: len(rows)].movedim(0, 1).to(ring.device)
            if len(tensor) > len(rows):
                ring[:, (rows[-1] + 1) % self.rows] = tensor[-1].to(ring.device)

    def _add_final(self, final: Final, env: int, step: int) -> None:
        """Add the final observation of an episode that was truncated in this step."""
        row = step % self.rows
        self._finals[env, row], self._final_values[env, row] = self._pictures.add_final(env, final.obs), final.value
        if self._starts is not None:
            self._starts.add_final(final, env, step)

    def _forget(self, envs: slice) -> None:
        """Find the first step of each of these environments whose observation is still there."""
        which, written = np.arange(self.num_envs)[envs], self.written[envs]
        oldest = np.maximum(self.oldest[envs], written - self.length)
        while (gone := self._pictures.gone(which, self._newest[which, oldest % self.rows]) & (oldest < written)).any():
            oldest[gone] += 1
        self.oldest[envs] = oldest
        self._closed = [each for each in self._closed if each.end > self.oldest[each.first : each.last].min()]
        if self._starts is not None:
            self._starts.forget(self.oldest)

    def _window_finals(self, envs: Array, firsts: Array, rows: Array) -> list[Final]:
        """The final observations within windows whose steps have these rows [T, W]."""
        numbers = self._finals[envs, rows]
        found = []
        for t, w in np.argwhere(numbers >= 0):
            env = int(envs[w])
            obs = self._pictures.stacks(envs[w : w + 1], numbers[t : t + 1, w])[0]
            state = self._starts.final_state(env, int(firsts[w] + t)) if self._starts is not None else {}
            found.append(Final(int(t), int(w), obs, state, float(self._final_values[env, rows[t, w]])))
        return found
