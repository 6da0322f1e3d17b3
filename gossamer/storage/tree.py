"""A tree of tensors, arrays, numbers and strings, taken apart into JSON and named tensors, and put together again."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote, unquote

import numpy as np
import torch
from torch import Tensor

from gossamer.data import Tree

_TENSOR, _ARRAY, _FLOAT = "tensor", "array", "float"


def flatten(tree: Tree, path: str = "") -> tuple[Any, dict[str, Tensor]]:
    """The tree as strict JSON, with `{"tensor": path}` or `{"array": path}` in place of each tensor; and the tensors by
    path. A number that is NaN or infinite becomes `{"float": "nan"}` or `{"float": "inf"}`."""
    if isinstance(tree, Tensor):  # a copy: safetensors refuses tensors that share memory, as tied weights do
        return {_TENSOR: path}, {path: tree.detach().clone(memory_format=torch.contiguous_format).cpu()}
    if isinstance(tree, np.ndarray):
        return {_ARRAY: path}, {path: torch.from_numpy(np.array(tree, order="C"))}
    if isinstance(tree, np.generic):
        return flatten(tree.item(), path)
    if isinstance(tree, dict):
        parts = {str(key): flatten(value, f"{path}/{quote(str(key), safe='')}") for key, value in tree.items()}
        return {"dict": {key: part for key, (part, _) in parts.items()}}, _union(t for _, t in parts.values())
    if isinstance(tree, list | tuple):
        items = [flatten(value, f"{path}/{i}") for i, value in enumerate(tree)]
        return [part for part, _ in items], _union(t for _, t in items)
    if isinstance(tree, float) and not math.isfinite(tree):
        return {_FLOAT: str(tree)}, {}
    if tree is None or isinstance(tree, bool | int | float | str):
        return tree, {}
    raise TypeError(f"{path}: a checkpoint holds tensors, arrays, numbers and strings, not {type(tree).__name__}")


def unflatten(data: Any, tensors: dict[str, Tensor]) -> Tree:
    """The tree that `flatten` took apart (tuples come back as lists)."""
    if isinstance(data, list):
        return [unflatten(item, tensors) for item in data]
    if not isinstance(data, dict):
        return data
    ((kind, content),) = data.items()
    if kind == "dict":
        return {key: unflatten(value, tensors) for key, value in content.items()}
    if kind == _FLOAT:
        return float(content)
    return tensors[content] if kind == _TENSOR else tensors[content].numpy()


def _union(parts: Iterator[dict[str, Tensor]]) -> dict[str, Tensor]:
    return {key: value for part in parts for key, value in part.items()}


def non_finite(tensors: dict[str, Tensor]) -> str | None:
    """The first parameter that is NaN or infinite, as `parameter policy.weight of act_and_learn[1]`; None where all are
    finite. The parameters are the tensors under the key `model`."""
    for path, tensor in tensors.items():
        parts = [unquote(part) for part in path.split("/")]  # "", "workers", "act_and_learn[1]", .., "model", its name
        if parts[-2:-1] == ["model"] and tensor.is_floating_point() and not bool(tensor.isfinite().all()):
            return f"parameter {parts[-1]}" + (f" of {parts[2]}" if parts[1] == "workers" else "")
    return None
