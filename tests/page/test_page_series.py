"""Rows are thinned evenly."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gossamer.page.series import Series


@given(st.integers(0, 300), st.integers(2, 40))
def test_every_nth_row_is_kept(count: int, most: int) -> None:
    series = Series(most)
    for i in range(count):
        series.add({"steps": i})
    assert series.columns.get("steps", []) == list(range(0, count, series.stride))
    assert series.rows == len(series.columns.get("steps", [])) <= most
    assert series.stride == 2**series.thinned
    assert series.newest == ({"steps": count - 1} if count else {})


def test_columns_may_begin_and_end() -> None:
    series = Series()
    series.add({"a": 1, "text": "no number", "flag": True})
    series.add({"a": 2, "b": 0.1234567})
    series.add({"b": None})
    assert series.columns == {"a": [1, 2, None], "b": [None, 0.123457, None]}
    assert series.since(1) == {"from": 1, "stride": 1, "columns": {"a": [2, None], "b": [0.123457, None]}}
    assert series.since(3)["columns"] == {}


@pytest.mark.parametrize("most", [3, 4])
def test_thinning_keeps_the_first_row(most: int) -> None:
    series = Series(most)
    for i in range(100):
        series.add({"steps": i})
    assert series.columns["steps"][0] == 0


@pytest.mark.parametrize("order", [[0, 1], [0, 0, 1, 1], [0, 1, 2, 3], [0, 0, 0, 1]])
def test_episodes_of_games_that_take_turns_are_all_kept_in_part(order: list[int]) -> None:
    series = Series(400, spread=True)
    for i in range(20_000):
        series.add({"steps": i, "game": order[i % len(order)]})
    kept = series.columns["game"]
    for game in set(order):
        assert kept.count(game) / len(kept) == pytest.approx(order.count(game) / len(order), abs=0.12)
    assert series.columns["steps"] == sorted(series.columns["steps"])  # type: ignore[type-var]
