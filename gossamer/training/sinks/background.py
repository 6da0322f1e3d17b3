"""Runs a sink on its own thread, so that a slow or failing tool neither delays nor ends training."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from queue import SimpleQueue

from gossamer.training.sinks.base import RunEnding, RunInfo, Scalars, Sink

CAPACITY = 10_000  # rows that may wait: more than five hours of them


class Background:
    """A sink whose calls return at once. All failures are counted; the first one is reported."""

    def __init__(
        self, sink: Sink, told: Callable[[str], None], remember: Callable[[str], None] = lambda key: None
    ) -> None:
        """`told` receives the first error message, `remember` the sink's key. Other threads may call both."""
        self.failures = 0
        self._sink, self._told, self._remember = sink, told, remember
        self._waiting = SimpleQueue[tuple[Scalars, int] | RunEnding]()
        self._dead = False

    def start(self, run: RunInfo, key: str | None) -> None:
        """Start the sink and its thread."""
        self._thread = threading.Thread(target=self._serve, args=(run, key), daemon=True)
        self._thread.start()

    def write(self, scalars: Scalars, steps: int) -> None:
        """Have these values added at this step; nothing is done for a sink that could not start."""
        if self._dead:
            return
        if self._waiting.qsize() >= CAPACITY:
            self._failed("is too slow: rows are left out")
        else:
            self._waiting.put((scalars, steps))

    def end(self, outcome: RunEnding) -> None:
        """Have the sink closed after the rows that wait."""
        self._waiting.put(outcome)

    def wait(self, seconds: float) -> None:
        """Wait until the sink is closed, for at most so many seconds."""
        self._thread.join(seconds)
        if self._thread.is_alive():
            self._failed("did not take all rows in time")

    def _serve(self, run: RunInfo, key: str | None) -> None:
        self._dead = not self._tried(partial(self._start, run, key))
        while not self._dead:
            match self._waiting.get():
                case (scalars, steps):
                    self._tried(partial(self._sink.write, scalars, steps))
                case outcome:
                    self._tried(partial(self._sink.close, outcome))
                    self._dead = True

    def _start(self, run: RunInfo, key: str | None) -> None:
        if (new_key := self._sink.start(run, key)) is not None:
            self._remember(new_key)

    def _tried(self, call: Callable[[], object]) -> bool:
        """Whether the call succeeded. Whatever a tool raises, training goes on."""
        try:
            call()
        except Exception as error:
            self._failed(str(error) or type(error).__name__)
            return False
        return True

    def _failed(self, why: str) -> None:
        self.failures += 1
        if self.failures == 1:
            self._told(" ".join(why.split())[:300])
