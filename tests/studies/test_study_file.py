"""Studies in TOML files."""

from __future__ import annotations

from pathlib import Path

import pytest

from gossamer.studies.file import load
from gossamer.system.errors import UserError

ATARI = """
envs = ["pong", "breakout"]
seeds = [1, 2, 11]
steps = 1_000_000
directory = "atari"
jobs = 2
options = "--stop-at-return 18"

[compositions]
PAAC = "paac --algorithm ppo"
GALA = "gala --algorithm ppo"
"""


def test_a_file_gives_the_keywords_of_a_study(tmp_path: Path) -> None:
    (tmp_path / "study.toml").write_text(ATARI)
    assert load(tmp_path / "study.toml") == {
        "compositions": ["PAAC: paac --algorithm ppo", "GALA: gala --algorithm ppo"],
        "envs": ["pong", "breakout"],
        "seeds": [1, 2, 11],
        "steps": 1_000_000,
        "directory": tmp_path / "atari",
        "jobs": 2,
        "options": ["--stop-at-return", "18"],
    }


def test_whole_numbers_may_be_written_as_powers_of_ten(tmp_path: Path) -> None:
    (tmp_path / "s.toml").write_text("steps = 1e6\nseeds = 5e0")
    assert load(tmp_path / "s.toml") == {"steps": 1_000_000, "seeds": 5}
    assert isinstance(load(tmp_path / "s.toml")["steps"], int)


def test_compositions_may_be_a_list(tmp_path: Path) -> None:
    (tmp_path / "s.toml").write_text('compositions = ["paac", "gala --learners 2"]')
    assert load(tmp_path / "s.toml") == {"compositions": ["paac", "gala --learners 2"]}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("envs = [", "not TOML"),
        ('env = "pong"', "unknown key env; near: envs"),
        ('envs = "pong"', "envs must be of type list"),
        ("envs = [3]", "envs must hold values of type str"),
        ("seeds = true", "seeds must be of type int or list"),
        ("seeds = [1.5]", "seeds must hold values of type int"),
        ("options = '--log \"none'", r"s\.toml: options '--log \"none': no closing quotation"),
        ('steps = "many"', "steps must be of type int"),
        ("steps = 1.5", "steps must be of type int"),
        ("[compositions]\nPAAC = 3", "compositions must hold values of type str"),
        ('[compositions]\n"a: b" = "paac"', "the label 'a: b' must not hold a colon with a space after it"),
    ],
)
def test_what_cannot_be_used_is_named(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "s.toml").write_text(text)
    with pytest.raises(UserError, match=message):
        load(tmp_path / "s.toml")


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"s\.toml: cannot be read"):
        load(tmp_path / "s.toml")
