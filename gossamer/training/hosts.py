"""Which hosts of a run are up, and when one was away."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass
class Absence:
    """A host that could not be reached, or whose process had ended."""

    host: str
    at: float  # seconds since the start of the session
    seconds: float | None = None  # how long; None while it lasts

    def __str__(self) -> str:
        return f"{self.host} away" if self.seconds is None else f"{self.host} away {self.seconds:.0f} s"


class Hosts:
    """Addresses and absences of the hosts of a session. The caller locks."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now, self._began = now, now()
        self.addresses: dict[str, str] = {}  # of the hosts that were up once
        self.absences: list[Absence] = []

    def update(self, name: str, where: str | None) -> None:
        """A host runs at this address, or is away (None)."""
        open_ = next((each for each in self.absences if each.host == name and each.seconds is None), None)
        now = self._now() - self._began
        if where is None and open_ is None:
            self.absences.append(Absence(name, now))
        elif where is not None:
            self.addresses[name] = where
            if open_ is not None:
                open_.seconds = now - open_.at

    @property
    def away(self) -> list[str]:
        """Hosts that are away now."""
        return [each.host for each in self.absences if each.seconds is None]

    def close(self) -> None:
        """The session has ended: so have the absences."""
        for each in self.absences:
            each.seconds = self._now() - self._began - each.at if each.seconds is None else each.seconds

    def to_list(self) -> list[dict[str, Any]]:
        """As `result.json` has them."""
        return [
            {
                "host": each.host,
                "at_seconds": round(each.at, 1),
                "away_seconds": None if each.seconds is None else round(each.seconds, 1),
            }
            for each in self.absences
        ]
