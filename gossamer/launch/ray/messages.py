"""What crosses between the driver and the hosts of a program on Ray: outcomes of calls, and messages of workers.

A worker's report or state is pickled in the worker's thread and cut into pieces. The driver fetches what is new from a
host in looks of a bounded number of bytes, so a look can be small enough to cross any network in time."""

from __future__ import annotations

import threading
import traceback
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from itertools import accumulate, islice, takewhile
from typing import Any, Literal

from ray import cloudpickle
from ray import exceptions as faults

from gossamer.launch.ray.leases import Demand, Grant, Leases
from gossamer.program import Answer, Silent

PATIENCE = 0.2  # seconds that a look at a host waits for news
PATIENCE_IDLE = 0.02  # where a worker waits for the driver's answer
CAPACITY = 10_000  # messages that a host keeps for the driver before its workers have to wait
PIECE_BYTES = 1 << 16  # of a message; longer ones are cut
LOOK_BYTES = 1 << 22  # that a look at a host may return
OVERHEAD_BYTES = 200  # of a message beside its content, about

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
    """A report or a state of a worker, or that it has ended; or a piece of that."""

    kind: Literal["report", "save", "end"]
    worker: str
    content: bytes = b""  # of a pickle
    more: bool = False  # whether the next message is the rest of this one


@dataclass(frozen=True)
class HostState:
    """What the driver gets when it polls a host."""

    process: str  # differs after every start
    working: bool = False  # whether its workers have been started
    first: int = 0  # the number of the first of `news`
    news: tuple[WorkerMessage, ...] = ()  # the oldest that the driver does not have, as many as it asked for
    stopped: bool = False  # whether a worker there has stopped the program, or failed
    failures: tuple[tuple[str, Outcome], ...] = ()  # that the driver does not know yet
    demands: dict[str, Demand] = field(default_factory=dict)  # by worker
    address: str = ""  # of its machine
    settled: tuple[str, ...] = ()  # services that have done what `Stage.SETTLE` asks for


class HostObserver(Silent):
    """A host's observer: it keeps what workers say until the driver confirms that it has it."""

    def __init__(self, states: dict[str, Any]) -> None:
        self._states = states
        self._changed = threading.Condition()
        self._news = deque[WorkerMessage]()
        self._first = 0  # the number of `_news[0]`
        self._leases: dict[str, Leases] = {}
        self._free = False

    def restored(self, name: str) -> Any | None:
        return self._states.get(name)

    def report(self, worker: str, record: Any) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._free or len(self._news) < CAPACITY)
        self._send("report", worker, record)

    def claim(self, worker: str, steps: int, *, idle: bool = True) -> int | Answer:
        with self._changed:
            leases = self._leases.setdefault(worker, Leases())
            before = leases.idle
            answer = leases.claim(steps)
            if leases.idle and not before:
                self._changed.notify_all()  # the driver is to know at once
            return answer

    def save(self, name: str, state: Any) -> None:
        with self._changed:
            if name in self._leases:
                self._leases[name].saved()
        self._send("save", name, state)

    def ended(self, worker: str) -> None:
        with self._changed:
            self._leases.pop(worker, None)
        self._put([WorkerMessage("end", worker)])

    def _send(self, kind: Literal["report", "save"], worker: str, content: Any) -> None:
        pickled: bytes = cloudpickle.dumps(content)  # type: ignore[no-untyped-call]
        cuts = range(0, len(pickled), PIECE_BYTES)
        pieces = [pickled[cut : cut + PIECE_BYTES] for cut in cuts]
        self._put(
            [WorkerMessage(kind, worker, piece, more=cut < cuts[-1]) for cut, piece in zip(cuts, pieces, strict=True)]
        )

    def _put(self, news: list[WorkerMessage]) -> None:
        with self._changed:
            self._news += news
            self._changed.notify_all()

    def free(self) -> None:
        """Block no worker any more: the program is being stopped."""
        with self._changed:
            self._free = True
            self._changed.notify_all()

    def saving(self, name: str) -> bool:
        """Whether a state of this service is on its way to the driver."""
        with self._changed:
            return any(message.kind == "save" and message.worker == name for message in self._news)

    def grant(self, grants: Mapping[str, Grant], seen: int) -> None:
        """Take the answers of a driver that has the messages before number `seen`. It may not know yet that a worker
        has saved what it asks for."""
        with self._changed:
            later = [news for number, news in enumerate(self._news, self._first) if number >= seen]
            saved = {news.worker for news in later if news.kind == "save"}
            for worker, grant in grants.items():
                if worker in self._leases:
                    stale = grant.answer is Answer.SAVE and worker in saved
                    self._leases[worker].take(replace(grant, answer=None) if stale else grant)

    def demands(self) -> dict[str, Demand]:
        """What workers want, since this was last asked."""
        with self._changed:
            return {worker: leases.demand() for worker, leases in self._leases.items()}

    def take(self, seen: int, most: int = LOOK_BYTES) -> tuple[int, tuple[WorkerMessage, ...]]:
        """Messages numbered `seen` or later, once there are some or after a while, the oldest ones of at most `most`
        bytes together, at least one; and the number of the first."""
        with self._changed:
            while self._news and self._first < seen:
                self._news.popleft()
                self._first += 1
            self._changed.notify_all()  # there is room for more
            idle = self._idle()
            self._changed.wait_for(
                lambda: self._news or self._idle() > idle, timeout=PATIENCE_IDLE if idle else PATIENCE
            )
            sizes = accumulate(len(news.content) + OVERHEAD_BYTES for news in self._news)
            fitting = sum(1 for _ in takewhile(lambda size: size <= most, sizes))
            return self._first, tuple(islice(self._news, max(1, fitting)))

    def _idle(self) -> int:
        """Workers that wait for the driver's answer."""
        return sum(leases.idle for leases in self._leases.values())


class Pieces:
    """Puts the messages of one host together again."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []

    def add(self, news: WorkerMessage) -> bool:
        """Take the next piece; whether the message is complete."""
        self._pieces.append(news.content)
        return not news.more

    def take(self) -> Any:
        """The content of the message that is complete."""
        pickled, self._pieces = b"".join(self._pieces), []
        return cloudpickle.loads(pickled)
