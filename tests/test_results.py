"""What pages say about results: their links, the index of the figures, and no file that no page needs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from benchmarks import index
from benchmarks.provenance import RESULTS, ROOT
from gossamer.config.file import to_dict
from gossamer.config.resolve import configure

LINK = re.compile(r"\]\(([^)\s]+)\)")
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "benchmarks").rglob("*.md")])


def anchors(page: Path) -> set[str]:
    """The headings of a page, as GitHub names them: lower case, words with hyphens, no punctuation."""
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    titles = (re.sub(r"[`*]|\]\([^)]*\)", "", title) for title in re.findall(r"^#+ (.*)$", text, flags=re.MULTILINE))
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_to_a_file_and_a_heading_leads_there(page: Path) -> None:
    for link in LINK.findall(page.read_text()):
        if link.startswith(("https:", "http:")):
            continue
        file, _, anchor = link.partition("#")
        target = page.parent / file if file else page
        assert target.exists(), f"{page.relative_to(ROOT)}: {link}"
        assert not anchor or anchor in anchors(target), f"{page.relative_to(ROOT)}: {link}"


def test_anchors_are_named_as_github_names_them(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# What it `learns`: Pong, Breakout\n```\n# a comment\n```\n## An example: Atari-5\n")
    assert anchors(page) == {"what-it-learns-pong-breakout", "an-example-atari-5"}


def test_the_index_of_results_is_up_to_date() -> None:
    assert index.INDEX.read_text() == index.index(), "run: python -m benchmarks.index"


def test_every_result_is_linked_from_a_page() -> None:
    pages = [page for page in PAGES if page != index.INDEX]
    linked = {(page.parent / link).resolve() for page in pages for link in LINK.findall(page.read_text())}
    files = {path for path in RESULTS.rglob("*") if path.is_file()}
    assert {str(path.relative_to(RESULTS)) for path in files - linked} == set()


def test_no_page_names_a_result_that_is_not_there() -> None:
    named = re.compile(r"benchmarks/results/[\w./-]*\w")
    pages = [*PAGES, *(ROOT / "gossamer").rglob("*.py"), *(ROOT / "benchmarks").rglob("*.py")]
    missing = {path for page in pages for path in named.findall(page.read_text()) if not (ROOT / path).exists()}
    assert missing == set()


def test_the_index_says_what_a_command_would_need_today() -> None:
    config = to_dict(configure("paac", env="catch", algorithm="ppo", steps=500, num_envs=64, clip_range=0.25))
    trained = "gossamer train paac --env catch --preset tuned --algorithm ppo --steps 500 --envs 64 --seed SEED"
    assert index.earlier(trained, config) == ["--clip-range", "0.25"]  # --envs was the name of --num-envs
    assert index.earlier(trained.replace("--seed", "--clip 0.25 --seed"), config) == []
    assert index.short(trained) == "gossamer train paac --env catch --algorithm ppo --steps 500 --envs 64"
    assert index.short("--normalize-advantage False --parallel-loading True") == (
        "--no-normalize-advantage --parallel-loading"
    )
