"""The short help text of a command that takes a composition, for a reader who has not chosen one yet."""

from __future__ import annotations

from collections.abc import Sequence

from gossamer.config.command_line import asks_for_help, typed
from gossamer.config.names import ALGORITHMS, ARCHITECTURES, NETWORKS, OPTIMIZERS, PRESETS

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


def asked(words: Sequence[str]) -> bool:
    """Whether the short text is wanted: help without an environment, on which the defaults depend."""
    return asks_for_help(words) and "env" not in typed(words)


def text(command: str, description: str, own: str) -> str:
    """The short text; `own`: options of the command that are often used."""
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
