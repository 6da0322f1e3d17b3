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
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields, is_dataclass, replace
from enum import Enum
from functools import partial
from itertools import count
from typing import Any, Concatenate, ParamSpec, TypeVar, cast

from gossamer.runtime import Context

P = ParamSpec("P")
S = TypeVar("S")


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


class OnRestart(Enum):
    """What a saved service starts with when its host is restarted after a failure."""

    EMPTY = "empty"  # nothing: other services or workers have newer data than any saved state
    CHECKPOINT = "checkpoint"  # the state of the run's last checkpoint
    SNAPSHOT = "snapshot"  # its state when the launcher read it last; before the first reading as `CHECKPOINT`


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
    on_restart: OnRestart = OnRestart.EMPTY  # of a saved service
    snapshot_seconds: float = 0.0  # between two readings of its state, for `OnRestart.SNAPSHOT`

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
        return _copy_name(self.node.name, self.rank, self.copies)


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

    def service(
        self,
        make: Callable[P, S],
        *,
        saved: bool = False,
        on_restart: OnRestart = OnRestart.EMPTY,
        snapshot_seconds: float = 0.0,
    ) -> Callable[P, S]:
        """`queue = program.service(Fifo)(capacity=8)`: add a service. The result is a `Ref`, typed as the service.

        `saved`: its state is part of a checkpoint, so the service must have the methods of `Saved`. `on_restart`: what
        it starts with on a host that is restarted after a failure; with `SNAPSHOT` its state is read every
        `snapshot_seconds`. Raises ValueError if it is to be restored and is not saved, or if snapshots have no
        period."""
        if on_restart is not OnRestart.EMPTY and not saved:
            raise ValueError(f"service {_name(make)}: on_restart={on_restart.value}: only a saved service has a state")
        if (on_restart is OnRestart.SNAPSHOT) != (snapshot_seconds > 0):
            raise ValueError(
                f"service {_name(make)}: snapshot_seconds={snapshot_seconds}: must be positive with on_restart=snapshot"
                " and 0 otherwise"
            )
        restarting = {"on_restart": on_restart, "snapshot_seconds": snapshot_seconds}

        def wire(*args: P.args, **kwargs: P.kwargs) -> S:
            node = self._node(make, args, kwargs)
            self._services.append(replace(node, saved=saved, **restarting))  # type: ignore[arg-type]  # by name
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

    def with_loops(self, loops: Mapping[Callable[..., None], Callable[..., None]]) -> Program:
        """A copy in which other loops stand in for these: `{act_and_learn: stand_in}`. Workers keep names and
        arguments."""
        made = Program(self.name)
        made.hosts, made._services = dict(self.hosts), list(self._services)
        made._workers = [replace(node, make=loops.get(node.make, node.make)) for node in self._workers]
        return made

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
    """The name of a part's type; if it holds handles, also the names of the parts in it, and options that are not at
    their defaults."""
    name, inside = type(part).__name__, list[str]()
    for each in fields(part) if refs(part) else ():
        value = getattr(part, each.name)
        if is_dataclass(value) and not isinstance(value, Ref):
            inside.append(type(value).__name__)
        elif isinstance(value, bool | int | float | str) and value != each.default:
            inside.append(f"{each.name}={value}")
    return f"{name}({', '.join(inside)})" if inside else name


def _name(make: Callable[..., Any]) -> str:
    """The name of a function or class, also where arguments are bound to it."""
    return _name(make.func) if isinstance(make, partial) else make.__name__


def copy_name(loop: Callable[..., Any], rank: int, copies: int) -> str:
    """`Context.name` of one of so many copies of a worker."""
    return _copy_name(_name(loop), rank, copies)


def _copy_name(worker: str, rank: int, copies: int) -> str:
    return worker if copies == 1 else f"{worker}[{rank}]"


def _named(nodes: list[Node]) -> tuple[Node, ...]:
    """The nodes with unique names: nodes of the same name get the ranks of their copies appended."""
    many, first, named = Counter(node.name for node in nodes), Counter[str](), list[Node]()
    for node in nodes:
        low, high = first[node.name], first[node.name] + node.copies
        first[node.name] = high
        ranks = "" if many[node.name] == 1 else f"[{low}]" if node.copies == 1 else f"[{low}:{high}]"
        named.append(replace(node, name=node.name + ranks))
    return tuple(named)
