"""The interface between a running program and its launcher: what services and workers may use, and the observer.

A service is a monitor: it executes one call at a time, and a method that may have to wait is marked with `@waits`. A
worker gets a `Context`. The observer receives what workers report and decides when checkpoints are saved.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from enum import Enum
from functools import partial, wraps
from inspect import isgeneratorfunction
from typing import Any, ParamSpec, Protocol, TypeAlias, TypeVar, cast

P = ParamSpec("P")
R = TypeVar("R")
Wait: TypeAlias = Generator[None, None, R]  # the return type under @waits: the generator yields None and returns R


class Stopped(RuntimeError):
    """Raised in a worker that would wait in a service although the program is being stopped."""


class WouldBlock(RuntimeError):
    """A @waits method would have to wait where waiting is impossible: outside a program, or called by a service."""


class Unreachable(ConnectionError):
    """The host of a service does not answer: it crashed, or the network is cut. The call may have been executed."""


def waits(method: Callable[P, Wait[R]]) -> Callable[P, R]:
    """Mark a service method that may have to wait. It is a generator, and a bare `yield` means "not ready yet".

    Waiting calls are re-checked after each call that returns or blocks. Change the service's state before the first
    `yield` or just before returning: a change between two yields is noticed late. The generator may be resumed in
    another thread, so a `with` that is bound to a thread (`torch.no_grad()`, a lock) must not enclose a `yield`.
    Raises TypeError if the method is not a generator function.
    """
    if not isgeneratorfunction(method):
        raise TypeError(f"@waits {method.__qualname__}: not a generator; `yield` to wait, or remove @waits")

    @wraps(method)
    def at_once(*args: P.args, **kwargs: P.kwargs) -> R:
        steps = method(*args, **kwargs)
        try:
            next(steps)
        except StopIteration as end:
            return cast(R, end.value)
        raise WouldBlock(f"{method.__qualname__} would wait forever: it was called outside a running program")

    at_once.waits = method  # type: ignore[attr-defined]  # launchers drive the generator itself
    return at_once


class Method:
    """A method of a service that runs: calling it blocks until there is an answer."""

    __slots__ = ("_call", "start")

    def __init__(self, call: Callable[..., Any], start: Callable[..., Callable[[], Any]]) -> None:
        """`start`: send a call without waiting for the answer, which the result returns when it is called."""
        self._call, self.start = call, start

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._call(*args, **kwargs)


def together(calls: Sequence[partial[R]]) -> list[R | Unreachable]:
    """Make calls to services on different hosts at the same time, `together([partial(shard.pull, rank), ...])`: all are
    sent before the first answer is awaited, so that they take one round trip. Services on the caller's host are called
    one after the other. Returns the answers in order, and for a host that does not answer the error."""
    started = [_unless_away(partial(_start, call)) for call in calls]
    return [each if isinstance(each, Unreachable) else _unless_away(each) for each in started]


def _start(call: partial[R]) -> Callable[[], R]:
    """Start a call. Without a launcher it is made at once."""
    if isinstance(call.func, Method):
        return call.func.start(*call.args, **call.keywords)
    answer = call()
    return lambda: answer


def _unless_away(call: Callable[[], R]) -> R | Unreachable:
    try:
        return call()
    except Unreachable as error:
        return error


class Answer(Enum):
    """The observer's answer to a claim that it does not grant now."""

    WAIT = "wait"  # claim again: a checkpoint is being prepared
    SAVE = "save"  # save the worker's state, then claim again
    GO = "go"  # claim again: a checkpoint has ended; sent to one worker while all others are still idle
    END = "end"  # the budget is spent, or the run should end


class Stage(Enum):
    """What a checkpoint needs from a saved service now. Workers are paused meanwhile."""

    SETTLE = "settle"  # confirm that no message between services is in transit
    SAVE = "save"  # return the state


class Saved(Protocol):
    """A service whose state is part of a checkpoint. Workers that claim steps are idle during these calls."""

    def settled(self) -> bool:
        """Whether no message between this service and others is in transit."""

    def state_dict(self) -> Any:
        """The state: nested dicts and lists of arrays, tensors, numbers and strings."""

    def load_state_dict(self, state: Any) -> None:
        """Restore a state. Called before any other method, when a run is resumed, and where `Program.service` asks for
        it after a failure of the host."""


class Context(Protocol):
    """A running worker's rank in the program and its connection to the observer."""

    @property
    def name(self) -> str: ...  # unique, and the same in every run: `learn`, or `act[3]` if it has several copies
    @property
    def rank(self) -> int: ...  # 0 .. copies - 1 among the copies of this worker on all hosts
    @property
    def copies(self) -> int: ...  # number of copies of this worker on all hosts
    @property
    def restarts(self) -> int: ...  # how often its host has been restarted after a failure; initially 0
    @property
    def ended_before(self) -> frozenset[str]: ...  # after a restart of its host: workers known to have ended by now
    @property
    def stopped(self) -> bool: ...  # whether to end: a worker or the observer has stopped the program
    def stop(self) -> None: ...  # ask every worker to end; a worker that waits in a service gets `Stopped`
    def now(self) -> float: ...  # seconds on a monotonic clock; virtual time in a simulation
    def sleep(self, seconds: float) -> None: ...  # returns early if the program is stopped
    def restored(self) -> Any | None: ...  # the state to continue from, None in a new run
    def report(self, record: Any) -> None: ...  # send a record to the observer
    def save(self, state: Any) -> None: ...  # send a state outside of checkpoints; it must not be modified afterwards
    def claim(self, steps: int, state: Callable[[], Any] = lambda: None) -> int | None:
        """Lease `steps` environment steps of the run's budget before taking them.

        Returns the lease's global position: the number of steps leased before it. Returns None when the budget is
        spent or the program is stopped. Blocks during a checkpoint and calls `state` for it; the returned state must
        not be modified afterwards. If the worker dies, its leased but unreported steps return to the budget.
        """


GONE = 300.0  # seconds of silence after which a host or a worker elsewhere counts as lost
RETRY = 0.5  # seconds between two attempts to reach a host
STEP = 2.0  # seconds that `Uptime` grows at a time, at most


class Uptime:
    """The seconds that a service has run. A worker tells it the time every second. A longer gap counts as `STEP`: the
    process was paused, and no call could arrive."""

    def __init__(self) -> None:
        self.now = 0.0  # seconds since the first tick
        self._last: float | None = None  # seconds, of the last tick

    def tick(self, now: float) -> float:
        """It is this time (seconds). Returns `now`."""
        if self._last is not None:
            self.now += min(now - self._last, STEP)
        self._last = now
        return self.now


class Reaching:
    """Makes calls to another host, each again until it answers. A call may be executed twice."""

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx
        self._failed: float | None = None  # seconds, of the first attempt that failed since the last answer

    def __call__(self, call: Callable[[], R]) -> R:
        """Raises `Stopped` if the host has not answered for `GONE` seconds, those of earlier calls included, or if the
        program is stopped meanwhile."""
        while True:
            try:
                answer = call()
            except Unreachable:
                now = self._ctx.now()
                self._failed = now if self._failed is None else self._failed
                if self._ctx.stopped or now - self._failed > GONE:
                    raise Stopped("while another host did not answer") from None
                self._ctx.sleep(RETRY)
            else:
                self._failed = None
                return answer


PAUSE = 5.0  # seconds until a service that does not answer is called again, where others can do without it


class Calling:
    """Makes calls to several services at the same time. One that does not answer is left alone for `PAUSE` seconds,
    because such a call may take long."""

    def __init__(self, ctx: Context, services: int) -> None:
        self._ctx = ctx
        self._again = [0.0] * services  # seconds: when a service that did not answer is called again

    def __call__(self, calls: Mapping[int, partial[R]]) -> dict[int, R]:
        """Returns the answers of the services, by number, that are called and answer."""
        due = {service: call for service, call in calls.items() if self._ctx.now() >= self._again[service]}
        made, answers = together(list(due.values())), dict[int, R]()
        for service, answer in zip(due, made, strict=True):
            if isinstance(answer, Unreachable):
                self._again[service] = self._ctx.now() + PAUSE
            else:
                answers[service] = answer
        return answers


def ended_copies(ctx: Context) -> set[int]:
    """Ranks of the copies of this worker that had ended when its host was restarted last."""
    worker = ctx.name.partition("[")[0]
    return {rank for rank in range(ctx.copies) if f"{worker}[{rank}]" in ctx.ended_before}


class Observer(Protocol):
    """Receives the reports and states of a running program. Must be thread-safe; `worker` is a `Context.name`."""

    def restored(self, name: str) -> Any | None: ...  # the state from which a worker or saved service continues
    def report(self, worker: str, record: Any) -> None: ...  # receive a worker's record
    def claim(self, worker: str, steps: int, *, idle: bool = True) -> int | Answer:
        """Lease steps of the budget. Returns the lease's position, or why it is refused. Never blocks.
        `idle`: whether the worker waits for the answer. A launcher may prefetch leases for a worker that still acts;
        such a claim gets only WAIT or END if it is refused."""

    def due(self, service: str) -> Stage | None: ...  # what a checkpoint needs from this saved service now
    def settled(self, service: str) -> None: ...  # the service has completed `Stage.SETTLE`
    def save(self, name: str, state: Any) -> None: ...  # store the state of a worker or service
    def away(self, name: str) -> None: ...  # the host of a worker or service is unreachable: do not wait for it
    def died(self, worker: str) -> None: ...  # its process has died: unreported records are lost
    def ended(self, worker: str) -> None: ...  # the worker has finished
    def host(self, name: str, where: str | None) -> None: ...  # the host's address; None: it is unreachable
    def stopping(self) -> bool: ...  # whether the program should end; never goes back to False


class Silent:
    """An observer that stores nothing and grants every claim."""

    def restored(self, name: str) -> Any | None:
        return None

    def report(self, worker: str, record: Any) -> None: ...
    def claim(self, worker: str, steps: int, *, idle: bool = True) -> int | Answer:
        return 0

    def due(self, service: str) -> Stage | None:
        return None

    def settled(self, service: str) -> None: ...
    def save(self, name: str, state: Any) -> None: ...
    def away(self, name: str) -> None: ...
    def died(self, worker: str) -> None: ...
    def ended(self, worker: str) -> None: ...
    def host(self, name: str, where: str | None) -> None: ...
    def stopping(self) -> bool:
        return False


SILENT = Silent()
