"""The network as an ONNX graph, in float32, with a batch of any size.

| input | |
|---|---|
| `obs`, or `obs/NAME` for each part | observations [B, *O]: pictures uint8 channels first, choices as one-hot vectors |
| `begins` | [B] bool, with a memory: an episode begins with this observation |
| `hidden`, `cell` | [B, H] the recurrent state, with a memory |

| output | |
|---|---|
| `parameters` | [B, P] of the distribution: logits, or action values; of continuous actions means and log-deviations |
| `value` | [B] the estimated return |
| `action` | [B, *A] the most probable action, as the environment takes it |
| `next_hidden`, `next_cell` | [B, H] the recurrent state for the next call |
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from importlib.util import find_spec
from io import StringIO
from typing import Any, Literal

import torch
from torch import Tensor, nn

from gossamer.data import numpy_dtype
from gossamer.export.snapshot import Snapshot
from gossamer.nn.networks import Stepping
from gossamer.spaces import Box
from gossamer.system.errors import UserError
from gossamer.system.installation import install

BATCH = "B"
MEANINGS = {
    "obs": "observations; pictures have their channels first, choices are one-hot vectors",
    "begins": "an episode begins with this observation",
    "hidden": "recurrent state, 0 at first",
    "cell": "recurrent state, 0 at first",
    "parameters": "logits or action values; of continuous actions means, then logarithms of standard deviations",
    "value": "estimated return",
    "action": "the most probable action, as the environment takes it",
    "next_hidden": "for the next call",
    "next_cell": "for the next call",
}
NEEDED = ("onnx", "onnxscript")  # onnxruntime runs what is written


class Graph(nn.Module):
    """A network whose inputs and outputs are all tensors."""

    start: Tensor  # the first action: [], or [*A]

    def __init__(self, model: nn.Module, start: Any, shape: tuple[int, ...] | None = None) -> None:
        """`start`: the first action, of `Adapter`; `shape`: of the environment's actions, None for that of the
        network's."""
        super().__init__()
        assert isinstance(model, Stepping), "see `graph_of`"
        self.model, self.actions = model, model.actions
        self.shape = self.actions.shape if shape is None else shape
        self.parts = tuple(part.name for part in model.spec.parts) if model.spec.layout else ()
        self.memory = tuple(model.initial_state(1))
        self.register_buffer("start", torch.as_tensor(start))

    @property
    def inputs(self) -> list[str]:
        """Names of the inputs, in order."""
        seen = [f"obs/{name}" for name in self.parts] or ["obs"]
        return [*seen, *(["begins", *self.memory] if self.memory else [])]

    @property
    def outputs(self) -> list[str]:
        """Names of the outputs, in order."""
        return ["parameters", "value", "action", *(f"next_{name}" for name in self.memory)]

    def forward(self, *given: Tensor) -> tuple[Tensor, ...]:
        """Map `inputs` to `outputs`."""
        count = len(self.parts) or 1
        obs = dict(zip(self.parts, given, strict=False)) if self.parts else given[0]
        begins = given[count] if self.memory else torch.zeros(())
        state = dict(zip(self.memory, given[count + 1 :], strict=True))
        policy, value, after = self.model.step(obs, state, begins)
        action = self._to_env(policy.mode())
        if self.shape != self.actions.shape:
            action = action.reshape(-1, *self.shape)
        return policy.parameters, value, action, *after.values()

    def _to_env(self, action: Tensor) -> Tensor:
        """`Adapter.action` in torch, in the network's shape [B, *A]."""
        match self.actions:
            case Box(low, high, "squash"):
                lowest, highest = torch.tensor(low), torch.tensor(high)
                return lowest + (highest - lowest) * (action.tanh() + 1) / 2
            case Box(low, high, "clip"):
                return action.clamp(torch.tensor(low), torch.tensor(high))
        return action + self.start


def to_onnx(snapshot: Snapshot) -> bytes:
    """The content of `model.onnx`. Raises `UserError` if a package is missing, or if the network cannot be written."""
    missing = [name for name in NEEDED if find_spec(name) is None]
    if missing:
        raise UserError(f"--onnx: {missing[0]} is not installed; run {install('onnx')}")
    graph = graph_of(snapshot)
    batch = torch.export.Dim("batch")
    with _quiet(), torch.no_grad():
        try:
            program = torch.onnx.export(
                graph,
                tuple(examples(graph)),
                input_names=graph.inputs,
                output_names=graph.outputs,
                dynamic_shapes=(tuple({0: batch} for _ in graph.inputs),),
                dynamo=True,
                verbose=False,
            )
        except Exception as error:  # whatever a network of the user's does that the exporter cannot follow
            what = snapshot.description.options.torso
            raise UserError(f"--onnx: the network {what} cannot be written as ONNX ({_first_line(error)})") from error
    assert program is not None, "the exporter returns a program"
    content: bytes = program.model_proto.SerializeToString()
    fixed = [tensor for tensor in signature(content) if tensor.shape[:1] != (BATCH,)]
    if fixed:
        raise UserError(
            f"--onnx: the network {snapshot.description.options.torso} fixes the size of the batch "
            f"({fixed[0].name} is {list(fixed[0].shape)}), as len(x), int(x.shape[0]) or a loop over the batch does; "
            "reshape with x.shape[0] or -1"
        )
    return content


@dataclass(frozen=True)
class TensorInfo:
    """An input or an output of a graph."""

    kind: Literal["input", "output"]
    name: str
    dtype: str
    shape: tuple[int | str, ...]  # `B` is the size of the batch

    @property
    def meaning(self) -> str:
        """What it holds."""
        return MEANINGS.get(self.name.split("/")[0], "")


def signature(content: bytes) -> list[TensorInfo]:
    """The inputs and the outputs of a `model.onnx`, in order."""
    import onnx

    graph = onnx.load_from_string(content).graph
    sides: dict[Literal["input", "output"], Any] = {"input": graph.input, "output": graph.output}
    return [_info(kind, each) for kind, tensors in sides.items() for each in tensors]


def _info(kind: Literal["input", "output"], tensor: Any) -> TensorInfo:
    import onnx

    what = tensor.type.tensor_type
    shape = tuple(BATCH if dim.dim_param else dim.dim_value for dim in what.shape.dim)
    return TensorInfo(kind, tensor.name, str(onnx.helper.tensor_dtype_to_np_dtype(what.elem_type)), shape)


def graph_of(snapshot: Snapshot) -> Graph:
    """The network as a module of tensors, in float32. Raises `UserError` if it is not `Stepping`."""
    model = snapshot.model("cpu", torch.float32)
    if not isinstance(model, Stepping):
        kinds = "an ActorCritic, a QNetwork, or another network with `step`"
        raise UserError(f"--onnx: only {kinds} can be written, and the network is a {type(model).__name__}")
    interface = snapshot.description.interface
    if interface.games:
        return Graph(model, 0).eval()  # numbers of the games' union
    return Graph(model, interface.adapter.start, interface.action_space.shape).eval()


def examples(graph: Graph, count: int = 2) -> Iterator[Tensor]:
    """Inputs of zeros."""
    for part in graph.model.spec.parts:
        yield torch.zeros((count, *part.shape), dtype=numpy_dtype(part.dtype))
    if graph.memory:
        yield torch.zeros(count, dtype=torch.bool)
        yield from graph.model.initial_state(count).values()


@contextmanager
def _quiet() -> Iterator[None]:
    """Without what the exporter prints and logs: an error of it becomes one line."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings(), redirect_stdout(StringIO()), redirect_stderr(StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


def _first_line(error: Exception) -> str:
    cause: Any = error.__cause__ or error
    return next((line.strip() for line in str(cause).splitlines() if line.strip()), type(cause).__name__)
