"""Atari 2600 games through ale-py's native vector environment. Presets hold the papers' preprocessing.

All presets (ale-py 0.12, `src/ale/vector/preprocessed_env.cpp`) take the luminance of frames, the maximum over the last
two frames of a step, resize the result by area averaging, and stack the last few images. Under any preset, ale-py
differs from the classic wrappers (OpenAI baselines):

* after a reset the stack is filled with black, not with copies of the first image;
* fire is pressed for one frame at a full reset, not for one step after every lost life: there the agent must fire;
* at the end of an episode, an older frame replaces the skipped frames of the last step. This includes the newest image
  of `Step.final_obs` at the frame cap.

ale-py cannot save an emulator's state, so these environments are not `Resumable`.
"""

from __future__ import annotations

import os
from collections.abc import MutableSequence, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from gossamer.data import Array, Step
from gossamer.envs.base import VectorEnv, check_counts, env_seeds, missing_extra, unknown_env
from gossamer.envs.workers import Workers
from gossamer.spaces import Discrete, Spec
from gossamer.system.processes import cores
from gossamer.system.scripts import script

if TYPE_CHECKING:
    from ale_py.vector_env import AtariVectorEnv

SCREEN = (210, 160)  # pixels, height and width of `frames`; the taller screens of a few games are scaled to it


@dataclass(frozen=True)
class AtariPreset:
    """Preprocessing of a game. Use `dataclasses.replace` to change single fields."""

    size: int = 84  # pixels, height of an observation, and width if that is None
    width: int | None = None  # pixels; divisors of the screen's size (210x160 in most games) are resized faster
    stack: int = 4  # stacked images, the newest last
    frame_skip: int = 4  # frames per step, with the action repeated
    maxpool: bool = True  # take the maximum of the last two frames (sprites flicker)
    noop_max: int = 30  # frames: each episode starts with a uniform number of no-ops in 0..noop_max
    sticky: float = 0.0  # probability per frame that the emulator repeats the previous action
    life_loss_ends: bool = False  # a lost life terminates, while the game continues (see `Step.over`)
    fire_reset: bool = False  # press fire at the start of a game
    full_actions: bool = False  # all 18 actions instead of the game's minimal set
    frame_cap: int = 108_000  # frames after which an episode is truncated: 30 minutes at 60 Hz
    clip_reward: bool = True  # learn from rewards clipped to [-1, 1]

    def __post_init__(self) -> None:
        for option in ("size", "width", "stack", "frame_skip", "frame_cap"):
            value = getattr(self, option)
            if value is not None and value < 1:
                raise ValueError(f"{option} must be at least 1, not {value}")
        if self.noop_max < 0:
            raise ValueError(f"noop_max must be 0 or more frames, not {self.noop_max}")
        if not 0 <= self.sticky < 1:
            raise ValueError(f"sticky must be a probability below 1, not {self.sticky}")

    @property
    def plane(self) -> tuple[int, int]:
        """Height and width of an observation in pixels."""
        return self.size, self.size if self.width is None else self.width


# PAAC (Clemente et al. 2017; Alfredvc/paac atari_emulator.py): up to 30 no-ops, no termination at a lost life. The
# published code also resizes by nearest neighbour and fills the stack with four steps of no-ops at a reset. Its frame
# cap is unknown.
PAAC = AtariPreset()

# GALA (Assran et al. 2019), with OpenAI baselines' wrappers: termination at a lost life, fire at a reset, the sign of
# the reward (equal to clipping, since Atari rewards are integers), 1..30 no-ops, no frame cap.
GALA = AtariPreset(life_loss_ends=True, fire_reset=True)

# IMPALA (Espeholt et al. 2018, table G.1): termination at a lost life, rewards clipped to [-1, 1], minimal action set
# (the multi-task agent uses all 18 actions: `full_actions`), frame cap 30 minutes.
IMPALA = AtariPreset(life_loss_ends=True)

# Machado et al. 2018, "Revisiting the Arcade Learning Environment": sticky actions are the only randomness, all 18
# actions, no information on lives, 5 minutes per episode. Frame skip and reward clipping belong to the agent there;
# they are the same as in the other presets.
MACHADO = AtariPreset(noop_max=0, sticky=0.25, full_actions=True, frame_cap=18_000)

# Gymnasium's `ALE/Pong-v5` (ale-py's registration, after Machado et al.): sticky actions are the only randomness,
# minimal action set, 30 minutes per episode. Image size, stacking, maximum of two frames and reward clipping belong to
# the agent there; they are the same as in the other presets.
GYMNASIUM = AtariPreset(noop_max=0, sticky=0.25)

PRESETS = {"paac": PAAC, "gala": GALA, "impala": IMPALA, "machado": MACHADO, "gymnasium": GYMNASIUM}


FOR_TWO = {"combat", "joust", "maze_craze", "warlords"}  # two-player games: single-player mode aborts the process


def list_games() -> tuple[str, ...]:
    """Return the snake_case names of ale-py's single-player games. Raises `MissingExtra` without ale-py."""
    try:
        from ale_py import roms
    except ModuleNotFoundError as error:
        raise missing_extra("Atari games", "atari") from error
    return tuple(sorted(set(roms.get_all_rom_ids()) - FOR_TWO))


THREADS_OF_A_PROCESS = 2  # native threads that step the games of one process
GAMES_OF_A_PROCESS = 8  # with fewer, a step waits longer for the process than for its games


def processes_for(num_envs: int, threads: int, cores: int) -> int:
    """Return how many processes play the `num_envs` games of a worker that has `threads` of a machine's cores; 0: this
    one, with native threads.

    Processes make games at the same time, with those of other workers, too: ale-py makes one in 0.1 s, and holds the
    GIL meanwhile. On two cores there are none: they do not step faster, and copy the observations."""
    if cores <= 2 or num_envs < GAMES_OF_A_PROCESS:
        return 0
    return max(1, min(threads // THREADS_OF_A_PROCESS, num_envs // GAMES_OF_A_PROCESS))


@dataclass(frozen=True)
class Atari:
    """A game, by its snake_case name (`pong`, `space_invaders`), and its preprocessing."""

    game: str
    preset: AtariPreset = PAAC
    processes: int | None = None  # that play the games; 0: this process; None: see `processes_for`

    @property
    def name(self) -> str:
        return self.game

    def threads(self, sharing: int) -> int:
        """See `Threaded`: an equal share of the cores."""
        return max(1, cores() // sharing)

    def make(self, num_envs: int, *, workers: int = 0, render: bool = False) -> VectorEnv:
        """Create environments stepped by `workers` native threads, without the GIL (0: one per core), in this process
        or divided among `processes`. The trajectories are the same.

        `render` runs every game a second time, in colour. Raises `MissingExtra` without ale-py, and `UnknownEnv` for an
        unknown game."""
        check_counts(num_envs, workers)
        games = list_games()
        if self.game not in games:
            raise unknown_env(self.game, games)
        threads = min(workers or cores(), num_envs)
        if processes := self._processes(num_envs, threads):
            recipe = AtariRecipe(self.game, self.preset, max(1, threads // processes), render)
            return Workers(recipe, num_envs, processes)
        # Pin one thread per core if all cores are available: otherwise the kernel often wakes two on the same core.
        pinned = threads == cores() == os.cpu_count()
        return AtariVector(self.game, self.preset, num_envs, threads, render, pinned=pinned)

    def _processes(self, num_envs: int, threads: int) -> int:
        """Processes that play so many games on so many threads; 0: this one."""
        if self.processes is not None:
            return min(self.processes, num_envs) if num_envs > 1 else 0
        return 0 if script() else processes_for(num_envs, threads, cores())  # each process would import a user's script


@dataclass(frozen=True)
class AtariRecipe:
    """Makes the games of a worker process; see `Recipe`. Its threads are not pinned: each process has its own games, so
    all would wait for one thread whose core is busy."""

    name: str  # of the game
    preset: AtariPreset
    threads: int  # of each process
    render: bool

    restarts: ClassVar[bool] = False
    modules: ClassVar[tuple[str, ...]] = (__name__, "ale_py.vector_env")

    def spec(self) -> Spec:
        """Make one game, unless this process has made one before."""
        if (self.name, self.preset) not in _specs:
            AtariVector(self.name, self.preset, 1, 1, render=False).close()
        return _specs[self.name, self.preset]

    def make(self, num_envs: int, first: int, asking: MutableSequence[int]) -> AtariVector:
        return AtariVector(self.name, self.preset, num_envs, min(self.threads, num_envs), self.render)


_specs: dict[tuple[str, AtariPreset], Spec] = {}  # of the games that this process has made


class AtariVector:
    """B games of ale-py, created by `Atari.make`. Observations are [stack, height, width] uint8."""

    def __init__(
        self, game: str, preset: AtariPreset, num_envs: int, threads: int, render: bool, *, pinned: bool = False
    ) -> None:
        engine = partial(_engine, game, preset, num_envs, threads, pinned)
        self._engine = engine(preset.plane, preset.stack, grayscale=True)
        # The native environment gives luminance only, so a second one runs the same games in colour for `frames`.
        self._screen = engine(SCREEN, 1, grayscale=False) if render else None
        self._picture: Array | None = None
        self._preset, self.num_envs = preset, num_envs
        names = tuple(action.name.lower() for action in self._engine.ale.get_action_set())
        shape, actions = (preset.stack, *preset.plane), Discrete(len(names))
        self.spec = Spec(
            shape, np.dtype(np.uint8), actions, preset.frame_skip, history=preset.stack, action_names=names
        )
        _specs[game, preset] = self.spec
        self._actions = len(names)
        self._action = np.zeros(num_envs, np.int64)  # [B] of the step in progress
        self._frame = np.zeros(num_envs, np.int64)  # [B] frame number within the episode at the last step

    def reset(self, seed: int) -> Array:
        return self.reset_each(env_seeds(seed, self.num_envs))

    def reset_each(self, seeds: Sequence[int]) -> Array:
        """Like `reset`, with one seed per environment."""
        each = np.array(seeds)
        obs, info = self._engine.reset(seed=each)
        self._frame = info["episode_frame_number"]
        if self._screen is not None:
            self._picture = self._screen.reset(seed=each)[0][:, 0]
        return np.asarray(obs)

    def step(self, action: Array) -> Step:
        """See `VectorEnv.step`. Raises `ValueError` for an invalid action."""
        self.send(action)
        return self.receive()

    def send(self, action: Array) -> None:
        """See `Parted`. Raises `ValueError` for an invalid action."""
        if action.min() < 0 or action.max() >= self._actions:  # ale-py would deadlock
            raise ValueError(f"actions must lie in 0..{self._actions - 1}, not {action.tolist()}")
        self._engine.send(action)
        self._action = action

    def receive(self) -> Step:
        """See `Parted`."""
        obs, score, terminated, truncated, info = self._engine.recv()
        frame, over = info["episode_frame_number"], terminated | truncated
        if self._preset.life_loss_ends:  # a lost life terminates too, but only a full reset lowers the frame number
            over = truncated | (terminated & (frame <= self._frame))
        self._frame = frame
        if self._screen is not None:
            self._step_screens(self._action, score, frame)
        score = score.astype(np.float32)
        reward = np.clip(score, -1, 1) if self._preset.clip_reward else score.copy()
        return Step(obs, reward, score, terminated, truncated, over, info["final_obs"] if truncated.any() else None)

    def frames(self) -> Array:
        if self._picture is None:
            raise RuntimeError("no screens to show: create the environment with render=True, then reset it")
        return self._picture

    def close(self) -> None:
        self._engine.close()
        if self._screen is not None:
            self._screen.close()

    def _step_screens(self, action: Array, score: Array, frame: Array) -> None:
        assert self._screen is not None
        picture, same_score, _, _, info = self._screen.step(action)
        if not (np.array_equal(score, same_score) and np.array_equal(frame, info["episode_frame_number"])):
            raise RuntimeError("the rendered games have diverged from the played ones")
        self._picture = picture[:, 0]


def _engine(
    game: str,
    preset: AtariPreset,
    num_envs: int,
    threads: int,
    pinned: bool,
    size: tuple[int, int],
    stack: int,
    *,
    grayscale: bool,
) -> AtariVectorEnv:
    from ale_py.vector_env import AtariVectorEnv

    return AtariVectorEnv(
        game,
        num_envs,
        num_threads=threads,
        thread_affinity_offset=0 if pinned else -1,
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
        reward_clipping=False,  # clipped in `step`, which also reports the score
    )
