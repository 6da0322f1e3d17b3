"""Messages between members, as objects in memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import torch
from torch import Tensor

from gossamer.data import Tree, on_host
from gossamer.exchange.gossip.formats import Format, length
from gossamer.system.transfers import received


@dataclass(frozen=True)
class Message:
    """A member's parameters after its local step. Immutable: members of one host share it by reference."""

    sender: int  # rank
    iteration: int  # k, the sender's optimizer steps
    epoch: int  # the sender's snapshot epoch, see `records`
    weight: float  # push-sum weight
    published: float  # Unix time, seconds
    parameters: Tensor  # [P] float32; [K] of a sparse message
    error: float = 0.0  # || received - published ||_2
    format: Format = "fp32"  # number format in transit
    ready: torch.cuda.Event | None = None  # on a GPU: recorded after the parameters are computed
    # [K] int64, ascending  of a sparse message: indices of its parameters in the vector [P]. None: all, or those that
    # members draw for this exchange
    places: Tensor | None = None
    whole: bool = True  # whether it has all parameters
    merged: bool = False  # whether it is the mean of several
    exact: int = 0  # how many of its last parameters are float32 in any format: running statistics
    kept: bool = False  # whether the sender keeps the rounding error for its next messages (`feedback`)
    packed: tuple[Tensor, ...] | None = None  # the parameters as `formats.pack` returns them, if the sender rounds

    def nbytes(self, form: Format = "fp32") -> int:
        """Bytes of its parameters, in this format unless the sender has packed them, and of its indices, of 4 each."""
        indices = 0 if self.places is None else 4 * self.places.numel()
        if self.packed is None:
            return length(len(self.parameters), form, self.exact) + indices
        return sum(part.numel() * part.element_size() for part in self.packed) + indices

    def state_dict(self) -> Tree:
        """Return the state for a checkpoint, with the parameters in host memory."""
        return {f.name: on_host(getattr(self, f.name)) for f in fields(self) if f.name not in ("ready", "packed")}

    @staticmethod
    def from_state(state: Tree) -> Message:
        """Restore a message from its `state_dict`."""
        return Message(**state)


@dataclass(frozen=True)
class Pulse:
    """State of a host at one heartbeat; a higher count is newer."""

    host: int
    beats: int  # heartbeat count
    members: tuple[int, ...]  # ranks of its active members
    sent: tuple[int, ...]  # iteration of each member's last message; 0 before the first


@dataclass(frozen=True)
class Hello:
    """A heartbeat message: the sender's known state of all hosts."""

    host: int
    pulses: tuple[Pulse, ...]
    layout: bytes  # layout of the models on the sending host


@dataclass(frozen=True)
class Parcel:
    """A message and its receivers on one host."""

    message: Message
    receivers: tuple[int, ...]


def on_device(message: Message, device: torch.device) -> Tensor:
    """Return a message's parameters [P] or [K] on this device, ordered after their computation on a GPU."""
    return received(message.parameters, message.ready).to(device, non_blocking=True)


def replaces(new: Message, old: Message) -> bool:
    """Whether only the newer one of two messages of a sender is of use. One with all parameters, which a member that
    comes back begins from, is not replaced by a sparse one."""
    return new.whole or not old.whole


def merge(messages: Sequence[Message]) -> Message:
    """Merge messages of one sender: weights are added, parameters and errors averaged by weight."""
    total = sum(m.weight for m in messages)
    newest = max(messages, key=lambda m: m.iteration)
    if total == 0:
        return newest
    stream = torch.cuda.current_stream(newest.parameters.device) if newest.parameters.is_cuda else None
    for m in messages:
        if stream is not None and m.ready is not None:
            stream.wait_event(m.ready)
            m.parameters.record_stream(stream)
    parameters = sum((m.parameters * (m.weight / total) for m in messages), torch.zeros_like(newest.parameters))
    error = sum(m.error * (m.weight / total) for m in messages)
    ready = stream.record_event() if stream is not None else None
    return replace(newest, weight=total, parameters=parameters, error=error, ready=ready, packed=None, merged=True)
