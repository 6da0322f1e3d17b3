"""The command line: tyro over dataclasses. A value that cannot be used gets one line on stderr and exit code 2."""

from __future__ import annotations

import errno
import json
import os
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro
from rich.console import Console

from gossamer.config.command_line import help_text, left_open, options
from gossamer.config.settings import Settings
from gossamer.envs.base import MissingExtra, UnknownEnv, UnsupportedSpace
from gossamer.errors import UserError
from gossamer.exchange import LayoutMismatch
from gossamer.launch.ray.errors import HostFailed
from gossamer.learner import NonFiniteLoss
from gossamer.tools.scenario import Scenario

if TYPE_CHECKING:
    from gossamer.training.experiment import Run

BAD_VALUE = 2
DESCRIPTION = "Train and compare parallel actor-learner architectures for deep reinforcement learning."
Protocol = Literal["noop", "sticky"]


Knobs: Any = options("Knobs", Settings, required={"env"}, skip={"architecture"}, hint="(default: by preset)")
Scene: Any = options("Scene", Scenario)
Architecture = Annotated[str, tyro.conf.Positional, help_text("Parallel architecture; see `gossamer list`.")]
Directory = Annotated[Path, tyro.conf.Positional, help_text("A run directory.")]
Which = Annotated[str, help_text("last, best, or the name of a folder under checkpoints/.")]
Under = Annotated[
    Protocol | None,
    left_open(
        "Atari: up to 30 no-ops first (noop), or actions that repeat with probability 0.25 (sticky).",
        Protocol,
        "(default: sticky where trained so, else noop)",
    ),
]
Greedy = Annotated[bool, help_text("Take the likeliest action instead of sampling.")]
AsJson = Annotated[bool, help_text("Print one JSON object.")]
Stop = Annotated[
    float | None,
    left_open("End early once the mean return of the last 100 episodes reaches this.", float, "(default: never)"),
]
Total = Annotated[
    int | None, left_open("Total agent steps to go on to.", int, "(default: what the run was started with)")
]
Cluster = Annotated[
    str | None,
    left_open(
        "Run on Ray: local (processes of this machine), auto (the cluster it is a node of) or IP:PORT of its head.",
        str,
        "(default: threads of this process)",
    ),
]
Member = Annotated[str, help_text("Of several: average (of their parameters), best, or a member's number.")]
Keep = Annotated[int, help_text("Checkpoints to keep, besides the best.")]


@dataclass(frozen=True)
class Train:
    """Train an agent."""

    architecture: Architecture
    knobs: Annotated[Knobs, tyro.conf.arg(name="")]
    run_dir: Annotated[
        Path | None, left_open("Where everything goes.", Path, "(default: runs/ARCHITECTURE-ENV-TIME)")
    ] = None
    overwrite: Annotated[bool, help_text("Remove a run that is there already.")] = False
    stop_at_return: Stop = None
    keep: Keep = 3
    cluster: Cluster = None

    def __call__(self) -> None:
        from gossamer.training.experiment import train

        run = train(
            self.architecture,
            run_dir=self.run_dir,
            overwrite=self.overwrite,
            keep=self.keep,
            stop_at_return=self.stop_at_return,
            cluster=self.cluster,
            **asdict(self.knobs),
        )
        _print_end(run)


@dataclass(frozen=True)
class Resume:
    """Go on with a run from its last checkpoint."""

    run_dir: Directory
    steps: Total = None
    stop_at_return: Stop = None
    keep: Keep = 3
    cluster: Cluster = None

    def __call__(self) -> None:
        from gossamer.training.experiment import resume

        run = resume(
            self.run_dir,
            steps=self.steps,
            keep=self.keep,
            stop_at_return=self.stop_at_return,
            cluster=self.cluster,
        )
        _print_end(run)


@dataclass(frozen=True)
class Evaluate:
    """Play whole games with what a run has learned."""

    run_dir: Directory
    episodes: Annotated[int, help_text("Games to play.")] = 30
    max_steps: Annotated[
        int | None,
        left_open("Agent steps after which a game is cut off.", int, "(default: 27000; Atari: 108000 frames)"),
    ] = None
    protocol: Under = None
    checkpoint: Which = "last"
    member: Member = "average"
    greedy: Greedy = False
    seed: int = 0
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
    protocol: Under = None
    checkpoint: Which = "last"
    member: Member = "average"
    greedy: Greedy = False
    seed: int = 0
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


@dataclass(frozen=True)
class Bench:
    """Measure speed against the limit of the parts on this machine."""

    architecture: Architecture
    knobs: Annotated[Knobs, tyro.conf.arg(name="")]
    seconds: Annotated[float, help_text("For each measurement.")] = 3.0
    rounds: Annotated[int, help_text("Of all measurements in turn; medians are reported.")] = 5
    json: AsJson = False

    def __call__(self) -> None:
        from gossamer.tools.bench import bench

        found = bench(self.architecture, seconds=self.seconds, rounds=self.rounds, **asdict(self.knobs))
        if self.json:
            print(json.dumps(found))
            return
        for part in ("env", "inference", "update", "roofline", "whole"):
            print(f"{part:>10} {found[part]:>10,.0f} steps/s")
        print(f"{'ratio':>10} {found['ratio']:>10.2f} of the serial roofline; bound by {found['bound_by']}")


@dataclass(frozen=True)
class Simulate:
    """Run gossip in virtual time: the real exchange, small models that stand in, a network of your choice."""

    architecture: Architecture
    scenario: Annotated[Scene, tyro.conf.arg(name="")]
    json: AsJson = False

    def __call__(self) -> None:
        from gossamer.tools.simulate import simulate

        found = simulate(self.architecture, **asdict(self.scenario))
        if self.json:
            print(json.dumps(found))
            return
        for name, value in found.items():
            print(f"{name:>16} {value}")


@dataclass(frozen=True)
class Show:
    """Show an architecture: its figure, its parts, its defaults and where they come from."""

    architecture: Architecture

    def __call__(self) -> None:
        from gossamer.tools.show import show

        show(self.architecture, Console())


@dataclass(frozen=True)
class List:
    """List architectures, algorithms, networks and environments."""

    def __call__(self) -> None:
        from gossamer.tools.show import overview

        overview(Console())


COMMANDS: dict[str, Callable[..., Callable[[], None]]] = {
    "train": Train,
    "resume": Resume,
    "evaluate": Evaluate,
    "record": Record,
    "bench": Bench,
    "simulate": Simulate,
    "show": Show,
    "list": List,
}


def _print_end(run: Run) -> None:
    result = run.result
    mean = "no episode ended" if result["mean_return"] is None else f"mean return {result['mean_return']:.2f}"
    print(
        f"{result['ended']}: {result['steps']:,} steps ({result['frames']:,} frames) in {result['seconds']:,.0f} s, "
        f"{mean}; everything is in {run.directory}"
    )


def main() -> int:
    """The `gossamer` command; its exit code."""
    sys.path.insert(0, os.getcwd())  # so that module:factory finds the user's module, as `python -m` would
    command = tyro.extras.subcommand_cli_from_dict(COMMANDS, prog="gossamer", description=DESCRIPTION)
    try:
        command()
    except (UserError, UnknownEnv, MissingExtra, UnsupportedSpace, NonFiniteLoss, LayoutMismatch, HostFailed) as error:
        print("gossamer:", *str(error).split(), file=sys.stderr)  # on one line, whatever torch put into it
        return BAD_VALUE
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EROFS, errno.ENOTDIR):
            raise
        where = f" ({error.filename})" if error.filename else ""
        print(
            f"gossamer: cannot write{where}: {error.strerror}; free some room or give another directory",
            file=sys.stderr,
        )
        return BAD_VALUE
    except KeyboardInterrupt as error:  # its text says whether there is a checkpoint, where there could be one
        print("gossamer: ended at once", *map(str, error.args), sep="; ", file=sys.stderr)
        return 130
    return 0


def run() -> None:
    """Entry point of the installed command."""
    sys.exit(main())


if __name__ == "__main__":
    run()
