"""`make test-page` and `make test-sinks` fail where what they need is missing; pytest alone would skip all tests."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
MAKE = str(shutil.which("make"))
SAYS_ITS_WORDS = "#!/bin/sh\necho run: $*\n"
CANNOT_IMPORT = '#!/bin/sh\n[ "$1" != -c ] || { echo "No module" >&2; exit 1; }\necho run: $*\n'


def program(path: Path, text: str = SAYS_ITS_WORDS) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)


def make(target: str, folder: Path, python: str = SAYS_ITS_WORDS, programs: tuple[str, ...] = ()) -> tuple[int, str]:
    """Exit code and output of a target, in a folder with environments whose Python is that script."""
    for name in ("pyproject.toml", "constraints.txt", "constraints-sinks.txt"):
        (folder / name).touch()
    shutil.copy(ROOT / "Makefile", folder)
    for environment in (".venv", ".venv-sinks"):
        program(folder / environment / "bin" / "python", python)
        for stamp in (".torch", ".installed", ".dev", ".browser"):
            (folder / environment / stamp).touch()
    for name in programs:
        program(folder / "bin" / name)
    env = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    command = [MAKE, "--no-print-directory", target, "ARGS=-x"]
    done = subprocess.run(
        command, cwd=folder, env={**env, "PATH": str(folder / "bin")}, capture_output=True, text=True, check=False
    )
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize("programs", [(), ("chromium",), ("chromedriver",), ("chromium-browser", "chromedriver")])
def test_the_page_is_not_tested_without_a_browser(tmp_path: Path, programs: tuple[str, ...]) -> None:
    code, told = make("test-page", tmp_path, programs=programs)
    assert code == 2
    assert told.startswith("test-page: chromium or chromedriver is missing: install ")
    assert "run: -m pytest" not in told


def test_the_page_is_not_tested_without_selenium(tmp_path: Path) -> None:
    code, told = make("test-page", tmp_path, CANNOT_IMPORT, ("chromium", "chromedriver"))
    assert (code, told.split(":")[:2]) == (2, ["test-page", " selenium cannot be imported"])
    assert "run: -m pytest" not in told


def test_sinks_are_not_tested_without_their_packages(tmp_path: Path) -> None:
    code, told = make("test-sinks", tmp_path, CANNOT_IMPORT)
    assert (code, told.split(":")[:2]) == (2, ["test-sinks", " wandb trackio mlflow or sqlalchemy cannot be imported"])
    assert "run: -m pytest" not in told


def test_they_are_tested_where_all_is_there(tmp_path: Path) -> None:
    code, told = make("test-page", tmp_path, programs=("chromium", "chromedriver"))
    assert (code, told.splitlines()[-1]) == (0, "run: -m pytest -m page tests/page -x")
    code, told = make("test-sinks", tmp_path)
    assert (code, told.splitlines()[-1]) == (0, "run: -m pytest tests/training/sinks -x")
