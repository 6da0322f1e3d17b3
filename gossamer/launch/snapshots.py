"""States that a launcher reads from services now and then, for `OnRestart.SNAPSHOT`."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from gossamer.program import Node, OnRestart


class Snapshots:
    """The states that were read last from the services of one host or program."""

    def __init__(self, nodes: Collection[Node]) -> None:
        self._nodes = {node.name: node for node in nodes}
        self._periods = {node.name: node.snapshot_seconds for node in nodes if node.on_restart is OnRestart.SNAPSHOT}
        self._due = dict(self._periods)  # service -> time of its next reading; the program starts at 0
        self._states: dict[str, Any] = {}

    def due(self, now: float) -> list[str]:
        """The services whose states should be read at this time (seconds since the start of the program)."""
        return [name for name, when in self._due.items() if now >= when]

    def keep(self, name: str, state: Any, now: float) -> None:
        """Keep a state that was read at this time. The caller does not modify it afterwards."""
        self._states[name], self._due[name] = state, now + self._periods[name]

    def state(self, name: str, restored: Callable[[str], Any | None]) -> Any | None:
        """The state that a service starts with after a failure of its host; None: it starts empty. `restored`: returns
        the state of the last checkpoint."""
        if self._nodes[name].on_restart is OnRestart.EMPTY:
            return None
        return self._states[name] if name in self._states else restored(name)
