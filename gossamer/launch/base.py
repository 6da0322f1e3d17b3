"""What launchers share: handles, the context of a worker, and a crew of threads that ends as one."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from functools import cache
from typing import Any

from gossamer.program import Answer, Copy, Node, Observer, Ref, Stage, Stopped, Wait, bind

CLAIM_POLL = 0.01  # seconds between two claims of a worker that waits for a checkpoint
POLL = 0.1  # seconds between looks at what nobody announces: a signal, an observer that asks to end

AT_ONCE_SECONDS = 1.0  # that workers have to end after a KeyboardInterrupt; one may hang in its environment

MethodCall = Callable[[str, tuple[Any, ...], dict[str, Any]], Any]  # (method, args, kwargs) -> answer


@cache
def methods(kind: Any) -> frozenset[str]:
    """The public methods of a kind of service."""
    return frozenset(m for m in dir(kind) if not m.startswith("_") and callable(getattr(kind, m)))


class Handle:
    """Stands for a live service: its public methods, and nothing else, each going through `call`."""

    def __init__(self, name: str, service: object, call: MethodCall) -> None:
        self._name, self._call = name, call
        self._methods = methods(type(service))  # type: ignore[arg-type]  # mypy knows no hash of a type[object]

    def __getattr__(self, method: str) -> Callable[..., Any]:
        # The first test also keeps copy and pickle, which ask half-made objects, from asking without end.
        if method.startswith("_") or method not in self._methods:
            raise AttributeError(f"{method!r} is no public method of a service; a handle passes nothing else")
        return lambda *args, **kwargs: self._call(method, args, kwargs)

    def __repr__(self) -> str:
        return f"<handle of {self._name}>"


def build(node: Node, handle: Callable[[Ref], Any], *before: Any) -> Any:
    """MethodCall what the node makes, with live handles; `before` goes first (a worker's context)."""
    args, kwargs = bind((node.args, node.kwargs), handle)
    return node.make(*before, *args, **kwargs)


def begin(service: object, method: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Wait[Any]:
    """A call as launchers drive it: yields where it has to wait, returns its answer."""
    bound = getattr(service, method)
    generator = getattr(bound, "waits", None)  # what @waits marks; any other method answers at once
    if generator is None:
        return bound(*args, **kwargs)
    return (yield from generator(service, *args, **kwargs))


def advance(call: Wait[Any]) -> tuple[bool, Any]:
    """Let the call go on: (True, its answer), or (False, None) where it still has to wait."""
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
    """A worker's claim where it shares a process with the observer: see `Context.claim`. `pause` waits a little, `go`
    is called at the end of a checkpoint, while everybody is idle."""
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
    """Let a saved service continue from a state, if there is one."""
    if state is not None:
        service.load_state_dict(state)


def serve(observer: Observer, name: str, call: Callable[[str], Any]) -> None:
    """Do what a checkpoint wants of a saved service now, if anything; `call(method)` calls it."""
    stage = observer.due(name)
    if stage is Stage.SETTLE and call("settled"):
        observer.settled(name)
    elif stage is Stage.SAVE:
        observer.save(name, call("state_dict"))


@dataclass(frozen=True)
class Strand:
    """A thread whose end the main thread can wait for.

    `Thread.join` is not used: in CPython up to 3.12, a signal handler that raises during a join marks the thread as
    ended although it still runs.
    """

    thread: threading.Thread
    ended: threading.Event

    @staticmethod
    def of(name: str, body: Callable[[], None]) -> Strand:
        ended = threading.Event()

        def run() -> None:
            try:
                body()
            finally:
                ended.set()

        return Strand(threading.Thread(target=run, name=name, daemon=True), ended)


class EndWithout(KeyboardInterrupt):
    """An observer's `stopping` may raise this: the program ends now, without waiting for these workers, which hang."""

    def __init__(self, text: str, workers: Collection[str]) -> None:
        super().__init__(text)
        self.workers = frozenset(workers)


class Crew:
    """The workers of one running program, a thread each. The first that fails stops the others."""

    def __init__(self, observer: Observer, wake: Callable[[], None], serve: Callable[[], None] = lambda: None) -> None:
        """`wake` makes workers that wait in a service look at `stopped` again; `serve` does what a checkpoint wants of
        the services, and is called again and again by workers that wait for it."""
        self.observer = observer
        self.serve = serve
        self._wake = wake
        self._halted = threading.Event()
        self.failures: list[tuple[str, BaseException]] = []  # (where, what it failed with), the first first

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

    def work(self, copy: Copy, handle: Callable[[Ref], Any], stopped: Callable[[], bool], *, restarts: int = 0) -> None:
        """Run one worker to its end, in the thread this is called from."""
        try:
            build(copy.node, handle, Seat(copy.name, copy.rank, copy.copies, self, stopped, restarts))
        except Stopped:
            pass  # it would have waited in a program that was stopped: an end like any other
        except BaseException as error:  # a fault in one thread is everybody's: kept, and raised again by `run`
            self.fail(f"worker {copy.name}", error)
        finally:
            self.observer.ended(copy.name)

    def run(self, bodies: Iterable[tuple[str, Callable[[], None]]]) -> None:
        """Run each (name, body) in a thread and wait for all; in the main thread, so that signals are handled.

        Raises what failed first, as it was raised there; what failed after it is noted on it.
        """
        crew = [Strand.of(name, body) for name, body in bodies]
        try:
            for strand in crew:
                strand.thread.start()
            for strand in crew:
                while not strand.ended.wait(timeout=POLL):
                    if self.observer.stopping():
                        self.stop()
        except BaseException as end:  # from a signal handler or the observer: workers should not outlive this call
            self.stop()
            hang = end.workers if isinstance(end, EndWithout) else ()
            started = [strand for strand in crew if strand.thread.ident is not None]
            until = time.monotonic() + (AT_ONCE_SECONDS if isinstance(end, KeyboardInterrupt) else float("inf"))
            for strand in started:
                if strand.thread.name not in hang:
                    strand.ended.wait(None if until == float("inf") else max(0.0, until - time.monotonic()))
            raise
        if self.failures:
            (where, first), *later = self.failures
            first.add_note(f"in {where}")
            for where, error in later:
                first.add_note(f"later in {where}: {error!r}")
            raise first


@dataclass(frozen=True)
class Seat:
    """The `Context` of one worker."""

    name: str
    rank: int
    copies: int
    crew: Crew
    is_stopped: Callable[[], bool]
    restarts: int = 0

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
