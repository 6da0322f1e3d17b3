"""How busy this machine is with a program: cores, and a GPU's utilisation, memory and power.

The GPU's figures come from the NVIDIA Management Library through nvidia-ml-py (the extra `gpu`). They are those of the
whole device: other programs on it count."""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch

from gossamer.system.installation import install

JOULES = 1e-3  # in a millijoule, NVML's unit of energy
WATTS = 1e-3  # in a milliwatt, its unit of power


def environments() -> list[int]:
    """Ids of the processes of this process's environments."""
    return [child.pid for child in multiprocessing.active_children() if child.pid is not None]


def descendants() -> list[int]:
    """Ids of all processes that this one has started, and of those that they have started; none where the system is
    not Linux."""
    children = dict[int, list[int]]()
    for file in Path("/proc").glob("[0-9]*/stat"):
        if fields := _fields(file):
            children.setdefault(int(fields[1]), []).append(int(file.parent.name))
    found, new = list[int](), [os.getpid()]
    while new := [child for parent in new for child in children.get(parent, ())]:
        found += new
    return found


class CPUClock:
    """Measures the CPU time of this process and of others; of this one alone, where the system is not Linux. A process
    that ends counts up to the last call before its end."""

    def __init__(self, others: Callable[[], Iterable[int]] = environments) -> None:
        """`others`: ids of the other processes now."""
        self._others = others
        self._begun, self._sum, self._seen = time.perf_counter(), 0.0, cpu_seconds(others())

    def seconds(self) -> float:
        """CPU seconds since the start."""
        before, self._seen = self._seen, cpu_seconds(self._others())
        self._sum += sum(max(0.0, used - before.get(pid, 0.0)) for pid, used in self._seen.items())
        return self._sum

    def cores(self) -> float:
        """Busy cores since the start, on average."""
        return self.seconds() / (time.perf_counter() - self._begun)


def cpu_seconds(others: Iterable[int]) -> dict[int, float]:
    """CPU seconds of this process and of others, by process id."""
    return {os.getpid(): time.process_time(), **{pid: seconds_of(pid) for pid in others}}


def seconds_of(pid: int) -> float:
    """CPU seconds of another process, 0 if they cannot be read."""
    fields = _fields(Path(f"/proc/{pid}/stat"))
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK") if fields else 0.0


def _fields(stat: Path) -> list[str]:
    """What Linux tells of a process after its name; empty if it cannot be read."""
    with suppress(OSError):
        return stat.read_text(errors="replace").rpartition(")")[2].split()
    return []


@dataclass(frozen=True)
class GPUSample:
    """A GPU's figures at one time."""

    utilization: float  # share of the last moments (1/6 to 1 s) in which a kernel ran
    memory: int  # bytes that all programs hold
    watts: float  # now


class GPU(Protocol):
    """Reads one GPU."""

    def sample(self) -> GPUSample | None: ...  # None: it cannot be read now


class NVML:
    """Reads one GPU through the NVIDIA Management Library."""

    def __init__(self, library: Any, uuid: str) -> None:
        """`library`: the module pynvml. `uuid`: as torch has it, since CUDA_VISIBLE_DEVICES changes numbers. Raises
        `library.NVMLError` if the library or the GPU cannot be used."""
        self._library = library
        library.nvmlInit()
        self._handle = library.nvmlDeviceGetHandleByUUID(uuid if uuid.startswith("GPU-") else f"GPU-{uuid}")
        self._read()

    def sample(self) -> GPUSample | None:
        """See `GPU`."""
        with suppress(self._library.NVMLError):  # a run does not end because its GPU cannot be watched
            return self._read()
        return None

    def _read(self) -> GPUSample:
        library, handle = self._library, self._handle
        return GPUSample(
            utilization=library.nvmlDeviceGetUtilizationRates(handle).gpu / 100,
            memory=int(library.nvmlDeviceGetMemoryInfo(handle).used),
            watts=library.nvmlDeviceGetPowerUsage(handle) * WATTS,
        )


def open_gpu(device: str) -> tuple[GPU | None, str]:
    """A reader of the GPU that a resolved device names (`cuda`, `cuda:1`), and why there is none: empty on a CPU."""
    if not device.startswith("cuda"):
        return None, ""
    try:
        import pynvml
    except ModuleNotFoundError:
        return None, f"the GPU's utilisation and power are not measured; run {install('gpu')}"
    uuid = str(torch.cuda.get_device_properties(torch.device(device)).uuid)
    try:
        return NVML(pynvml, uuid), ""
    except pynvml.NVMLError as error:
        return None, f"the GPU's utilisation and power are not measured: {error}"


@dataclass
class _Sums:
    """Of samples, each weighted with the seconds before it."""

    seconds: float = 0.0
    busy: float = 0.0  # CPU seconds
    utilization: float = 0.0
    joules: float = 0.0
    memory: int = 0  # the most
    sampled: float = 0.0  # seconds that GPU figures stand for

    def row(self) -> dict[str, float]:
        found = {"cores_busy": round(self.busy / self.seconds, 3)} if self.seconds else {}
        if self.sampled:
            found |= {
                "gpu_utilization": round(self.utilization / self.sampled, 3),
                "gpu_memory_gb": round(self.memory / 1e9, 3),
                "gpu_watts": round(self.joules / self.sampled, 1),
            }
        return found


def told(row: Mapping[str, float], cores: int) -> str:
    """A row in words; empty if there is none. `cores`: that this process may use."""
    if "cores_busy" not in row:
        return ""
    gpu = "; GPU {gpu_utilization:.0%}, {gpu_memory_gb:.1f} GB, {gpu_watts:.0f} W" if "gpu_watts" in row else ""
    return f"{row['cores_busy']:.1f} of {cores} cores busy" + gpu.format_map(row)


class Usage:
    """The use of this machine since the start, and since the last row. Call `sample` often."""

    def __init__(
        self,
        gpu: GPU | None = None,
        others: Callable[[], Iterable[int]] = environments,
        now: Callable[[], float] = time.monotonic,
        *,
        alone: bool = True,
    ) -> None:
        """`others`: see `CPUClock`; `alone`: whether the program uses no other GPU."""
        self._gpu, self._now, self._alone = gpu, now, alone
        self._at, self._cpu, self._used = now(), CPUClock(others), 0.0  # CPU seconds at the last sample
        self._all, self._interval = _Sums(), _Sums()

    def sample(self) -> None:
        """Add the time since the last call."""
        now, used = self._now(), self._cpu.seconds()
        seconds, busy = now - self._at, used - self._used
        self._at, self._used = now, used
        seen = None if self._gpu is None else self._gpu.sample()
        for sums in (self._all, self._interval):
            sums.seconds += seconds
            sums.busy += busy
            if seen is not None:
                sums.sampled += seconds
                sums.utilization += seen.utilization * seconds
                sums.joules += seen.watts * seconds
                sums.memory = max(sums.memory, seen.memory)

    def row(self) -> dict[str, float]:
        """Means since the last row (the most memory): `cores_busy`, `gpu_utilization`, `gpu_memory_gb`, `gpu_watts`."""
        row, self._interval = self._interval.row(), _Sums()
        return row

    def overall(self) -> dict[str, float]:
        """The same since the start, with the joules used as `gpu_joules`, unless other GPUs have used some, too."""
        energy = {"gpu_joules": round(self._all.joules, 1)} if self._all.sampled and self._alone else {}
        return self._all.row() | energy
