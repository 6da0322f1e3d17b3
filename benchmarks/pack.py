"""Packs the finished runs of a folder into one archive: all but checkpoints and logs; of the metrics, 200 rows.

    python -m benchmarks.pack runs/atari5 atari5    # writes benchmarks/results/current/runs/atari5.tar.xz
    python -m benchmarks.unpack atari5              # into runs/atari5
    gossamer report runs/atari5

`gossamer study` and `benchmarks.curves` take the unpacked runs for finished runs, so what was begun on one machine goes
on, on another. The same runs give the same archive, byte for byte.
"""

from __future__ import annotations

import argparse
import io
import tarfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks.curves import finished, spread
from benchmarks.provenance import RUNS

WHOLE = ("config.json", "result.json", "episodes.csv", "spec.json")
WHERE_PRESENT = ("gossip.json", "evaluations.jsonl", "evaluation-*.json")
METRICS = "metrics.jsonl"
STUDY = "study.json"
ENDING = ".tar.xz"


def contents(run: Path) -> Iterator[tuple[str, bytes]]:
    """Name and content of every file of a run that is kept."""
    for name in WHOLE:
        yield name, (run / name).read_bytes()
    for pattern in WHERE_PRESENT:
        for file in run.glob(pattern):
            yield file.name, file.read_bytes()
    yield METRICS, b"".join(spread((run / METRICS).read_bytes().splitlines(keepends=True)))


def pack(folder: Path, archive: Path) -> int:
    """Write the archive of the finished runs in `folder`, and return their number. Raises ValueError if it is 0."""
    runs = [result.parent for result in folder.rglob("result.json") if finished(result.parent)]
    if not runs:
        raise ValueError(f"no finished runs in {folder}")
    files = {str(run.relative_to(folder) / name): content for run in runs for name, content in contents(run)}
    if (folder / STUDY).exists():
        files[STUDY] = (folder / STUDY).read_bytes()
    archive.parent.mkdir(parents=True, exist_ok=True)
    part = archive.with_name(f"{archive.name}.part")
    with tarfile.open(part, "w:xz") as tar:
        for name, content in sorted(files.items()):
            entry = tarfile.TarInfo(name)  # owner and time are 0
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
    part.rename(archive)
    return len(runs)


def main() -> None:
    """Pack a folder."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="a study, or any folder with runs")
    parser.add_argument("name", help="name of the archive, without its ending")
    parser.add_argument("--out", type=Path, default=RUNS, help="its folder (default: benchmarks/results/current/runs)")
    given = parser.parse_args()
    archive = given.out / f"{given.name}{ENDING}"
    try:
        count = pack(given.folder, archive)
    except ValueError as error:
        parser.error(str(error))
    print(f"{archive}: {count} runs")


if __name__ == "__main__":
    main()
