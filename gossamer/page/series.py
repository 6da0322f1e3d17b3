"""Rows of numbers, thinned so that any length of run fits into memory and into a browser."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeGuard
from zlib import crc32

MOST = 4000  # rows that are kept


class Series:
    """Columns of rows that are added one by one: every `stride`-th row is kept, and the newest one beside.

    Once `most` rows are kept, every second one is dropped, and `stride` doubles."""

    def __init__(self, most: int = MOST, *, spread: bool = False) -> None:
        """`spread`: of each `stride` rows any one is kept, and not the first: rows of several kinds may take turns."""
        self._most, self._seen, self._spread = most, 0, spread
        self.columns: dict[str, list[float | None]] = {}  # name -> one value for each kept row; None: it has none
        self.newest: dict[str, float | None] = {}
        self.stride, self.rows = 1, 0
        self.thinned = 0  # how often rows were dropped

    def add(self, row: Mapping[str, Any]) -> None:
        """Add a row. Values that are not numbers are left out."""
        self.newest = numbers(row)
        if self.due:
            self._keep()
        self._seen += 1

    @property
    def due(self) -> bool:
        """Whether the next row will be kept."""
        block, place = divmod(self._seen, self.stride)
        return place == (crc32(b"%d %d" % (block, self.stride)) % self.stride if self._spread else 0)

    def skip(self) -> None:
        """Count a row that is not due, without storing it."""
        self._seen += 1

    def _keep(self) -> None:
        for name in self.newest:
            self.columns.setdefault(name, [None] * self.rows)
        for name, column in self.columns.items():
            column.append(self.newest.get(name))
        self.rows += 1
        if self.rows > self._most:
            self.columns = {name: column[::2] for name, column in self.columns.items()}
            self.rows = -(-self.rows // 2)
            self.stride, self.thinned = 2 * self.stride, self.thinned + 1

    def since(self, row: int) -> dict[str, Any]:
        """The kept rows from number `row` on."""
        columns = {name: column[row:] for name, column in self.columns.items()} if row < self.rows else {}
        return {"from": row, "stride": self.stride, "columns": columns}


def numbers(row: Mapping[str, Any]) -> dict[str, float | None]:
    """The values of a row that are numbers, or None; shortened."""
    return {name: _short(value) for name, value in row.items() if value is None or is_number(value)}


def is_number(value: Any) -> TypeGuard[int | float]:
    """Whether it is a number of JSON."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def _short(value: float | None) -> float | None:
    """Six digits are enough for a curve."""
    return float(f"{value:.6g}") if isinstance(value, float) else value
