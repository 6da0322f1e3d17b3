"""Server-sent events: what one browser is told, from its first look on.

retry: 1000           the browser connects again after a second
event: runs           {"reset", "changed": [summaries], "gone": [keys]}
event: run            what is new of one run that it shows (`RunView.update`); `id` is what it has been told so far
event: searches       the searches in the folder, by their path (`Folder.searches`)
event: play           one moment of the agent that plays (`playing`)
event: end            the server ends: the training it belongs to has
"""

from __future__ import annotations

import json
from collections.abc import Generator, Iterator
from contextlib import ExitStack
from typing import Any

from gossamer.page.folder import Folder
from gossamer.page.player import Player, Players
from gossamer.page.run import Cursor
from gossamer.storage.files import to_json

QUIET_SECONDS = 10.0  # after which a comment is sent, to notice that a browser has gone


def _json(content: Any) -> str:
    try:
        return json.dumps(content, allow_nan=False, separators=(",", ":"))
    except ValueError:  # a file of 0.1.0 may hold NaN: the slower way
        return to_json(content)


def event(name: str, data: str, id: str | None = None) -> bytes:
    """One event as it is sent. `data` must be one line."""
    which = "" if id is None else f"id: {id}\n"
    return f"event: {name}\n{which}data: {data}\n\n".encode()


class Stream:
    """The events of one browser that shows the runs `keys` and the agent of run `play`."""

    def __init__(self, folder: Folder, players: Players, keys: tuple[str, ...], play: str | None, last: str) -> None:
        """`last`: the id of the last event that the browser got before it lost its connection; may be empty."""
        self._folder, self._players, self._keys, self._play = folder, players, keys, play
        self._cursors = self._parse(last)
        self._told: dict[str, int] = {}  # run -> version of its summary that was sent
        self._first, self._moment, self._searches = True, 0, 0

    def _parse(self, last: str) -> dict[str, Cursor]:
        token, *words = last.split("_")
        known = token == self._folder.token and len(words) == len(self._keys)
        return {key: Cursor.parse(words[i]) if known else Cursor() for i, key in enumerate(self._keys)}

    @property
    def _id(self) -> str:
        return "_".join([self._folder.token, *(str(self._cursors[key]) for key in self._keys)])

    def events(self) -> Generator[bytes, None, None]:
        """All events until the server ends. Close it when the browser has gone."""
        folder = self._folder
        with ExitStack() as stack:
            stack.enter_context(folder.watched(self._keys))
            player = self._player(stack)
            yield b"retry: 1000\n\n"
            while True:
                with folder.changed:
                    news = self._collect(player)
                    if not news and not folder.closed:
                        folder.changed.wait_for(lambda: folder.closed or self._news(player), timeout=QUIET_SECONDS)
                        news = self._collect(player)
                    closed = folder.closed
                yield b"".join(event(name, _json(data), id) for name, data, id in news) or b": nothing new\n\n"
                if closed:
                    yield event("end", "{}")
                    return

    def _player(self, stack: ExitStack) -> Player | None:
        run = self._folder.runs.get(self._play or "")
        return None if run is None else stack.enter_context(self._players.watched(run.directory))

    def _news(self, player: Player | None) -> bool:
        """Return whether there may be new events. This check is cheap."""
        told = {key: run.version for key, run in self._folder.runs.items()}
        searched = self._folder.searches_version != self._searches
        return told != self._told or searched or (player is not None and player.moments != self._moment)

    def _collect(self, player: Player | None) -> list[tuple[str, Any, str | None]]:
        """Events with their data and ids. The caller locks."""
        events = [*self._summaries(), *self._updates()]
        if self._folder.searches_version != self._searches:
            self._searches = self._folder.searches_version
            events.append(("searches", self._folder.searches, None))
        if player is not None and player.moments != self._moment:
            self._moment = player.moments
            events.append(("play", {"key": self._play, **player.moment}, None))
        return events

    def _summaries(self) -> Iterator[tuple[str, Any, str | None]]:
        runs = self._folder.runs
        versions = {key: run.version for key, run in runs.items()}
        if versions == self._told and not self._first:
            return
        changed = [run.summary() for key, run in runs.items() if versions[key] != self._told.get(key)]
        gone = [key for key in self._told if key not in runs]
        yield "runs", {"reset": self._first, "changed": changed, "gone": gone}, None
        self._told, self._first = versions, False

    def _updates(self) -> Iterator[tuple[str, Any, str | None]]:
        for key in self._keys:
            if (run := self._folder.runs.get(key)) is not None:
                news, self._cursors[key] = run.update(self._cursors[key])
                if news is not None:
                    yield "run", news, self._id


def everything(folder: Folder) -> dict[str, Any]:
    """The events of a complete look at all runs, for a page that is saved."""
    folder.read_all()
    runs = folder.runs.values()
    updates = [run.update(Cursor())[0] for run in runs]
    summaries = [run.summary() for run in runs]
    return {"runs": {"reset": True, "changed": summaries, "gone": []}, "run": updates, "searches": folder.searches}
