"""The commands `evaluate` and `record`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from gossamer.commands.output import only_json
from gossamer.commands.words import AsJson, Directory, Epsilon, Greedy, Member, Under, Which
from gossamer.config.command_line import help_text, left_open
from gossamer.storage.files import to_json


@dataclass(frozen=True)
class Evaluate:
    """Play whole games with the policy of a run."""

    run_dir: Directory
    episodes: Annotated[int, help_text("Number of games.")] = 30
    max_steps: Annotated[
        int | None,
        left_open("A game is cut off after this many steps.", int, "(default: 27000; Atari: 108000 frames)"),
    ] = None
    protocol: Under = None
    checkpoint: Which = "last"
    member: Member = "average"
    greedy: Greedy = False
    epsilon: Epsilon = None
    seed: Annotated[int, help_text("Seed of all random streams.")] = 0
    json: AsJson = False

    def __call__(self) -> None:
        from gossamer.config.build import environment
        from gossamer.envs.atari import Atari
        from gossamer.evaluation.evaluate import evaluate
        from gossamer.reporting import beside
        from gossamer.reporting.published import Score
        from gossamer.storage.directory import load_config

        with only_json(self.json):
            result = evaluate(
                self.run_dir,
                episodes=self.episodes,
                max_steps=self.max_steps,
                protocol=self.protocol,
                checkpoint=self.checkpoint,
                member=self.member,
                greedy=self.greedy,
                epsilon=self.epsilon,
                seed=self.seed,
            )
            env = environment(load_config(self.run_dir))
        how = beside.protocol(result, env.preset.frame_skip) if isinstance(env, Atari) else None
        if self.json:
            more = {} if how is None else {"published": beside.entries(env.name, how)}
            print(to_json({**result.to_dict(), **more}))
            return
        print(
            f"mean return {result.mean_return:.2f}, standard deviation {result.std_return:.2f}, "
            f"{result.episodes} episodes, protocol {result.protocol}, {result.actions}, {result.checkpoint}"
        )
        if result.metrics:
            print(", ".join(f"{name} {value:.3g}" for name, value in result.metrics.items()))
        for line in beside.lines(env.name, Score("this run", result.mean_return, how)) if how else ():
            print(line)


@dataclass(frozen=True)
class Record:
    """Record a video of a game with the policy of a run."""

    run_dir: Directory
    out: Annotated[Path | None, left_open("An .mp4 or .gif.", Path, "(default: video.mp4 in the run directory)")] = None
    protocol: Under = None
    checkpoint: Which = "last"
    member: Member = "average"
    greedy: Greedy = False
    seed: Annotated[int, help_text("Seed of all random streams.")] = 0
    max_steps: Annotated[int, help_text("Maximum environment steps in the video.")] = 5_000

    def __call__(self) -> None:
        from gossamer.evaluation.video import record

        film = record(
            self.run_dir,
            out=self.out,
            protocol=self.protocol,
            checkpoint=self.checkpoint,
            member=self.member,
            greedy=self.greedy,
            seed=self.seed,
            max_steps=self.max_steps,
        )
        print(f"{film.path}: {film.steps:,} steps, score {film.score:g}")
