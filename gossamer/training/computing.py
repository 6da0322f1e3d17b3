"""What each host of a run computes with, kept in `hosts.json`."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from gossamer.machine import Ran, differences
from gossamer.program import Program
from gossamer.storage.files import write_json


class Computing:
    """Collects what the workers say when they start: one entry for each host, the newest. The log says where an entry
    differs from that of the session before, or from that before the host was restarted."""

    def __init__(self, file: Path, wired: Program, log: Callable[[str], None]) -> None:
        self._file, self._log, self._lock = file, log, threading.Lock()
        self._host_of = {copy.name: copy.node.host for copy in wired.crew}
        self._before: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {}
        self.hosts: dict[str, dict[str, Any]] = {}

    def take(self, worker: str, what: Ran) -> None:
        """A worker computes with this."""
        host, now = self._host_of[worker], asdict(what)
        with self._lock:
            if self.hosts.get(host) == now:
                return
            before = self.hosts.get(host, self._before.get(host, {}))
            self.hosts[host] = now
            self._log(f"{host} computes with {', '.join(f'{name} {value}' for name, value in now.items())}")
            if changed := differences(before, now):
                self._log(f"{host} differs from the run before: {changed}")
            write_json(self._file, self._before | self.hosts)
