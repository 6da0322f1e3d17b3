"""The short help text of a command that takes a composition, shown before an environment is chosen."""

from __future__ import annotations

from collections.abc import Sequence

from gossamer.config.command_line import asks_for_help, typed
from gossamer.config.names import ALGORITHMS, ARCHITECTURES, NETWORKS, OPTIMIZERS, PRESETS

BRIEF = """usage: gossamer {command} ARCHITECTURE --env ENV [OPTIONS]

{description}

Parts of a composition:
  ARCHITECTURE           {architectures}, or your own module:Name
  --env ENV              an Atari game (pong), a Gymnasium id (CartPole-v1), module:factory, or a toy (catch)
  --algorithm NAME       {algorithms}, or your own module:Name
  --network NAME         {networks}, or module:factory
  --optimizer NAME       {optimizers}, or your own module:Name
  --preset NAME          source of the defaults: {presets}

{own}

The options depend on the composition. To list all of them, with units, ranges and defaults:
  gossamer {command} gala --env pong --algorithm ppo --help
Everything available:                    gossamer list
An architecture with its figure:         gossamer show gala
Option names in SB3, CleanRL and RLlib:  docs/options.md
"""
OFTEN_TRAIN = """Often used:
  --steps INT            environment steps of the run, of all environments together
  --seed INT             seed of all random streams
  --run-dir DIRECTORY    directory of all output (default: runs/ARCHITECTURE-ENV-TIME)
  --overwrite            replace an existing run
  --config RUN           repeat a run: its directory or config.json; options that are typed besides win
  --stop-at-return FLOAT end when the mean return of the last 100 episodes reaches this
  --max-seconds FLOAT    end after this many seconds
  --init-from DIRECTORY  start with the parameters of another run
  --log NAMES            where metrics go: tensorboard,wandb,trackio,mlflow or none
  --eval-every INT       evaluate about this often while training goes on
  --callback NAMES       code of yours that watches the run and may end it: module:Name
  --cluster ADDRESS      run on Ray: local, auto or IP:PORT
  --page [PORT]          serve the live page of the run (see gossamer watch --help)"""
OFTEN_BENCH = """Often used:
  --seconds FLOAT        duration of each measurement
  --rounds INT           rounds of all measurements; medians are reported
  --find                 try settings for a minute, and print the fastest command
  --json                 print one JSON object"""


def asked(words: Sequence[str]) -> bool:
    """Whether to show the short text: help was requested without an environment, which the defaults depend on."""
    return asks_for_help(words) and "env" not in typed(words)


def text(command: str, description: str, own: str) -> str:
    """The short text. `own`: often used options of the command."""
    return BRIEF.format(
        command=command,
        description=description,
        own=own,
        architectures=", ".join(ARCHITECTURES),
        algorithms=", ".join(ALGORITHMS),
        networks=", ".join(NETWORKS),
        optimizers=", ".join(OPTIMIZERS),
        presets=", ".join(PRESETS),
    )
