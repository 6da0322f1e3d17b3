"""A program is data: its services, its workers, their hosts, and which services each worker holds a handle to.

    program = Program("impala")
    with program.host("learner", gpus=1):
        queue = program.service(Fifo)(capacity=8)
        program.worker(learn)(queue, batch=32)
    with program.host("actors", cpus=32):
        program.worker(act, copies=32)(queue)

This module runs nothing: a launcher (`gossamer.launch`) runs a program. It does not depend on reinforcement learning.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields, is_dataclass, replace
from enum import Enum
from functools import partial, wraps
from inspect import isgeneratorfunction
from itertools import count
from typing import Any, Concatenate, ParamSpec, Protocol, TypeAlias, TypeVar, cast

P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S")
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
        """Restore a state. Called before any other method, when a run is resumed; not after a failure of the host."""


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


@dataclass(frozen=True)
class Host:
    """One process and the resources it needs. Its services and workers share its memory; each worker is a thread."""

    name: str
    cpus: float = 1
    gpus: float = 0

    def __post_init__(self) -> None:
        if self.cpus < 0 or self.gpus < 0:
            raise ValueError(f"host {self.name!r}: cpus={self.cpus}, gpus={self.gpus}: must not be negative")


@dataclass(frozen=True)
class Ref:
    """A placeholder for a service, by its index in `Program.services`. The launcher replaces it with a handle."""

    index: int


@dataclass(frozen=True)
class Node:
    """A service or a worker: the callable, its arguments and its host."""

    name: str
    make: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    host: str
    copies: int = 1
    saved: bool = False  # whether its state is part of a checkpoint

    @property
    def refs(self) -> list[Ref]:
        """The services that it holds handles to, without duplicates."""
        return refs((self.args, self.kwargs))

    @property
    def parts(self) -> list[str]:
        """Its other arguments as text: `Alone`, `Gossip(Ring, Uniform, Alone)`, `num_envs=32`."""
        plain = [_title(arg) for arg in self.args if not isinstance(arg, Ref) and (is_dataclass(arg) or not refs(arg))]
        return plain + [f"{key}={value}" for key, value in self.kwargs.items() if not refs(value)]


@dataclass(frozen=True)
class Copy:
    """One copy of a worker; `name`, `rank` and `copies` are those of its `Context`."""

    node: Node
    rank: int
    copies: int

    @property
    def name(self) -> str:
        return self.node.name if self.copies == 1 else f"{self.node.name}[{self.rank}]"


class Program:
    """Services, workers and hosts. Those added outside every `with program.host(...)` run on the host `main`."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.hosts: dict[str, Host] = {}
        self._here = Host("main")
        self._services: list[Node] = []
        self._workers: list[Node] = []

    @contextmanager
    def host(self, name: str, *, cpus: float = 1, gpus: float = 0) -> Iterator[None]:
        """`with program.host("learner", gpus=1):` everything added inside shares one process. May be entered again.

        Raises ValueError if the resources are negative, or if an earlier host of this name has other resources.
        """
        here = Host(name, cpus, gpus)
        if (known := self.hosts.setdefault(name, here)) != here:
            raise ValueError(f"host {name!r} is {known}, now {here}: use the same resources each time, or another name")
        outer, self._here = self._here, here
        try:
            yield
        finally:
            self._here = outer

    def service(self, make: Callable[P, S], *, saved: bool = False) -> Callable[P, S]:
        """`queue = program.service(Fifo)(capacity=8)`: add a service. The result is a `Ref`, typed as the service.

        `saved`: its state is part of a checkpoint, so the service must have the methods of `Saved`. On a host that is
        restarted after a failure the service starts empty: others have newer data than the checkpoint."""

        def wire(*args: P.args, **kwargs: P.kwargs) -> S:
            self._services.append(replace(self._node(make, args, kwargs), saved=saved))
            return cast(S, Ref(len(self._services) - 1))

        return wire

    def worker(
        self, loop: Callable[Concatenate[Context, P], None], *, copies: int = 1, saved: bool = False
    ) -> Callable[P, None]:
        """`program.worker(act, copies=32)(queue)`: add a worker; the arguments are those of `act` after its context.

        `saved`: its state is part of a checkpoint; the worker passes it to `Context.claim`. Raises ValueError if
        copies < 1.
        """
        if copies < 1:
            raise ValueError(f"worker {_name(loop)}: copies={copies}: must be at least 1")

        def wire(*args: P.args, **kwargs: P.kwargs) -> None:
            self._workers.append(replace(self._node(loop, args, kwargs), copies=copies, saved=saved))

        return wire

    def _node(self, make: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Node:
        self.hosts.setdefault(self._here.name, self._here)
        return Node(_name(make), make, args, kwargs, self._here.name)

    @property
    def services(self) -> tuple[Node, ...]:
        """In insertion order: a service's refs point to earlier services. Names are unique (`Inbox[2]`)."""
        return _named(self._services)

    @property
    def workers(self) -> tuple[Node, ...]:
        """In insertion order. Names are unique: `act`, or with the ranks of its copies, `act[4]`, `act[4:8]`."""
        return _named(self._workers)

    @property
    def crew(self) -> tuple[Copy, ...]:
        """All copies of all workers."""
        nodes = [node for node in self._workers for _ in range(node.copies)]
        copies = Counter(node.name for node in nodes)
        ranks: defaultdict[str, Iterator[int]] = defaultdict(count)
        return tuple(Copy(node, next(ranks[node.name]), copies[node.name]) for node in nodes)

    @property
    def saved_workers(self) -> frozenset[str]:
        """The workers whose states are part of a checkpoint."""
        return frozenset(copy.name for copy in self.crew if copy.node.saved)

    @property
    def saved_services(self) -> frozenset[str]:
        """The services whose states are part of a checkpoint."""
        return frozenset(node.name for node in self.services if node.saved)

    def edges(self) -> list[tuple[str, str]]:
        """(worker, service) for every handle that a worker holds: the edges of the architecture's figure."""
        services = self.services
        return [(worker.name, services[ref.index].name) for worker in self.workers for ref in worker.refs]

    def mermaid(self) -> str:
        """The figure as Mermaid text: workers are rounded, services are cylinders, hosts are subgraphs."""
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
    """A copy of `tree` (nested dicts, lists, tuples and dataclasses) with refs replaced by handles.

    Containers without refs are copied too: workers with the same arguments then share no container, in one process as
    in many. Other leaves are not copied.
    """
    if isinstance(tree, Ref):
        return handle(tree)
    if isinstance(tree, dict):
        return {key: bind(leaf, handle) for key, leaf in tree.items()}
    if isinstance(tree, list):
        return [bind(leaf, handle) for leaf in tree]
    if isinstance(tree, tuple):  # tuple.__new__: the constructor of a named tuple does not accept a sequence
        return tuple.__new__(type(tree), [bind(leaf, handle) for leaf in tree])
    if is_dataclass(tree) and not isinstance(tree, type):
        return replace(tree, **{f.name: bind(getattr(tree, f.name), handle) for f in fields(tree) if f.init})
    return tree


def refs(tree: Any) -> list[Ref]:
    """The refs in `tree`, in order and without duplicates."""
    found: dict[Ref, Ref] = {}
    bind(tree, lambda ref: found.setdefault(ref, ref))
    return list(found)


def _title(part: Any) -> str:
    """The name of a part's type; if it holds handles, also those of its dataclass fields."""
    if not refs(part):
        return type(part).__name__
    inside = [type(getattr(part, f.name)).__name__ for f in fields(part) if is_dataclass(getattr(part, f.name))]
    return f"{type(part).__name__}({', '.join(name for name in inside if name != Ref.__name__)})"


def _name(make: Callable[..., Any]) -> str:
    """The name of a function or class, also where arguments are bound to it."""
    return _name(make.func) if isinstance(make, partial) else make.__name__


def _named(nodes: list[Node]) -> tuple[Node, ...]:
    """The nodes with unique names: nodes of the same name get the ranks of their copies appended."""
    many, first, named = Counter(node.name for node in nodes), Counter[str](), list[Node]()
    for node in nodes:
        low, high = first[node.name], first[node.name] + node.copies
        first[node.name] = high
        ranks = "" if many[node.name] == 1 else f"[{low}]" if node.copies == 1 else f"[{low}:{high}]"
        named.append(replace(node, name=node.name + ranks))
    return tuple(named)
