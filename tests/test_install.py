"""An editable install works from every folder."""

from __future__ import annotations

import fnmatch
import os
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
IMPORTED = [  # with `import gossamer`
    f"gossamer/{name}.py"
    for name in (
        "__init__",
        "config/__init__",
        "config/names",
        "system/__init__",
        "system/errors",
        "system/scripts",
        "system/version",
    )
]
BUILD = "import sys; from setuptools import build_meta; build_meta.build_editable(sys.argv[1])"
IMPORT = "import site, sys; site.addsitedir(sys.argv[1]); import gossamer; print(gossamer.__file__)"


def test_the_folder_above_a_clone_imports_the_package_and_not_the_clone(tmp_path: Path) -> None:
    pytest.importorskip("setuptools", minversion="77")  # what builds the package
    clone, installed = tmp_path / "gossamer", tmp_path / "site"
    for name in ("pyproject.toml", "README.md", "LICENSE", *IMPORTED):
        (clone / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, clone / name)
    subprocess.run([sys.executable, "-c", BUILD, str(tmp_path)], cwd=clone, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    zipfile.ZipFile(wheel).extractall(installed)
    command = [sys.executable, "-S", "-c", IMPORT, str(installed)]  # -S: without what is installed here
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(command, cwd=tmp_path, env=env, check=True, capture_output=True, text=True)
    assert done.stdout.strip() == str(clone / "gossamer" / "__init__.py")


def test_a_wheel_has_every_file_of_the_package() -> None:
    """`package-data` names those that are no modules."""
    patterns = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]["gossamer"]
    package = ROOT / "gossamer"
    others = [file for file in package.rglob("*") if file.is_file() and file.suffix not in (".py", ".pyc")]
    names = [file.relative_to(package).as_posix() for file in others]
    assert "reporting/published.csv" in names
    assert [name for name in names if not any(fnmatch.fnmatch(name, pattern) for pattern in patterns)] == []
