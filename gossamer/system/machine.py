"""Settings of the C allocator, of OpenMP and of arithmetic for this program, and a description of the machine."""

from __future__ import annotations

import ctypes
import os
import platform
import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from gossamer.system.processes import cores, memory_limit
from gossamer.system.version import __version__

_TRIM_THRESHOLD, _MMAP_MAX, _ARENA_MAX = -1, -4, -8  # glibc, malloc.h
_WANTED = {_TRIM_THRESHOLD: 2**31 - 1, _MMAP_MAX: 0, _ARENA_MAX: 1}

# The same as environment variables, for new processes: a process with threads already has several arenas.
KEEP_FREED_MEMORY = {
    "MALLOC_TRIM_THRESHOLD_": str(_WANTED[_TRIM_THRESHOLD]),
    "MALLOC_MMAP_MAX_": str(_WANTED[_MMAP_MAX]),
    "MALLOC_ARENA_MAX": str(_WANTED[_ARENA_MAX]),
}


def keep_freed_memory() -> bool:
    """Keep freed memory in the process instead of returning it to the kernel. Returns whether the allocator agreed.

    Each update allocates and frees the same inputs and activations, of several MB to 100 MB. By default glibc returns
    such blocks at once, and the next block costs a page fault every 4 KiB: a third of the time of an update of the
    Nature network. So malloc may not map blocks one by one (its threshold for this is at most 32 MiB), and all threads
    share one arena, because other arenas return freed memory in spite of these settings. Call it before threads start:
    glibc does not take back arenas."""
    if sys.platform != "linux":
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except AttributeError:  # musl has no mallopt
        return False
    taken = [mallopt(*pair) == 1 for pair in _WANTED.items()]  # set all of them, even if one is refused
    return all(taken)


def flush_denormals() -> bool:
    """Count numbers below 1.2e-38 as zero, on the calling thread and on the threads that it starts from now on, such as
    its OpenMP team. Returns whether the processor can.

    Where a unit is dead its gradient is zero, and Adam's mean of gradients decays to such a number and stays there: a
    third of the means in long runs. Processors compute with them in microcode, and an optimizer step takes ten times
    as long, although what they add to a parameter is nearly always rounded away."""
    return torch.set_flush_denormal(True)


def use_threads(count: int) -> None:
    """Set torch's number of threads for the calling thread.

    torch keeps a number for each thread, but a thread's first operation resets it to the number that any thread has set
    last, even if this thread has set its own before. Reading the number counts as the first operation, so that what is
    set after it stays."""
    torch.get_num_threads()
    torch.set_num_threads(count)


def use_gpu(device: str) -> None:
    """Make the GPU of a resolved device the calling thread's current one; nothing on a CPU. A thread begins with the
    first GPU, which torch uses where a call names none, and would allocate memory on."""
    gpu = torch.device(device)
    if gpu.type == "cuda" and gpu.index is not None:
        torch.cuda.set_device(gpu)


@contextmanager
def single_threaded() -> Iterator[None]:
    """Run torch with one thread on the calling thread, which only starts other threads and waits for them.

    Each thread that calls torch gets its own OpenMP team. If there are more OpenMP threads than cores, all teams sleep
    at each barrier instead of spinning, and small forward passes take nearly twice as long."""
    before = torch.get_num_threads()
    use_threads(1)
    try:
        yield
    finally:
        use_threads(before)


@dataclass(frozen=True)
class HostInfo:
    """What a host computed with. The values `auto` and 0 of the configuration are resolved."""

    node: str  # the machine's name
    device: str
    precision: str  # fp32 or bf16
    threads: int  # of torch, for each learner
    processor: str
    cores: int | None
    gpu: str | None
    python: str
    torch: str
    gossamer: str


def host_info(*, device: str, dtype: torch.dtype, threads: int) -> HostInfo:
    """The `HostInfo` of this process."""
    return HostInfo(
        node=platform.node(),
        device=device,
        precision="bf16" if dtype == torch.bfloat16 else "fp32",
        threads=threads,
        python=platform.python_version(),
        gossamer=__version__,
        **machine(device),
    )


def differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """The differences between two `HostInfo` as text: `threads 4, now 2; torch 2.8, now 2.9`."""
    return "; ".join(f"{name} {old}, now {now[name]}" for name, old in before.items() if now.get(name, old) != old)


def resolve_device(name: str) -> str:
    """Resolve `auto` in this process: cuda if it sees a GPU, else cpu. Other names are returned unchanged."""
    if name != "auto":
        return name
    return "cuda" if torch.cuda.is_available() else "cpu"


def multiplies_bfloat16(device: str) -> bool:
    """Whether this device has units that multiply matrices of bfloat16: GPUs that compute it natively, and processors
    with AMX."""
    if device.startswith("cuda"):  # what `torch.cuda.is_bf16_supported` says of the thread's current GPU
        rocm = torch.version.hip is not None
        return torch.cuda.is_available() and (rocm or torch.cuda.get_device_properties(device).major >= 8)
    return bool(torch.cpu._is_amx_tile_supported())


def resolve_dtype(device: str, *, pictures: bool) -> torch.dtype:
    """The dtype that `--precision auto` means on this device: bfloat16 where it is faster than float32, else float32.
    `pictures`: whether observations have pictures, so that the network has convolutions.

    On a processor, networks without convolutions are small, and casts take longer than products: in bfloat16, PAAC
    trains at 0.67 to 0.77 times its speed on Catch and CartPole. Convolutions are faster with AMX, and with AVX-512's
    bfloat16 on an AMD processor (APPO on Pong trains 1.25 times as fast; `benchmarks.precision`), but not on a Xeon
    without AMX (acting takes 1.3 times, updates 1.4 times as long)."""
    if multiplies_bfloat16(device):
        faster = pictures or device.startswith("cuda")
    else:
        faster = pictures and device == "cpu" and torch.cpu._is_avx512_bf16_supported() and _is_amd()
    return torch.bfloat16 if faster else torch.float32


def _is_amd() -> bool:
    return _of_processor("vendor_id") == "AuthenticAMD"


def _of_processor(name: str) -> str | None:
    """A field of Linux' description of the processor; None where there is none."""
    try:
        with open("/proc/cpuinfo") as file:
            return next((line.split(":")[1].strip() for line in file if line.startswith(name)), None)
    except OSError:
        return None


def settle(device: torch.device | str) -> None:
    """Wait until what this thread has begun on a GPU is done. Workers of one GPU have streams of their own, so this
    comes before a tensor is handed over to another one. On the CPU there is nothing to wait for."""
    if torch.device(device).type == "cuda":
        torch.cuda.current_stream(device).synchronize()


def machine(device: str = "auto") -> dict[str, Any]:
    """The machine that a figure was measured on. `device`: which of several GPUs it was, such as `cuda:1`."""
    model = _of_processor("model name") or platform.processor() or platform.machine()
    which = device if device.startswith("cuda") else None
    gpu = torch.cuda.get_device_name(which) if torch.cuda.is_available() else None
    return {"processor": model, "cores": cores(), "gpu": gpu, "torch": torch.__version__}


def total_memory() -> int:
    """Bytes of memory that this machine has, or that a container may use of them."""
    return min(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"), memory_limit() or sys.maxsize)


def free_space(folder: Path) -> int:
    """Bytes that are free on the disk of a folder, which need not exist yet."""
    there = next(each for each in (folder.absolute(), *folder.absolute().parents) if each.exists())
    return shutil.disk_usage(there).free
