"""Unpacks an archive of runs that `benchmarks.pack` wrote. The runs can be reported, drawn, and continued as a study.

python -m benchmarks.unpack atari5                  # into runs/atari5
python -m benchmarks.unpack atari5 --to /tmp/atari5
"""

from __future__ import annotations

import argparse
import shutil
import tarfile
from pathlib import Path

from benchmarks.pack import ENDING
from benchmarks.provenance import RUNS


def unpack(archive: Path, folder: Path) -> None:
    """Write the runs to `folder`. Raises FileExistsError if the folder exists."""
    if folder.exists():
        raise FileExistsError(f"{folder} exists: remove it, or name another folder with --to")
    part = folder.with_name(f"{folder.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    with tarfile.open(archive) as tar:
        tar.extractall(part, filter="data")
    part.rename(folder)


def main() -> None:
    """Unpack one archive."""
    names = sorted(file.name.removesuffix(ENDING) for file in RUNS.glob(f"*{ENDING}"))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=names)
    parser.add_argument("--to", type=Path, metavar="FOLDER", help="default: runs/NAME")
    given = parser.parse_args()
    folder = given.to or Path("runs") / given.name
    try:
        unpack(RUNS / f"{given.name}{ENDING}", folder)
    except FileExistsError as error:
        parser.error(str(error))
    print(folder)


if __name__ == "__main__":
    main()
