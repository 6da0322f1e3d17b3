"""A trained policy that acts without its environment."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from gossamer.algorithms.base import initial_state
from gossamer.data import Array, Tree
from gossamer.envs.last import LastParts
from gossamer.envs.leaves import InvalidObservation
from gossamer.export.batches import count, row
from gossamer.export.screens import Screens
from gossamer.export.snapshot import Snapshot
from gossamer.nn.memory import reset
from gossamer.spaces.observations import MASK
from gossamer.system.errors import UserError


class TrainedPolicy:
    """Maps observations of the environment, as it gives them, to actions, as it takes them. See `gossamer.load`.

    For Atari games an observation is a stack of preprocessed pictures; `preprocessing` makes them from screens."""

    def __init__(self, snapshot: Snapshot, *, greedy: bool, seed: int, device: str) -> None:
        """Raises `UserError` if the network cannot be built."""
        if not 0 <= seed < 2**31:
            raise UserError(f"--seed {seed}: must be at least 0 and below 2^31")
        self.snapshot, self.greedy, self.device = snapshot, greedy, device
        self._whole = self._interface = snapshot.description.interface  # the second one is that of the game it plays
        self._game: int | None = None  # of several; None: not said yet, or there is only one
        self.observation_space, self.action_space = self._interface.observation_space, self._interface.action_space
        self._algorithm, self._model = snapshot.description.algorithm, snapshot.model(device)
        self._rng = torch.Generator(device).manual_seed(seed)
        observes_last = snapshot.description.options.last_action_reward
        self._last = LastParts(self._interface.spec) if observes_last else None
        self.reset()

    def reset(self) -> None:
        """Forget what was seen: with the next observations, episodes begin."""
        self.memory: Tree = None  # [B, ...] recurrent state after the last call
        self._action: Array | None = None  # [B, *A] of the last call

    @property
    def games(self) -> tuple[str, ...]:
        """The names of several games that the policy plays; empty if there is only one."""
        return tuple(game.name for game in self._whole.games)

    def play(self, game: str) -> None:
        """Play this one of several games from now on, as `act(obs, game=...)` does. `observation_space` and
        `action_space` are then its. Raises `UserError` if it is none of them."""
        if game not in self.games:
            of = ", ".join(self.games) or f"{self._whole.name} only"
            raise UserError(f"game: the policy does not play {game}; it plays {of}")
        if self._game != self.games.index(game):
            self._game = self.games.index(game)
            self._interface = self._whole.games[self._game]
            self.observation_space, self.action_space = self._interface.observation_space, self._interface.action_space
            self.reset()

    def act(
        self, obs: Any, *, game: str | None = None, begins: Any = None, mask: Any = None, reward: Any = None
    ) -> Any:
        """Select an action for one observation, or actions for a batch of them. The shape tells which it is.

        `game`: which one the observations are of, if the policy plays several; it stays the same until another one is
        given, which begins episodes anew.

        The recurrent state is kept for the next call. `begins`, a bool or [B]: an episode begins with this observation,
        so that its state is zero. `mask`: `info["action_mask"]`, if the policy was trained with it; for a batch [B, M],
        or a tuple of [B, n]. `reward`, a number or [B]: what the environment gave last, if the policy was trained with
        --last-action-reward; not for the first observation after `reset`.

        Discrete actions are an int, or [B] integers; others an array, or [B, *A]. Raises `UserError` for what does not
        fit the observation space, and for a reward that is no finite number."""
        if game is not None:
            self.play(game)
        number = count(self.observation_space, obs)
        size = number or 1
        new = np.ones(size, bool) if self.memory is None else _flags("begins", begins, size)
        seen = self._rows(obs, mask, number)
        if self._last is not None:
            seen = self._last.added(seen, self._parts(self._last, reward, new))
        memory = initial_state(self._model, size) if self.memory is None else self.memory
        action, self.memory = self._answer(seen, memory, new, self.greedy)
        self._action = action
        return self._given(action, number)

    def predict(
        self,
        observation: Any,
        state: tuple[Array, ...] | None = None,
        episode_start: Any = None,
        deterministic: bool = False,
        action_masks: Any = None,
    ) -> tuple[Any, tuple[Array, ...] | None]:
        """Like `act`, with the signature of Stable-Baselines3's models, so that the policy can stand in for one.

        The caller keeps the recurrent `state`, a tuple of arrays [B, H]: None at the start, and without memory.
        `episode_start` [B]: where an episode begins. Returns the actions and the state after them. `act` and its state
        are not affected. Raises `UserError` for a state that does not fit, and for a policy that observes the last
        reward, which this call does not have."""
        if self._last is not None:
            raise UserError("predict: the policy was trained with --last-action-reward; use act(obs, reward=...)")
        number = count(self.observation_space, observation)
        size = number or 1
        memory = self._restored(state, size)
        new = _flags("episode_start", episode_start, size)
        action, memory = self._answer(self._rows(observation, action_masks, number), memory, new, deterministic)
        after = tuple(each.cpu().numpy() for each in memory.values())
        return np.asarray(self._given(action, number)), after or None  # also of a single choice, as SB3's models do

    def _restored(self, state: tuple[Array, ...] | None, size: int) -> Tree:
        """The recurrent state [B, H] that the caller kept; zeros without one."""
        memory = initial_state(self._model, size)
        if state is None:
            return memory
        shapes, given = [tuple(each.shape) for each in memory.values()], [np.shape(each) for each in state]
        if given != shapes:
            raise UserError(f"state: arrays of shapes {given}, and the policy's are {shapes}; None begins anew")
        return {name: torch.as_tensor(each).to(zero) for (name, zero), each in zip(memory.items(), state, strict=True)}

    def preprocessing(self) -> Screens:
        """A new object that makes observations of one Atari game from the emulator's screens. Raises `UserError` for
        another environment."""
        if self._interface.preset is None:
            raise UserError(f"preprocessing: {self._interface.name} is not an Atari game; act takes its observations")
        return Screens(self._interface.preset)

    def _rows(self, obs: Any, mask: Any, number: int | None) -> Array:
        """The network's observations [B, *O]. `number`: None for a single one."""
        if self.games and self._game is None:
            raise UserError(f"game: the policy plays several; say which: {', '.join(self.games)}")
        adapter = self._interface.adapter
        self._check_mask(mask)
        found = np.empty((number or 1, *adapter.spec.obs_shape), adapter.spec.obs_dtype)
        try:
            for i in range(len(found)):
                one = obs if number is None else row(self.observation_space, obs, i)
                info = {} if mask is None else {MASK: mask if number is None else _row(mask, i, number)}
                found[i] = adapter.obs(one, info)
        except InvalidObservation as error:
            raise UserError(f"act: {error}") from error
        return found if self._game is None else self._whole.union.pack(self._game, found)

    def _check_mask(self, mask: Any) -> None:
        needed = self._interface.adapter.asks_mask
        if needed and mask is None:
            raise UserError('mask: the policy was trained with action masks; give mask=info["action_mask"]')
        if mask is not None and not needed:
            raise UserError("mask: the policy was trained without masks of its own argument; leave it out")

    def _parts(self, last: LastParts, reward: Any, new: npt.NDArray[np.bool_]) -> Array:
        """The bytes of the last action and reward [B, size]; zeros where an episode begins."""
        if new.all() or self._action is None:
            return last.none(len(new))
        if reward is None:
            raise UserError("reward: the policy observes the last reward; give act(obs, reward=...), or reset()")
        if len(self._action) != len(new):
            raise UserError(f"obs: a batch of {len(new)}, and the last actions are {len(self._action)}; reset() first")
        given = _rewards(reward, len(new))
        clipped = self._interface.preset is not None and self._interface.preset.clip_reward
        packed = last.pack(self._action, np.clip(given, -1, 1) if clipped else given)
        packed[new] = 0
        return packed

    @torch.no_grad()
    def _answer(self, obs: Array, memory: Tree, new: npt.NDArray[np.bool_], greedy: bool) -> tuple[Array, Tree]:
        """Actions [B, *A] of the network's action space, and the recurrent state after them."""
        if any(len(each) != len(obs) for each in memory.values()):
            kept = len(next(iter(memory.values())))
            raise UserError(f"obs: a batch of {len(obs)}, and the recurrent state is of {kept}; reset() first")
        if memory and new.any():
            memory = reset(memory, torch.from_numpy(new).to(self.device))
        seen: Tensor = torch.from_numpy(obs).to(self.device)
        answer, after = self._algorithm.act(self._model, seen, memory, self._rng, greedy=greedy)
        return answer.action.cpu().numpy(), after

    def _given(self, action: Array, number: int | None) -> Any:
        """What the environment takes: one action, or a batch."""
        own = action if self._game is None else self._whole.union.own(self._game, action)
        rows = own.tolist() if own.ndim == 1 else own
        each = [self._interface.adapter.action(one) for one in rows]
        return each[0] if number is None else np.stack(each)


def _flags(name: str, given: Any, size: int) -> npt.NDArray[np.bool_]:
    """A bool, or one for each observation, as [B]; None: nowhere."""
    flags = np.asarray(False if given is None else given, bool)
    if flags.shape not in ((), (1,), (size,)):
        raise UserError(f"{name}: of shape {list(flags.shape)}; give a bool, or [{size}] of them")
    return np.broadcast_to(flags, (size,)).copy()  # torch wants to be able to write to it


def _rewards(given: Any, size: int) -> npt.NDArray[np.float32]:
    """A number, or one for each observation, as [B]."""
    try:
        rewards = np.asarray(given, np.float32)
    except (TypeError, ValueError) as error:
        raise UserError(f"reward: not a number ({error})") from error
    if rewards.shape not in ((), (1,), (size,)):
        raise UserError(f"reward: of shape {list(rewards.shape)}; give a number, or [{size}] of them")
    if not np.isfinite(rewards).all():
        raise UserError("reward: is NaN or infinite")
    return np.broadcast_to(rewards, (size,))


def _row(mask: Any, i: int, number: int) -> Any:
    """The mask of observation `i`: a row of [B, M], or of each array in a tuple."""
    each = mask if isinstance(mask, tuple) else (mask,)
    if any(len(part) != number for part in each):
        raise UserError(f"mask: must have a row for each of the {number} observations")
    rows = tuple(np.asarray(part)[i] for part in each)
    return rows if isinstance(mask, tuple) else rows[0]
