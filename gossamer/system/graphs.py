"""CUDA graphs: a GPU's work that is recorded once and then repeated with one call.

The host needs some microseconds to start each operation on a GPU, whatever its size, and a step or an update of a small
network has hundreds. A graph starts all of them at once. It repeats the very operations that were recorded, on the same
memory: what changes between repetitions has to be copied there, and the results are overwritten each time."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import cache
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor, nn

T = TypeVar("T")

WARM = 2  # calls of a form before one is recorded: they load kernels and allocate what is kept
MOST = 16  # recordings of a function

# torch's own generator is part of every recording. While one is made, none can be repeated, nor another one be made
_GENERATOR = threading.Lock()
_thread = threading.local()  # `records`: see `recording`


@dataclass(frozen=True)
class Recording(Generic[T]):
    """Work that has been recorded."""

    replay: Callable[[], None]  # do the work, on the calling thread's stream
    result: T  # of the work. Its tensors have a content after each `replay`, until the next


class Recorder:
    """Records work that is done in the order of the recordings, and never at the same time: they share memory."""

    def __init__(self, device: torch.device, rngs: Sequence[torch.Generator] = ()) -> None:
        """`device`: the GPU of the work; `rngs`: the generators on it that the work draws from. Each repetition draws
        on."""
        self._device, self._rngs, self._pool = device, rngs, torch.cuda.graph_pool_handle()

    def __call__(self, work: Callable[[], T]) -> Recording[T]:
        """Record what `work` starts on the GPU, without doing it. Raises `RuntimeError` for work that reads from the
        GPU or copies from pageable memory."""
        graph = torch.cuda.CUDAGraph()
        for rng in self._rngs:
            graph.register_generator_state(rng)
        with _GENERATOR:
            stream = _stream(self._device)
            stream.wait_stream(torch.cuda.current_stream(self._device))
            with torch.cuda.stream(stream):
                # Other threads go on using the GPU meanwhile, and may allocate memory
                graph.capture_begin(pool=self._pool, capture_error_mode="thread_local")
                _thread.records = True
                try:
                    result = work()
                finally:
                    _thread.records = False
                    graph.capture_end()
            torch.cuda.current_stream(self._device).wait_stream(stream)

        def replay() -> None:
            with _GENERATOR:
                graph.replay()

        return Recording(replay, result)


@cache
def _stream(device: torch.device) -> torch.cuda.Stream:
    """The stream on which all recordings of a GPU are made, while `_GENERATOR` is held. torch gives out the same 32
    streams again and again: another worker's work would be recorded with ours if it had this one. Workers have streams
    of the default priority, which are others."""
    return torch.cuda.Stream(device, priority=-1)  # type: ignore[no-untyped-call]


def recording() -> bool:
    """Whether what the calling thread starts on the GPU is being recorded."""
    return getattr(_thread, "records", False)


def addresses(tensors: Sequence[Tensor]) -> tuple[int, ...]:
    """Where tensors lie. Recordings of work on other memory are of no use."""
    return tuple(each.data_ptr() for each in tensors)


def forms(tensors: dict[str, Tensor]) -> tuple[Any, ...]:
    """The names, shapes and types of tensors, for which a recording is right."""
    return tuple((name, each.shape, each.dtype) for name, each in tensors.items())


class Repeated(Generic[T]):
    """Calls a function of tensors that has no other effects. Calls of a form that comes again are recorded, and then
    repeated: with the parameters of then, as long as they stay where they are in memory."""

    def __init__(
        self,
        work: Callable[[Tensor, dict[str, Tensor]], T],
        model: nn.Module,
        *,
        records: bool,
        rngs: Sequence[torch.Generator] = (),
    ) -> None:
        """`work`: returns tensors, also in tuples, dicts or dataclasses; `model`: whose parameters it reads; `records`:
        whether anything is recorded, which needs a GPU; `rngs`: see `Recorder`."""
        self._work, self._model, self._records, self._rngs = work, model, records, rngs
        self._seen = Counter[Any]()  # form -> calls, since the last recording
        self._known = dict[Any, _Known[T]]()

    @torch.no_grad()
    def __call__(self, tensor: Tensor, others: dict[str, Tensor]) -> T:
        """The function's result."""
        known = self._recorded(tensor, others) if self._records else None
        return self._work(tensor, others) if known is None else known(tensor, others)

    def _recorded(self, tensor: Tensor, others: dict[str, Tensor]) -> _Known[T] | None:
        """The recording for tensors of this form, if it comes often enough."""
        form = tensor.shape, forms(others), addresses(list(self._model.parameters()))
        if form in self._known or len(self._known) == MOST:
            return self._known.get(form)
        self._seen[form] += 1
        if self._seen[form] <= WARM:
            return None
        self._seen.clear()  # some forms do not come again
        try:
            self._known[form] = _Known(self._work, Recorder(tensor.device, self._rngs), tensor, others)
        except RuntimeError:  # a user's network may read from the GPU
            self._records = False
            return None
        return self._known[form]


class _Known(Generic[T]):
    """A recorded function for tensors of one form."""

    def __init__(
        self,
        work: Callable[[Tensor, dict[str, Tensor]], T],
        recorder: Recorder,
        tensor: Tensor,
        others: dict[str, Tensor],
    ) -> None:
        self._tensor = torch.empty_like(tensor).copy_(tensor)
        self._others = {name: torch.empty_like(each).copy_(each) for name, each in others.items()}
        self._recording = recorder(lambda: work(self._tensor, self._others))

    def __call__(self, tensor: Tensor, others: dict[str, Tensor]) -> T:
        self._tensor.copy_(tensor)
        for name, each in others.items():
            self._others[name].copy_(each)
        self._recording.replay()
        result: T = _cloned(self._recording.result)
        return result


def _cloned(tree: Any) -> Any:
    """A copy of the tensors in a result."""
    if isinstance(tree, Tensor):
        return tree.clone()
    if isinstance(tree, tuple):
        return tuple(_cloned(each) for each in tree)
    if isinstance(tree, dict):
        return {name: _cloned(each) for name, each in tree.items()}
    if is_dataclass(tree) and not isinstance(tree, type):
        return replace(tree, **{each.name: _cloned(getattr(tree, each.name)) for each in fields(tree)})
    return tree
