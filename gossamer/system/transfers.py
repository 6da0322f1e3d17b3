"""Copies from host memory to a GPU, and tensors that pass from one worker's stream to another's.

A copy from pageable memory makes the host wait until the GPU has done everything before it. From page-locked memory it
is queued like a kernel. torch keeps freed page-locked blocks for later copies, and reuses a block only after the copies
from it are done."""

from __future__ import annotations

from typing import Any

import numpy.typing as npt
import torch
from torch import Tensor


def copy_in(into: Tensor, array: npt.NDArray[Any]) -> None:
    """Copy an array to a tensor of the same shape. The array may change afterwards, although a GPU copies later."""
    source = torch.from_numpy(array)
    if into.is_cuda:
        into.copy_(source.pin_memory(), non_blocking=True)
    else:
        into.copy_(source)


def uploaded(tensor: Tensor, device: torch.device | str) -> Tensor:
    """The tensor on this device. A copy to a GPU does not wait, and the original may change afterwards."""
    if torch.device(device).type == "cuda" and not tensor.is_cuda:
        return tensor.pin_memory().to(device, non_blocking=True)
    return tensor.to(device)


def recorded(tensor: Tensor) -> torch.cuda.Event | None:
    """When the tensor, which this thread computes on a GPU, is there; None on the CPU."""
    return torch.cuda.current_stream(tensor.device).record_event() if tensor.is_cuda else None


def received(tensor: Tensor, ready: torch.cuda.Event | None) -> Tensor:
    """The tensor of another thread, for use on this one's stream. `ready`: see `recorded`. Nothing waits but the
    stream."""
    if tensor.is_cuda and ready is not None:
        stream = torch.cuda.current_stream(tensor.device)
        stream.wait_event(ready)
        tensor.record_stream(stream)  # its memory is not reused before this stream is done with it
    return tensor
