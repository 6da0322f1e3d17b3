"""The documentation: links lead somewhere, the site has every page, and the tutorial does what it says."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md")),
    *sorted(ROOT.glob("docs/**/*.md")),
    *sorted(ROOT.glob("benchmarks/**/*.md")),
]
CODE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
SPANS = re.compile(r"`[^`\n]*`")
TUTORIAL = ROOT / "docs" / "tutorial.md"
NOTEBOOK = ROOT / "examples" / "tutorial.ipynb"
MAGIC = "%%writefile room.py\n"


def slugs(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    found = list[str]()
    for heading in re.findall(r"^#+ (.*)$", CODE.sub("", page.read_text()), re.MULTILINE):
        slug = re.sub(r"[^\w\- ]", "", heading.lower().strip()).replace(" ", "-")
        found.append(f"{slug}-{found.count(slug)}" if slug in found else slug)
    return set(found)


def broken(page: Path) -> Iterator[str]:
    """The links of a page within the repository that lead nowhere."""
    text = CODE.sub("", page.read_text())
    for target in re.findall(r"\]\(([^()\s]+)\)", SPANS.sub("code", text)):
        path, _, anchor = target.partition("#")
        if "://" in target:
            continue
        file = (page.parent / path).resolve() if path else page
        if not file.exists() or (anchor and file.suffix == ".md" and anchor not in slugs(file)):
            yield target


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    assert list(broken(page)) == []


def test_broken_links_are_found(tmp_path: Path) -> None:
    (tmp_path / "other.md").write_text("# One `two`: three\n## One two three\n")
    (tmp_path / "page.md").write_text(
        "# Here\n[a](other.md#one-two-three) [b](other.md#four) [c](none.md) [d](#here) [e](#there) `[f](none)`\n"
        "[`g`](other.md#one-two-three-1) [h](https://none)\n```\n[i](none)\n# there\n```\n"
    )
    assert list(broken(tmp_path / "page.md")) == ["other.md#four", "none.md", "#there"]


def test_the_site_has_every_page() -> None:
    listed = re.findall(r": (\S+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)
    pages = {path.relative_to(ROOT / "docs").as_posix() for path in ROOT.glob("docs/**/*.md")}
    made = {"index.md", "contributing.md", "changelog.md", "benchmarks.md", "benchmarks-results.md"}
    assert sorted(listed) == sorted(pages | made)


@pytest.mark.long
@pytest.mark.skipif(find_spec("mkdocstrings") is None, reason="needs the extra [docs]")
def test_the_site_is_built_without_warnings(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site")]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    shown = (tmp_path / "site" / "reference" / "algorithms" / "index.html").read_text()
    assert 'id="gossamer.algorithms.ppo.PPO"' in shown


def blocks() -> list[str]:
    """The Python of the tutorial, block by block; the first is the file room.py."""
    return re.findall(r"^```python\n(.*?)\n```$", TUTORIAL.read_text(), re.MULTILINE | re.DOTALL)


def test_the_notebook_is_the_tutorial() -> None:
    cells = json.loads(NOTEBOOK.read_text())["cells"]
    code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    assert [code[0].removeprefix(MAGIC), *code[1:]] == blocks()
    assert code[0].startswith(MAGIC)


def check_returns(printed: str) -> None:
    """The agent is better than the rule, and the same wherever it acts."""
    rule, evaluated, agent, _, exported, onnx = map(float, re.findall(r": (\d+\.\d)", printed))
    assert agent > rule + 10
    assert abs(evaluated - agent) < 10  # of other games
    assert exported == agent
    assert onnx == pytest.approx(agent, abs=1)


def test_the_tutorial_works(tmp_path: Path) -> None:
    file, *rest = blocks()
    (tmp_path / "room.py").write_text(file)
    (tmp_path / "tutorial.py").write_text("\n".join(rest))
    done = subprocess.run([sys.executable, "tutorial.py"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    check_returns(done.stdout)


@pytest.mark.long
def test_the_notebook_works_in_jupyter(tmp_path: Path) -> None:
    nbformat = pytest.importorskip("nbformat", reason="needs the extra [docs]")
    nbclient = pytest.importorskip("nbclient", reason="needs the extra [docs]")
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    nbformat.validate(notebook)
    nbclient.NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}}).execute()
    outputs = [out for cell in notebook.cells if cell.cell_type == "code" for out in cell.outputs]
    check_returns("".join(out.text for out in outputs if out.output_type == "stream" and out.name == "stdout"))
