"""The cores and the GPU that this process may use."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from gossamer.system.processes import cores

GB = 10**9


@dataclass(frozen=True)
class Resources:
    """What a run can compute with."""

    cores: int
    gpu_memory: int = 0  # bytes; 0: no GPU

    def __str__(self) -> str:
        gpu = f"a GPU with {self.gpu_memory / GB:.0f} GB" if self.gpu_memory else "no GPU"
        return f"{self.cores} core{'s' * (self.cores != 1)}, {gpu}"


def resources(device: str) -> Resources:
    """The resources of this machine for a run on `device`: auto, cpu, cuda or cuda:N. A GPU that does not exist counts
    as none."""
    kind, _, index = device.replace("auto", "cuda").partition(":")
    number = int(index or 0) if index.isdecimal() or not index else -1
    if kind != "cuda" or not 0 <= number < torch.cuda.device_count():
        return Resources(cores())
    return Resources(cores(), torch.cuda.get_device_properties(number).total_memory)
