"""Where a run takes place is checked before anything is written, and what a user should know of it is said."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from types import ModuleType
from typing import Any

import pytest

from gossamer.config.names import ARCHITECTURES, load
from gossamer.launch.ray.errors import HostFailed
from gossamer.program import Program
from gossamer.system.errors import UserError
from gossamer.system.options import declared
from gossamer.training import cluster


def on_gpus(hosts: int) -> Program:
    program = Program("learners")
    for host in range(hosts):
        with program.host(f"host{host}", gpus=1):
            program.worker(print)()
    return program


def test_hosts_that_share_a_gpu_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "connected", lambda address, program: nullcontext())
    monkeypatch.setattr(cluster, "nodes", lambda ray: {"a": (4.0, 1.0)})
    with cluster.on_cluster("local", on_gpus(1)) as place:
        assert place.note is None
    with cluster.on_cluster("local", on_gpus(2)) as place:
        assert place.note == "up to 2 hosts share a GPU: host0, host1"


def test_without_a_gpu_the_cpu_is_suggested(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "connected", lambda address, program: nullcontext())
    monkeypatch.setattr(cluster, "nodes", lambda ray: {"a": (4.0, 0.0)})
    refused = pytest.raises(UserError, match=r"^--cluster local: host 'host0' needs .* 0 gpus; or use --device cpu$")
    with refused, cluster.on_cluster("local", on_gpus(1)):
        pass


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("appo", "--env-workers, --actors or --learners"),
        ("ga3c", "--env-workers or --agents"),
        ("apex", "--env-workers or --actors"),
        ("paac", "--env-workers"),
    ],
)
def test_what_would_fit_a_node_is_suggested(name: str, options: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "connected", lambda address, program: nullcontext())
    monkeypatch.setattr(cluster, "nodes", lambda ray: {"a": (4.0, 0.0), "b": (2.0, 0.0)})
    program, names = Program(name), declared(load("architecture", name, ARCHITECTURES))
    with program.host("machine", cpus=5):
        program.worker(print)()
    refused = pytest.raises(UserError, match=rf"needs 5 cpus, .*; 4 would fit: use a smaller {options}$")
    with refused, cluster.on_cluster("auto", program, names):
        pass


def test_a_host_that_fails_for_good_is_an_error_for_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "connected", lambda address, program: nullcontext())
    monkeypatch.setattr(cluster, "nodes", lambda ray: {"a": (4.0, 1.0)})
    told = pytest.raises(UserError, match=r"^host main has failed 2 times$")
    with told, cluster.on_cluster("local", on_gpus(1)):
        raise HostFailed("host main has failed 2 times")


def test_a_cluster_of_this_machine_that_does_not_start_is_an_error_for_the_user(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def init(**options: Any) -> None:
        raise OSError("AF_UNIX path length\ncannot exceed 107 bytes")

    ray = ModuleType("ray")
    ray.is_initialized = lambda: False  # type: ignore[attr-defined]
    ray.init = init  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "ray", ray)
    told = r"^--cluster local: Ray does not start \(AF_UNIX path length cannot exceed 107 bytes\)$"
    with pytest.raises(UserError, match=told), cluster.on_cluster("local", on_gpus(1)):
        pass
    assert capsys.readouterr().err == "starting Ray\n"
