"""Origin of a figure: command, machine, commit, date and versions of its measurement."""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from gossamer.system.machine import machine

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results" / "current"
RUNS = RESULTS / "runs"  # archives of the runs of figures
PACKAGES = ("gossamer", "torch", "numpy", "gymnasium", "ale-py")


def provenance() -> dict[str, Any]:
    """The origin of what this process measures. `load` is the machine's load before; it should be near 0."""
    return {
        "command": shlex.join(["python", *sys.orig_argv[1:]]),
        "machine": {**machine(), "memory_gb": memory_gb(), "system": platform.platform(), "load": os.getloadavg()[0]},
        "commit": commit(),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "versions": {"python": platform.python_version(), **{name: version(name) for name in PACKAGES}},
    }


def memory_gb() -> float:
    """Memory of the machine, in GiB."""
    return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1)


def commit() -> str:
    """The checked-out commit, with `-dirty` if tracked files other than results differ from it."""

    def git(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False)

    head = git("rev-parse", "HEAD")
    if head.returncode:
        return "unknown: not in a git checkout"
    clean = git("diff", "--quiet", "HEAD", "--", ".", ":!benchmarks/results").returncode == 0
    return head.stdout.strip() + ("" if clean else "-dirty")


def keep(name: str, content: dict[str, Any], folder: Path = RESULTS) -> Path:
    """Write `content` to `folder/NAME.json` and return the path. A list of numbers, or of such lists, has one line."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.json"
    text = json.dumps(content, indent=2)
    for lists in (r"[-+\d.eE,\s]+?", r"\[[-+\d.eE, ]+\](?:,\s+\[[-+\d.eE, ]+\])*"):
        text = re.sub(rf"\[\s+({lists})\s+\]", lambda found: f"[{' '.join(found[1].split())}]", text)
    path.write_text(f"{text}\n")
    return path


def add_out(parser: argparse.ArgumentParser) -> None:
    """Add the option `--out`, which every benchmark has."""
    parser.add_argument("--out", type=Path, default=RESULTS, help="default: benchmarks/results/current")


@dataclass(frozen=True)
class Results:
    """The result file of one benchmark: the figures and their origin, as of the creation of this object."""

    name: str
    folder: Path = RESULTS
    origin: dict[str, Any] = field(default_factory=provenance)

    @property
    def path(self) -> Path:
        return self.folder / f"{self.name}.json"

    def write(self, figures: dict[str, Any]) -> None:
        """Write the figures measured so far."""
        keep(self.name, {**self.origin, "figures": figures}, self.folder)
