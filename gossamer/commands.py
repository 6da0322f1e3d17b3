"""The commands. Each imports what it needs when it is called, so that help texts appear at once."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from inspect import cleandoc
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from gossamer.config.brief import OFTEN_BENCH, OFTEN_TRAIN, asked, text
from gossamer.config.command_line import dataclass_of, help_text, left_open, parse
from gossamer.errors import UserError, near
from gossamer.options import option, options
from gossamer.storage.files import to_json

if TYPE_CHECKING:
    from gossamer.training.experiment import Run

Protocol = Literal["noop", "sticky"]
Architecture = Annotated[str, tyro.conf.Positional, help_text("Parallel architecture; see `gossamer list`.")]
Directory = Annotated[Path, tyro.conf.Positional, help_text("A run directory.")]
Which = Annotated[str, help_text("last, best, or the name of a directory under checkpoints/.")]
Under = Annotated[
    Protocol | None,
    left_open(
        "Atari: up to 30 no-ops at the start (noop), or actions that repeat with probability 0.25 (sticky).",
        Protocol,
        "(default: sticky if trained with sticky actions, else noop)",
    ),
]
Greedy = Annotated[bool, help_text("Take the most probable action instead of sampling.")]
AsJson = Annotated[bool, help_text("Print one JSON object.")]
Member = Annotated[str, help_text("With several members: average (of their parameters), best, or a member's number.")]
AS_STARTED = "(default: as the run was started)"


@options
class Place:
    """The run directory."""

    run_dir: str | None = option("Directory of all output.", None, unset="runs/ARCHITECTURE-ENV-TIME")
    overwrite: bool = option("Replace an existing run.", False)


@options
class Measuring:
    """Options of `bench`: duration and number of measurements."""

    seconds: float = option("Duration of each measurement.", 3.0, above=0, most=86_400, measure="seconds")
    rounds: int = option("Rounds of all measurements; medians are reported.", 5, least=1, most=10_000)
    json: bool = option("Print one JSON object.", False)


TRAIN = "Train an agent."
BENCH = "Measure the speed of a program and of its parts on this machine."


def train(words: Sequence[str]) -> int:
    """Train an agent."""
    if asked(words):
        print(text("train", TRAIN, OFTEN_TRAIN), end="")
        return 0
    from gossamer.config.composing import compose
    from gossamer.config.config import Control

    composed = compose(words, prog="gossamer train", description=TRAIN, command=(Place, Control))
    from gossamer.training.experiment import train

    c = composed.choices
    parts = {"algorithm": c.algorithm, "optimizer": c.optimizer, "preset": c.preset}
    made: dict[str, Any] = {**parts, **composed.command, **c.given}
    return _ended(train(c.architecture, env=c.env, **made))


def bench(words: Sequence[str]) -> None:
    """Measure the speed of a program and of its parts on this machine."""
    if asked(words):
        print(text("bench", BENCH, OFTEN_BENCH), end="")
        return
    from gossamer.config.composing import compose

    composed = compose(words, prog="gossamer bench", description=BENCH, command=(Measuring,))
    from gossamer.tools.bench import bench, round_seconds

    c, how = composed.choices, Measuring(**composed.command)
    made: dict[str, Any] = {"algorithm": c.algorithm, "optimizer": c.optimizer, "preset": c.preset, **c.given}
    from gossamer.tools.rounds import Rounds, RoundsDisplay

    with RoundsDisplay(Rounds(how.rounds, round_seconds(how.seconds))) as progress:
        found = bench(c.architecture, env=c.env, seconds=how.seconds, rounds=how.rounds, progress=progress, **made)
    if how.json:
        print(to_json(found))
        return
    for part in ("env", "inference", "update", "roofline", "whole"):
        print(f"{part:>10} {found[part]:>10,.0f} steps/s")
    print(f"{'ratio':>10} {found['ratio']:>10.2f} of the serial roofline; bound by {found['bound_by']}")


@dataclass(frozen=True)
class Resume:
    """Continue a run from its last checkpoint."""

    run_dir: Directory
    steps: Annotated[int | None, left_open("Total agent steps, including those before.", int, AS_STARTED)] = None
    stop_at_return: Annotated[
        float | None,
        left_open("End when the mean return of the last 100 episodes reaches this.", float, "(default: never)"),
    ] = None
    max_seconds: Annotated[float | None, left_open("End after this time. [seconds]", float, "(default: never)")] = None
    keep: Annotated[int | None, left_open("Checkpoints to keep, in addition to the best.", int, AS_STARTED)] = None
    checkpoint_every: Annotated[float | None, left_open("Checkpoint interval. [seconds]", float, AS_STARTED)] = None
    cluster: Annotated[
        str | None,
        left_open(
            "Run on Ray: local (processes of this machine), auto (this machine's cluster) or IP:PORT of a head.",
            str,
            "(default: threads of this process)",
        ),
    ] = None

    def __call__(self) -> int:
        from gossamer.training.experiment import resume

        run = resume(
            self.run_dir,
            steps=self.steps,
            keep=self.keep,
            checkpoint_every=self.checkpoint_every,
            stop_at_return=self.stop_at_return,
            max_seconds=self.max_seconds,
            cluster=self.cluster,
        )
        return _ended(run)


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
    seed: Annotated[int, help_text("Seed of all random streams.")] = 0
    json: AsJson = False

    def __call__(self) -> None:
        from gossamer.evaluation.evaluate import evaluate

        result = evaluate(
            self.run_dir,
            episodes=self.episodes,
            max_steps=self.max_steps,
            protocol=self.protocol,
            checkpoint=self.checkpoint,
            member=self.member,
            greedy=self.greedy,
            seed=self.seed,
        )
        if self.json:
            print(to_json(result.to_dict()))
        else:
            print(
                f"mean return {result.mean_return:.2f}, standard deviation {result.std_return:.2f}, "
                f"{result.episodes} episodes, protocol {result.protocol}, {result.checkpoint}"
            )


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
    max_steps: Annotated[int, help_text("Maximum agent steps in the video.")] = 5_000

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


def simulate(words: Sequence[str]) -> None:
    """Simulate gossip in virtual time, over a network of your choice: the real exchange with small models.

    Quantities need a unit: 40ms, 1Gb/s, 6.8MB, 2/h."""
    from gossamer.tools.scenario import Scenario

    made = parse(
        _simulation(dataclass_of("Scene", Scenario)),
        words,
        prog="gossamer simulate",
        description=cleandoc(simulate.__doc__ or ""),
    )
    from gossamer.tools.figures import lines
    from gossamer.tools.simulate import simulate as run

    found = run(made.architecture, plot=made.plot, **vars(made.scenario))
    print(to_json(found) if made.json else "\n".join(lines(found)))
    for warning in found["warnings"]:
        print(f"warning: {warning}", file=sys.stderr)


def _simulation(scene: Any) -> Any:
    @dataclass(frozen=True)
    class Simulate:
        architecture: Architecture
        scenario: Annotated[scene, tyro.conf.arg(name="")]
        plot: Annotated[
            Path | None,
            left_open(
                "A .png file to plot distance, efficiency and staleness over virtual time to.", Path, "(default: none)"
            ),
        ] = None
        json: AsJson = False

    Simulate.__annotations__["scenario"] = Annotated[scene, tyro.conf.arg(name="")]
    return Simulate


@dataclass(frozen=True)
class Show:
    """Show an architecture: its figure, parts, and defaults with their sources."""

    architecture: Architecture

    def __call__(self) -> None:
        from gossamer.tools.show import console, show

        show(self.architecture, console())


@dataclass(frozen=True)
class List:
    """List architectures, algorithms, networks and environments."""

    def __call__(self) -> None:
        from gossamer.tools.show import console, overview

        overview(console())


def call(command: Any, name: str, words: Sequence[str]) -> int | None:
    """Parse the words of a command that is a dataclass, and run it. Returns its exit code; None means 0."""
    code: int | None = parse(command, words, prog=f"gossamer {name}", description=command.__doc__)()
    return code


def _ended(run: Run) -> int:
    """Print how a run ended; returns the exit code."""
    from gossamer.training.signals import exit_code

    result = run.result
    mean = "no episode ended" if result["mean_return"] is None else f"mean return {result['mean_return']:.2f}"
    print(
        f"{result['ended']}: {result['steps']:,} steps ({result['frames']:,} frames) in {result['seconds']:,.0f} s, "
        f"{mean}; checkpoint {result['checkpoint']}, everything is in {run.directory}"
    )
    return exit_code(result)


COMMANDS: dict[str, Any] = {
    "train": train,
    "resume": Resume,
    "evaluate": Evaluate,
    "record": Record,
    "bench": bench,
    "simulate": simulate,
    "show": Show,
    "list": List,
}


def run(name: str, words: Sequence[str]) -> int:
    """Run one command with the words after it; returns its exit code. Raises `UserError` for invalid words."""
    if name not in COMMANDS:
        raise UserError(f"unknown command {name}{near(name, COMMANDS)}; available: {', '.join(COMMANDS)}")
    command = COMMANDS[name]
    if isinstance(command, type):
        return call(command, name, words) or 0
    return command(words) or 0


def overview() -> str:
    """The help text of `gossamer` itself."""
    lines = [f"  {name:<10} {(command.__doc__ or '').splitlines()[0]}" for name, command in COMMANDS.items()]
    return "\n".join(["usage: gossamer COMMAND [OPTIONS]\n", DESCRIPTION, "\nCommands:", *lines, "", *MORE])


DESCRIPTION = "Train and compare parallel actor-learner architectures for deep reinforcement learning."
MORE = ("Options of a command: gossamer COMMAND --help", "The version:          gossamer --version")
