"""Records a video of games."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from io import BytesIO
from os import PathLike
from pathlib import Path
from typing import Any

import imageio.v2 as imageio
import numpy as np
import torch

from gossamer.config.build import environment, observed
from gossamer.envs.base import VectorEnv
from gossamer.envs.games import each_game
from gossamer.envs.watchdog import Watchdog, complain
from gossamer.evaluation.acting import acting, task_here
from gossamer.evaluation.evaluate import Protocol, load_policy, under
from gossamer.evaluation.members import AVERAGE
from gossamer.policy import NetworkPolicy
from gossamer.storage.checkpoint import Store
from gossamer.storage.contents import CHECKPOINTS, FILM
from gossamer.storage.directory import load_config
from gossamer.storage.files import atomic_write
from gossamer.system.errors import EnvironmentFailed, UserError
from gossamer.system.paths import shown

MIN_HEIGHT = 400  # pixels; smaller screens are enlarged by an integer factor
MAX_WIDTH = 1920
STEPS_A_SECOND = 15  # Atari's speed: 60 frames per second, 4 frames per step


@dataclass(frozen=True)
class Recording:
    """Recorded games, one after another in one video."""

    path: Path
    scores: tuple[float, ...]  # of each game; the last one may be cut off
    steps: int  # of all games
    cut_off: int = 0  # steps of the last game if `max_steps` cut it off; 0: it ended

    @property
    def score(self) -> float:
        """Mean score of the games."""
        return sum(self.scores) / len(self.scores)


def record(
    run_dir: str | PathLike[str],
    *,
    out: str | Path | None = None,
    protocol: Protocol | None = None,
    checkpoint: str = "last",
    greedy: bool = False,
    epsilon: float | None = None,
    seed: int = 0,
    episodes: int = 1,
    max_steps: int = 5_000,
    member: str | int = AVERAGE,
    game: str | None = None,
) -> Recording:
    """Record a video of `episodes` games one after another, of at most `max_steps` steps in all. `out` defaults to
    `video.mp4` in the run directory. `member`, `greedy` and `epsilon`: as in `evaluate`. `game`:
    which one, of a policy for several games."""
    if episodes < 1:
        raise UserError(f"--episodes {episodes}: must be at least 1")
    if max_steps < 1:
        raise UserError(f"--max-steps {max_steps}: must be at least 1")
    directory = Path(run_dir).absolute()  # environments may change the current directory
    config = load_config(directory)
    path = Path(out).absolute() if out else directory / FILM
    if path.suffix.lower() not in (".mp4", ".gif"):
        raise UserError(f"--out {out}: must end in .mp4 or .gif")
    if not path.parent.is_dir():
        raise UserError(f"--out {out}: there is no directory {shown(path.parent)}")
    found = Store(directory / CHECKPOINTS).get(checkpoint)
    os.environ.setdefault("SDL_VIDEODRIVER", "dummy")  # pygame draws the pictures; without this it needs a screen
    what, _ = acting(task_here(config), greedy=greedy, epsilon=epsilon)
    factory, _ = under(environment(config), protocol)
    games = each_game(factory, game)
    if len(games) > 1:
        raise UserError(f"--game: give the one to record: {', '.join(games)}")
    ((_, factory),) = games.items()
    with (
        Watchdog(factory.name, complain) as watchdog,
        closing(watchdog.watch(observed(factory, config).make(1, workers=1, render=True))) as env,
    ):
        policy = load_policy(found, what, env.spec, member=member, greedy=greedy, seed=seed)
        stage = Stage(env, factory.name, what.device)

        def film(beside: Path) -> None:
            with _film(beside) as add:
                for picture in stage.play(policy, episodes, max_steps, what.stream("record") ^ seed):
                    add(picture)

        atomic_write(path, film)
    return Recording(path, tuple(stage.scores), stage.steps, stage.unended)


class Stage:
    """One environment, in which a policy plays games one after another."""

    def __init__(self, env: VectorEnv, name: str, device: str) -> None:
        """`env`: renders; `device`: of the policy."""
        self._env, self._name, self._device = env, name, device
        self.scores = list[float]()  # of each game that has begun
        self.steps = 0  # of all games
        self.unended = 0  # steps of a game that has not ended

    def play(self, policy: NetworkPolicy, episodes: int, max_steps: int, seed: int) -> Iterator[Any]:
        """Play so many games, of at most `max_steps` steps in all. Yields the pictures [H, W, 3] at the start and after
        each step but the last of all games."""
        obs, memory, over = self._env.reset(seed), policy.initial_state(1), True
        pictures = _pictures(self._env, self._name)
        yield next(pictures)
        while self.steps < max_steps:
            if over:
                memory = policy.initial_state(1)
                self.scores.append(0.0)
            answer, memory = policy(torch.from_numpy(obs).to(self._device), memory)
            step = self._env.step(answer.action.cpu().numpy())
            obs, over = step.obs, bool(step.over[0])
            self.steps += 1
            self.unended = 0 if over else self.unended + 1
            self.scores[-1] += float(step.score[0])
            if over and len(self.scores) == episodes:
                return
            yield next(pictures)


def _pictures(env: VectorEnv, name: str) -> Iterator[Any]:
    """What the environment looks like each time one is taken, [H, W, 3]. Raises `EnvironmentFailed` when their size
    changes."""
    first = frame = env.frames()[0]
    while frame.shape == first.shape:
        yield frame
        frame = env.frames()[0]
    sizes = f"from {first.shape} to {frame.shape}"
    raise EnvironmentFailed(name, 0, f"render() changed the size of its pictures {sizes}: a video has one size")


@contextmanager
def _film(path: Path) -> Iterator[Callable[[Any], None]]:
    """Write a video; yields a function that adds a picture [H, W, 3]. Raises `OSError` if writing fails."""
    path.touch()  # fails with a clear error if the path is not writable; the writers do not
    if path.suffix.lower() == ".gif":
        buffer = BytesIO()  # otherwise the writer would retry, and print the error, when it is deleted
        options: Any = {"format": "gif", "duration": 1000 / STEPS_A_SECOND, "loop": 0}  # milliseconds
        with imageio.get_writer(buffer, **options) as writer:
            yield lambda frame: _add(writer, _enlarged(frame))
        path.write_bytes(buffer.getvalue())
        return
    options = {"fps": STEPS_A_SECOND, "macro_block_size": 2, "codec": "libx264", "quality": 8}
    # `closing`: on an error, the writer's own `with` would leave ffmpeg running and writing the file
    with closing(imageio.get_writer(path, ffmpeg_log_level="quiet", **options)) as writer:
        yield lambda frame: _add(writer, _enlarged(frame))
    try:
        imageio.get_reader(path).close()  # ffmpeg does not report that it could not complete the file
    except (OSError, IndexError) as error:
        raise _broken(path) from error


def _add(writer: Any, frame: Any) -> None:
    try:
        writer.append_data(frame)
    except OSError as error:  # a broken pipe, with all output of ffmpeg in the message
        raise _broken(Path(writer.request.filename)) from error


def _broken(path: Path) -> OSError:
    return OSError(errno.ENOSPC, "ffmpeg failed, probably no space left on device", str(path))


def _enlarged(frame: Any) -> Any:
    """[H, W, 3] enlarged to at least `MIN_HEIGHT`, but not wider than `MAX_WIDTH`; the codec requires even sides."""
    height, width, _ = frame.shape
    times = max(1 if min(height, width) > 1 else 2, min(-(-MIN_HEIGHT // height), MAX_WIDTH // width))
    large = np.repeat(np.repeat(frame, times, 0), times, 1)
    return large[: large.shape[0] // 2 * 2, : large.shape[1] // 2 * 2]
