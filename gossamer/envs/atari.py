"""Atari 2600 games through ale-py's native vector environment; each paper's preprocessing is data.

What every preset has in common (ale-py 0.12, `src/ale/vector/preprocessed_env.cpp`): frames as luminance, the maximum
of the last two of a step's, resized to a square by area averaging, the last few stacked. What ale-py does otherwise
than the classic wrappers (OpenAI baselines), under any preset:

* after a reset the stack is filled with black, not with copies of the first picture;
* the fire button is held for one frame of a real reset, not for a step after every lost life: there the agent fires;
* a step that ends an episode shows an older frame in place of those it did not play. So does `Step.final_obs` at the
  frame cap, in its newest picture.

ale-py cannot save an emulator's state, so these environments are not `Resumable`.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from gossamer.data import Array, Step
from gossamer.envs.base import Spec, VectorEnv, check_counts, cores, env_seeds, missing_extra, unknown_env

if TYPE_CHECKING:
    from ale_py.vector_env import AtariVectorEnv

SCREEN = (210, 160)  # pixels, height and width of what `frames` shows (a few games' taller screens are scaled to it)


@dataclass(frozen=True)
class AtariPreset:
    """How a game becomes steps. Change a part of it with `dataclasses.replace`."""

    size: int = 84  # pixels, height and width of an observation
    stack: int = 4  # pictures, the newest last
    frame_skip: int = 4  # frames to a step: the action is repeated
    maxpool: bool = True  # a picture is the maximum of the last two frames (sprites flicker)
    noop_max: int = 30  # frames: each episode starts with 0..noop_max of doing nothing, uniformly drawn
    sticky: float = 0.0  # probability, each frame, that the emulator repeats the last action instead
    life_loss_ends: bool = False  # a lost life terminates (the game goes on; `Step.over` says when it does not)
    fire_reset: bool = False  # press fire at the start of a game
    full_actions: bool = False  # all 18 actions, not only those that do something in this game
    frame_cap: int = 108_000  # frames after which an episode is truncated: 30 minutes at 60 Hz
    clip_reward: bool = True  # learn from rewards clipped to [-1, 1]

    def __post_init__(self) -> None:
        for option in ("size", "stack", "frame_skip", "frame_cap"):
            value = getattr(self, option)
            if value < 1:
                raise ValueError(f"{option} must be at least 1, not {value}")
        if self.noop_max < 0:
            raise ValueError(f"noop_max must be 0 or more frames, not {self.noop_max}")
        if not 0 <= self.sticky < 1:
            raise ValueError(f"sticky must be a probability below 1, not {self.sticky}")


# PAAC (Clemente et al. 2017; Alfredvc/paac atari_emulator.py): up to 30 no-ops, a lost life ends nothing. There:
# nearest-neighbour resizing, and four more steps of no-ops at a reset, which fill the stack. No frame cap is known.
PAAC = AtariPreset()

# GALA (Assran et al. 2019), which takes OpenAI baselines' wrappers: a lost life ends the learner's episode, fire at a
# reset, the sign of the reward (the same as clipping: Atari's rewards are whole numbers), 1..30 no-ops, no frame cap.
GALA = AtariPreset(life_loss_ends=True, fire_reset=True)

# IMPALA (Espeholt et al. 2018, table G.1): a lost life ends the learner's episode, rewards clipped to [-1, 1], each
# game's own action set (the multi-task agent has all 18: `full_actions`). Frame cap 30 minutes.
IMPALA = AtariPreset(life_loss_ends=True)

# Machado et al. 2018, "Revisiting the Arcade Learning Environment": sticky actions are the only randomness, all 18
# actions, nothing known of lives, 5 minutes to an episode. Repeating an action 4 times and clipping the reward are
# the agent's business there; they stay as in the other presets.
MACHADO = AtariPreset(noop_max=0, sticky=0.25, full_actions=True, frame_cap=18_000)

# Gymnasium's `ALE/Pong-v5` (ale-py's registration, after Machado et al.): sticky actions are the only randomness, each
# game's own action set, 30 minutes to an episode. What an agent makes of the pictures, 4 of 84 x 84 grey pixels and the
# maximum of two frames, and that it learns from clipped rewards, stay as in the other presets.
GYMNASIUM = AtariPreset(noop_max=0, sticky=0.25)

PRESETS = {"paac": PAAC, "gala": GALA, "impala": IMPALA, "machado": MACHADO, "gymnasium": GYMNASIUM}


FOR_TWO = {"combat", "joust", "maze_craze", "warlords"}  # the emulator ends the process that asks for them alone


def list_games() -> tuple[str, ...]:
    """Every game that ale-py ships and one can play alone, by its snake_case name; `MissingExtra` where ale-py is not
    installed."""
    try:
        from ale_py import roms
    except ModuleNotFoundError as error:
        raise missing_extra("Atari games", "atari") from error
    return tuple(sorted(set(roms.get_all_rom_ids()) - FOR_TWO))


@dataclass(frozen=True)
class Atari:
    """A game by its snake_case name (`pong`, `space_invaders`) and how it is played."""

    game: str
    preset: AtariPreset = PAAC

    @property
    def name(self) -> str:
        return self.game

    def make(self, num_envs: int, *, workers: int = 0, render: bool = False) -> VectorEnv:
        """Stepped by `workers` threads outside the interpreter lock (0: one for each core). `render` runs every game
        a second time, in colour. Raises `MissingExtra` without ale-py, `UnknownEnv` for a game it does not have."""
        check_counts(num_envs, workers)
        games = list_games()
        if self.game not in games:
            raise unknown_env(self.game, games)
        return AtariVector(self.game, self.preset, num_envs, min(workers or cores(), num_envs), render)


class AtariVector:
    """B games of ale-py, made by `Atari.make`. Pictures are [stack, size, size] uint8."""

    def __init__(self, game: str, preset: AtariPreset, num_envs: int, threads: int, render: bool) -> None:
        size = (preset.size, preset.size)
        self._engine = _engine(game, preset, num_envs, threads, size, preset.stack, grayscale=True)
        # The native environment has no colour beside its luminance, so a second one plays along for `frames`.
        self._screen = _engine(game, preset, num_envs, threads, SCREEN, 1, grayscale=False) if render else None
        self._picture: Array | None = None
        self._preset, self.num_envs = preset, num_envs
        actions = len(self._engine.ale.get_action_set())
        self.spec = Spec((preset.stack, *size), np.dtype(np.uint8), actions, preset.frame_skip)
        self._frame = np.zeros(num_envs, np.int64)  # of the episode, at the last step

    def reset(self, seed: int) -> Array:
        seeds = np.array(env_seeds(seed, self.num_envs))
        obs, info = self._engine.reset(seed=seeds)
        self._frame = info["episode_frame_number"]
        if self._screen is not None:
            self._picture = self._screen.reset(seed=seeds)[0][:, 0]
        return np.asarray(obs)

    def step(self, action: Array) -> Step:
        """Raises `ValueError` for an action the game does not have."""
        if action.min() < 0 or action.max() >= self.spec.actions:  # ale-py would wait for its threads for ever
            raise ValueError(f"actions must lie in 0..{self.spec.actions - 1}, not {action.tolist()}")
        obs, score, terminated, truncated, info = self._engine.step(action)
        frame, over = info["episode_frame_number"], terminated | truncated
        if self._preset.life_loss_ends:  # a lost life terminates too, but only a real reset turns the clock back
            over = truncated | (terminated & (frame <= self._frame))
        self._frame = frame
        if self._screen is not None:
            self._play_along(action, score, frame)
        score = score.astype(np.float32)
        reward = np.clip(score, -1, 1) if self._preset.clip_reward else score.copy()
        return Step(obs, reward, score, terminated, truncated, over, info["final_obs"] if truncated.any() else None)

    def frames(self) -> Array:
        if self._picture is None:
            raise RuntimeError("no screens to show: make the environment with render=True, then reset it")
        return self._picture

    def close(self) -> None:
        self._engine.close()
        if self._screen is not None:
            self._screen.close()

    def _play_along(self, action: Array, score: Array, frame: Array) -> None:
        assert self._screen is not None
        picture, same_score, _, _, info = self._screen.step(action)
        if not (np.array_equal(score, same_score) and np.array_equal(frame, info["episode_frame_number"])):
            raise RuntimeError("the screens no longer show the games that are played")
        self._picture = picture[:, 0]


def _engine(
    game: str, preset: AtariPreset, num_envs: int, threads: int, size: tuple[int, int], stack: int, *, grayscale: bool
) -> AtariVectorEnv:
    from ale_py.vector_env import AtariVectorEnv

    return AtariVectorEnv(
        game,
        num_envs,
        num_threads=threads,
        # One thread to each core, where every core is ours: the kernel likes to wake two of them on the same one.
        thread_affinity_offset=0 if threads == cores() == os.cpu_count() else -1,
        autoreset_mode="SameStep",
        img_height=size[0],
        img_width=size[1],
        stack_num=stack,
        grayscale=grayscale,
        frameskip=preset.frame_skip,
        maxpool=preset.maxpool,
        noop_max=preset.noop_max + 1,  # ale-py draws from 0..noop_max - 1
        repeat_action_probability=preset.sticky,
        life_loss_info=preset.life_loss_ends,  # not `episodic_life`, which resets the whole game at a lost life
        use_fire_reset=preset.fire_reset,
        full_action_space=preset.full_actions,
        max_num_frames_per_episode=preset.frame_cap,
        reward_clipping=False,  # the score is reported too
    )
