"""Device, precision, threads and versions of each host of a run, stored in `hosts.json`."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from gossamer.errors import UserError
from gossamer.machine import HostInfo, differences
from gossamer.program import Program
from gossamer.storage.files import write_json


class HostInfoFile:
    """Collects the `HostInfo` that each worker reports when it starts, and stores the newest one of each host.

    Logs how it differs from the previous session, or from the time before the host restarted."""

    def __init__(self, file: Path, wired: Program, log: Callable[[str], None]) -> None:
        """Raises `UserError` if the file exists and cannot be read as JSON."""
        self._file, self._log, self._lock = file, log, threading.Lock()
        self._host_of = {copy.name: copy.node.host for copy in wired.crew}
        try:
            self._before: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {}
        except ValueError as error:
            raise UserError(f"{file}: truncated or altered ({error}); restore or remove it") from error
        self.hosts: dict[str, dict[str, Any]] = {}

    def take(self, worker: str, info: HostInfo) -> None:
        """Record what a worker reported."""
        host, now = self._host_of[worker], asdict(info)
        with self._lock:
            if self.hosts.get(host) == now:
                return
            before = self.hosts.get(host, self._before.get(host, {}))
            self.hosts[host] = now
            self._log(f"{host} computes with {', '.join(f'{name} {value}' for name, value in now.items())}")
            if changed := differences(before, now):
                self._log(f"{host} differs from the run before: {changed}")
            write_json(self._file, self._before | self.hosts)
