"""Which hosts fit on which nodes of a cluster, and how hosts share GPUs. Pure functions: they ask Ray nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from gossamer.launch.ray.errors import LackOfResources
from gossamer.program import Host

Nodes: TypeAlias = Mapping[str, tuple[float, float]]  # name -> (cpus, gpus)
PRECISION = 10_000  # Ray counts ten-thousandths of a GPU


@dataclass(frozen=True)
class Placement:
    """What Ray reserves for the hosts of a program."""

    hosts: tuple[Host, ...]  # with their shares of GPUs; largest needs first: they fit only on nodes that are free
    sharing: int = 1  # hosts on each GPU, at most

    @property
    def note(self) -> str | None:
        """What a user should know of it; None: every host has what it asks for."""
        if self.sharing == 1:
            return None
        sharing = [host.name for host in self.hosts if 0 < host.gpus < 1]
        return f"up to {self.sharing} hosts share a GPU: {', '.join(sharing)}"


def placed(hosts: Iterable[Host], nodes: Nodes) -> Placement:
    """Place each host on one node. If there are too few GPUs, hosts that ask for one GPU share them: as few on each as
    possible, and equally many parts of each GPU. Raises `LackOfResources` if they do not fit even so."""
    wanted = by_need(hosts)
    lacking = _first_lacking(wanted, nodes)
    if lacking is None:
        return Placement(wanted)
    alone = sum(host.gpus == 1 for host in wanted)
    for sharing in range(2, alone + 1):
        part = PRECISION // sharing / PRECISION
        shared = by_need(replace(host, gpus=part) if host.gpus == 1 else host for host in wanted)
        if (last := _first_lacking(shared, nodes)) is None:
            return Placement(shared, sharing)
        lacking = next(host for host in wanted if host.name == last.name)
    raise LackOfResources(_lack(lacking, wanted, nodes, sharing=alone > 1))


def by_need(hosts: Iterable[Host]) -> tuple[Host, ...]:
    """The hosts, those with the largest needs first."""
    return tuple(sorted(hosts, key=lambda host: (-host.gpus, -host.cpus)))


def _first_lacking(hosts: Sequence[Host], nodes: Nodes) -> Host | None:
    """The first host that fits on no node beside those before it; None: all fit."""
    free = dict(nodes)
    for host in hosts:
        fits = {name: cpus for name, (cpus, gpus) in free.items() if cpus >= host.cpus and gpus >= host.gpus}
        if not fits:
            return host
        name = min(fits, key=fits.__getitem__)  # best fit, to keep room for others
        free[name] = (free[name][0] - host.cpus, round(free[name][1] - host.gpus, 6))
    return None


def _lack(host: Host, wanted: Sequence[Host], nodes: Nodes, *, sharing: bool) -> str:
    """What a host lacks beside those that are placed before it, in one line with what there is and what would fit."""
    need = f"host {host.name!r} needs {host.cpus:g} cpus, {host.gpus:g} gpus"
    shared = ", which it may share," if sharing and host.gpus == 1 else ""
    alone = any(cpus >= host.cpus and gpus >= host.gpus for cpus, gpus in nodes.values())
    beside = " beside the program's other hosts" if alone else ""
    there = ", ".join(f"{name} with {cpus:g} cpus, {gpus:g} gpus" for name, (cpus, gpus) in nodes.items())
    fit = f"; {wanted.index(host)} of the {len(wanted)} hosts fit: use fewer, or ones that need less" * alone
    return f"{need}{shared} on one node{beside}, which the cluster does not have; it has {there or 'no nodes'}{fit}"
