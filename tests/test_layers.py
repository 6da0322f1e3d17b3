"""Imports go downwards only, so that a part can be read, tested and replaced without what stands above it."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "gossamer"

# From top to bottom; what stands side by side does not know of each other. A new module has to be given its place.
ROWS = [
    {"cli"},
    {"commands"},
    {"searches"},
    {"tools", "studies"},
    {"training"},
    {"page"},
    {"reporting", "export"},
    {"evaluation"},
    {"diagnostics"},
    {"storage"},
    {"config"},
    {"architectures", "launch"},
    {"loops"},
    {"workers"},
    {"policy"},
    {"experience", "exchange"},
    {"task"},
    {"algorithms"},
    {"nn", "envs"},
    {"spaces"},
    {"data", "program", "presets"},
    {"runtime"},
    {"system"},
]
MAY_IMPORT = {layer: set[str]().union({layer}, *ROWS[row + 1 :]) for row, layers in enumerate(ROWS) for layer in layers}
MAY_IMPORT["launch"] = {"launch", "program", "runtime"}  # a launcher knows nothing of learning


def module_name(path: Path, package: Path) -> str:
    parts = path.relative_to(package.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports(path: Path, package: Path) -> Iterator[str]:
    """Every module that the file imports, wherever in it: in functions and under `if TYPE_CHECKING` too."""
    inside = module_name(path, package).split(".")
    if path.name != "__init__.py":
        inside.pop()  # the package that relative imports start from
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            start = inside[: len(inside) - node.level + 1] if node.level else []
            source = ".".join([*start, *([node.module] if node.module else [])])
            # `from gossamer import data` imports a layer; `from gossamer.data import Step` a name of one
            yield from (f"{source}.{alias.name}" for alias in node.names) if source == package.name else [source]


def violations(package: Path) -> list[str]:
    """What is imported upwards or sideways, and modules that have no place."""
    found = []
    for path in sorted(package.rglob("*.py")):
        module = module_name(path, package)
        if module == package.name:
            continue  # the front door shows what it likes
        layer = module.split(".")[1]
        if layer not in MAY_IMPORT:
            found.append(f"{module} has no layer")
            continue
        for imported in imports(path, package):
            name, *rest = imported.split(".")
            if name == package.name and (not rest or rest[0] not in MAY_IMPORT[layer]):
                found.append(f"{module} imports {imported}")
    return found


def test_imports_go_downwards_only() -> None:
    assert len(list(PACKAGE.rglob("*.py"))) > 5  # it looks where the modules are
    assert violations(PACKAGE) == []


@pytest.mark.parametrize(("file", "own"), [("program.py", {"gossamer.runtime"}), ("runtime.py", set())])
def test_a_program_needs_nothing_but_the_standard_library(file: str, own: set[str]) -> None:
    found = set(imports(PACKAGE / file, PACKAGE))
    assert "functools" in found  # it sees what is imported at all
    assert {module.split(".")[0] for module in found - own} <= sys.stdlib_module_names


@pytest.mark.parametrize(
    ("file", "text", "imported"),
    [
        ("data.py", "from gossamer.algorithms.returns import nstep", "gossamer.algorithms.returns"),
        ("task.py", "import gossamer.loops as up", "gossamer.loops"),
        ("task.py", "from gossamer import loops", "gossamer.loops"),
        ("task.py", "from . import loops, data", "gossamer.loops"),
        ("task.py", "import gossamer", "gossamer"),
        ("training/report.py", "from ..cli import main", "gossamer.cli"),
        ("exchange/gossip/gossip.py", "from gossamer.experience.fifo import Fifo", "gossamer.experience.fifo"),
        ("launch/ray/launcher.py", "from gossamer.data import Step", "gossamer.data"),
        ("architectures/paac.py", "from gossamer.launch.threads import threads", "gossamer.launch.threads"),
        ("program.py", "if TYPE_CHECKING:\n    from .data import Step", "gossamer.data"),
        ("policy.py", "def late():\n    from gossamer.training import metrics", "gossamer.training"),
    ],
)
def test_an_import_upwards_or_sideways_is_seen(tmp_path: Path, file: str, text: str, imported: str) -> None:
    module = "gossamer." + file.removesuffix(".py").replace("/", ".")
    assert violations(package_of(tmp_path, file, text)) == [f"{module} imports {imported}"]


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("__init__.py", "from gossamer.cli import main"),
        ("exchange/gossip/gossip.py", "from ..base import Exchange\nfrom gossamer.data import Step\nimport torch"),
        ("exchange/__init__.py", "from .gossip import Gossip\nfrom ..runtime import waits"),
        ("launch/ray/launcher.py", "from gossamer.launch.base import Handle\nfrom gossamer import program, runtime"),
        ("cli.py", "from gossamer.training import train"),
    ],
)
def test_an_import_downwards_is_fine(tmp_path: Path, file: str, text: str) -> None:
    assert violations(package_of(tmp_path, file, text)) == []


def test_a_module_without_a_place_is_seen(tmp_path: Path) -> None:
    assert violations(package_of(tmp_path, "helpers.py", "")) == ["gossamer.helpers has no layer"]


def package_of(folder: Path, file: str, text: str) -> Path:
    path = folder / "gossamer" / file
    path.parent.mkdir(parents=True)
    path.write_text(text)
    return folder / "gossamer"
