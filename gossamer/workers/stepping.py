"""When an actor's environments step: while it waits for them, or in a thread of their own while it does other work."""

from __future__ import annotations

from queue import SimpleQueue
from threading import Thread
from typing import Protocol

from gossamer.data import Array, Step
from gossamer.envs.base import VectorEnv


class Stepping(Protocol):
    """Steps environments: each `send` is followed by one `receive`."""

    def send(self, action: Array) -> None:
        """Take action [B, *A] in each environment."""

    def receive(self) -> Step:
        """Wait for the result. Raises the error of the environments."""

    def close(self) -> None:
        """Wait until the environments are at rest."""


class InTurn:
    """Steps environments in `receive`."""

    def __init__(self, env: VectorEnv) -> None:
        self._env = env
        self._action: Array | None = None

    def send(self, action: Array) -> None:
        self._action = action

    def receive(self) -> Step:
        assert self._action is not None, "send() must precede receive()"
        return self._env.step(self._action)

    def close(self) -> None: ...


class Ahead:
    """Steps environments in a thread of their own, from `send` on. This saves time as far as they step without Python's
    lock: in native threads or other processes."""

    def __init__(self, env: VectorEnv) -> None:
        self._env = env
        self._actions = SimpleQueue[Array | None]()  # None: end
        self._results = SimpleQueue[Step | BaseException]()
        self._thread = Thread(target=self._run, name="environments", daemon=True)  # Python ends although one hangs

    def send(self, action: Array) -> None:
        if self._thread.ident is None:
            self._thread.start()
        self._actions.put(action)

    def receive(self) -> Step:
        result = self._results.get()
        if isinstance(result, BaseException):
            raise result
        return result

    def close(self) -> None:
        if self._thread.ident is not None:
            self._actions.put(None)
            self._thread.join()

    def _run(self) -> None:
        while (action := self._actions.get()) is not None:
            try:
                self._results.put(self._env.step(action))
            except BaseException as error:  # raised again by `receive`
                self._results.put(error)
