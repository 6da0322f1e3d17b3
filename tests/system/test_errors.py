"""Suggestions for names that are nearly right."""

from __future__ import annotations

import pytest

from gossamer.system.errors import near

OPTIONS = ("--learning-rate", "--rollout-length", "--screen-size", "--network", "--epochs", "--env-workers")


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("--learning-rat", "; near: --learning-rate"),
        ("--rollout", "; near: --rollout-length"),  # the beginning of a longer name
        ("epoch", "; near: --epochs"),
        ("--hidden-sizes", ""),  # 7 of 12 and 11 letters are those of --screen-size
        ("--net-arch", ""),
        ("--quiet", ""),
        ("--en", ""),  # too short to be a beginning
    ],
)
def test_only_near_names_are_suggested(name: str, told: str) -> None:
    assert near(name, OPTIONS) == told
