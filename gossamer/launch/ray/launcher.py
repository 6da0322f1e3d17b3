"""Run a program on Ray: a host is one process on some machine, handles between hosts are remote calls.

    Ray()(program, observer)                   # processes of this machine
    Ray("10.0.0.1:6379")(program, observer)    # of a cluster that this machine has been joined to (`ray start`)

Hosts may fail: Ray starts them again, their workers go on from what they saved last, and the others get `Unreachable`
meanwhile. Reports and states have to be made of what can be pickled. The driver, this process, keeps the observer.
"""

from __future__ import annotations

import math
import os
import secrets
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

from gossamer.launch.base import Crew
from gossamer.launch.ray.errors import ClusterUnreachable, LackOfResources
from gossamer.program import SILENT, Host, Observer, Program

CONNECT_SECONDS = 15
TOKEN_FILE = Path("~/.ray/auth_token")  # Ray's own place for it


@dataclass(frozen=True)
class Ray:
    """A launcher: `Ray(address)(program, observer)`.

    `address`: None for a Ray of our own on this machine, which ends with the program; `auto` for the cluster that
    this machine is a node of; or `ip:port` of its head. A Ray that this process is connected to already is used as it
    is. The cluster's token is found as Ray finds it: RAY_AUTH_TOKEN, RAY_AUTH_TOKEN_PATH, ~/.ray/auth_token.
    """

    address: str | None = None
    call_seconds: float = 5.0  # until a call to another host that need not wait is given up: Unreachable
    restarts: int = 5  # failures of one host within 10 minutes, nothing reported in between, that are survived
    gone_seconds: float = 120.0  # until a host that does not come back is given up, once all others have ended
    stop_seconds: float = 10.0  # that a host which does not answer has once the program is being stopped
    env: Mapping[str, str] = field(default_factory=dict)  # variables that hosts' processes start with

    def __post_init__(self) -> None:
        for name in ("call_seconds", "gone_seconds", "stop_seconds"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name}={getattr(self, name)}: must be positive")
        if self.restarts < 0:
            raise ValueError(f"restarts={self.restarts}: must not be negative")
        if self.address is not None and self.address != "auto":
            _host_and_port(self.address)

    def __call__(self, program: Program, observer: Observer = SILENT) -> None:
        """Run `program` until all its workers have ended. Call it from the main thread: only there are signals handled.

        Raises what the first failing worker raised, after all have ended; ClusterUnreachable and LackOfResources
        before anything runs; HostFailed.
        """
        with connected(self.address, program) as ray:
            check_room(list(program.hosts.values()), nodes(ray))
            self._run(program, observer)

    def _run(self, program: Program, observer: Observer) -> None:
        import ray
        from ray import cloudpickle

        from gossamer.launch.ray.host import CONTROL, CONTROL_THREADS, HostProcess
        from gossamer.launch.ray.supervisor import Deployment, Limits, Supervisor

        kind: Any = ray.remote(concurrency_groups={CONTROL: CONTROL_THREADS})(HostProcess)  # type: ignore[call-overload]
        actors: dict[str, Any] = {}
        try:
            for host in by_need(program.hosts.values()):
                actors[host.name] = kind.options(
                    num_cpus=host.cpus,
                    num_gpus=host.gpus,
                    max_restarts=-1,
                    runtime_env={"env_vars": dict(self.env)} if self.env else None,
                    scheduling_strategy="SPREAD",
                ).remote(host.name)
            crew = Crew(observer, wake=lambda: None)
            limits = Limits(self.call_seconds, self.restarts, self.gone_seconds, self.stop_seconds)
            key = secrets.token_bytes(32)  # of this program's processes
            plan = cloudpickle.dumps((sys.path, key, cloudpickle.dumps(program)))  # type: ignore[no-untyped-call]
            run = Deployment(crew, ray.put(plan), actors, limits)
            for name in program.hosts:
                workers = [copy.name for copy in program.crew if copy.node.host == name]
                services = [node.name for node in program.services if node.saved and node.host == name]
                run.supervisors.append(Supervisor(run, name, workers, services))
            crew.run((f"host {supervisor.host}", supervisor.watch) for supervisor in run.supervisors)
            run.account()
        finally:
            for actor in actors.values():
                ray.kill(actor)


def by_need(hosts: Any) -> list[Host]:
    """Those with the greatest needs first, for they find room only where nobody is yet."""
    return sorted(hosts, key=lambda host: (-host.gpus, -host.cpus))


def check_room(hosts: Sequence[Host], nodes: dict[str, tuple[float, float]]) -> None:
    """Raises LackOfResources where the hosts, each on one node, do not fit: `nodes` are name -> (cpus, gpus)."""
    there = ", ".join(f"{name} with {cpus:g} cpus, {gpus:g} gpus" for name, (cpus, gpus) in nodes.items())
    free = dict(nodes)
    for host in by_need(hosts):
        need = f"host {host.name!r} needs {host.cpus:g} cpus, {host.gpus:g} gpus on one node"
        fits = {name: cpus for name, (cpus, gpus) in free.items() if cpus >= host.cpus and gpus >= host.gpus}
        if not fits:
            alone = any(cpus >= host.cpus and gpus >= host.gpus for cpus, gpus in nodes.values())
            beside = " beside the program's other hosts" if alone else ""
            raise LackOfResources(f"{need}{beside}, which the cluster does not have: there is {there or 'no node'}")
        name = min(fits, key=fits.__getitem__)  # where it fits most closely, to keep room for others
        free[name] = (free[name][0] - host.cpus, free[name][1] - host.gpus)


def nodes(ray: Any) -> dict[str, tuple[float, float]]:
    """The machines of the cluster: name -> (cpus, gpus)."""
    alive = [node for node in ray.nodes() if node["Alive"]]
    return {
        f"{node['NodeManagerAddress']} ({node['NodeID'][:6]})": (
            node["Resources"].get("CPU", 0.0),
            node["Resources"].get("GPU", 0.0),
        )
        for node in alive
    }


@contextmanager
def connected(address: str | None, program: Program) -> Iterator[ModuleType]:
    """Ray, connected; what was begun here ends here."""
    if address is not None and "ray" not in sys.modules:
        _before_import()
    try:
        import ray
    except ImportError as error:
        raise ImportError('Ray is not installed: pip install "gossamer[ray]"') from error
    if ray.is_initialized():
        yield ray
        return
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
    with _own_signals():
        if address is None:
            cpus = max(os.cpu_count() or 1, math.ceil(sum(host.cpus for host in program.hosts.values())))
            ray.init(address="local", num_cpus=cpus, include_dashboard=False, **quiet)
            _keep_token_private()
        else:
            _knock(address)
            try:
                ray.init(address=address, **quiet)
            except (ConnectionError, RuntimeError, ValueError) as error:
                text = (
                    f"{str(error).strip().splitlines()[0]} (this machine has to be a node of it: ray start --address)"
                )
                raise ClusterUnreachable(f"cluster {address}: {text}") from error
    try:
        yield ray
    finally:
        ray.shutdown()


def _knock(address: str) -> None:
    """Whether a cluster answers and lets us in, asked by a process that can be ended: Ray itself tries for minutes."""
    if address != "auto":
        try:
            socket.create_connection(_host_and_port(address), timeout=CONNECT_SECONDS / 3).close()
        except OSError as error:
            raise ClusterUnreachable(f"cluster {address}: nobody listens there ({error})") from error
    where = ["--address", address] if address != "auto" else []
    command = [sys.executable, "-m", "ray.scripts.scripts", "health-check", *where]
    try:
        asked = subprocess.run(command, capture_output=True, text=True, timeout=CONNECT_SECONDS)
    except subprocess.TimeoutExpired:
        raise ClusterUnreachable(f"cluster {address}: no answer of Ray within {CONNECT_SECONDS} s") from None
    if asked.returncode and "RAY_AUTH_TOKEN" in asked.stderr:  # it says where it looked for one
        raise ClusterUnreachable(
            f"cluster {address}: the token is missing or wrong: give the cluster's in RAY_AUTH_TOKEN, "
            f"in the file of RAY_AUTH_TOKEN_PATH, or in {TOKEN_FILE}, and RAY_AUTH_MODE=token"
        )
    if asked.returncode:
        raise ClusterUnreachable(f"cluster {address}: {(asked.stderr.strip().splitlines() or ['is not healthy'])[-1]}")


def _host_and_port(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit() or "/" in host:
        raise ValueError(f"address {address!r}: give ip:port of the cluster's head, or auto")
    return host, int(port)


def _before_import() -> None:
    """What Ray reads only while it is imported: whether to use a token with a cluster that is given by its address,
    and how long to look for the node that this machine is."""
    there = "RAY_AUTH_TOKEN" in os.environ or "RAY_AUTH_TOKEN_PATH" in os.environ or TOKEN_FILE.expanduser().is_file()
    if there:
        os.environ.setdefault("RAY_AUTH_MODE", "token")
    os.environ.setdefault("RAY_gcs_server_request_timeout_seconds", str(CONNECT_SECONDS))


def _keep_token_private() -> None:
    """Ray writes the token of a new cluster where all users of the machine may read it."""
    file = TOKEN_FILE.expanduser()
    if file.is_file() and file.owner() == Path.home().owner():
        file.chmod(0o600)


@contextmanager
def _own_signals() -> Iterator[None]:
    """Ray takes SIGTERM for itself; whoever runs the program has handled it before."""
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        if before is not None and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, before)
