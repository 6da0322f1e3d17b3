"""The service that has the parameters which the learners of one machine share."""

from __future__ import annotations

import atexit
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from gossamer.data import Tree
from gossamer.exchange.shared.block import Block, Place, Sizes, allocated, boot, create, is_mapped_elsewhere, mapped
from gossamer.system.machine import settle

FOLDER = Path("/dev/shm")  # a file system in memory (Linux)
VECTORS = ("parameters", "statistics", "target")


@dataclass(frozen=True)
class Contents:
    """What a learner begins with, on its device; later ones take what is there."""

    parameters: Tensor  # [P] float32
    statistics: Tensor  # [S] float32
    target: Tensor  # [Q] float32
    age: int = 0  # see `Target.followed`

    def sizes(self, learners: int) -> Sizes:
        """Sizes of a block for them."""
        return Sizes(learners, len(self.parameters), len(self.statistics), len(self.target))


class SharedMemory:
    """Service: creates the block that all learners share, saves and restores it. Learners write to it by themselves.

    With a `name`, the block is a file that processes of this machine map. It lasts until all learners have left, so a
    process that is restarted goes on with what the others have now."""

    def __init__(self, learners: int, name: str = "") -> None:
        self._learners, self._present = learners, set(range(learners))
        self._path = FOLDER / f"gossamer-{name}" if name else None
        self._place: Place | None = None
        self._block: Block | None = None
        self._saved: Tree = {}  # that the block begins with
        if self._path is not None and self._path.exists():  # this service has been restarted
            self._take(mapped(self._path))

    def open(self, device: str) -> Place | None:
        """The block, on the learners' device if it has to be made; None: `create` it."""
        if self._place is None and self._saved:
            saved = self._saved
            parameters, statistics, target = (saved[name].to(device) for name in VECTORS)
            self.create(Contents(parameters, statistics, target, int(saved["age"])))
            assert self._block is not None
            done = saved["updates"]
            if len(done) == self._learners:
                self._block.updates.copy_(done)
            else:  # a resumed run may have another number of learners
                self._block.updates[0] = done.sum()
            settle(device)
        return self._place

    def create(self, contents: Contents) -> Place:
        """Make the block, unless there is one."""
        if self._place is None:
            sizes = contents.sizes(self._learners)
            if self._path is None:
                memory = allocated(sizes, contents.parameters.device)
                self._block, self._place = Block(memory, sizes), Place(sizes, memory)
                _fill(self._block, contents)
            else:
                whole = self._path.with_name(f"{self._path.name}.new")
                block = create(whole, sizes)
                _fill(block, contents)
                whole.rename(self._path)  # nothing finds half of it
                self._take(block)
        assert self._place is not None
        return self._place

    def leave(self, rank: int) -> None:
        """A learner ends."""
        self._present.discard(rank)
        if not self._present and self._path is not None:
            self._path.unlink(missing_ok=True)

    def _take(self, block: Block) -> None:
        """Use the block of the file."""
        assert self._path is not None, "it has a file"
        atexit.register(_end, self._path)
        self._block, self._place = block, Place(block.sizes, path=str(self._path), boot=boot())

    # See `Saved`

    def settled(self) -> bool:
        return True

    def state_dict(self) -> Tree:
        block = self._block
        if block is None:
            return self._saved
        return {name: getattr(block, name).cpu().clone() for name in ("updates", "age", *VECTORS)}

    def load_state_dict(self, state: Tree) -> None:
        self._saved = state


def remove(name: str) -> None:
    """Remove the file of this name, if it is on this machine."""
    for path in FOLDER.glob(f"gossamer-{name}*"):
        path.unlink(missing_ok=True)


def _end(path: Path) -> None:
    """Remove the file as this process ends, unless others learn on: once this service is restarted, it takes it."""
    if not is_mapped_elsewhere(path):
        path.unlink(missing_ok=True)


@torch.no_grad()
def _fill(block: Block, contents: Contents) -> None:
    block.parameters.copy_(contents.parameters)
    block.statistics.copy_(contents.statistics)
    block.target.copy_(contents.target)
    block.age.fill_(contents.age)
    settle(block.parameters.device)  # other learners read it on their own streams
