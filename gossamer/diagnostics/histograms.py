"""Histograms that stay small in long runs."""

from __future__ import annotations


def coarse(value: int, bits: int = 8) -> int:
    """A value rounded away from 0 to so many significant bits; 8: exact up to 256. Where any value may occur, as with
    members that drift apart or trajectories that are replayed, each would have a count of its own."""
    unit = 1 << max(0, value.bit_length() - bits)
    size = -(-abs(value) // unit) * unit
    return size if value >= 0 else -size
