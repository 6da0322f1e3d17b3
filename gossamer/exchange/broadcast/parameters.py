"""The newest parameters of a learner, on its own host and as a copy on every other one."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import Enum

import torch
from torch import Tensor

from gossamer.data import Array, Stamp
from gossamer.runtime import Wait, waits
from gossamer.system.transfers import received


@dataclass(frozen=True)
class Published:
    """A learner's parameters. Immutable: the actors of a host share them by reference."""

    stamp: Stamp
    parameters: Tensor  # [P] float32; those of a learner on a GPU are there, too
    buffers: Mapping[str, Tensor]  # what the network has besides parameters, such as the background; on the CPU
    ready: torch.cuda.Event | None = None  # on a GPU: when the parameters are there

    def packed(self) -> PackedParameters:
        """For another host; without a copy, if they are on the CPU."""
        buffers = {name: buffer.numpy() for name, buffer in self.buffers.items()}
        return PackedParameters(self.stamp, received(self.parameters, self.ready).cpu().numpy(), buffers)


@dataclass(frozen=True)
class PackedParameters:
    """`Published` in transit between hosts: arrays, which are pickled out of band."""

    stamp: Stamp
    parameters: Array
    buffers: dict[str, Array]

    def unpacked(self) -> Published:
        """The parameters as tensors. Copies them, because received arrays may be read-only."""
        buffers = {name: torch.tensor(buffer) for name, buffer in self.buffers.items()}
        return Published(self.stamp, torch.tensor(self.parameters), buffers)


class Reply(Enum):
    """Answers of `Parameters.after` without parameters, and of `Parameters.asks`."""

    END = "end"  # the learner has ended
    OFFER = "offer"  # the learner's host has been restarted: offer it the copy


class Parameters:
    """Service: the newest parameters of a learner. A copy on another host is kept up to date by the worker `fetch`."""

    def __init__(self, actors: Collection[str] = ()) -> None:
        """`actors`: the names of those that follow a copy; when all of them have left, `fetch` ends."""
        self._newest: Published | None = None
        self._offered: Published | None = None  # by a host whose copy is newer, after this one has been restarted
        self._actors, self._taken, self._closed = len(actors), True, False
        self._ended, self._all = 0, frozenset(actors)  # actors whose queue says that they have ended, and all actors
        self._wanted = False  # whether an actor needs newer ones than the copy

    def publish(self, published: Published) -> None:
        """Replace the parameters. Older ones than those that are there are ignored."""
        if self._newest is None or published.stamp >= self._newest.stamp:
            self._newest = published

    @waits
    def first(self) -> Wait[Published | None]:
        """Return the newest parameters. Waits until the learner has published some; None if it ends before that."""
        while self._newest is None and not self._closed:
            yield
        self._taken = True
        return self._newest

    def newer(self, stamp: Stamp) -> Published | None:
        """Return the newest parameters unless they have this stamp."""
        if self._newest is None or self._newest.stamp == stamp:
            return None
        self._taken = True
        return self._newest

    @waits
    def at_least(self, stamp: Stamp) -> Wait[bool]:
        """Wait until the copy has these parameters or newer ones, or the learner has ended. Returns whether newer ones
        may follow."""
        while not self._closed and (self._newest is None or self._newest.stamp < stamp):
            self._wanted = True
            yield
        return not self._closed

    def close(self) -> None:
        """The learner ends, or its host does not answer any more: nothing newer will come."""
        self._closed = True

    @waits
    def ended(self) -> Wait[None]:
        """Wait until the learner has ended."""
        while not self._closed:
            yield

    # Called by `fetch`

    @waits
    def after(self, stamp: Stamp | None) -> Wait[PackedParameters | Reply]:
        """Return the newest parameters for another host, whose copy has this stamp. Waits until they have another one.
        None: the host has no copy, or has offered it."""
        while not self._closed:
            if self._newest is not None and self._newest.stamp != stamp:
                return self._newest.packed()
            if self._newest is None and stamp is not None:
                return Reply.OFFER
            yield
        return Reply.END

    def replace(self, packed: PackedParameters) -> None:
        """Receive parameters. An actor that still needs newer ones says so again."""
        self._newest, self._taken, self._wanted = packed.unpacked(), False, False

    @waits
    def taken(self) -> Wait[bool]:
        """Wait until an actor has taken the newest parameters, or needs newer ones. Returns False after all actors have
        left, or the learner has ended."""
        while not self._taken and not self._wanted and self.followed():
            yield
        return self.followed()

    def followed(self) -> bool:
        """Whether actors of this host have not ended, and newer parameters may come."""
        return self._actors > 0 and not self._closed

    def ask_again(self) -> None:
        """Have `fetch` call the learner's host, although no actor has taken the newest parameters: the host asks for
        this copy if it has restarted."""
        self._wanted = True

    def leave(self) -> None:
        """An actor of this host ends."""
        self._actors -= 1

    def abandon(self, actors: int) -> None:
        """All actors that one queue has on this host have ended: so many. Some ended before the host was restarted, and
        did not leave this copy."""
        self._ended += actors
        if self._ended >= len(self._all):
            self._actors = 0

    def forget(self, ended: Collection[str]) -> bool:
        """These workers had ended before this host was restarted. Returns whether an actor is left."""
        if self._all.issubset(ended):
            self._actors = 0
        return self._actors > 0

    # Called after a restart of the learner's host

    def copy(self) -> PackedParameters:
        """This host's copy. Raises `RuntimeError` if there is none."""
        if self._newest is None:
            raise RuntimeError("no parameters have been received")
        return self._newest.packed()

    def offer(self, packed: PackedParameters) -> None:
        """Receive a copy from another host. The newest one is kept."""
        if self._offered is None or packed.stamp > self._offered.stamp:
            self._offered = packed.unpacked()

    def asks(self) -> Reply | None:
        """END after the learner has ended, and OFFER if there are no parameters: the learner has not published yet, or
        its host has been restarted."""
        return Reply.END if self._closed else Reply.OFFER if self._newest is None else None

    def offered(self) -> Published | None:
        """The newest copy that another host has offered."""
        return self._offered
