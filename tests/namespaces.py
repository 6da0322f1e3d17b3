"""Machines for the tests: network namespaces of this one, each with an address, joined by a switch that can be cut.

    with hosts(3) as net:
        net.start(0)                  # `ray start --head` on the first
        net.start(1), net.start(2)    # the others join it
        driver = net.run(0, [sys.executable, "driver.py"])
        net.kill(1)                   # SIGKILL to every process there
        net.cut([0], [1, 2])          # no packet passes between the two groups
        net.heal()

A namespace has its own network, and nothing else of its own: files, processes and clocks are the machine's. So hosts
fail and links are cut as real ones are; disks, memory and clock skew are not tested.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

PORT = 6379
READY_SECONDS = 60.0


def missing() -> str | None:
    """Why there can be no namespaces here; None where there can."""
    if sys.platform != "linux" or shutil.which("ip") is None:
        return "needs Linux with iproute2"
    if os.geteuid() != 0:
        return "needs root, to make network namespaces"
    name = f"gossamer-try-{os.getpid()}"
    tried = subprocess.run(["ip", "netns", "add", name], capture_output=True, text=True)
    if tried.returncode:
        return f"cannot make network namespaces: {tried.stderr.strip()}"
    made = subprocess.run(["ip", "-n", name, "link", "add", "bridge", "type", "bridge"], capture_output=True, text=True)
    subprocess.run(["ip", "netns", "del", name], check=True)
    return f"cannot make a bridge: {made.stderr.strip()}" if made.returncode else None


def ip(*words: object) -> str:
    done = subprocess.run(["ip", *map(str, words)], capture_output=True, text=True)
    if done.returncode:
        raise OSError(f"ip {' '.join(map(str, words))}: {done.stderr.strip()}")
    return done.stdout


class Net:
    """`n` namespaces and a hub; the hub has two switches, and a cut moves one group to the other one."""

    def __init__(self, n: int, folder: Path) -> None:
        self.n, self.folder = n, folder
        self.prefix = f"g{secrets.token_hex(4)}"
        self.hub = f"{self.prefix}-hub"
        self.token = secrets.token_hex(32)
        self.processes: list[subprocess.Popen[str]] = []
        self.system_config: dict[str, Any] = {}  # of Ray, for the head

    def name(self, host: int) -> str:
        return f"{self.prefix}-{host}"

    def address(self, host: int) -> str:
        return f"10.77.0.{host + 1}"

    @property
    def cluster(self) -> str:
        return f"{self.address(0)}:{PORT}"

    def make(self) -> None:
        ip("netns", "add", self.hub)
        for switch in ("one", "other"):
            ip("-n", self.hub, "link", "add", switch, "type", "bridge")
            ip("-n", self.hub, "link", "set", switch, "up")
        for host in range(self.n):
            name, port = self.name(host), f"port{host}"
            ip("netns", "add", name)
            ip("-n", self.hub, "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", name)
            ip("-n", self.hub, "link", "set", port, "master", "one", "up")
            ip("-n", name, "addr", "add", f"{self.address(host)}/24", "dev", "eth0")
            ip("-n", name, "link", "set", "eth0", "up")
            ip("-n", name, "link", "set", "lo", "up")
            ip("-n", name, "route", "add", "default", "dev", "eth0")  # Ray finds its own address by the way out

    def cut(self, some: Iterable[int], others: Iterable[int]) -> None:
        """From now on no packet passes between the two groups."""
        for host in others:
            ip("-n", self.hub, "link", "set", f"port{host}", "master", "other")
        for host in some:
            ip("-n", self.hub, "link", "set", f"port{host}", "master", "one")

    def heal(self) -> None:
        self.cut(range(self.n), [])

    def run(self, host: int, command: Sequence[str], *, to: str = "output", **env: str) -> subprocess.Popen[str]:
        """A process on that host; `output(host, to)` is what it prints. It has the cluster's token."""
        home = self.folder / str(host)
        home.mkdir(exist_ok=True)
        kept = {key: value for key, value in os.environ.items() if not key.startswith("RAY_")}
        known = {"HOME": str(home), "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": self.token, "OMP_NUM_THREADS": "1"}
        with open(home / to, "w") as file:
            process = subprocess.Popen(
                ["ip", "netns", "exec", self.name(host), *command],
                env={**kept, **known, **env},
                stdout=file,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                text=True,
                start_new_session=True,
            )
        self.processes.append(process)
        return process

    def start(self, host: int, *, cpus: int = 2) -> None:
        """`ray start` there, until it runs: the head on the first host, which the others join."""
        head = ["--head", f"--port={PORT}", "--include-dashboard=false"]
        if self.system_config:
            head.append(f"--system-config={json.dumps(self.system_config)}")
        command = [sys.executable, "-m", "ray.scripts.scripts", "start", "--block", "--disable-usage-stats"]
        command += head if host == 0 else [f"--address={self.cluster}"]
        command += [f"--node-ip-address={self.address(host)}", f"--num-cpus={cpus}", "--num-gpus=0"]
        command += ["--object-store-memory=100000000", f"--temp-dir={self.folder / f't{host}'}"]
        process = self.run(host, command, to="ray", RAY_enable_worker_prestart="0")
        end = time.monotonic() + READY_SECONDS
        while "Ray runtime started" not in self.output(host, "ray"):
            if process.poll() is not None or time.monotonic() > end:
                raise OSError(f"Ray did not start on host {host}:\n{self.output(host, 'ray')}")
            time.sleep(0.1)

    def output(self, host: int, of: str = "output") -> str:
        file = self.folder / str(host) / of
        return file.read_text() if file.exists() else ""

    def records(self, host: int, of: str = "output") -> list[dict[str, Any]]:
        """What was printed as JSON objects, one to a line; the last line may not be whole yet."""
        whole = self.output(host, of).rpartition("\n")[0]
        return [json.loads(line) for line in whole.splitlines() if line.startswith("{")]

    def pids(self, host: int) -> list[int]:
        return [int(word) for word in ip("netns", "pids", self.name(host)).split()]

    def kill(self, host: int) -> None:
        """SIGKILL to every process of that host, until there is none."""
        while pids := self.pids(host):
            for pid in pids:
                with suppress(ProcessLookupError):  # it went by itself
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.01)

    def clear(self) -> None:
        """Leave nothing behind, whatever has been made of it."""
        there = {line.split()[0] for line in ip("netns", "list").splitlines()}
        for host in range(self.n):
            if self.name(host) in there:
                self.kill(host)
                ip("netns", "del", self.name(host))
        if self.hub in there:
            ip("netns", "del", self.hub)
        for process in self.processes:
            process.wait(timeout=10)


@contextmanager
def hosts(n: int) -> Iterator[Net]:
    """`n` of them, and nothing left of them afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="g", dir="/tmp"))  # short: the names of sockets must be
    net = Net(n, folder)
    try:
        net.make()
        yield net
    finally:
        net.clear()
        shutil.rmtree(folder, ignore_errors=True)
