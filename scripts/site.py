"""What the documentation site has besides docs/: README, CONTRIBUTING and CHANGELOG as pages, pictures of results, and
an API reference from the docstrings. A hook of MkDocs (`mkdocs.yml`).

Links in pages are written for the repository. On the site, a link to a module leads to the reference, and one to
another file that has no page becomes its name."""

from __future__ import annotations

import ast
import os
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "gossamer"
PAGES = {  # file of the repository -> page of the site
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "benchmarks/README.md": "benchmarks.md",
    "benchmarks/results/README.md": "benchmarks-results.md",
}
SOURCES = {page: file for file, page in PAGES.items()}
PICTURES = "benchmarks/results/current"
LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^()\s]+)\)")
FENCE = re.compile(r"^(```.*?^```|    .*?$)", re.MULTILINE | re.DOTALL)
PUBLIC = "reference/index.md"


def on_config(config: Any) -> Any:
    """List the pages of the reference in the navigation."""
    place = next(entry for entry in config.nav if "Reference" in entry)
    place["Reference"] = list(reference())
    return config


def on_files(files: Files, config: Any) -> Files:
    """Add the pages and pictures that are not in docs/."""
    for file, page in PAGES.items():
        files.append(File.generated(config, page, content=(ROOT / file).read_text()))
    for picture in sorted((ROOT / PICTURES).glob("*.png")):
        files.append(File.generated(config, f"{PICTURES}/{picture.name}", abs_src_path=str(picture)))
    for page, text in reference().items():
        files.append(File.generated(config, page, content=text))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Have links lead to pages of the site."""
    here = page.file.src_uri
    if here.startswith("reference/"):
        return markdown
    source = Path(SOURCES.get(here, f"docs/{here}")).parent
    parts = FENCE.split(markdown)  # text and blocks of code in turn
    known = {file.src_uri for file in files}
    parts[::2] = [LINK.sub(lambda found: _link(found, source, here, known), text) for text in parts[::2]]
    return "".join(parts)


def _link(found: re.Match[str], source: Path, here: str, known: set[str]) -> str:
    picture, text, target = found.groups()
    path, mark, anchor = target.partition("#")
    if not path or "://" in target or target.startswith("mailto:"):
        return found[0]
    file = os.path.normpath(source / path)
    page = PAGES.get(file) or _module_page(file) or file.removeprefix("docs/")
    page, dot, module = page.partition("#")
    if page not in known:
        return text if text.startswith("`") else f"{text} (`{file}`)"
    return f"{picture}[{text}]({os.path.relpath(page, Path(here).parent)}{dot or mark}{module or anchor})"


def _module_page(file: str) -> str:
    """The place of a module in the reference; empty for another file."""
    path = Path(file)
    if path.suffix != ".py" or path.parts[0] != PACKAGE.name or not (ROOT / path).exists():
        return ""
    return f"reference/{path.with_suffix('').parts[1]}.md#{_name(ROOT / path)}"


def reference() -> dict[str, str]:
    """The pages of the reference: what `import gossamer` gives, and one for each room."""
    pages = {PUBLIC: _public()}
    for room in sorted(PACKAGE.iterdir()):
        modules = [room] if room.suffix == ".py" else sorted(room.rglob("*.py"))
        if room.stem.startswith("_") or not modules or room.stem == "__init__":
            continue
        documented = [path for path in modules if path.name != "__init__.py" or _has_docstring(path)]
        body = "\n\n".join(f"::: {_name(path)}" for path in documented)
        pages[f"reference/{room.stem}.md"] = f"# {PACKAGE.name}.{room.stem}\n\n{body}\n"
    return pages


def _public() -> str:
    """`import gossamer`: every public name, at the place where it is defined."""
    tree = ast.parse((PACKAGE / "__init__.py").read_text())
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module != "typing"]
    names = {
        alias.asname: f"{node.module}.{alias.name}"
        for node in imports
        for alias in node.names
        if alias.asname and not alias.asname.startswith("_")
    }
    intro = ast.get_docstring(tree) or ""
    first, _, code = intro.partition("\n\n")
    listed = "\n".join(f"- [`gossamer.{name}`][{names[name]}]" for name in sorted(names, key=str.lower))
    return f"# Reference\n\n{first}\n\n```python\n{code}\n```\n\nThe public names:\n\n{listed}\n"


def _name(path: Path) -> str:
    """`gossamer/nn/optim.py` -> `gossamer.nn.optim`."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _has_docstring(path: Path) -> bool:
    return ast.get_docstring(ast.parse(path.read_text())) is not None
