"""CUDA graphs: a GPU's work that is recorded once and then repeated with one call.

The host needs some microseconds to start each operation on a GPU, whatever its size, and a step or an update of a small
network has hundreds. A graph starts all of them at once. It repeats the very operations that were recorded, on the same
memory: what changes between repetitions has to be copied there, and the results are overwritten each time."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor

T = TypeVar("T")

# torch's own generator, of which each recording takes note, can be part of one recording at a time
_RECORDING = threading.Lock()
_thread = threading.local()  # `records`: see `recording`


@dataclass(frozen=True)
class Recording(Generic[T]):
    """Work that has been recorded."""

    replay: Callable[[], None]  # do the work, on the calling thread's stream
    result: T  # of the work. Its tensors have a content after each `replay`, until the next


class Recorder:
    """Records work that is done in the order of the recordings, and never at the same time: they share memory."""

    def __init__(self, rngs: Sequence[torch.Generator] = ()) -> None:
        """`rngs`: the generators on the GPU that the work draws from. Each repetition draws on."""
        self._rngs, self._pool = rngs, torch.cuda.graph_pool_handle()

    def __call__(self, work: Callable[[], T]) -> Recording[T]:
        """Record what `work` starts on the GPU, without doing it. Raises `RuntimeError` for work that reads from the
        GPU or copies from pageable memory."""
        graph, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream()  # type: ignore[no-untyped-call]
        for rng in self._rngs:
            graph.register_generator_state(rng)
        with _RECORDING:
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                # Other threads go on using the GPU meanwhile, and may allocate memory
                graph.capture_begin(pool=self._pool, capture_error_mode="thread_local")
                _thread.records = True
                try:
                    result = work()
                finally:
                    _thread.records = False
                    graph.capture_end()
            torch.cuda.current_stream().wait_stream(stream)
        return Recording(graph.replay, result)


def recording() -> bool:
    """Whether what the calling thread starts on the GPU is being recorded."""
    return getattr(_thread, "records", False)


def addresses(tensors: Sequence[Tensor]) -> tuple[int, ...]:
    """Where tensors lie. Recordings of work on other memory are of no use."""
    return tuple(each.data_ptr() for each in tensors)


def forms(*trees: Any) -> tuple[Any, ...]:
    """The names, shapes and types of the tensors in these dicts, for which recordings are right."""
    return tuple((name, each.shape, each.dtype) for tree in trees for name, each in tree.items())
