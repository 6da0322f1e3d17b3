"""The benchmark of several games: shares of what runs of one game reach."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks import games


def test_games_are_compared_with_runs_of_one_game() -> None:
    # Random play: Pong -20.7, Breakout 1.7, Boxing 0.1
    def of(**returns: float) -> dict[str, Any]:
        return {"1": {"returns": returns}}

    found = {
        "impala": {
            "pong": of(pong=19.3),
            "breakout": of(breakout=1.7),  # no better than random play: nothing to compare with
            "boxing": of(boxing=80.1),
            "normalised": of(pong=9.3, breakout=5.0, boxing=60.1),
        }
    }
    assert games.shares(found, "impala", "normalised", "1") == {
        "pong": pytest.approx(0.75),  # 30 of 40
        "breakout": None,
        "boxing": pytest.approx(0.75),  # 60 of 80
    }
    assert list(games.table(found))[-1] == "| impala | normalised | 1 | 0.75 | - | 0.75 | - |"
    planned = list(games.runs(["impala"], [1, 2], 10))
    assert len(planned) == 2 * 5
    assert planned[4] == (
        "impala", "not normalised", 1, "impala --env pong,breakout,boxing --steps 30 --no-normalize-returns"
    )  # fmt: skip
