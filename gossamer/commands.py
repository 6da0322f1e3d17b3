"""The commands but for what they need: each imports that when it is called, so that help texts come at once."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro

from gossamer.config.command_line import asks_for_help, dataclass_of, help_text, left_open, parse
from gossamer.config.names import ALGORITHMS, ARCHITECTURES, NETWORKS, OPTIMIZERS, PRESETS
from gossamer.errors import UserError
from gossamer.options import option, options

if TYPE_CHECKING:
    from gossamer.training.experiment import Run

Protocol = Literal["noop", "sticky"]
Architecture = Annotated[str, tyro.conf.Positional, help_text("Parallel architecture; see `gossamer list`.")]
Directory = Annotated[Path, tyro.conf.Positional, help_text("A run directory.")]
Which = Annotated[str, help_text("last, best, or the name of a folder under checkpoints/.")]
Under = Annotated[Protocol, help_text("noop: up to 30 no-ops first; sticky: actions repeat with probability 0.25.")]
Greedy = Annotated[bool, help_text("Take the likeliest action instead of sampling.")]
AsJson = Annotated[bool, help_text("Print one JSON object.")]
Member = Annotated[str, help_text("Of several: average (of their parameters), best, or a member's number.")]
AS_STARTED = "(default: as the run was started)"


@options
class Place:
    """Where a run goes."""

    run_dir: str | None = option("Where everything goes.", None, unset="runs/ARCHITECTURE-ENV-TIME")
    overwrite: bool = option("Remove a run that is there already.", False)


@options
class Measuring:
    """How long `bench` measures."""

    seconds: float = option("For each measurement.", 3.0, above=0, most=86_400, measure="seconds")
    rounds: int = option("Of all measurements in turn; medians are reported.", 5, least=1, most=10_000)
    json: bool = option("Print one JSON object.", False)


TRAIN = "Train an agent."
BENCH = "Measure speed against the limit of the parts on this machine."
BRIEF = """usage: gossamer {command} ARCHITECTURE --env ENV [OPTIONS]

{description}

What is put together:
  ARCHITECTURE           {architectures}, or module:Name of your own
  --env ENV              an Atari game (pong), a Gymnasium id (CartPole-v1), module:factory, or a toy (catch)
  --algorithm NAME       {algorithms}, or module:Name of your own
  --network NAME         {networks}, or module:factory
  --optimizer NAME       {optimizers}
  --preset NAME          where options left open come from: {presets}

{own}

Each composition has options of its own. All of them, with units, ranges and the defaults that it runs with:
  gossamer {command} gala --env pong --algorithm ppo --help
What there is:                           gossamer list
An architecture with its figure:         gossamer show gala
Names of SB3, CleanRL and RLlib for ours: docs/options.md
"""
OFTEN_TRAIN = """Often used:
  --steps INT            agent steps until the end, of all environments together
  --seed INT             all random streams follow from it
  --run-dir DIRECTORY    where everything goes (default: runs/ARCHITECTURE-ENV-TIME)
  --overwrite            remove a run that is there already
  --stop-at-return FLOAT end once the mean return of the last 100 episodes reaches this
  --max-seconds FLOAT    end after this long
  --init-from DIRECTORY  start with the parameters of another run
  --cluster ADDRESS      run on Ray: local, auto or IP:PORT"""
OFTEN_BENCH = """Often used:
  --seconds FLOAT        for each measurement
  --rounds INT           of all measurements in turn; medians are reported
  --json                 print one JSON object"""


def _brief(command: str, words: Sequence[str], description: str, own: str) -> bool:
    """Whether the short help text was wanted, which is then printed: without an environment there are no defaults."""
    if not asks_for_help(words) or any(word.startswith("--env") and word[5:6] in ("", "=") for word in words):
        return False
    names = {
        "architectures": ", ".join(ARCHITECTURES),
        "algorithms": ", ".join(ALGORITHMS),
        "networks": ", ".join(NETWORKS),
        "optimizers": ", ".join(OPTIMIZERS),
        "presets": ", ".join(PRESETS),
    }
    print(BRIEF.format(command=command, description=description, own=own, **names), end="")
    return True


def train(words: Sequence[str]) -> None:
    """Train an agent."""
    if _brief("train", words, TRAIN, OFTEN_TRAIN):
        return
    from gossamer.config.composing import compose
    from gossamer.config.config import Control

    composed = compose(words, prog="gossamer train", description=TRAIN, command=(Place, Control))
    from gossamer.training.experiment import train

    c = composed.choices
    parts = {"algorithm": c.algorithm, "optimizer": c.optimizer, "preset": c.preset}
    made: dict[str, Any] = {**parts, **composed.command, **c.given}
    _print_end(train(c.architecture, env=c.env, **made))


def bench(words: Sequence[str]) -> None:
    """Measure speed against the limit of the parts on this machine."""
    if _brief("bench", words, BENCH, OFTEN_BENCH):
        return
    from gossamer.config.composing import compose

    composed = compose(words, prog="gossamer bench", description=BENCH, command=(Measuring,))
    from gossamer.tools.bench import bench

    c, how = composed.choices, Measuring(**composed.command)
    made: dict[str, Any] = {"algorithm": c.algorithm, "optimizer": c.optimizer, "preset": c.preset, **c.given}
    found = bench(c.architecture, env=c.env, seconds=how.seconds, rounds=how.rounds, **made)
    if how.json:
        print(json.dumps(found))
        return
    for part in ("env", "inference", "update", "roofline", "whole"):
        print(f"{part:>10} {found[part]:>10,.0f} steps/s")
    print(f"{'ratio':>10} {found['ratio']:>10.2f} of the serial roofline; bound by {found['bound_by']}")


@dataclass(frozen=True)
class Resume:
    """Go on with a run from its last checkpoint."""

    run_dir: Directory
    steps: Annotated[int | None, left_open("Total agent steps to go on to.", int, AS_STARTED)] = None
    stop_at_return: Annotated[
        float | None,
        left_open("End once the mean return of the last 100 episodes reaches this.", float, "(default: never)"),
    ] = None
    max_seconds: Annotated[float | None, left_open("End after this long.", float, "(default: never)")] = None
    keep: Annotated[int | None, left_open("Checkpoints to keep, besides the best.", int, AS_STARTED)] = None
    checkpoint_every: Annotated[float | None, left_open("Between two checkpoints. [seconds]", float, AS_STARTED)] = None
    cluster: Annotated[
        str | None,
        left_open(
            "Run on Ray: local (processes of this machine), auto (the cluster it is a node of) or IP:PORT of its head.",
            str,
            "(default: threads of this process)",
        ),
    ] = None

    def __call__(self) -> None:
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
        _print_end(run)


@dataclass(frozen=True)
class Evaluate:
    """Play whole games with what a run has learned."""

    run_dir: Directory
    episodes: Annotated[int, help_text("Games to play.")] = 30
    protocol: Under = "noop"
    checkpoint: Which = "last"
    member: Member = "average"
    greedy: Greedy = False
    seed: Annotated[int, help_text("All random streams follow from it.")] = 0
    json: AsJson = False

    def __call__(self) -> None:
        from gossamer.evaluation.evaluate import evaluate

        result = evaluate(
            self.run_dir,
            episodes=self.episodes,
            protocol=self.protocol,
            checkpoint=self.checkpoint,
            member=self.member,
            greedy=self.greedy,
            seed=self.seed,
        )
        if self.json:
            print(json.dumps(result.to_dict()))
        else:
            print(
                f"mean return {result.mean_return:.2f}, standard deviation {result.std_return:.2f}, "
                f"{result.episodes} episodes, protocol {result.protocol}, {result.checkpoint}"
            )


@dataclass(frozen=True)
class Record:
    """Film a game played by what a run has learned."""

    run_dir: Directory
    out: Annotated[Path | None, left_open("An .mp4 or .gif.", Path, "(default: video.mp4 in the run directory)")] = None
    protocol: Under = "noop"
    checkpoint: Which = "last"
    member: Member = "average"
    greedy: Greedy = False
    seed: Annotated[int, help_text("All random streams follow from it.")] = 0
    max_steps: Annotated[int, help_text("Agent steps to film at most.")] = 5_000

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
    """Run gossip in virtual time: the real exchange, small models that stand in, a network of your choice."""
    from gossamer.tools.scenario import Scenario

    made = parse(
        _simulation(dataclass_of("Scene", Scenario)), words, prog="gossamer simulate", description=simulate.__doc__
    )
    from gossamer.tools.simulate import simulate as run

    found = run(made.architecture, **vars(made.scenario))
    if made.json:
        print(json.dumps(found))
        return
    for name, value in found.items():
        print(f"{name:>16} {value}")


def _simulation(scene: Any) -> Any:
    @dataclass(frozen=True)
    class Simulate:
        architecture: Architecture
        scenario: Annotated[scene, tyro.conf.arg(name="")]
        json: AsJson = False

    Simulate.__annotations__["scenario"] = Annotated[scene, tyro.conf.arg(name="")]
    return Simulate


@dataclass(frozen=True)
class Show:
    """Show an architecture: its figure, its parts, its defaults and where they come from."""

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


def call(command: Any, name: str, words: Sequence[str]) -> None:
    """Parse the words of a command that is a dataclass, and do it."""
    parse(command, words, prog=f"gossamer {name}", description=command.__doc__)()


def _print_end(run: Run) -> None:
    result = run.result
    mean = "no episode ended" if result["mean_return"] is None else f"mean return {result['mean_return']:.2f}"
    print(
        f"{result['ended']}: {result['steps']:,} steps ({result['frames']:,} frames) in {result['seconds']:,.0f} s, "
        f"{mean}; everything is in {run.directory}"
    )


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


def run(name: str, words: Sequence[str]) -> None:
    """One command with the words after it. `UserError` where they cannot be used."""
    if name not in COMMANDS:
        from gossamer.errors import near

        raise UserError(f"unknown command {name}{near(name, COMMANDS)}; there is {', '.join(COMMANDS)}")
    command = COMMANDS[name]
    if isinstance(command, type):
        call(command, name, words)
    else:
        command(words)


def overview() -> str:
    """The help text of `gossamer` itself."""
    lines = [f"  {name:<10} {(command.__doc__ or '').splitlines()[0]}" for name, command in COMMANDS.items()]
    return "\n".join(["usage: gossamer COMMAND [OPTIONS]\n", DESCRIPTION, "\nCommands:", *lines, "", *MORE])


DESCRIPTION = "Train and compare parallel actor-learner architectures for deep reinforcement learning."
MORE = ("Options of a command: gossamer COMMAND --help", "The version:          gossamer --version")
