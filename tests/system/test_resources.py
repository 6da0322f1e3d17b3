"""What this process may use: affinity, control groups, the GPU."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from gossamer.system import machine, processes, resources
from gossamer.system.resources import Resources

PERIOD = {"cpu/x/cpu.cfs_period_us": "100000\n"}


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def of_groups(folder: Path, own: str, files: dict[str, str]) -> tuple[Path, Path]:
    """The root of control groups with these files, and the file of a process that says which are its own."""
    write(folder / "self", own)
    for name, text in files.items():
        write(folder / "groups" / name, text)
    return folder / "groups", folder / "self"


@pytest.mark.parametrize(
    ("own", "files", "expected"),
    [
        ("0::/\n", {"cpu.max": "max 100000\n"}, None),
        ("0::/\n", {"cpu.max": "150000 100000\n"}, 2),  # 1.5 cores: a third of the time of the second stays unused
        ("0::/a/b\n", {"a/b/cpu.max": "max 100000\n", "a/cpu.max": "300000 100000\n"}, 3),
        ("0::/not/seen/here\n", {"cpu.max": "20000 100000\n"}, 1),
        ("3:cpuset:/\n1:cpu,cpuacct:/x\n0::/\n", {"cpu/x/cpu.cfs_quota_us": "400000\n", **PERIOD}, 4),
        ("1:cpu:/x\n0::/\n", {"cpu/x/cpu.cfs_quota_us": "-1\n", **PERIOD}, None),
        ("", {}, None),
    ],
)
def test_the_least_limit_of_a_group_and_those_above_it(
    own: str, files: dict[str, str], expected: int | None, tmp_path: Path
) -> None:
    assert processes.quota(*of_groups(tmp_path, own, files)) == expected


@pytest.mark.parametrize(
    ("own", "files", "expected"),
    [
        ("0::/\n", {"memory.max": "max\n"}, None),
        ("0::/a/b\n", {"a/b/memory.max": "max\n", "a/memory.max": "8000000000\n"}, 8_000_000_000),
        ("4:memory:/x\n0::/\n", {"memory/x/memory.limit_in_bytes": "2000000000\n"}, 2_000_000_000),
        ("", {}, None),
    ],
)
def test_the_least_memory_of_a_group_and_those_above_it(
    own: str, files: dict[str, str], expected: int | None, tmp_path: Path
) -> None:
    assert processes.memory_limit(*of_groups(tmp_path, own, files)) == expected


def test_a_container_s_memory_is_what_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "memory_limit", lambda: None)
    whole = machine.total_memory()
    for limit, expected in ((1000, 1000), (2 * whole, whole)):
        monkeypatch.setattr(machine, "memory_limit", lambda limit=limit: limit)
        assert machine.total_memory() == expected


def test_a_quota_limits_the_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes.os, "sched_getaffinity", lambda pid: set(range(8)), raising=False)
    for limit, expected in ((None, 8), (3, 3), (99, 8)):
        monkeypatch.setattr(processes, "quota", lambda limit=limit: limit)
        assert processes.cores() == expected


@pytest.mark.parametrize(
    ("device", "memory"),
    [("auto", 8), ("cuda", 8), ("cuda:1", 80), ("cuda:2", 0), ("cpu", 0), ("gpu", 0), ("cuda:x", 0)],
)
def test_the_gpu_of_a_device(device: str, memory: int, monkeypatch: pytest.MonkeyPatch) -> None:
    found = [SimpleNamespace(total_memory=8), SimpleNamespace(total_memory=80)]
    monkeypatch.setattr(torch.cuda, "device_count", lambda: len(found))
    monkeypatch.setattr(torch.cuda, "get_device_properties", found.__getitem__)
    monkeypatch.setattr(resources, "cores", lambda: 4)
    assert resources.resources(device) == Resources(4, memory)
