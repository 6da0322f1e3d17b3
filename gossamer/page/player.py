"""Processes that play with the newest checkpoint of a run while a browser shows it."""

from __future__ import annotations

import json
import os
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from gossamer.system.processes import module_path, python

LINGER_SECONDS = 4.0  # that a player goes on after the last watcher left: a browser that reconnects finds it running
STOP_SECONDS = 2.0  # that a process is given to end


class Player:
    """One process, and the newest line that it wrote. The caller of its methods holds `changed`."""

    def __init__(self, directory: Path, changed: threading.Condition) -> None:
        self.moments = 1  # counts
        self.moment: dict[str, Any] = {"note": "starting: loading the network and the environment"}
        self.watchers = 0
        self._changed = changed
        # A process of its own: training neither waits for it nor shares Python's lock with it. It ends when its
        # standard input does, also if this process is killed.
        self._process = subprocess.Popen(
            [*python("gossamer.page.playing"), os.fspath(directory.resolve())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, **module_path(), "OMP_NUM_THREADS": "1"},
            process_group=0,  # Ctrl-C is not for it; in a session of its own its priority would count for nothing
        )
        threading.Thread(target=self._read, name="page player", daemon=True).start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._tell(json.loads(line))
        code = self._process.wait()
        if "error" not in self.moment:
            self._tell({"error": f"the process that plays ended with exit code {code}"})

    def _tell(self, moment: dict[str, Any]) -> None:
        with self._changed:
            self.moment, self.moments = moment, self.moments + 1
            self._changed.notify_all()

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    def stop(self) -> None:
        """End the process."""
        self._process.terminate()
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()


class Players:
    """One player for each run that is watched, whatever the number of watchers."""

    def __init__(self, changed: threading.Condition) -> None:
        """`changed` is notified when a player has shown another moment."""
        self._changed = changed
        self._players: dict[Path, Player] = {}

    @contextmanager
    def watched(self, directory: Path) -> Iterator[Player]:
        """A player of this run, while this is entered and a little longer."""
        with self._changed:
            player = self._players.get(directory)
            if player is None or not player.running:
                player = self._players[directory] = Player(directory, self._changed)
            player.watchers += 1
        try:
            yield player
        finally:
            with self._changed:
                player.watchers -= 1
            later = threading.Timer(LINGER_SECONDS, self._stop_unwatched, (directory, player))
            later.daemon = True
            later.start()

    def _stop_unwatched(self, directory: Path, player: Player) -> None:
        with self._changed:
            if player.watchers:
                return
            if self._players.get(directory) is player:
                del self._players[directory]
        player.stop()

    def close(self) -> None:
        """End all of them."""
        with self._changed:
            players, self._players = list(self._players.values()), {}
        for player in players:
            player.stop()
