"""The command that installs an extra, and the commit of the package, for each way to install it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import gossamer
from gossamer.system import installation
from gossamer.system.installation import commit, install, pip

REPOSITORY = "https://example.org/gossamer.git"
SHA = "0123456789abcdef0123456789abcdef01234567"
VCS = {"url": REPOSITORY, "vcs_info": {"vcs": "git", "requested_revision": "main", "commit_id": SHA}}
WHEEL = "file:///tmp/gossamer-0.1.0-py3-none-any.whl"


class Installed:
    """A distribution with this `direct_url.json`."""

    def __init__(self, origin: dict[str, Any] | None) -> None:
        self.origin = origin

    def read_text(self, name: str) -> str | None:
        return None if self.origin is None else {"direct_url.json": json.dumps(self.origin)}[name]


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that the package lies in: not a checkout yet."""
    monkeypatch.setattr(installation, "ROOT", tmp_path)
    monkeypatch.setattr(installation, "pip", lambda: "pip")
    return tmp_path


@pytest.mark.parametrize(
    ("origin", "command"),
    [
        (None, 'pip install "gossamer[onnx]"'),  # from an index
        (VCS, f'pip install "gossamer[onnx] @ git+{REPOSITORY}@{SHA}"'),
        ({"url": WHEEL, "archive_info": {}}, f'pip install "gossamer[onnx] @ {WHEEL}"'),
        ({"url": "file:///src/gossamer", "dir_info": {}}, 'pip install "gossamer[onnx] @ file:///src/gossamer"'),
    ],
)
def test_an_extra_comes_from_where_the_package_came_from(
    root: Path, monkeypatch: pytest.MonkeyPatch, origin: dict[str, Any] | None, command: str
) -> None:
    monkeypatch.setattr(installation, "distribution", lambda name: Installed(origin))
    assert install("onnx") == command


def test_a_checkout_is_installed_from_its_folder(root: Path) -> None:
    (root / "pyproject.toml").touch()
    assert install("gym") == f'pip install -e "{root}[gym]"'


def test_pip_is_that_of_this_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "bin" / "python"))
    for folder in ("bin", "other"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "pip").touch(mode=0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{tmp_path / 'other'}")
    assert pip() == "pip"
    monkeypatch.setenv("PATH", f"{tmp_path / 'other'}:{tmp_path / 'bin'}")
    assert pip() == f"{tmp_path / 'bin' / 'python'} -m pip"


def test_the_commit_of_a_checkout_says_if_files_differ_from_it(root: Path) -> None:
    def git(*words: str) -> str:
        name = ("-c", "user.name=A", "-c", "user.email=a@example.org")
        return subprocess.run(["git", *name, *words], cwd=root, check=True, capture_output=True, text=True).stdout

    git("init")
    (root / "file").write_text("one")
    git("add", "file")
    git("commit", "-m", "One file")
    head = git("rev-parse", "HEAD")
    assert len(commit()) >= 7
    assert head.startswith(commit())
    (root / "new").touch()  # not tracked
    assert head.startswith(commit())
    (root / "file").write_text("two")
    assert commit().endswith("-dirty")
    assert head.startswith(commit().removesuffix("-dirty"))


def test_the_commit_of_an_installed_package_is_the_one_that_pip_took(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(installation, "distribution", lambda name: Installed(VCS))
    assert commit() == "0123456789ab"
    monkeypatch.setattr(installation, "distribution", lambda name: Installed(None))
    assert commit() == ""


def test_a_repository_that_git_cannot_read_has_no_known_commit(root: Path) -> None:
    (root / ".git").mkdir()
    assert commit() == ""


def test_a_checkout_is_found_where_it_is() -> None:
    """The package lies at its top: else neither its commit nor the command that installs it is known."""
    assert (installation.ROOT / "gossamer" / "__init__.py").samefile(gossamer.__file__)
