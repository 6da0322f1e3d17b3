"""The hosts of a run: which are up, what each computes with (`hosts.json`), and when one was away."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from gossamer.storage.files import write_json
from gossamer.system.errors import UserError
from gossamer.system.machine import HostInfo, differences


@dataclass(frozen=True)
class Host:
    """One host of a run, as the launcher sees it."""

    name: str
    address: str  # of the machine; empty where it is this one
    up: bool
    learners: tuple[str, ...] = ()  # the workers that learn on it: they are away while the host is down


@dataclass
class Absence:
    """A host that could not be reached, or whose process had ended."""

    host: str
    at: float  # seconds since the start of the session
    seconds: float | None = None  # how long; None while it lasts
    came_back: bool = False  # before the session ended

    def __str__(self) -> str:
        return f"{self.host} away" if self.seconds is None else f"{self.host} away {self.seconds:.0f} s"


class Hosts:
    """The hosts of a session. The caller locks, but any thread may read `known`."""

    def __init__(
        self,
        host_of: Mapping[str, str] | None = None,
        learners: Collection[str] = (),
        *,
        file: Path | None = None,
        log: Callable[[str], None] = lambda text: None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """`host_of`: worker -> its host; `learners`: the workers that learn. `file`: `hosts.json`, with the hosts of
        earlier sessions. Raises `UserError` if it exists and is damaged."""
        self._host_of, self._learners = host_of or {}, frozenset(learners)
        self._file, self._log = file, log
        self._now, self._began = now, now()
        self._before = _read(file) if file and file.exists() else {}
        self._known: dict[str, Host] = {}  # by name; empty where one process runs everything
        self.absences: list[Absence] = []
        self.info: dict[str, dict[str, Any]] = {}  # host -> the fields of its newest `HostInfo`

    @property
    def known(self) -> list[Host]:
        """The hosts that the launcher has told of; none where one process runs everything."""
        return list(self._known.values())

    @property
    def workers_away(self) -> list[str]:
        """Learners whose host is down."""
        return [worker for host in self.known if not host.up for worker in host.learners]

    def update(self, name: str, where: str | None) -> None:
        """A host runs at this address, or is away (None)."""
        before = self._known.get(name)
        address = where if where is not None else before.address if before else ""
        learners = tuple(each for each, host in self._host_of.items() if host == name and each in self._learners)
        self._known[name] = Host(name, address, where is not None, learners)
        absence = next((each for each in self.absences if each.host == name and each.seconds is None), None)
        now = self._now() - self._began
        if where is None and absence is None:
            self.absences.append(Absence(name, now))
        elif where is not None and absence is not None:
            absence.seconds, absence.came_back = now - absence.at, True

    def computes_with(self, worker: str, info: HostInfo) -> None:
        """Store the `HostInfo` that a worker reports when it starts. Logs how it differs from the previous session, or
        from the time before the host restarted."""
        host, now = self._host_of.get(worker), asdict(info)
        if host is None or self.info.get(host) == now:  # None: the observer was not given the program's hosts
            return
        before = self.info.get(host, self._before.get(host, {}))
        self.info[host] = now
        self._log(f"{host} computes with {', '.join(f'{name} {value}' for name, value in now.items())}")
        if changed := differences(before, now):
            self._log(f"{host} differs from the run before: {changed}")
        if self._file is not None:
            write_json(self._file, self._before | self.info)

    def close(self) -> None:
        """The session has ended: so have the absences."""
        for each in self.absences:
            each.seconds = self._now() - self._began - each.at if each.seconds is None else each.seconds

    def to_list(self) -> list[dict[str, Any]]:
        """The absences, as `result.json` has them."""
        return [
            {
                "host": each.host,
                "at_seconds": round(each.at, 1),
                "away_seconds": None if each.seconds is None else round(each.seconds, 1),
                "came_back": each.came_back,
            }
            for each in self.absences
        ]


def _read(file: Path) -> dict[str, Any]:
    """The content of `hosts.json`: host -> fields. Raises `UserError` if it is damaged."""
    why = "no object of objects"
    try:
        found = json.loads(file.read_text())
        if isinstance(found, dict) and all(isinstance(info, dict) for info in found.values()):
            return found
    except ValueError as error:
        why = str(error)
    raise UserError(f"{file}: truncated or altered ({why}); restore or remove it")
