"""The Dockerfile names what is there. It is not built here: that needs a daemon and a network."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "Dockerfile").read_text()


def test_what_it_copies_is_there_and_not_ignored() -> None:
    sources = [word for line in re.findall(r"^COPY --chown=gossamer (.*)$", TEXT, re.M) for word in line.split()[:-1]]
    kept = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    assert len(sources) > 4
    assert set(sources) == kept
    assert all((ROOT / source).exists() for source in sources)


def test_it_has_the_version_of_pytorch_that_is_tested_and_runs_the_demo() -> None:
    (version,) = re.findall(r"^TORCH \?= (torch==\S+)$", (ROOT / "Makefile").read_text(), re.M)
    assert f"ARG TORCH={version}\n" in TEXT
    assert TEXT.rstrip().endswith('CMD ["bash", "scripts/demo.sh"]')
