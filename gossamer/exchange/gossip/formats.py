"""Number formats for parameters sent between hosts: float32, bfloat16, or int8 with one float32 scale per BLOCK
elements.

`exact`, below: how many of a vector's last elements stay float32 in any format. They are running statistics, for which
int8 is too coarse: a block's smallest variances would be 0."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias

import torch
from torch import Tensor

from gossamer.data import Array

Format: TypeAlias = Literal["fp32", "bf16", "int8"]
FORMATS: tuple[Format, ...] = ("fp32", "bf16", "int8")
BLOCK = 256


def rounded(vector: Tensor, form: Format, exact: int = 0) -> Tensor:
    """Return the vector [P] after a round trip through the format."""
    return vector if form == "fp32" else restore(pack(vector, form, exact), form, vector.numel(), exact)


def length(elements: int, form: Format, exact: int = 0) -> int:
    """Return the size in bytes of a vector with this number of elements."""
    if form == "int8":
        blocks = -(-(elements - exact) // BLOCK)
        return blocks * (BLOCK + 4) + 4 * exact
    return 4 * elements if form == "fp32" else 2 * (elements + exact)


def pack(vector: Tensor, form: Format, exact: int = 0) -> list[Tensor]:
    """Convert a vector [P] to the parts of a packet's body."""
    if form == "fp32":
        return [vector]
    if exact:
        return [vector[-exact:], *pack(vector[:-exact], form)]
    if form == "bf16":
        return [vector.bfloat16()]
    blocks = torch.nn.functional.pad(vector, (0, -vector.numel() % BLOCK)).view(-1, BLOCK)
    scales = (blocks.abs().amax(1, keepdim=True) / 127).clamp_min(torch.finfo(torch.float32).tiny)
    numbers = (blocks / scales).round_().to(torch.int8)
    return [scales, numbers]  # [N, 1] float32, [N, BLOCK] int8


def restore(parts: Sequence[Tensor], form: Format, size: int, exact: int = 0) -> Tensor:
    """Convert the result of `pack` back to a vector [P]."""
    if exact and form != "fp32":
        return torch.cat([restore(parts[1:], form, size - exact), parts[0]])
    if form == "int8":
        scales, numbers = parts
        return (numbers * scales).view(-1)[:size]
    return parts[0].float()


def unpack(body: Array, size: int, form: Format, exact: int = 0) -> Tensor:
    """Convert a packet's body (uint8) to a vector [P]; in float32 the vector is a view of the body."""
    if exact and form != "fp32":
        return torch.cat([unpack(body[4 * exact :], size - exact, form), _tensor(body[: 4 * exact], torch.float32)])
    if form == "int8":
        blocks = -(-size // BLOCK)
        scales = _tensor(body[: 4 * blocks], torch.float32).unsqueeze(1)
        return restore([scales, _tensor(body[4 * blocks :], torch.int8).view(blocks, BLOCK)], form, size)
    return restore([_tensor(body, torch.bfloat16 if form == "bf16" else torch.float32)], form, size)


def _tensor(body: Array, dtype: torch.dtype) -> Tensor:
    return torch.from_numpy(body).view(dtype)
