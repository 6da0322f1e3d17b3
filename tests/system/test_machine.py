"""The C allocator's settings, in a process of their own; and the precision that is fast on a machine."""

from __future__ import annotations

import ctypes
import subprocess
import sys
import threading
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from some_parts import a_task

from gossamer import task
from gossamer.envs.toy import Catch
from gossamer.policy import build
from gossamer.system import machine
from gossamer.workers.member import prepared

PAGES = 2**26 // 4096
SCRIPT = """
import ctypes, resource, threading
import numpy as np
from gossamer.system.machine import keep_freed_memory

PR_SET_THP_DISABLE = 41  # a huge page would be one fault
ctypes.CDLL(None).prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0)
print(keep_freed_memory())


def work():
    faults = []
    for _ in range(4):
        before = resource.getrusage(resource.RUSAGE_THREAD).ru_minflt
        np.ones(2**26, np.uint8)  # as malloc gives it; glibc before 2.38 does not reuse each aligned block
        faults.append(resource.getrusage(resource.RUSAGE_THREAD).ru_minflt - before)
    print(*faults)


for _ in range(2):
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
"""


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallopt"), reason="the C library has no mallopt")
def test_freed_blocks_stay_in_the_process() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True)
    agreed, *threads = done.stdout.splitlines()
    assert agreed == "True"
    first, second = ([int(faults) for faults in thread.split()] for thread in threads)
    assert first[0] > 0.9 * PAGES
    assert max(*first[1:], *second) < 0.1 * PAGES


def test_a_thread_keeps_its_number_of_threads_when_another_sets_its_own() -> None:
    found, mine, other = list[int](), threading.Event(), threading.Event()

    def work() -> None:
        machine.use_threads(3)
        mine.set()
        other.wait()
        found.append(torch.get_num_threads())

    worker = threading.Thread(target=work)
    worker.start()
    mine.wait()
    machine.use_threads(1)
    other.set()
    worker.join()
    assert found == [3]


def test_a_worker_begins_on_its_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    current = list[torch.device]()
    monkeypatch.setattr(torch.cuda, "set_device", current.append)
    for device in ("cpu", "cuda", "cuda:1"):  # `cuda`: the first one, as in every thread
        prepared(SimpleNamespace(copies=1, rank=0), replace(a_task(), device=device))  # type: ignore[arg-type]
    assert current == [torch.device("cuda:1")]


@pytest.mark.parametrize(
    ("amx", "avx512", "vendor", "fast"),
    [
        (True, True, "GenuineIntel", True),
        (False, True, "GenuineIntel", False),
        (False, True, "AuthenticAMD", True),
        (False, False, "AuthenticAMD", False),
        (False, False, None, False),  # not Linux
    ],
)
def test_a_processor_computes_pictures_in_what_is_fast_there(
    monkeypatch: pytest.MonkeyPatch, amx: bool, avx512: bool, vendor: str | None, fast: bool
) -> None:
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: amx)
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: avx512)
    monkeypatch.setattr(machine, "_of_processor", {"vendor_id": vendor}.get)
    assert machine.resolve_dtype("cpu", pictures=True) == (torch.bfloat16 if fast else torch.float32)
    assert machine.resolve_dtype("cpu", pictures=False) == torch.float32
    assert machine.multiplies_bfloat16("cpu") == amx


def test_each_gpu_computes_everything_in_what_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    of = {"cuda:0": (7, "Tesla V100"), "cuda:1": (9, "NVIDIA H100")}  # compute capability: bfloat16 from 8 on
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: SimpleNamespace(major=of[device][0]))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: of[device or "cuda:0"][1])
    for device, dtype in (("cuda:0", torch.float32), ("cuda:1", torch.bfloat16)):
        assert [machine.resolve_dtype(device, pictures=pictures) for pictures in (True, False)] == [dtype] * 2
        assert machine.host_info(device=device, dtype=dtype, threads=1).gpu == of[device][1]
    assert machine.machine()["gpu"] == "Tesla V100"
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert machine.resolve_dtype("cuda", pictures=True) == torch.float32
    assert machine.machine("cuda")["gpu"] is None


def test_a_model_computes_in_what_its_observations_need(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task, "resolve_dtype", lambda device, pictures: torch.bfloat16 if pictures else torch.float32)
    for env, wanted in ((Catch(pixels=True), torch.bfloat16), (Catch(), torch.float32)):
        spec = env.make(1).spec
        assert build(a_task(env, dtype=None), spec).compute_dtype == wanted
        assert build(a_task(env, dtype=torch.bfloat16), spec).compute_dtype == torch.bfloat16
