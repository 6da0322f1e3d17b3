"""Where sequences may start: where a rollout starts, with the recurrent state that its actor had, and where an episode
begins, with the state zero (Kapturowski et al. 2018, section 3)."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from gossamer.data import Array, Final, Trajectory, Tree


class Starts:
    """The recurrent states at the starts of the rollouts in a replay memory, and before the final observations of
    truncated episodes. All rollouts have the same number of steps."""

    def __init__(self, num_envs: int, rows: int) -> None:
        """`rows`: of the memory's rings."""
        self._rows, self._steps = rows, 0  # of a rollout; 0: there was none
        self._place = np.full((num_envs, rows), -1, np.int64)  # of the state before x_t; -1: there is none
        self._rollouts = np.zeros(num_envs, np.int64)  # [B] so far
        self._states: dict[str, Tensor] = {}  # [B, places, ...]
        self._finals: list[dict[int, Tree]] = [{} for _ in range(num_envs)]  # of each environment, by step

    def add(self, rollout: Trajectory, envs: slice, start: int) -> None:
        """Store the state of a rollout whose first step is `start`. Raises `ValueError` if it has another number of
        steps than earlier ones."""
        steps = rollout.reward.shape[0]
        self._steps = self._steps or steps
        if steps != self._steps:
            raise ValueError(f"a rollout of {steps} steps: sequences need rollouts of equal length, here {self._steps}")
        self._place[envs, np.arange(start, start + steps) % self._rows] = -1
        places = self._rollouts[envs] % self._places
        self._place[envs, start % self._rows] = places
        which = torch.arange(len(self._rollouts))[envs]
        for name, state in rollout.state.items():
            if name not in self._states:
                shape = (len(self._rollouts), self._places, *state.shape[1:])
                self._states[name] = torch.zeros(shape, dtype=state.dtype)
            self._states[name][which, torch.from_numpy(places)] = state.cpu()
        self._rollouts[envs] += 1

    @property
    def _places(self) -> int:
        """States that are kept of each environment: those of all rollouts whose first step is still there."""
        return self._rows // self._steps

    def add_final(self, final: Final, env: int, step: int) -> None:
        """Store the state before the final observation of an episode that was truncated in this step."""
        self._finals[env][step] = {name: each.detach().cpu().clone() for name, each in final.state.items()}

    def forget(self, oldest: Array) -> None:
        """Forget the states of final observations before these steps [B]."""
        for states, first in zip(self._finals, oldest.tolist(), strict=True):
            while states and (step := next(iter(states))) < first:
                del states[step]

    def at(self, envs: Array, rows: Array) -> Array:
        """Whether a rollout starts in each of these rows [..., W] of the environments [W]."""
        found: Array = self._place[envs, rows] >= 0
        return found

    def states(self, envs: Array, rows: Array) -> Tree:
        """The states [W, ...] before the steps in these rows [W]: of the rollout that starts there, else zero."""
        places = self._place[envs, rows]
        starts, taken = torch.from_numpy(places >= 0), (torch.from_numpy(envs), torch.from_numpy(places.clip(0)))
        return {
            name: torch.where(starts.view(-1, *(1,) * (ring.dim() - 2)), ring[taken], torch.zeros((), dtype=ring.dtype))
            for name, ring in self._states.items()
        }

    def final_state(self, env: int, step: int) -> Tree:
        """The state before the final observation of an episode that was truncated in this step."""
        return self._finals[env][step]

    def state_dict(self) -> Tree:
        """All states. The tensors are views, which the next `add` changes."""
        where = [(env, step) for env, states in enumerate(self._finals) for step in states]
        return {
            "steps": np.array(self._steps),
            "place": self._place,
            "rollouts": self._rollouts,
            "states": dict(self._states),
            "finals": np.array(where, np.int64).reshape(-1, 2),
            "final_states": {
                name: torch.stack([self._finals[env][step][name] for env, step in where])
                for name in self._states
                if where
            },
        }

    def load_state_dict(self, state: Tree) -> None:
        """Copy a state of `state_dict`."""
        self._steps = int(state["steps"])
        self._place[:], self._rollouts[:] = np.asarray(state["place"]), np.asarray(state["rollouts"])
        self._states = {name: ring.clone() for name, ring in state["states"].items()}
        self._finals = [{} for _ in self._finals]
        for i, (env, step) in enumerate(np.asarray(state["finals"]).tolist()):
            self._finals[env][step] = {name: each[i].clone() for name, each in state["final_states"].items()}
