"""A video of real play."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import imageio.v2 as imageio
import numpy as np
import torch

from gossamer.config.build import environment, task
from gossamer.errors import UserError
from gossamer.evaluation.evaluate import Protocol, load_policy, under
from gossamer.evaluation.members import AVERAGE
from gossamer.storage.checkpoint import Store
from gossamer.storage.directory import load_config

MIN_HEIGHT = 400  # pixels; small screens are enlarged by a whole factor
STEPS_A_SECOND = 15  # Atari's own pace: 60 frames a second, 4 to a step


@dataclass(frozen=True)
class Recording:
    """One game on film."""

    path: Path
    score: float
    steps: int


def record(
    run_dir: str | Path,
    *,
    out: str | Path | None = None,
    protocol: Protocol = "noop",
    checkpoint: str = "last",
    greedy: bool = False,
    seed: int = 0,
    max_steps: int = 5_000,
    member: str = AVERAGE,
) -> Recording:
    """Play one game (or `max_steps` of it) and film it, to `video.mp4` in the run directory unless `out` is given.
    `member`: as in `evaluate`."""
    if max_steps < 1:
        raise UserError(f"--max-steps {max_steps}: must be at least 1")
    directory = Path(run_dir)
    config = load_config(directory)
    path = Path(out) if out else directory / "video.mp4"
    if path.suffix.lower() not in (".mp4", ".gif"):
        raise UserError(f"--out {path}: must end in .mp4 or .gif")
    if not path.parent.is_dir():
        raise UserError(f"--out {path}: there is no directory {path.parent}")
    found = Store(directory / "checkpoints").get(checkpoint)
    what = task(config)
    factory, _ = under(environment(config), protocol)
    with closing(factory.make(1, workers=1, render=True)) as env:
        policy, _ = load_policy(found, what, env.spec, member=member, greedy=greedy, seed=seed)
        obs, score, steps = env.reset(what.stream("record") ^ seed), 0.0, 0
        beside = path.with_name(f".{path.stem}.part{path.suffix}")
        try:
            with _writer(beside) as film:
                film.append_data(_enlarged(env.frames()[0]))
                for steps in range(1, max_steps + 1):  # noqa: B007  steps is read after the loop
                    answer, _ = policy(torch.from_numpy(obs).to(what.device), {})
                    step = env.step(answer.action.cpu().numpy())
                    obs, score = step.obs, score + float(step.score[0])
                    if step.over[0]:
                        break
                    film.append_data(_enlarged(env.frames()[0]))
            beside.replace(path)
        finally:
            beside.unlink(missing_ok=True)
    return Recording(path, score, steps)


def _writer(path: Path) -> Any:
    if path.suffix.lower() == ".gif":
        return imageio.get_writer(path, duration=1000 / STEPS_A_SECOND, loop=0)  # milliseconds
    return imageio.get_writer(path, fps=STEPS_A_SECOND, macro_block_size=2, codec="libx264", quality=8)


def _enlarged(frame: Any) -> Any:
    """[H, W, 3] with every pixel repeated until the picture is high enough; sides even, as the codec wants them."""
    times = max(1, -(-MIN_HEIGHT // frame.shape[0]))
    large = np.repeat(np.repeat(frame, times, 0), times, 1)
    return large[: large.shape[0] // 2 * 2, : large.shape[1] // 2 * 2]
