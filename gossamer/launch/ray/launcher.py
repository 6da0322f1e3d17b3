"""Run a program on Ray: a host is one process on some machine, handles between hosts are remote calls.

    Ray()(program, observer)                   # processes of this machine
    Ray("10.0.0.1:6379")(program, observer)    # processes of a cluster that this machine is a node of (`ray start`)

Hosts may fail. Ray restarts them, and their workers continue from their last saved state. Calls from other hosts
raise `Unreachable` meanwhile. Reports and states must be picklable. The observer stays in this process, the driver.
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
from gossamer.launch.ray.errors import ClusterUnreachable
from gossamer.launch.ray.placement import placed
from gossamer.program import Host, Program
from gossamer.runtime import SILENT, Observer

CONNECT_SECONDS = 15
# Ray gives its workers niceness 15: beside programs that keep all cores busy, a host would get 3 % of one.
PRIORITY = {"worker_niceness": 0}
TOKEN_FILE = Path("~/.ray/auth_token")  # Ray's default
MEANINGS = {  # by part of Ray's error message
    "Could not find any running Ray instance": "no Ray instance runs on this machine (ray start)",
    "Found multiple active Ray instances": "several Ray instances run on this machine: give ip:port of one",
    "Version mismatch": "its versions of Ray or Python differ from this machine's",
}


@dataclass(frozen=True)
class Ray:
    """A launcher: `Ray(address)(program, observer)`.

    `address`: None starts a local Ray instance, which ends with the program; `auto` is the cluster that this machine is
    a node of; `ip:port` is the address of a cluster's head. If this process is connected to Ray already, that
    connection is used. The cluster's token is read where Ray reads it: RAY_AUTH_TOKEN, RAY_AUTH_TOKEN_PATH,
    ~/.ray/auth_token.
    """

    address: str | None = None
    call_seconds: float = 5.0  # timeout of calls to other hosts, except of methods that wait
    restarts: int = 5  # of one host within 10 minutes without a minute of work in between; one more ends the program
    gone_seconds: float = 120.0  # how long to wait for a missing host once all others have ended
    stop_seconds: float = 10.0  # how long to wait for a host that does not answer once the program is stopped
    env: Mapping[str, str] = field(default_factory=dict)  # environment variables of the hosts' processes

    def __post_init__(self) -> None:
        for name in ("call_seconds", "gone_seconds", "stop_seconds"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name}={getattr(self, name)}: must be positive")
        if self.restarts < 0:
            raise ValueError(f"restarts={self.restarts}: must not be negative")
        if self.address is not None and self.address != "auto":
            _host_and_port(self.address)

    def __call__(self, program: Program, observer: Observer = SILENT) -> None:
        """Run `program` until all its workers have ended. Signals are handled only if called from the main thread.

        Raises the error of the first worker that failed, after all have ended; ClusterUnreachable and LackOfResources
        before anything runs; HostFailed.
        """
        with connected(self.address, program) as ray:
            self._run(program, observer, placed(program.hosts.values(), nodes(ray)).hosts)

    def _run(self, program: Program, observer: Observer, hosts: Sequence[Host]) -> None:
        import ray
        from ray import cloudpickle

        from gossamer.launch.ray.host import CONTROL, CONTROL_THREADS, HostProcess
        from gossamer.launch.ray.supervisor import Deployment, Limits, Supervisor

        kind: Any = ray.remote(concurrency_groups={CONTROL: CONTROL_THREADS})(HostProcess)  # type: ignore[call-overload]
        actors: dict[str, Any] = {}
        try:
            for host in hosts:
                actors[host.name] = kind.options(
                    num_cpus=host.cpus,
                    num_gpus=host.gpus,
                    max_restarts=-1,
                    runtime_env={"env_vars": dict(self.env)} if self.env else None,
                    scheduling_strategy="SPREAD",
                ).remote(host.name)
            crew = Crew(observer, wake=lambda: None)
            limits = Limits(self.call_seconds, self.restarts, self.gone_seconds, self.stop_seconds)
            key = secrets.token_bytes(32)  # known to this program's processes only
            plan = cloudpickle.dumps((sys.path, key, cloudpickle.dumps(program)))  # type: ignore[no-untyped-call]
            run = Deployment(crew, ray.put(plan), actors, limits)
            for name in program.hosts:
                workers = [copy.name for copy in program.crew if copy.node.host == name]
                services = [node for node in program.services if node.saved and node.host == name]
                run.supervisors.append(Supervisor(run, name, workers, services))
            crew.run((f"host {supervisor.host}", supervisor.watch) for supervisor in run.supervisors)
            run.check_lost()
        finally:
            for actor in actors.values():
                ray.kill(actor)


def nodes(ray: Any) -> dict[str, tuple[float, float]]:
    """The nodes of the cluster: name -> (cpus, gpus)."""
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
    """The module `ray`, connected. A connection made here is closed at the end."""
    if address is not None and "ray" not in sys.modules:
        _before_import()
    try:
        import ray
    except ImportError as error:
        raise ImportError("Ray is not installed") from error
    if ray.is_initialized():
        yield ray
        return
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
    with _own_signals():
        if address is None:
            cpus = max(os.cpu_count() or 1, math.ceil(sum(host.cpus for host in program.hosts.values())))
            try:
                ray.init(address="local", num_cpus=cpus, include_dashboard=False, _system_config=PRIORITY, **quiet)
            except (OSError, RuntimeError, ValueError) as error:
                raise ClusterUnreachable(f"Ray does not start ({' '.join(str(error).split())})") from error
            _keep_token_private()
        else:
            _check_reachable(address)
            try:
                ray.init(address=address, **quiet)
            except (ConnectionError, RuntimeError, ValueError) as error:
                text = _summary(str(error), "this machine has to be a node of it (ray start --address=ip:port)")
                raise ClusterUnreachable(f"cluster {address}: {text}") from error
    try:
        yield ray
    finally:
        ray.shutdown()


def _check_reachable(address: str) -> None:
    """Raises ClusterUnreachable if the cluster does not answer or rejects our token. Uses a subprocess, because Ray
    itself retries for minutes."""
    if address != "auto":
        try:
            socket.create_connection(_host_and_port(address), timeout=CONNECT_SECONDS / 3).close()
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            raise ClusterUnreachable(f"cluster {address}: not reachable ({reason})") from error
    where = ["--address", address] if address != "auto" else []
    command = [sys.executable, "-m", "ray.scripts.scripts", "health-check", *where]
    try:
        asked = subprocess.run(command, capture_output=True, text=True, timeout=CONNECT_SECONDS)
    except subprocess.TimeoutExpired:
        raise ClusterUnreachable(f"cluster {address}: no answer from Ray within {CONNECT_SECONDS} s") from None
    if asked.returncode and "RAY_AUTH_TOKEN" in asked.stderr:  # Ray's message lists where it looked for a token
        raise ClusterUnreachable(
            f"cluster {address}: the token is missing or wrong: give the cluster's in RAY_AUTH_TOKEN, "
            f"in the file of RAY_AUTH_TOKEN_PATH, or in {TOKEN_FILE}, and RAY_AUTH_MODE=token"
        )
    if asked.returncode:
        raise ClusterUnreachable(f"cluster {address}: {_summary(asked.stderr, 'no healthy Ray head there')}")


def _summary(text: str, otherwise: str) -> str:
    """The meaning of Ray's error message in one line, or `otherwise` if the message is unknown."""
    return next((meaning for part, meaning in MEANINGS.items() if part in text), otherwise)


def _host_and_port(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit() or "/" in host:
        raise ValueError(f"address {address!r}: give ip:port of the cluster's head, or auto")
    return host, int(port)


def _before_import() -> None:
    """Set what Ray reads only at import: whether to use a token, and the timeout for finding this machine's node."""
    there = "RAY_AUTH_TOKEN" in os.environ or "RAY_AUTH_TOKEN_PATH" in os.environ or TOKEN_FILE.expanduser().is_file()
    if there:
        os.environ.setdefault("RAY_AUTH_MODE", "token")
    os.environ.setdefault("RAY_gcs_server_request_timeout_seconds", str(CONNECT_SECONDS))


def _keep_token_private() -> None:
    """Make the token file readable by its owner only; Ray creates it readable by all users of the machine."""
    file = TOKEN_FILE.expanduser()
    if file.is_file() and file.owner() == Path.home().owner():
        file.chmod(0o600)


@contextmanager
def _own_signals() -> Iterator[None]:
    """Restore the SIGTERM handler at exit, because Ray replaces it."""
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        if before is not None and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, before)
