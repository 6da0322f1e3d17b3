"""A block of memory for the parameters that learners share, in this process or in a file that several processes map."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from itertools import accumulate
from math import prod
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from gossamer.system.errors import UserError

ALIGN = 64  # bytes; each tensor starts at a multiple
HEADER = 4  # numbers of a file that begin it: its `Sizes`


class Sizes(NamedTuple):
    """Elements of a block's tensors."""

    learners: int
    parameters: int
    statistics: int  # of the optimizer; 0: each learner has its own
    target: int  # 0: there is no target network


class Block:
    """The tensors of a block, as views of its memory [bytes] uint8. `header` is that of a file."""

    def __init__(self, memory: Tensor, sizes: Sizes) -> None:
        self.sizes = sizes
        views = (
            memory[place : place + prod(shape) * dtype.itemsize].view(dtype).view(shape)
            for place, (shape, dtype) in zip(_places(sizes), _tensors(sizes), strict=False)
        )
        self.header: Tensor = next(views)  # [4] int64
        self.updates: Tensor = next(views)  # [learners] int64  that each has made
        self.age: Tensor = next(views)  # [] int64  see `Target.followed`
        self.parameters: Tensor = next(views)  # [P] float32
        self.statistics: Tensor = next(views)  # [S] float32
        self.target: Tensor = next(views)  # [Q] float32  parameters of the target network

    @property
    def version(self) -> int:
        """Updates of all learners. Each counts its own, so that none is lost without a lock."""
        return int(self.updates.sum())


@dataclass(frozen=True)
class Place:
    """Where a block is: in `memory`, or in a file of one machine."""

    sizes: Sizes
    memory: Tensor | None = None
    path: str = ""
    boot: str = ""  # of the machine

    def block(self) -> Block:
        """The block. Raises `UserError` if its file is on another machine."""
        if self.memory is not None:
            return Block(self.memory, self.sizes)
        if self.boot != boot() or not Path(self.path).exists():
            raise UserError("--hosts: learners on several machines cannot share memory; add --shards 1")
        return mapped(Path(self.path), self.sizes)


def allocated(sizes: Sizes, device: torch.device) -> Tensor:
    """Memory of this process for a block: zeros."""
    return torch.zeros(_places(sizes)[-1], dtype=torch.uint8, device=device)


def create(path: Path, sizes: Sizes) -> Block:
    """A block of zeros in a new file. Raises `UserError` if there is too little memory for it."""
    size = _places(sizes)[-1]
    if not path.parent.is_dir():
        raise UserError(
            f"--hosts: this machine has no {path.parent}, which processes share; use --hosts 1 or --shards 1"
        )
    with path.open("wb") as file:
        try:
            os.posix_fallocate(file.fileno(), 0, size)  # later a write beyond the free memory would end the process
        except OSError as error:
            path.unlink()
            raise UserError(
                f"{path.parent}: no room for {size / 1e6:,.0f} MB of shared parameters ({error.strerror}); use --hosts "
                "1"
            ) from error
    block = mapped(path, sizes)
    block.header.copy_(torch.tensor(sizes))
    return block


def mapped(path: Path, sizes: Sizes | None = None) -> Block:
    """The block of a file. `sizes`: None: those that the file has."""
    if sizes is None:
        sizes = Sizes(*torch.from_file(str(path), size=HEADER, dtype=torch.int64).tolist())
    return Block(torch.from_file(str(path), shared=True, size=_places(sizes)[-1], dtype=torch.uint8), sizes)


def is_mapped_elsewhere(path: Path) -> bool:
    """Whether another process maps the file. False where the system does not tell."""
    for maps in Path("/proc").glob("[0-9]*/maps"):
        if int(maps.parent.name) != os.getpid():
            with suppress(OSError):  # it has ended, or is another user's
                if f" {path}\n" in maps.read_text(errors="replace"):
                    return True
    return False


def boot() -> str:
    """Identifies this machine since its start; empty where it is not known."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text()
    except OSError:
        return ""


def _tensors(sizes: Sizes) -> list[tuple[tuple[int, ...], torch.dtype]]:
    """Shapes and dtypes of a block's tensors."""
    vectors = [((size,), torch.float32) for size in (sizes.parameters, sizes.statistics, sizes.target)]
    return [((HEADER,), torch.int64), ((sizes.learners,), torch.int64), ((), torch.int64), *vectors]


def _places(sizes: Sizes) -> list[int]:
    """Where each tensor starts, and the size of all of them, in bytes."""
    lengths = [-(-prod(shape) * dtype.itemsize // ALIGN) * ALIGN for shape, dtype in _tensors(sizes)]
    return list(accumulate(lengths, initial=0))
