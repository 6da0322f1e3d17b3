"""Speed in bfloat16 compared with float32 on a processor, in turn: what `--precision auto` rests on.

    .venv/bin/python -m benchmarks.precision

`gossamer bench` measures each composition in both precisions, round by round. Writes `speed-precision.json`: steps per
second of inference, update and the whole program by round, and for each the median ratio of bfloat16 to float32. Do not
run anything else on the machine.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.provenance import ROOT, Results, add_out
from gossamer.system.machine import resolve_dtype

COMPOSITIONS = (
    "appo --env pong",
    "paac --env pong",
    "paac --algorithm ppo --env pong",
    "paac --env catch-pixels",
    "paac --env catch",
    "paac --algorithm ppo --env CartPole-v1",
)
PRECISIONS = ("fp32", "bf16")
PARTS = ("inference", "update", "whole")


def bench(composition: str, precision: str, seconds: float) -> dict[str, float]:
    """Steps per second of the parts of one composition."""
    words = f"bench {composition} --precision {precision} --device cpu --rounds 1 --seconds {seconds:g} --json"
    command = [sys.executable, "-m", "gossamer.cli", *words.split()]
    done = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    found: dict[str, float] = json.loads(done.stdout)
    return {part: found[part] for part in PARTS}


def compared(rounds: Mapping[str, Sequence[Mapping[str, float]]]) -> dict[str, Any]:
    """The rates of both precisions, by round, and the medians of their ratios."""
    found: dict[str, Any] = {precision: list(rates) for precision, rates in rounds.items()}
    pairs = list(zip(rounds["fp32"], rounds["bf16"], strict=True))
    ratios = {part: [bf16[part] / fp32[part] for fp32, bf16 in pairs] for part in PARTS}
    found["ratio"] = {part: round(statistics.median(of), 2) for part, of in ratios.items()}
    return found


def main() -> None:
    """Measure, and write the figures after each round."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=3.0, help="of each part")
    add_out(parser)
    given = parser.parse_args()
    results = Results("speed-precision", given.out)
    found: dict[str, dict[str, list[dict[str, float]]]] = {
        composition: {precision: [] for precision in PRECISIONS} for composition in COMPOSITIONS
    }
    auto = {kind: str(resolve_dtype("cpu", pictures=kind == "pictures")) for kind in ("pictures", "vectors")}
    for _ in range(given.rounds):
        for composition, rounds in found.items():
            for precision in PRECISIONS:
                rounds[precision].append(bench(composition, precision, given.seconds))
        figures = {composition: compared(rounds) for composition, rounds in found.items()}
        results.write({"rounds": given.rounds, "auto": auto, "compositions": figures})


if __name__ == "__main__":
    main()
