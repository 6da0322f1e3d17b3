"""Runs a command that prints one JSON object, and writes the object and its origin to `NAME.json`.

python -m benchmarks.keep speed-paac-a2c -- gossamer bench paac --env pong --json
"""

from __future__ import annotations

import argparse
import json
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

from benchmarks.provenance import add_out, keep, provenance


def main() -> None:
    """Write the origin, and the command's output as `figures`."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", help="name of the result file")
    add_out(parser)
    parser.add_argument("words", nargs="+", metavar="COMMAND", help="after --")
    given = parser.parse_args()
    origin = provenance()
    program = shutil.which(given.words[0]) or str(Path(sys.executable).with_name(given.words[0]))
    done = subprocess.run([program, *given.words[1:]], stdout=subprocess.PIPE, text=True, check=True)
    found = {**origin, "command": shlex.join(given.words), "figures": json.loads(done.stdout)}
    print(keep(given.name, found, given.out))


if __name__ == "__main__":
    main()
