"""Messages between the driver and the hosts of a program on Ray: outcomes of calls, and messages of workers.

A worker's report or state is pickled in the worker's thread and cut into pieces. The driver polls each host for new
messages. A poll returns a bounded number of bytes, so that it completes within its timeout on a slow network too."""

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
from gossamer.runtime import Answer, Silent

POLL_WAIT = 0.2  # seconds that a poll of a host waits for new messages
POLL_WAIT_IDLE = 0.02  # the same while a worker waits for the driver's answer
CAPACITY = 10_000  # number of unconfirmed messages on a host above which its workers block
PIECE_BYTES = 1 << 16  # longer messages are cut into pieces of this size
POLL_BYTES = 1 << 22  # the most that a poll of a host returns
OVERHEAD_BYTES = 200  # of a message in addition to its content, estimated

UNAVAILABLE = (  # the peer does not answer now, or never will; any other error of Ray is a bug in this package
    faults.RayActorError,
    faults.GetTimeoutError,
    faults.TaskCancelledError,
    faults.ObjectLostError,
    faults.NodeDiedError,
    faults.WorkerCrashedError,
    faults.LocalRayletDiedError,
    faults.RpcError,
)


class RemoteTraceback(Exception):
    """The traceback of an error in another process, as text. It becomes the `__cause__` of that error here."""

    def __str__(self) -> str:
        return f"\n\n{self.args[0]}"


@dataclass(frozen=True)
class CallOutcome:
    """The result of a call in another process: a value or an error."""

    value: Any = None
    error: BaseException | None = None
    trace: str = ""

    @staticmethod
    def of(call: Callable[[], Any]) -> CallOutcome:
        try:
            return CallOutcome(call())
        except BaseException as error:  # raised again in the caller
            return CallOutcome.failed(error)

    @staticmethod
    def failed(error: BaseException) -> CallOutcome:
        """The error. If it cannot be pickled, a RuntimeError with its type and message."""
        trace = "".join(traceback.format_exception(error))
        try:
            cloudpickle.loads(cloudpickle.dumps(error))  # type: ignore[no-untyped-call]
        except Exception:
            error = RuntimeError(f"{type(error).__name__}: {error}")
        return CallOutcome(None, error, trace)

    def get(self) -> Any:
        if self.error is None:
            return self.value
        raise self.raisable(self.error)

    def raisable(self, error: BaseException) -> BaseException:
        """The error, with its remote traceback as its cause."""
        error.__cause__ = RemoteTraceback(self.trace)
        return error


@dataclass(frozen=True)
class WorkerMessage:
    """A worker's report or state, or the notice that it has ended; or one piece of a longer message."""

    kind: Literal["report", "save", "end"]
    worker: str
    content: bytes = b""  # a pickle, or a piece of one
    more: bool = False  # whether the next message continues this one


@dataclass(frozen=True)
class HostState:
    """What the driver gets when it polls a host."""

    process: str  # a different id after every restart
    working: bool = False  # whether its workers have been started
    first: int = 0  # the number of the first of `messages`
    messages: tuple[WorkerMessage, ...] = ()  # the oldest that the driver does not have
    stopped: bool = False  # whether a worker there has stopped the program, or failed
    failures: tuple[tuple[str, CallOutcome], ...] = ()  # (where, error) that the driver does not have
    demands: dict[str, Demand] = field(default_factory=dict)  # by worker
    address: str = ""  # of its machine
    settled: tuple[str, ...] = ()  # services that have completed `Stage.SETTLE`


class HostObserver(Silent):
    """A host's observer: it stores the messages of workers until the driver confirms their receipt."""

    def __init__(self, states: dict[str, Any]) -> None:
        self._states = states
        self._changed = threading.Condition()
        self._messages = deque[WorkerMessage]()
        self._first = 0  # the number of `_messages[0]`
        self._leases: dict[str, Leases] = {}
        self._unblocked = False

    def restored(self, name: str) -> Any | None:
        return self._states.get(name)

    def report(self, worker: str, record: Any) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._unblocked or len(self._messages) < CAPACITY)
        self._send("report", worker, record)

    def claim(self, worker: str, steps: int, *, idle: bool = True) -> int | Answer:
        with self._changed:
            leases = self._leases.setdefault(worker, Leases())
            before = leases.idle
            answer = leases.claim(steps)
            if leases.idle and not before:
                self._changed.notify_all()  # end a pending poll: the worker waits for the driver
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

    def _put(self, messages: list[WorkerMessage]) -> None:
        with self._changed:
            self._messages += messages
            self._changed.notify_all()

    def unblock(self) -> None:
        """From now on no report blocks, because the program is being stopped."""
        with self._changed:
            self._unblocked = True
            self._changed.notify_all()

    def saving(self, name: str) -> bool:
        """Whether the driver has not confirmed a state of this service yet."""
        with self._changed:
            return any(message.kind == "save" and message.worker == name for message in self._messages)

    def grant(self, grants: Mapping[str, Grant], seen: int) -> None:
        """Apply the driver's answers. The driver has the messages numbered below `seen`, so it may request a state that
        a worker has saved meanwhile; such requests are dropped."""
        with self._changed:
            later = [message for number, message in enumerate(self._messages, self._first) if number >= seen]
            saved = {message.worker for message in later if message.kind == "save"}
            for worker, grant in grants.items():
                if worker in self._leases:
                    stale = grant.answer is Answer.SAVE and worker in saved
                    self._leases[worker].take(replace(grant, answer=None) if stale else grant)

    def demands(self) -> dict[str, Demand]:
        """The lease demands of all workers that have claimed."""
        with self._changed:
            return {worker: leases.demand() for worker, leases in self._leases.items()}

    def fetch(self, seen: int, max_bytes: int = POLL_BYTES) -> tuple[int, tuple[WorkerMessage, ...]]:
        """Confirm the messages numbered below `seen` and return the oldest of the others, with the first one's number.

        Waits up to `POLL_WAIT` for messages. Returns at most `max_bytes` bytes, but at least one message if any."""
        with self._changed:
            while self._messages and self._first < seen:
                self._messages.popleft()
                self._first += 1
            self._changed.notify_all()  # a blocked report may continue
            idle = self._idle()
            self._changed.wait_for(
                lambda: self._messages or self._idle() > idle, timeout=POLL_WAIT_IDLE if idle else POLL_WAIT
            )
            sizes = accumulate(len(message.content) + OVERHEAD_BYTES for message in self._messages)
            fitting = sum(1 for _ in takewhile(lambda size: size <= max_bytes, sizes))
            return self._first, tuple(islice(self._messages, max(1, fitting)))

    def _idle(self) -> int:
        """The number of workers that wait for the driver's answer."""
        return sum(leases.idle for leases in self._leases.values())


class Pieces:
    """Reassembles the messages of one host."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []

    def add(self, message: WorkerMessage) -> bool:
        """Add the next piece. Returns whether the message is complete."""
        self._pieces.append(message.content)
        return not message.more

    def take(self) -> Any:
        """Return the content of the complete message and start a new one."""
        pickled, self._pieces = b"".join(self._pieces), []
        return cloudpickle.loads(pickled)
