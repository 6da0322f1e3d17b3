"""The commands `evaluate` and `record`."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from gossamer.commands.exits import BAD_VALUE
from gossamer.commands.output import only_json, tell
from gossamer.commands.words import AsJson, Directory, Epsilon, Game, Greedy, Member, Under, Which
from gossamer.config.command_line import help_text, left_open
from gossamer.storage.files import to_json
from gossamer.system.errors import UserError
from gossamer.system.paths import shown

if TYPE_CHECKING:
    from gossamer.evaluation.evaluate import Evaluation


@dataclass(frozen=True)
class Evaluate:
    """Play whole games with the policy of a run, or of each run in a folder or study."""

    run_dir: Annotated[Path, tyro.conf.Positional, help_text("A run directory, a folder with runs, or a study.")]
    episodes: Annotated[int, help_text("Number of games.")] = 30
    max_steps: Annotated[
        int | None,
        left_open("A game is cut off after this many steps.", int, "(default: 27000; Atari: 108000 frames)"),
    ] = None
    protocol: Under = None
    checkpoint: Which = "last"
    member: Member = "average"
    game: Game = None
    greedy: Greedy = False
    epsilon: Epsilon = None
    seed: Annotated[int, help_text("Seed of all random streams.")] = 0
    json: AsJson = False

    def __call__(self) -> int:
        """The exit code: 2 if a result could not be written to its run directory."""
        from gossamer.config.build import environment
        from gossamer.envs.atari import Atari
        from gossamer.envs.games import rules_of
        from gossamer.reporting import beside
        from gossamer.reporting.published import Score
        from gossamer.storage.contents import MOST_FOLDERS, is_run, search
        from gossamer.storage.directory import load_config

        runs = [self.run_dir] if is_run(self.run_dir) else search(self.run_dir, most=MOST_FOLDERS, tell=tell)
        if runs not in ([], [self.run_dir]):
            return self._each(runs)
        with only_json(self.json):
            env = environment(load_config(self.run_dir))  # first: playing may change the current directory
            result = self._evaluation(self.run_dir)
        rules = rules_of(env)
        how = beside.protocol(result, rules.preset.frame_skip) if isinstance(rules, Atari) else None
        if self.json:
            more = {} if how is None or result.games else {"published": beside.entries(env.name, how)}
            print(to_json({**result.to_dict(), **more}))
            return _code([result])
        for line in of_games(result.games) if result.games else ():
            print(line)
        print(_told(result))
        own = None if how is None or result.games else Score("this run", result.mean_return, how)
        for line in beside.lines(env.name, own) if own else ():
            print(line)
        return _code([result])

    def _evaluation(self, directory: Path) -> Evaluation:
        from gossamer.evaluation.evaluate import evaluate

        return evaluate(
            directory,
            episodes=self.episodes,
            max_steps=self.max_steps,
            protocol=self.protocol,
            checkpoint=self.checkpoint,
            member=self.member,
            game=self.game,
            greedy=self.greedy,
            epsilon=self.epsilon,
            seed=self.seed,
        )

    def _each(self, directories: Sequence[Path]) -> int:
        """Evaluate several runs, and print each result at once. Raises `UserError` if none could be evaluated."""
        results: dict[Path, Evaluation] = {}
        left_out = list[dict[str, str]]()
        for directory in directories:
            try:
                with only_json(self.json):
                    result = self._evaluation(directory)
            except UserError as error:
                left_out.append({"directory": str(directory), "reason": str(error)})
                told = [f"left out: {error}"]
            else:
                results[directory] = result
                told = [_told(result), *(of_games(result.games) if result.games else ())]
            if not self.json:
                print(f"{directory}: " + "\n    ".join(told), flush=True)
        if self.json:
            rows = [{"directory": str(directory), **result.to_dict()} for directory, result in results.items()]
            print(to_json({"runs": rows, "left_out": left_out}))
        if not results:
            raise UserError(f"{self.run_dir}: none of its {len(directories)} runs could be evaluated")
        return _code(results.values())


def _code(results: Iterable[Evaluation]) -> int:
    return BAD_VALUE if any(result.file is None for result in results) else 0


def _told(result: Evaluation) -> str:
    """The result in one line."""
    metrics = "".join(f", {name} {value:.3g}" for name, value in result.metrics.items())
    return (
        f"mean return {result.mean_return:.2f}, standard deviation {result.std_return:.2f}{metrics}, "
        f"{result.episodes} episodes, protocol {result.protocol}, {result.actions}, {result.checkpoint}"
    )


def of_games(games: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """A table of several games: the mean return of each, and the human-normalised one where there is such a score."""
    from gossamer.reporting.human import human_normalised

    width = max(map(len, games))
    scores = list[float]()
    for game, of in games.items():
        human = human_normalised(game, of["mean_return"])
        scores += [] if human is None else [human]
        share = "" if human is None else f"   human = 1: {human:.2f}"
        yield f"{game:<{width}}  {of['mean_return']:>10,.2f} +- {of['std_return']:,.2f}{share}"
    if len(scores) == len(games) > 1:
        yield f"human-normalised mean {statistics.mean(scores):.2f}, median {statistics.median(scores):.2f}"


@dataclass(frozen=True)
class Record:
    """Record a video of games with the policy of a run."""

    run_dir: Directory
    out: Annotated[Path | None, left_open("An .mp4 or .gif.", Path, "(default: video.mp4 in the run directory)")] = None
    protocol: Under = None
    checkpoint: Which = "last"
    member: Member = "average"
    game: Annotated[str | None, left_open("Of a policy for several games: the one to record.", str, "(none)")] = None
    greedy: Greedy = False
    epsilon: Epsilon = None
    seed: Annotated[int, help_text("Seed of all random streams.")] = 0
    episodes: Annotated[int, help_text("Games, one after another.")] = 1
    max_steps: Annotated[int, help_text("Maximum environment steps in the video.")] = 5_000

    def __call__(self) -> None:
        from gossamer.evaluation.video import record

        film = record(
            self.run_dir,
            out=self.out,
            protocol=self.protocol,
            checkpoint=self.checkpoint,
            member=self.member,
            game=self.game,
            greedy=self.greedy,
            epsilon=self.epsilon,
            seed=self.seed,
            episodes=self.episodes,
            max_steps=self.max_steps,
        )
        scores = ", ".join(f"{score:g}" for score in film.scores)
        games, which = len(film.scores), "game" if self.episodes == 1 else "last game"
        cut = f"; the {which} was cut off after {film.cut_off:,} steps (--max-steps)" if film.cut_off else ""
        missing = f"; {games} of {self.episodes} games recorded" if games < self.episodes else ""
        print(f"{shown(film.path)}: {film.steps:,} steps, score{'s' * (games > 1)} {scores}{cut}{missing}")
