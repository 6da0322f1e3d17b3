"""Cost and scaling of gossip.

    python -m benchmarks.gossip exchange       # steps/s with and without gossip: GALA, PALA in threads and on Ray
    python -m benchmarks.gossip message        # one message between two hosts: bytes and milliseconds
    python -m benchmarks.gossip scale          # efficiency and staleness from 4 to 1,024 members, in virtual time
    python -m benchmarks.gossip consensus      # time and bytes to consensus for each way of exchanging, in virtual time
    python -m benchmarks.gossip pong           # steps, seconds and bytes to 18 on Pong for each of them; hours
    python -m benchmarks.gossip diagnostics    # bytes and CPU time of what members report about their exchange
    python -m benchmarks.gossip rate           # steps until Catch is learned: one learner, GALA at two learning rates

Each writes `gossip-NAME.json`; `scale` and `consensus` add a plot. `python -m benchmarks.gossip NAME --help` lists the
options of one benchmark.

To add a benchmark, write a module with `add_options` and `measure` (see `Benchmark`) and add it to `BENCHMARKS`.
"""

from __future__ import annotations

import argparse
from typing import Protocol

from benchmarks.gossip import consensus, diagnostics, exchange, message, pong, rate, scale
from benchmarks.provenance import Results, add_out
from gossamer.system.machine import keep_freed_memory


class Benchmark(Protocol):
    """A module of this directory. The first line of its docstring is its help text."""

    __doc__: str | None

    def add_options(self, parser: argparse.ArgumentParser) -> None:
        """Add the options of this benchmark."""

    def measure(self, given: argparse.Namespace, results: Results) -> None:
        """Measure, and write the figures with `results.write`, which may be called after each part."""


BENCHMARKS: dict[str, Benchmark] = {
    "exchange": exchange,
    "message": message,
    "scale": scale,
    "consensus": consensus,
    "pong": pong,
    "rate": rate,
    "diagnostics": diagnostics,
}


def parser() -> argparse.ArgumentParser:
    """One subcommand for each benchmark."""
    made = argparse.ArgumentParser(
        prog="benchmarks.gossip", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    subcommands = made.add_subparsers(dest="benchmark", required=True)
    for name, benchmark in BENCHMARKS.items():
        text = (benchmark.__doc__ or "").splitlines()[0]
        subcommand = subcommands.add_parser(name, help=text, description=text)
        benchmark.add_options(subcommand)
        subcommand.add_argument("--name", default=f"gossip-{name}", help="result file (default: %(default)s)")
        add_out(subcommand)
    return made


def main() -> None:
    """Run one benchmark."""
    given = parser().parse_args()
    results = Results(given.name, given.out)
    keep_freed_memory()
    BENCHMARKS[given.benchmark].measure(given, results)
    print(results.path)


if __name__ == "__main__":
    main()
