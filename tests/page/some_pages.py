"""Run directories without a training, and a server of their page."""

from __future__ import annotations

import csv
import http.client
import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from gossamer.page.server import PageServer, bind
from gossamer.training.recorder import COLUMNS

CONFIG: dict[str, Any] = {
    "format": 2,
    "gossamer": "0.1.0",
    "preset": "tuned",
    "run": {"steps": 1000, "seed": 3},
    "env": {"name": "catch"},
    "architecture": {"name": "gala", "learners": 2},
    "algorithm": {"name": "a2c", "gamma": 0.98},
}


def row(steps: int, **more: Any) -> dict[str, Any]:
    """A line of `metrics.jsonl`: 10 steps a second."""
    counts = {"steps": steps, "frames": 4 * steps, "learned": steps, "reused": 0, "updates": steps // 5}
    rest = {"seconds": steps / 10, "steps_per_second": 10.0, "episodes": steps // 9, "mean_return": steps / 1000}
    return {**counts, **rest, "entropy": 1.0, "time/env": 0.25, "time/other": 0.75, **more}


def write_run(directory: Path, rows: int = 3, *, result: bool = False, **status: Any) -> Path:
    """A run with a row each 10 steps; `status` is the content of `status.json`."""
    directory.mkdir(parents=True)
    (directory / "config.json").write_text(json.dumps(CONFIG))
    (directory / "run.log").write_text("2026-01-02 03:04:05 started at step 0\n")
    with open(directory / "episodes.csv", "w") as file:
        csv.writer(file, lineterminator="\n").writerow(COLUMNS)
    add_rows(directory, 10, 10 * rows)
    if status:
        write_status(directory, **status)
    if result:
        ended = {"ended": "all steps done", "steps": 10 * rows, "short": 0, "mean_return": 0.5}
        (directory / "result.json").write_text(json.dumps(ended))
    return directory


def add_rows(directory: Path, first: int, last: int, *, games: Sequence[str] = ("catch",), **more: Any) -> None:
    """Append rows, each with an episode of each of the games."""
    with open(directory / "metrics.jsonl", "a") as rows, open(directory / "episodes.csv", "a") as episodes:
        for steps in range(first, last + 1, 10):
            rows.write(json.dumps(row(steps, **more)) + "\n")
            for place, game in enumerate(games):
                episodes.write(f"{steps},{steps / 10},act_and_learn[0],{game},0,{(place + 1) * steps / 100},9\n")


def write_status(directory: Path, **status: Any) -> None:
    """Replace `status.json`, as a training does."""
    (directory / ".status.part.json").write_text(json.dumps(status))
    (directory / ".status.part.json").replace(directory / "status.json")


@contextmanager
def served(folder: Path, host: str = "127.0.0.1", server: PageServer | None = None) -> Iterator[PageServer]:
    """A server of the page of a folder, in a thread of this process, at a port that is free."""
    server = server or PageServer(folder, host, 0)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def ask(server: PageServer, path: str, method: str = "GET", **headers: str) -> tuple[int, dict[str, str], bytes]:
    """One request: status, headers, body. `Host` is as a browser sends it unless it is given."""
    connection = http.client.HTTPConnection("127.0.0.1", server.access.port, timeout=20)
    try:
        connection.request(method, path, headers={name.replace("_", "-"): value for name, value in headers.items()})
        answer = connection.getresponse()
        return answer.status, dict(answer.headers), answer.read()
    finally:
        connection.close()


class Listener:
    """What a browser does with `/events`: reads one event after the other."""

    def __init__(self, server: PageServer, query: str = "", **headers: str) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", server.access.port, timeout=30)
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        self._connection.request("GET", f"/events?{query}", headers=named)
        self._answer = self._connection.getresponse()
        self.status, self.id = self._answer.status, ""

    def next(self, *names: str) -> tuple[str, Any]:
        """The next event of one of these names, and its data."""
        while True:
            name, data = self._read()
            if name in names:
                return name, json.loads(data)

    def _read(self) -> tuple[str, str]:
        fields = dict[str, str]()
        while line := self._answer.readline().decode():
            if line == "\n":
                self.id = fields.get("id", self.id)
                return fields.get("event", ""), fields.get("data", "")
            name, _, value = line.rstrip("\n").partition(": ")
            fields[name] = value
        raise AssertionError("the server has closed the connection")

    def close(self) -> None:
        self._connection.close()


__all__ = ["CONFIG", "Listener", "add_rows", "ask", "bind", "row", "served", "write_run", "write_status"]
