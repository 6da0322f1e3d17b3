"""Cores are counted with the processes of environments, and a GPU's figures are averaged over time."""

from __future__ import annotations

import multiprocessing
import os
import re
import signal
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from gossamer.config.build import program
from gossamer.config.resolve import configure
from gossamer.system import usage
from gossamer.system.usage import (
    NVML,
    CPUClock,
    GPUSample,
    Usage,
    cpu_seconds,
    descendants,
    environments,
    open_gpu,
    seconds_of,
    told,
)
from gossamer.training import session


def test_busy_cores_count_threads_and_processes_of_environments() -> None:
    used = CPUClock()
    spin = multiprocessing.get_context("spawn").Process(target=_spin, daemon=True)
    spin.start()
    while not spin.pid or seconds_of(spin.pid) < 0.2:
        assert spin.is_alive()
    assert cpu_seconds(environments())[spin.pid] >= 0.1
    assert used.seconds() >= 0.1
    assert used.cores() > 0
    spin.terminate()
    spin.join()
    assert seconds_of(spin.pid) == 0.0


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has /proc")
def test_descendants_are_those_of_children_too() -> None:
    program = "import subprocess, sys; p = subprocess.Popen(['sleep', '60']); print(p.pid, flush=True); p.wait()"
    child = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    grandchild = int(child.stdout.readline())
    assert {child.pid, grandchild} <= set(descendants())
    assert os.getpid() not in descendants()
    os.kill(grandchild, signal.SIGKILL)
    child.wait()
    child.stdout.close()
    assert not {child.pid, grandchild} & set(descendants())


def test_a_process_counts_until_it_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = [{1: 5.0, 2: 8.0}, {1: 6.0, 2: 10.0}, {1: 6.5}, {1: 7.0, 3: 0.25}]
    monkeypatch.setattr(usage, "cpu_seconds", lambda others: seen.pop(0))
    used = CPUClock()
    # 1 + 2 seconds; then 0.5, and process 2 has ended; then 0.5, and 0.25 of a new process
    assert [used.seconds() for _ in range(3)] == [3.0, 3.5, 4.25]


def _spin() -> None:
    while True:
        pass


class Watch:
    def __init__(self) -> None:
        self.time = 5.0

    def __call__(self) -> float:
        return self.time


class Samples:
    """A GPU with these figures, one after the other."""

    def __init__(self, *samples: GPUSample | None) -> None:
        self._samples = list(samples)

    def sample(self) -> GPUSample | None:
        return self._samples.pop(0)


def test_means_are_weighted_with_time_and_energy_adds_up(monkeypatch: pytest.MonkeyPatch) -> None:
    watch, cpu = Watch(), Watch()
    monkeypatch.setattr(usage, "cpu_seconds", lambda others: {1: cpu.time})
    gpu = Samples(
        GPUSample(0.2, 10**9, 100.0), GPUSample(0.8, 3 * 10**9, 300.0), None, GPUSample(0.5, 2 * 10**9, 200.0)
    )
    used = Usage(gpu, now=watch)
    assert (used.row(), used.overall()) == ({}, {})
    for seconds, busy in ((1.0, 1.5), (3.0, 4.5), (1.0, 0.0)):  # at the last one the GPU did not answer
        watch.time += seconds
        cpu.time += busy
        used.sample()
    # (0.2 x 1 + 0.8 x 3) / 4, (100 x 1 + 300 x 3) / 4, and 6 CPU seconds in 5 seconds
    row = {"cores_busy": 1.2, "gpu_utilization": 0.65, "gpu_memory_gb": 3.0, "gpu_watts": 250.0}
    assert used.row() == row
    watch.time += 2.0
    used.sample()
    assert used.row() == {"cores_busy": 0.0, "gpu_utilization": 0.5, "gpu_memory_gb": 2.0, "gpu_watts": 200.0}
    assert used.overall()["gpu_joules"] == 1000.0 + 400.0
    assert told(row, 2) == "1.2 of 2 cores busy; GPU 65%, 3.0 GB, 250 W"


@pytest.mark.parametrize(
    ("cluster", "count", "known"), [(None, 1, True), (None, 2, False), ("local", 1, True), ("local", 2, False)]
)
def test_energy_is_left_out_if_other_gpus_use_some_too(
    cluster: str | None, count: int, known: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
    monkeypatch.setattr(session, "open_gpu", lambda device: (Samples(GPUSample(0.5, 10**9, 200.0)), ""))
    wired = program(configure("pala", env="catch", device="cuda", hosts=2), cluster=cluster)
    used, _ = session._usage("cuda", cluster, wired)
    assert used is not None
    used.sample()
    assert ("gpu_joules" in used.overall()) == known
    assert used.overall()["gpu_utilization"] == 0.5


def test_without_a_gpu_there_are_cores_only(monkeypatch: pytest.MonkeyPatch) -> None:
    watch = Watch()
    used = Usage(now=watch)
    watch.time += 1.0
    used.sample()
    assert used.row().keys() == used.overall().keys() == {"cores_busy"}
    assert told({"cores_busy": 1.95}, 2) == "1.9 of 2 cores busy"
    assert told({}, 2) == ""


class NVMLError(Exception):
    pass


def library(**replaced: Any) -> SimpleNamespace:
    """A stand-in for pynvml with one GPU, which has the figures of the functions' documentation."""
    functions: dict[str, Any] = {
        "NVMLError": NVMLError,
        "nvmlInit": lambda: None,
        "nvmlDeviceGetHandleByUUID": lambda uuid: {"GPU-ab": 0}[uuid],
        "nvmlDeviceGetUtilizationRates": lambda handle: SimpleNamespace(gpu=63, memory=10),  # percent
        "nvmlDeviceGetMemoryInfo": lambda handle: SimpleNamespace(total=80, used=7, free=73),  # bytes
        "nvmlDeviceGetPowerUsage": lambda handle: 210_500,  # milliwatts
    }
    return SimpleNamespace(**{**functions, **replaced})


def raising(*args: object) -> None:
    raise NVMLError("GPU is lost")


def test_nvml_has_percent_bytes_and_milliwatts() -> None:
    for uuid in ("ab", "GPU-ab"):
        assert NVML(library(), uuid).sample() == GPUSample(0.63, 7, 210.5)


def test_a_gpu_that_is_lost_later_gives_nothing() -> None:
    made = library()
    gpu = NVML(made, "ab")
    made.nvmlDeviceGetPowerUsage = raising
    assert gpu.sample() is None


@pytest.mark.parametrize(
    ("module", "reason"),
    [
        (None, r"pip install .*gpu"),
        (library(nvmlInit=raising), "not measured: GPU is lost"),
        (library(nvmlDeviceGetUtilizationRates=raising), "not measured: GPU is lost"),
        (library(), ""),
    ],
)
def test_a_note_says_why_a_gpu_is_not_measured(
    module: SimpleNamespace | None, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", module)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: SimpleNamespace(uuid="ab"))
    gpu, told_why = open_gpu("cuda")
    assert (gpu is None) == bool(reason)
    assert re.search(reason, told_why)
    assert open_gpu("cpu") == (None, "")
