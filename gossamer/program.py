"""A program is data: which services exist, which workers run, on which hosts, and who holds a handle to whom.

    program = Program("impala")
    with program.host("learner", gpus=1):
        queue = program.service(Fifo)(capacity=8)
        program.worker(learn)(queue, batch=32)
    with program.host("actors", cpus=32):
        program.worker(act, copies=32)(queue)

Nothing here runs: a launcher (`gossamer.launch`) brings a program to life. Nothing here knows of learning, either.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import wraps
from inspect import isgeneratorfunction
from itertools import count
from typing import Any, Concatenate, ParamSpec, Protocol, TypeAlias, TypeVar, cast

P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S")
Wait: TypeAlias = Generator[None, None, R]  # what a @waits method is written as: bare yields, then R


class Stopped(RuntimeError):
    """Raised in a worker that has to wait when the program is being stopped."""


class WouldBlock(RuntimeError):
    """A @waits method has to wait where nothing can: outside a program, or called by another service."""


class Unreachable(ConnectionError):
    """The host of a service does not answer: it has died, or the network is cut. The call may have been carried out."""


def waits(method: Callable[P, Wait[R]]) -> Callable[P, R]:
    """Mark a service method that may have to wait: it is a generator, and a bare `yield` means "not yet".

    Whoever waits looks again after every call to the service that ended or began to wait. So let a call change its
    service before its first `yield` or on its way to the end: what it changes between two waits is noticed late.
    A `yield` may go on in another thread: no `with` that binds to one (`torch.no_grad()`, a lock) may enclose it.
    """
    if not isgeneratorfunction(method):
        raise TypeError(f"@waits {method.__qualname__}: not a generator; `yield` where it has to wait, or drop @waits")

    @wraps(method)
    def at_once(*args: P.args, **kwargs: P.kwargs) -> R:
        steps = method(*args, **kwargs)
        try:
            next(steps)
        except StopIteration as end:
            return cast(R, end.value)
        raise WouldBlock(f"{method.__qualname__} has to wait and nobody else runs that could end the wait")

    at_once.waits = method  # type: ignore[attr-defined]  # launchers drive the generator itself
    return at_once


class Context(Protocol):
    """What a running worker knows of its place, and its line to whoever watches the program."""

    @property
    def name(self) -> str: ...  # unique, and the same in every run: `learn`, or `act[3]` where several run it
    @property
    def rank(self) -> int: ...  # 0 .. copies - 1 among all workers that run this loop, on whichever host
    @property
    def copies(self) -> int: ...  # how many workers run this loop, on all hosts together
    @property
    def restarts(self) -> int: ...  # how often its host has been started again after a failure; 0 at first
    @property
    def stopped(self) -> bool: ...  # whether to end: a worker stopped the program, or whoever watches asked for it
    def stop(self) -> None: ...  # ask every worker to end; those that wait in a service get `Stopped`
    def now(self) -> float: ...  # seconds on a clock that only goes forward; virtual time in a simulation
    def sleep(self, seconds: float) -> None: ...  # do nothing for so long, or until the program is stopped
    def restored(self) -> Any | None: ...  # the state this worker saved last, None at a fresh start
    def report(self, record: Any) -> None: ...  # tell whoever watches what happened
    def due(self) -> bool: ...  # whether somebody wants this worker's state now
    def save(self, state: Any) -> None: ...  # hand it over; it must not change afterwards


class Observer(Protocol):
    """What surrounds a running program. Called by many threads at once; `worker` is a `Context.name`."""

    def restored(self, worker: str) -> Any | None: ...  # the state that worker saved last, None at a fresh start
    def report(self, worker: str, record: Any) -> None: ...  # something happened there
    def due(self, worker: str) -> bool: ...  # whether that worker is to save its state now
    def save(self, worker: str, state: Any) -> None: ...  # the state that was due
    def stopping(self) -> bool: ...  # whether the program is asked to end; once true it stays true


@dataclass(frozen=True)
class Silent:
    """An observer that wants nothing and keeps nothing."""

    def restored(self, worker: str) -> Any | None:
        return None

    def report(self, worker: str, record: Any) -> None: ...
    def due(self, worker: str) -> bool:
        return False

    def save(self, worker: str, state: Any) -> None: ...
    def stopping(self) -> bool:
        return False


SILENT = Silent()


@dataclass(frozen=True)
class Host:
    """One process: its services and workers are threads in it and share memory. What it needs of a machine."""

    name: str
    cpus: float = 1
    gpus: float = 0

    def __post_init__(self) -> None:
        if self.cpus < 0 or self.gpus < 0:
            raise ValueError(f"host {self.name!r}: cpus={self.cpus}, gpus={self.gpus}; neither may be negative")


@dataclass(frozen=True)
class Ref:
    """Stands for a service, by its place in `Program.services`, until a launcher puts a live handle there."""

    index: int


@dataclass(frozen=True)
class Node:
    """A service or a worker: what to call, with what, and where."""

    name: str
    make: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    host: str
    copies: int = 1

    @property
    def refs(self) -> list[Ref]:
        """The services it holds handles to, each once."""
        return refs((self.args, self.kwargs))

    @property
    def parts(self) -> list[str]:
        """What else it was wired with, to be read: `Alone`, `Gossip(Ring, Uniform, Alone)`, `num_envs=32`."""
        plain = [_title(arg) for arg in self.args if not isinstance(arg, Ref) and (is_dataclass(arg) or not refs(arg))]
        return plain + [f"{key}={value}" for key, value in self.kwargs.items() if not refs(value)]


@dataclass(frozen=True)
class Copy:
    """One running copy of a worker; `name`, `rank` and `copies` are its context's."""

    node: Node
    rank: int
    copies: int

    @property
    def name(self) -> str:
        return self.node.name if self.copies == 1 else f"{self.node.name}[{self.rank}]"


class Program:
    """Services, workers and hosts, as wired. What is wired outside every `host` runs on the host `main`."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.hosts: dict[str, Host] = {}
        self._here = Host("main")
        self._services: list[Node] = []
        self._workers: list[Node] = []

    @contextmanager
    def host(self, name: str, *, cpus: float = 1, gpus: float = 0) -> Iterator[None]:
        """`with program.host("learner", gpus=1):` what is wired inside shares one process. May be entered again.

        Raises ValueError for negative needs, and for other needs than the same host had before.
        """
        here = Host(name, cpus, gpus)
        if (known := self.hosts.setdefault(name, here)) != here:
            raise ValueError(f"host {name!r} is {known} and now {here}: give the same needs each time, or another name")
        outer, self._here = self._here, here
        try:
            yield
        finally:
            self._here = outer

    def service(self, make: Callable[P, S]) -> Callable[P, S]:
        """`queue = program.service(Fifo)(capacity=8)`: what comes back has the type of the service, to be wired on."""

        def wire(*args: P.args, **kwargs: P.kwargs) -> S:
            self._services.append(self._node(make, args, kwargs))
            return cast(S, Ref(len(self._services) - 1))

        return wire

    def worker(self, loop: Callable[Concatenate[Context, P], None], *, copies: int = 1) -> Callable[P, None]:
        """`program.worker(act, copies=32)(queue)`: arguments as `act` takes them after its context.

        Raises ValueError unless copies >= 1.
        """
        if copies < 1:
            raise ValueError(f"worker {loop.__name__}: copies={copies}; at least 1")

        def wire(*args: P.args, **kwargs: P.kwargs) -> None:
            self._workers.append(replace(self._node(loop, args, kwargs), copies=copies))

        return wire

    def _node(self, make: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Node:
        self.hosts.setdefault(self._here.name, self._here)
        return Node(make.__name__, make, args, kwargs, self._here.name)

    @property
    def services(self) -> tuple[Node, ...]:
        """In the order of wiring, so that a service's refs point to earlier ones; names are unique (`Inbox[2]`)."""
        return _named(self._services)

    @property
    def workers(self) -> tuple[Node, ...]:
        """In the order of wiring; names are unique: `act`, or with the ranks it holds, `act[4]`, `act[4:8]`."""
        return _named(self._workers)

    @property
    def crew(self) -> tuple[Copy, ...]:
        """Every worker that will run, copies counted."""
        places = [node for node in self._workers for _ in range(node.copies)]
        copies = Counter(node.name for node in places)
        ranks: defaultdict[str, Iterator[int]] = defaultdict(count)
        return tuple(Copy(node, next(ranks[node.name]), copies[node.name]) for node in places)

    def edges(self) -> list[tuple[str, str]]:
        """(worker, service) for every handle a worker holds, straight from the wiring: the paper's figure."""
        services = self.services
        return [(worker.name, services[ref.index].name) for worker in self.workers for ref in worker.refs]

    def mermaid(self) -> str:
        """The figure as Mermaid text: workers round, services as stores, hosts as frames around them."""
        nodes = [
            (w.host, f'w{i}(["{"<br/>".join([f"{w.name} x{w.copies}", *w.parts])}"])')
            for i, w in enumerate(self.workers)
        ]
        nodes += [(s.host, f's{i}[("{s.name}")]') for i, s in enumerate(self.services)]
        lines = ["flowchart LR"]
        for i, host in enumerate(self.hosts):
            inside = [f"  {node}" for where, node in nodes if where == host]
            if list(self.hosts) != ["main"]:
                inside = [f'  subgraph h{i}["{host}"]', *(f"  {node}" for node in inside), "  end"]
            lines += inside
        lines += [f"  w{i} --- s{ref.index}" for i, w in enumerate(self.workers) for ref in w.refs]
        lines += [f"  s{i} --- s{ref.index}" for i, s in enumerate(self.services) for ref in s.refs]
        return "\n".join(lines)


def bind(tree: Any, handle: Callable[[Ref], Any]) -> Any:
    """A copy of `tree`, nested dicts, lists, tuples and dataclasses, with live handles in place of refs.

    They are copied even without refs in them, so that workers wired with the same arguments share none of them,
    whether they run in one process or in many. Everything else is passed on as it is.
    """
    if isinstance(tree, Ref):
        return handle(tree)
    if isinstance(tree, dict):
        return {key: bind(leaf, handle) for key, leaf in tree.items()}
    if isinstance(tree, list):
        return [bind(leaf, handle) for leaf in tree]
    if isinstance(tree, tuple):  # tuple.__new__: a named tuple's own constructor takes no sequence
        return tuple.__new__(type(tree), [bind(leaf, handle) for leaf in tree])
    if is_dataclass(tree) and not isinstance(tree, type):
        return replace(tree, **{f.name: bind(getattr(tree, f.name), handle) for f in fields(tree) if f.init})
    return tree


def refs(tree: Any) -> list[Ref]:
    """The refs that `bind` finds, in order, each once."""
    found: dict[Ref, Ref] = {}
    bind(tree, lambda ref: found.setdefault(ref, ref))
    return list(found)


def _title(part: Any) -> str:
    """The name of a part, and where it holds handles, of the parts it is made of."""
    if not refs(part):
        return type(part).__name__
    inside = [type(getattr(part, f.name)).__name__ for f in fields(part) if is_dataclass(getattr(part, f.name))]
    return f"{type(part).__name__}({', '.join(name for name in inside if name != Ref.__name__)})"


def _named(nodes: list[Node]) -> tuple[Node, ...]:
    """The nodes with unique names: several that make the same thing get the places of their copies appended."""
    many, first, named = Counter(node.name for node in nodes), Counter[str](), list[Node]()
    for node in nodes:
        low, high = first[node.name], first[node.name] + node.copies
        first[node.name] = high
        place = "" if many[node.name] == 1 else f"[{low}]" if node.copies == 1 else f"[{low}:{high}]"
        named.append(replace(node, name=node.name + place))
    return tuple(named)
