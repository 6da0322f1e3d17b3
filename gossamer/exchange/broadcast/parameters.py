"""The newest parameters of a learner, on its own host and as a copy on every other one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

import torch
from torch import Tensor

from gossamer.data import Array, Version
from gossamer.runtime import Wait, waits


@dataclass(frozen=True)
class Published:
    """A learner's parameters. Immutable: the actors of a host share them by reference."""

    version: Version
    parameters: Tensor  # [P] float32, on the CPU
    buffers: Mapping[str, Tensor]  # what the network has besides parameters, such as the background

    def packed(self) -> PackedParameters:
        """For another host, without a copy."""
        buffers = {name: buffer.numpy() for name, buffer in self.buffers.items()}
        return PackedParameters(self.version, self.parameters.numpy(), buffers)


@dataclass(frozen=True)
class PackedParameters:
    """`Published` in transit between hosts: arrays, which are pickled out of band."""

    version: Version
    parameters: Array
    buffers: dict[str, Array]

    def unpacked(self) -> Published:
        """The parameters as tensors. Copies them, because received arrays may be read-only."""
        buffers = {name: torch.tensor(buffer) for name, buffer in self.buffers.items()}
        return Published(self.version, torch.tensor(self.parameters), buffers)


class Reply(Enum):
    """Answers of `Parameters.after` without parameters."""

    END = "end"  # the learner has ended
    OFFER = "offer"  # the learner's host has been restarted: offer it the copy


class Parameters:
    """Service: the newest parameters of a learner. A copy on another host is kept up to date by the worker `fetch`."""

    def __init__(self, actors: int = 0) -> None:
        """`actors`: how many follow a copy; when all of them have left, `fetch` ends."""
        self._newest: Published | None = None
        self._offered: Published | None = None  # by a host whose copy is newer, after this one has been restarted
        self._actors, self._taken, self._closed = actors, True, False
        self._ended, self._all = 0, actors  # actors whose queue says that they have ended, and all actors
        self._wanted = False  # whether an actor needs newer ones than the copy
        self._begun = self._done = 0  # transfers to this copy, and the last of them that has ended

    def publish(self, published: Published) -> None:
        """Replace the parameters. Older ones than those that are there are ignored."""
        if self._newest is None or published.version >= self._newest.version:
            self._newest = published

    @waits
    def first(self) -> Wait[Published | None]:
        """Return the newest parameters. Waits until the learner has published some; None if it ends before that."""
        while self._newest is None and not self._closed:
            yield
        self._taken = True
        return self._newest

    def newer(self, version: Version) -> Published | None:
        """Return the newest parameters unless they are of this version."""
        if self._newest is None or self._newest.version == version:
            return None
        self._taken = True
        return self._newest

    @waits
    def at_least(self, version: Version) -> Wait[bool]:
        """Wait until the copy has at least this version. Returns whether newer ones may follow.

        A transfer that begins after this call ends the wait, too: then the learner has been restarted with older
        parameters. So does the learner's end."""
        transfer = self._begun + 1
        while not self._closed and self._done < transfer and (self._newest is None or self._newest.version < version):
            self._wanted = True
            yield
        return not self._closed

    def close(self) -> None:
        """The learner ends, or its host does not answer any more: nothing newer will come."""
        self._closed = True

    # Called by `fetch`

    @waits
    def after(self, version: Version | None, again: bool = False) -> Wait[PackedParameters | Reply]:
        """Return the newest parameters for another host, which has a copy of this version, or none. Waits until they
        are of another version. `again`: does not wait for that."""
        while not self._closed:
            if self._newest is not None and (again or self._newest.version != version):
                return self._newest.packed()
            if self._newest is None and version is not None:
                return Reply.OFFER
            yield
        return Reply.END

    def replace(self, packed: PackedParameters) -> None:
        """Receive parameters. After a restart of the learner they may be older than those that are there."""
        self._newest, self._taken, self._done = packed.unpacked(), False, self._begun

    @waits
    def taken(self) -> Wait[bool]:
        """Wait until an actor has taken the newest parameters, or needs newer ones. Returns False after all actors have
        left."""
        while not self._taken and not self._wanted and self._actors > 0:
            yield
        self.begin()
        return self._actors > 0

    def begin(self) -> None:
        """A transfer to this copy begins. It serves every actor that waits now."""
        self._wanted, self._begun = False, self._begun + 1

    def followed(self) -> bool:
        """Whether actors of this host have not ended."""
        return self._actors > 0

    def leave(self) -> None:
        """An actor of this host ends."""
        self._actors -= 1

    def abandon(self, actors: int) -> None:
        """All actors that one queue has on this host have ended: so many. Some ended before the host was restarted, and
        did not leave this copy."""
        self._ended += actors
        if self._ended >= self._all:
            self._actors = 0

    # Called after a restart of the learner's host

    def copy(self) -> PackedParameters:
        """This host's copy. Raises `RuntimeError` if there is none."""
        if self._newest is None:
            raise RuntimeError("no parameters have been received")
        return self._newest.packed()

    def offer(self, packed: PackedParameters) -> None:
        """Receive a copy from another host. The newest one is kept."""
        if self._offered is None or packed.version > self._offered.version:
            self._offered = packed.unpacked()

    def offered(self) -> Published | None:
        """The newest copy that another host has offered."""
        return self._offered
