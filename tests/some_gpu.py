"""A GPU that is not there: tensors lie in host memory, and are marked. What would wait for a GPU is counted, and what a
GPU would refuse raises an error."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter

CUDA, CPU = torch.device("cuda"), torch.device("cpu")
READS = {"_local_scalar_dense", "nonzero", "masked_select", "equal", "_unique2"}  # whose result the host needs


@dataclass
class Traffic:
    """What has gone over since the last `clear`."""

    reads: list[str] = field(default_factory=list)  # the host has waited for a result
    waits: list[str] = field(default_factory=list)  # it has waited for a copy from pageable memory, or for a stream
    queued: Counter[tuple[torch.dtype, int]] = field(default_factory=Counter)  # copies that do not wait: type, elements

    def clear(self) -> None:
        for each in (self.reads, self.waits, self.queued):
            each.clear()


def there(tensor: Tensor) -> bool:
    """Whether a tensor lies on the GPU."""
    return getattr(tensor.untyped_storage(), "gpu", False)


def _mark(tensor: Tensor, name: str, value: bool) -> None:
    setattr(tensor.untyped_storage(), name, value)


def _tensors(tree: Any) -> list[Tensor]:
    return [each for each in tree_iter(tree) if isinstance(each, Tensor)]


class Operations(TorchDispatchMode):
    """Marks the results of operations on the GPU's tensors, those of the backward pass and of optimizers included."""

    def __init__(self, traffic: Traffic) -> None:
        super().__init__()
        self.traffic = traffic

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given, name = _tensors((args, kwargs)), function.overloadpacket.__name__
        on_gpu = any(map(there, given))
        if on_gpu:
            self._check(name, given, args)
        result = function(*args, **(kwargs or {}))
        if on_gpu and name != "copy_":
            for each in _tensors(result):
                _mark(each, "gpu", True)
        return result

    def _check(self, name: str, given: list[Tensor], args: Any) -> None:
        if name in READS:
            self.traffic.reads.append(name)
        if name in ("index", "index_put", "index_put_") and any(each.dtype == torch.bool for each in _tensors(args[1])):
            self.traffic.reads.append(f"{name} by a mask")
        strays = [tuple(each.shape) for each in given if not there(each) and each.dim()]
        if strays and name != "copy_" and "index" not in name:
            raise RuntimeError(f"{name}: tensors {strays} are in host memory, others are not")
        if strays and name in ("index", "index_put_"):
            self.traffic.waits.append(f"{name} by indices in host memory")


class Calls(TorchFunctionMode):
    """Stands in for what Python code asks of a device."""

    def __init__(self, traffic: Traffic) -> None:
        super().__init__()
        self.traffic = traffic

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        owner = getattr(function, "__self__", None)
        name = getattr(owner, "__name__", "") if function.__name__ == "__get__" else function.__name__
        known = getattr(self, f"_{name}", None)
        if known is not None and args and isinstance(args[0], Tensor):
            return known(function, args, kwargs)
        wanted = kwargs.get("device")
        if wanted is None:
            return function(*args, **kwargs)
        made = function(*args, **{**kwargs, "device": CPU})
        if torch.device(wanted) == CUDA:
            if function in (torch.tensor, torch.as_tensor):
                self.traffic.waits.append(f"torch.{name} from the host")
            _mark(made, "gpu", True)
        return made

    def _is_cuda(self, function: Any, args: Any, kwargs: Any) -> bool:
        return there(args[0])

    def _device(self, function: Any, args: Any, kwargs: Any) -> torch.device:
        return CUDA if there(args[0]) else CPU

    def _tolist(self, function: Any, args: Any, kwargs: Any) -> Any:
        if there(args[0]):
            self.traffic.reads.append("tolist")
        return function(*args, **kwargs)

    def _cpu(self, function: Any, args: Any, kwargs: Any) -> Tensor:
        return self._to(Tensor.to, (args[0], CPU), {})

    def _numpy(self, function: Any, args: Any, kwargs: Any) -> Any:
        if there(args[0]):
            raise TypeError("can't convert a cuda tensor to numpy")
        return function(*args, **kwargs)

    def _pin_memory(self, function: Any, args: Any, kwargs: Any) -> Tensor:
        pinned = args[0].clone(memory_format=torch.preserve_format)
        _mark(pinned, "pinned", True)
        return pinned

    def _to(self, function: Any, args: Any, kwargs: Any) -> Tensor:
        tensor, *rest = args
        wanted = kwargs.pop("device", None)
        if wanted is None and rest and isinstance(rest[0], torch.device | str):
            wanted = rest.pop(0)
        elif rest and rest[0] is None:  # `Module.to`
            rest.pop(0)
        elif rest and isinstance(rest[0], Tensor):
            raise NotImplementedError("to(other)")
        blocks = not (kwargs.pop("non_blocking", False) or (len(rest) > 1 and rest[1]))
        made: Tensor = function(tensor, *[each for each in rest if not isinstance(each, bool)], **kwargs)
        if wanted is None or (torch.device(wanted) == CUDA) == there(tensor):
            return made
        return self._moved(tensor, made.clone() if made is tensor else made, torch.device(wanted) == CUDA, blocks)

    def _copy_(self, function: Any, args: Any, kwargs: Any) -> Tensor:
        into, source, *rest = args
        result: Tensor = function(into, source)
        if there(into) != there(source) and source.dim():
            self._count(source, there(into), not (kwargs.get("non_blocking") or rest))
        return result

    def _moved(self, source: Tensor, made: Tensor, up: bool, blocks: bool) -> Tensor:
        self._count(source, up, blocks)
        _mark(made, "gpu", up)
        return made

    def _count(self, source: Tensor, up: bool, blocks: bool) -> None:
        if not up:
            self.traffic.reads.append("copy to the host")
        elif blocks or not getattr(source.untyped_storage(), "pinned", False):
            self.traffic.waits.append(f"copy of {tuple(source.shape)} from pageable memory")
        else:
            self.traffic.queued[source.dtype, source.numel()] += 1


class Stream:
    """A stream of the GPU, on which everything is done at once."""

    def __init__(self, traffic: Traffic) -> None:
        self.traffic = traffic

    def synchronize(self) -> None:
        self.traffic.waits.append("synchronize")

    def record_event(self) -> str:
        return "event"

    def wait_event(self, event: str) -> None: ...
    def wait_stream(self, stream: object) -> None: ...


class Graph:
    """A CUDA graph: keeps the operations between `capture_begin` and `capture_end`, and does them again. While they are
    kept nothing changes: what was there before is put back."""

    capturing: ClassVar[Graph | None] = None
    replays: ClassVar[int] = 0

    def __init__(self) -> None:
        self._rngs, self._kept = list[torch.Generator](), list[tuple[Any, Any, Any, list[Tensor]]]()

    def register_generator_state(self, rng: torch.Generator) -> None:
        self._rngs.append(rng)

    def capture_begin(self, pool: object, capture_error_mode: str) -> None:
        assert Graph.capturing is None
        Graph.capturing, self._keeping = self, Keeping(self._kept)
        self._states = [rng.get_state() for rng in self._rngs]
        self._keeping.__enter__()

    def capture_end(self) -> None:
        Graph.capturing = None
        self._keeping.__exit__(None, None, None)
        self._keeping.put_back()
        for rng, state in zip(self._rngs, self._states, strict=True):
            rng.set_state(state)

    @torch.no_grad()
    def replay(self) -> None:
        Graph.replays += 1
        with torch._C.DisableTorchFunction(), torch._C._DisableTorchDispatch():
            for function, args, kwargs, results in self._kept:
                for result, now in zip(results, _tensors(function(*args, **kwargs)), strict=True):
                    if result.untyped_storage().data_ptr() != now.untyped_storage().data_ptr():
                        result.detach().copy_(now)


class Keeping(TorchDispatchMode):
    """Keeps the operations that are done inside."""

    def __init__(self, kept: list[tuple[Any, Any, Any, list[Tensor]]]) -> None:
        super().__init__()
        self._kept, self._before = kept, dict[int, tuple[torch.UntypedStorage, torch.UntypedStorage]]()

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name, kwargs = function.overloadpacket.__name__, kwargs or {}
        if name in READS:
            raise RuntimeError(f"{name}: not permitted when stream is capturing")
        for argument, given in zip(function._schema.arguments, args, strict=False):
            if argument.alias_info is not None and argument.alias_info.is_write:
                self._keep(_tensors(given))
        for argument in function._schema.arguments:
            if argument.name in kwargs and argument.alias_info is not None and argument.alias_info.is_write:
                self._keep(_tensors(kwargs[argument.name]))
        result = function(*args, **kwargs)
        self._kept.append((function, args, kwargs, _tensors(result)))
        return result

    def _keep(self, tensors: list[Tensor]) -> None:
        for each in tensors:
            storage = each.untyped_storage()
            self._before.setdefault(storage.data_ptr(), (storage, storage.clone()))

    def put_back(self) -> None:
        for storage, before in self._before.values():
            storage.copy_(before)


class Generator(torch.Generator):
    """A generator of the CPU, whatever it is asked for."""

    def __new__(cls, device: object = "cpu") -> Generator:
        return super().__new__(cls, CPU)


_grouped = torch._C._group_tensors_by_device_and_dtype


def grouped(lists: Any, with_indices: bool = False) -> Any:
    """What optimizers ask of torch's C++ code: lists of tensors by device and type."""
    found = _grouped(lists, with_indices)
    return {(CUDA if there(each[0][0]) else CPU, dtype): (each, at) for (_, dtype), (each, at) in found.items()}


@contextmanager
def a_gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[Traffic]:
    """Inside, this thread has the device `cuda`, with what goes over to it and back."""
    traffic = Traffic()
    with monkeypatch.context() as patched, Operations(traffic), Calls(traffic):
        patched.setattr(torch, "Generator", Generator)
        patched.setattr(torch._C, "_group_tensors_by_device_and_dtype", grouped)
        patched.setattr(Tensor, "record_stream", lambda tensor, stream: None)
        patched.setattr(torch.cuda, "current_stream", lambda device=None: Stream(traffic))
        patched.setattr(torch.cuda, "Stream", lambda device, priority=0: Stream(traffic))
        patched.setattr(torch.cuda, "stream", lambda stream: nullcontext())
        patched.setattr(torch.cuda, "CUDAGraph", Graph)
        patched.setattr(torch.cuda, "graph_pool_handle", lambda: None)
        yield traffic
