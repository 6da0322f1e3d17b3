"""What happened during a run besides training, for `result.json`: signals, failures of hosts."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gossamer.storage.contents import EARLIER, RESULT

LIMIT = 1000  # events that are kept in full; later ones are counted


@dataclass
class EventLog:
    """Events in their order. A resumed run goes on from those of its earlier sessions."""

    events: list[dict[str, Any]] = field(default_factory=list)
    dropped: int = 0

    def add(self, kind: str, *, steps: int, **details: Any) -> None:
        """Add one, with the time of day and the run's steps. `details` hold what JSON can."""
        if len(self.events) >= LIMIT:
            self.dropped += 1
            return
        when = time.strftime("%Y-%m-%d %H:%M:%S")
        self.events.append({"kind": kind, "time": when, "steps": steps, **details})

    def to_dict(self) -> dict[str, Any]:
        """As `result.json` has it."""
        return {"events": list(self.events), "events_dropped": self.dropped}


def earlier(directory: Path) -> EventLog:
    """The events that a run's last result lists; none where there is no such file, or one of an older version."""
    result = directory / RESULT
    try:
        found = json.loads((result if result.exists() else directory / EARLIER).read_text())
        return EventLog(list(found["events"]), int(found["events_dropped"]))
    except (OSError, ValueError, KeyError, TypeError):
        return EventLog()
