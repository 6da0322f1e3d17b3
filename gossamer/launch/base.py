"""What launchers share: handles, worker contexts, and a crew of threads in which one failure ends all."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from functools import cache
from typing import Any

from gossamer.program import Copy, Node, Ref, bind
from gossamer.runtime import Answer, Method, Observer, Stage, Stopped, Wait

CLAIM_POLL = 0.01  # seconds between two claims of a worker that waits for a checkpoint
POLL = 0.1  # seconds between checks of conditions that wake no thread: a signal, an observer that asks to end

AT_ONCE_SECONDS = 1.0  # how long to wait for workers after a KeyboardInterrupt; one may hang in its environment

MethodCall = Callable[[str, tuple[Any, ...], dict[str, Any]], Any]  # (method, args, kwargs) -> answer
StartCall = Callable[[str, tuple[Any, ...], dict[str, Any]], Callable[[], Any]]  # -> waits for the answer


@cache
def methods(kind: Any) -> frozenset[str]:
    """The public methods of a service's type."""
    return frozenset(m for m in dir(kind) if not m.startswith("_") and callable(getattr(kind, m)))


class Handle:
    """A handle to a running service. Its public methods go through `call`; it has no other attributes."""

    def __init__(self, name: str, service: object, call: MethodCall, start: StartCall | None = None) -> None:
        """`start`: see `Method`; None: a call that is started is made at once."""
        self._name, self._call, self._start = name, call, start or self._at_once
        self._methods = methods(type(service))  # type: ignore[arg-type]  # mypy: type[object] is not Hashable

    def __getattr__(self, method: str) -> Method:
        # Without the first test, copy and pickle would recurse on an object that is not yet initialised.
        if method.startswith("_") or method not in self._methods:
            raise AttributeError(f"{method!r} is not a public method of the service; a handle has only those")
        return Method(
            lambda *args, **kwargs: self._call(method, args, kwargs),
            lambda *args, **kwargs: self._start(method, args, kwargs),
        )

    def _at_once(self, method: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Callable[[], Any]:
        answer = self._call(method, args, kwargs)
        return lambda: answer

    def __repr__(self) -> str:
        return f"<handle of {self._name}>"


def build(node: Node, handle: Callable[[Ref], Any], *before: Any) -> Any:
    """Call `node.make` with handles in place of refs; `before` are its first arguments (a worker's context)."""
    args, kwargs = bind((node.args, node.kwargs), handle)
    return node.make(*before, *args, **kwargs)


def begin(service: object, method: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Wait[Any]:
    """A method call as a generator: it yields while it has to wait, and returns the answer."""
    bound = getattr(service, method)
    generator = getattr(bound, "waits", None)  # set by @waits; any other method returns without waiting
    if generator is None:
        return bound(*args, **kwargs)
    return (yield from generator(service, *args, **kwargs))


def advance(call: Wait[Any]) -> tuple[bool, Any]:
    """Resume the call. Returns (True, its answer), or (False, None) if it still has to wait."""
    try:
        next(call)
    except StopIteration as end:
        return True, end.value
    return False, None


def claim(
    observer: Observer,
    worker: str,
    steps: int,
    state: Callable[[], Any],
    *,
    stopped: Callable[[], bool],
    pause: Callable[[], None],
    go: Callable[[], None] = lambda: None,
) -> int | None:
    """`Context.claim` for a worker in the observer's process. `pause` waits before the next attempt; `go` is called at
    the end of a checkpoint, while all workers are idle."""
    while not stopped():
        answer = observer.claim(worker, steps)
        if not isinstance(answer, Answer):
            return answer
        if answer is Answer.END:
            break
        if answer is Answer.SAVE:
            observer.save(worker, state())
        elif answer is Answer.GO:
            go()
        else:
            pause()
    return None


def restore(service: Any, state: Any | None) -> None:
    """Load a state into a saved service, unless the state is None."""
    if state is not None:
        service.load_state_dict(state)


def serve_checkpoint(observer: Observer, name: str, call: Callable[[str], Any]) -> None:
    """Do what a checkpoint needs from a saved service now, if anything. `call(method)` calls the service."""
    stage = observer.due(name)
    if stage is Stage.SETTLE and call("settled"):
        observer.settled(name)
    elif stage is Stage.SAVE:
        observer.save(name, call("state_dict"))


@dataclass(frozen=True)
class JoinableThread:
    """A thread and an event that is set when the thread ends.

    `Thread.join` is not used: in CPython up to 3.12, a signal handler that raises during a join marks the thread as
    ended although it still runs.
    """

    thread: threading.Thread
    ended: threading.Event

    @staticmethod
    def of(name: str, body: Callable[[], None]) -> JoinableThread:
        ended = threading.Event()

        def run() -> None:
            try:
                body()
            finally:
                ended.set()

        return JoinableThread(threading.Thread(target=run, name=name, daemon=True), ended)


class EndWithout(KeyboardInterrupt):
    """May be raised by an observer's `stopping`: the program ends without waiting for `workers`, because they hang."""

    def __init__(self, text: str, workers: Collection[str]) -> None:
        super().__init__(text)
        self.workers = frozenset(workers)


class Crew:
    """The workers of one running program, one thread each. The first failure stops all of them."""

    def __init__(self, observer: Observer, wake: Callable[[], None], serve: Callable[[], None] = lambda: None) -> None:
        """`wake` makes workers that wait in a service check `stopped` again. `serve` does what a checkpoint needs from
        the services; workers that wait for the checkpoint call it repeatedly."""
        self.observer = observer
        self.serve = serve
        self._wake = wake
        self._halted = threading.Event()
        self.failures: list[tuple[str, BaseException]] = []  # (where, error), in order of time

    @property
    def stopped(self) -> bool:
        return self._halted.is_set() or self.observer.stopping()

    def stop(self) -> None:
        self._halted.set()
        self._wake()

    def sleep(self, seconds: float) -> None:
        self._halted.wait(max(0.0, seconds))

    def fail(self, where: str, error: BaseException) -> None:
        self.failures.append((where, error))
        self.stop()

    def work(
        self,
        copy: Copy,
        handle: Callable[[Ref], Any],
        stopped: Callable[[], bool],
        *,
        restarts: int = 0,
        ended_before: Callable[[], frozenset[str]] = frozenset,
    ) -> None:
        """Run one worker to its end in the calling thread. `restarts`, `ended_before`: see `Context`."""
        try:
            again = (restarts, ended_before)
            build(copy.node, handle, WorkerContext(copy.name, copy.rank, copy.copies, self, stopped, *again))
        except Stopped:
            pass  # the worker was waiting when the program was stopped: a normal end
        except BaseException as error:  # stops all workers; `run` raises it again
            self.fail(f"worker {copy.name}", error)
        try:
            self.observer.ended(copy.name)
        except BaseException as error:  # it may write a checkpoint that waited for this worker
            self.fail(f"worker {copy.name}", error)

    def run(self, bodies: Iterable[tuple[str, Callable[[], None]]]) -> None:
        """Run each (name, body) in a thread and wait for all. Call it from the main thread, so signals are handled.

        Raises the first failure. Later failures are added to it as notes.
        """
        crew = [JoinableThread.of(name, body) for name, body in bodies]
        try:
            for member in crew:
                member.thread.start()
            for member in crew:
                while not member.ended.wait(timeout=POLL):
                    if self.observer.stopping():
                        self.stop()
        except BaseException as end:  # from a signal handler or the observer: workers should not outlive this call
            self.stop()
            hang = end.workers if isinstance(end, EndWithout) else ()
            started = [member for member in crew if member.thread.ident is not None]
            until = time.monotonic() + (AT_ONCE_SECONDS if isinstance(end, KeyboardInterrupt) else float("inf"))
            for member in started:
                if member.thread.name not in hang:
                    member.ended.wait(None if until == float("inf") else max(0.0, until - time.monotonic()))
            raise
        if self.failures:
            (where, first), *later = self.failures
            first.add_note(f"in {where}")
            for where, error in later:
                first.add_note(f"later in {where}: {error!r}")
            raise first


@dataclass(frozen=True)
class WorkerContext:
    """The `Context` of one worker."""

    name: str
    rank: int
    copies: int
    crew: Crew
    is_stopped: Callable[[], bool]
    restarts: int = 0
    ended: Callable[[], frozenset[str]] = frozenset

    @property
    def ended_before(self) -> frozenset[str]:
        return self.ended()

    @property
    def stopped(self) -> bool:
        return self.is_stopped()

    def stop(self) -> None:
        self.crew.stop()

    def now(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        self.crew.sleep(seconds)

    def restored(self) -> Any | None:
        return self.crew.observer.restored(self.name)

    def report(self, record: Any) -> None:
        self.crew.observer.report(self.name, record)

    def save(self, state: Any) -> None:
        self.crew.observer.save(self.name, state)

    def claim(self, steps: int, state: Callable[[], Any] = lambda: None) -> int | None:
        return claim(self.crew.observer, self.name, steps, state, stopped=self.is_stopped, pause=self._pause)

    def _pause(self) -> None:
        self.crew.serve()
        self.crew.sleep(CLAIM_POLL)
