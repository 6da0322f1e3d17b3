"""The commands `train` and `resume`."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import tyro

from gossamer.commands.words import Directory, Protocol
from gossamer.config.brief import OFTEN_TRAIN, asked, text
from gossamer.config.command_line import help_text, left_open, parse
from gossamer.system.options import declared, option, options
from gossamer.system.paths import shown
from gossamer.system.streams import LOST

if TYPE_CHECKING:
    from gossamer.training.experiment import Run

TRAIN = "Train an agent."
AS_STARTED = "(default: as the run was started)"


@options
class Place:
    """The run directory."""

    run_dir: str | None = option("Directory of all output.", None, unset="runs/ARCHITECTURE-ENV-TIME")
    overwrite: bool = option("Replace an existing run.", False)
    config: str | None = option(
        "Repeat a run: its directory or config.json. Options that are typed besides win.", None, unset="none"
    )


def train(words: Sequence[str]) -> int:
    """Train an agent."""
    if asked(words):
        print(text("train", TRAIN, OFTEN_TRAIN), end="")
        return 0
    from gossamer.config.composing import compose
    from gossamer.config.config import Control
    from gossamer.system.machine import keep_freed_memory

    keep_freed_memory()  # before environments are tried, in threads
    composed = compose(words, prog="gossamer train", description=TRAIN, command=(Place, Control))
    from gossamer.training.callbacks import by_names
    from gossamer.training.experiment import start

    given = dict(composed.command)
    place = Place(**{name: given.pop(name) for name in declared(Place)})
    run_dir, control = place.run_dir, Control(**given)
    beside, typed = by_names(control.callback), _typed("train", words)
    run = start(composed.choices, control, run_dir, overwrite=place.overwrite, asked=typed, callbacks=beside)
    return _ended(run)


@dataclass(frozen=True)
class Resume:
    """What `resume` takes: a run, and the options that change."""

    run_dir: Directory
    steps: Annotated[int | None, left_open("Total environment steps, including those before.", int, AS_STARTED)] = None
    learning_rate: Annotated[
        float | None, left_open("Learning rate at the start of the run's schedule.", float, AS_STARTED)
    ] = None
    anneal_steps: Annotated[
        int | None,
        left_open("Steps of the whole run until the learning rate has fallen; 0: constant.", int, AS_STARTED),
    ] = None
    final_fraction: Annotated[
        float | None,
        left_open("Final learning rate, as a fraction of the initial one.", float, AS_STARTED),
    ] = None
    stop_at_return: Annotated[
        float | None,
        left_open("End when the mean return of the last 100 episodes reaches this.", float, "(default: never)"),
    ] = None
    stop_at_eval: Annotated[
        float | None,
        left_open("End when the mean return of an evaluation reaches this.", float, "(default: never)"),
    ] = None
    max_seconds: Annotated[float | None, left_open("End after this time. [seconds]", float, "(default: never)")] = None
    keep: Annotated[int | None, left_open("Checkpoints to keep, in addition to the best.", int, AS_STARTED)] = None
    checkpoint_every: Annotated[float | None, left_open("Checkpoint interval. [seconds]", float, AS_STARTED)] = None
    log: Annotated[
        str | None, left_open("Where metrics go: tensorboard,wandb,trackio,mlflow or none.", str, AS_STARTED)
    ] = None
    eval_every: Annotated[int | None, left_open("Evaluate about this often; 0: never. [steps]", int, AS_STARTED)] = None
    eval_exact: tyro.conf.DisallowNone[
        Annotated[bool | None, help_text("Evaluate at every multiple of these steps.", help_behavior_hint=AS_STARTED)]
    ] = None
    eval_episodes: Annotated[int | None, left_open("Games of each of these evaluations.", int, AS_STARTED)] = None
    eval_protocol: Annotated[Protocol | None, left_open("Their protocol (Atari).", Protocol, AS_STARTED)] = None
    cluster: Annotated[
        str | None,
        left_open(
            "Run on Ray: local (processes of this machine), auto (this machine's cluster) or IP:PORT of a head.",
            str,
            "(default: threads of this process)",
        ),
    ] = None
    page: Annotated[
        int | None,
        left_open("Serve the live page to this machine at this port (without a number: 6006).", int, "(default: none)"),
    ] = None
    callback: Annotated[
        str | None,
        left_open("Code of yours that watches the run: module:Name; several with commas.", str, "(default: none)"),
    ] = None


def resume(words: Sequence[str]) -> int:
    """Continue a run from its last checkpoint."""
    made = parse(Resume, words, prog="gossamer resume", description=resume.__doc__)
    from gossamer.config.config import Control
    from gossamer.training.callbacks import by_names
    from gossamer.training.experiment import go_on

    given = vars(made).copy()
    directory, control = given.pop("run_dir"), Control(**{name: given.pop(name) for name in declared(Control)})
    beside, typed = by_names(control.callback), _typed("resume", words)
    return _ended(go_on(directory, control, given, asked=typed, callbacks=beside))


def _typed(command: str, words: Sequence[str]) -> str:
    """The command, for the log of the run."""
    return shlex.join(["gossamer", command, *words])


def _ended(run: Run) -> int:
    """Print how a run ended; returns the exit code."""
    from gossamer.training.signals import exit_code

    result = run.result
    none = "not every game ended an episode" if result["episodes"] else "no episode ended"
    mean = none if result["mean_return"] is None else f"mean return {result['mean_return']:.2f}"
    seconds, where = (
        f"{result['seconds']:,.0f} s",
        f"checkpoint {result['checkpoint']}, everything is in {shown(run.directory)}",
    )
    steps = f"{result['steps']:,} steps ({result['frames']:,} frames)"
    try:
        print(f"{result['ended']}: {steps} in {seconds}, {mean}; {where}")
    except OSError as error:
        if error.errno not in LOST:  # as after Ctrl-C in `gossamer train ... | tee log`
            raise
    return exit_code(result)
