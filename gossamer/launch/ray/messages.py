"""What crosses between the driver and the hosts of a program on Ray: outcomes of calls, and news of workers."""

from __future__ import annotations

import threading
import traceback
from collections import deque
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any, Literal

from ray import cloudpickle
from ray import exceptions as faults

PATIENCE = 0.2  # seconds that a look at a host waits for news
CAPACITY = 10_000  # reports that a host keeps for the driver before its workers have to wait

GONE = (  # the other side does not answer, for now or for ever; anything else that Ray raises is a mistake of ours
    faults.RayActorError,
    faults.GetTimeoutError,
    faults.TaskCancelledError,
    faults.ObjectLostError,
    faults.NodeDiedError,
    faults.WorkerCrashedError,
    faults.LocalRayletDiedError,
    faults.RpcError,
)


class Elsewhere(Exception):
    """The traceback of an error raised in another process, as text: the cause of the error that came from there."""

    def __str__(self) -> str:
        return f"\n\n{self.args[0]}"


@dataclass(frozen=True)
class Outcome:
    """What a call came to in another process: a value or an error."""

    value: Any = None
    error: BaseException | None = None
    trace: str = ""

    @staticmethod
    def of(call: Callable[[], Any]) -> Outcome:
        try:
            return Outcome(call())
        except BaseException as error:  # it is the caller's
            return Outcome.failed(error)

    @staticmethod
    def failed(error: BaseException) -> Outcome:
        """The error, or where it cannot be sent, a RuntimeError that says what it was."""
        trace = "".join(traceback.format_exception(error))
        try:
            cloudpickle.loads(cloudpickle.dumps(error))  # type: ignore[no-untyped-call]
        except Exception:
            error = RuntimeError(f"{type(error).__name__}: {error}")
        return Outcome(None, error, trace)

    def get(self) -> Any:
        if self.error is None:
            return self.value
        raise self.raisable(self.error)

    def raisable(self, error: BaseException) -> BaseException:
        """The error with the traceback it had there as its cause."""
        error.__cause__ = Elsewhere(self.trace)
        return error


@dataclass(frozen=True)
class WorkerMessage:
    """Something that a worker said, or that it has come to its end."""

    kind: Literal["report", "save", "end"]
    worker: str
    content: Any = None


@dataclass(frozen=True)
class HostState:
    """What the driver sees when it looks at a host."""

    process: str  # differs after every start
    working: bool = False  # whether its workers have been started
    first: int = 0  # the number of the first of `news`
    news: tuple[WorkerMessage, ...] = ()
    stopped: bool = False  # whether a worker there has stopped the program, or failed
    failures: tuple[tuple[str, Outcome], ...] = ()  # that the driver does not know yet


class HostObserver:
    """A host's observer: it keeps what workers say until the driver says that it has it, so that nothing is lost."""

    def __init__(self, states: dict[str, Any]) -> None:
        self._states = states
        self._changed = threading.Condition()
        self._news = deque[WorkerMessage]()
        self._first = 0  # the number of `_news[0]`
        self._due = frozenset[str]()
        self._free = False

    def restored(self, worker: str) -> Any | None:
        return self._states.get(worker)

    def report(self, worker: str, record: Any) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._free or len(self._news) < CAPACITY)
        self.put(WorkerMessage("report", worker, record))

    def due(self, worker: str) -> bool:
        return worker in self._due

    def save(self, worker: str, state: Any) -> None:
        with self._changed:
            self._due -= {worker}
        self.put(WorkerMessage("save", worker, state))

    def stopping(self) -> bool:
        return False  # the driver says so by stopping the crew

    def put(self, news: WorkerMessage) -> None:
        with self._changed:
            self._news.append(news)
            self._changed.notify_all()

    def free(self) -> None:
        """Keep no worker waiting any more: the program is being stopped."""
        with self._changed:
            self._free = True
            self._changed.notify_all()

    def take(self, seen: int, due: Collection[str]) -> tuple[int, tuple[WorkerMessage, ...]]:
        """What is numbered `seen` or later, once there is some, or after a while; and the number of the first.

        A state is due only where none is on its way: the driver asks until it has it."""
        with self._changed:
            while self._news and self._first < seen:
                self._news.popleft()
                self._first += 1
            self._due = frozenset(due) - {news.worker for news in self._news if news.kind == "save"}
            self._changed.notify_all()  # there is room for more
            self._changed.wait_for(lambda: len(self._news) > 0, timeout=PATIENCE)
            return self._first, tuple(self._news)
