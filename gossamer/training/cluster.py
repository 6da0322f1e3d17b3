"""Runs on a Ray cluster."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from contextlib import ExitStack, contextmanager

from gossamer.launch.ray.errors import ClusterUnreachable, HostFailed, LackOfResources
from gossamer.launch.ray.launcher import Ray, connected, nodes
from gossamer.launch.ray.placement import Nodes, placed
from gossamer.program import Host, Program
from gossamer.system.errors import UserError
from gossamer.system.installation import install
from gossamer.system.machine import KEEP_FREED_MEMORY
from gossamer.system.options import flag
from gossamer.system.streams import Output
from gossamer.training.place import Place

THREADS = ("env_workers", "actors", "agents", "learners")  # options that hosts need CPUs for


def launcher(cluster: str) -> Ray:
    """The launcher of this cluster, which is not connected yet. Raises `UserError` for an invalid address."""
    try:
        return Ray(None if cluster == "local" else cluster, env=KEEP_FREED_MEMORY)
    except ValueError as error:
        raise UserError(f"--cluster {cluster}: {error}; or local") from error


@contextmanager
def on_cluster(cluster: str, wired: Program, names: Collection[str] = ()) -> Iterator[Place]:
    """A Ray cluster that is connected and has room for the program: `local` is one of this machine's own that ends with
    the run, `auto` the one this machine is a node of, else `ip:port` of its head. `names`: the options of the program.

    `UserError` where Ray is not installed, the cluster cannot be reached, or has not what the program needs, and where
    a host fails for good while the program runs."""
    ray = launcher(cluster)
    print("starting Ray" if cluster == "local" else f"connecting to the cluster {cluster}", file=Output(), flush=True)
    with ExitStack() as stack:
        try:
            live = stack.enter_context(connected(ray.address, wired))
            placement = placed(wired.hosts.values(), nodes(live))
        except ImportError as error:
            raise UserError(f"--cluster {cluster}: {error}; run {install('ray')}") from error
        except ClusterUnreachable as error:
            raise UserError(f"--cluster {cluster}: {str(error).removeprefix(f'cluster {ray.address}: ')}") from error
        except LackOfResources as error:
            advice = _advice(wired.hosts.values(), nodes(live), names)
            raise UserError(f"--cluster {cluster}: {error}{advice}") from error
        try:
            yield Place(ray, placement.note)
        except (HostFailed, LackOfResources) as error:  # a node may have left since
            raise UserError(str(error)) from error


def _advice(hosts: Iterable[Host], there: Nodes, names: Collection[str]) -> str:
    """What would fit where a host needs more CPUs than any node has, or there is no GPU; else empty. `names`: of the
    program's options."""
    most, advice = max((cpus for cpus, _ in there.values()), default=0.0), ""
    threads = [flag(name) for name in THREADS if name in names]
    if threads and 0 < most < max(host.cpus for host in hosts):
        *others, last = threads
        advice += f"; {most:g} would fit: use a smaller {' or '.join(filter(None, (', '.join(others), last)))}"
    if any(host.gpus for host in hosts) and not any(gpus for _, gpus in there.values()):
        advice += "; or use --device cpu"
    return advice
