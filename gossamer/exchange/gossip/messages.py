"""What members send to each other, in memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import torch
from torch import Tensor

from gossamer.data import Tree, on_host
from gossamer.exchange.gossip.formats import Format


@dataclass(frozen=True)
class Message:
    """A member's parameters after its own step. Immutable: members of one host share it by reference."""

    sender: int  # rank
    iteration: int  # k, the sender's optimiser steps
    epoch: int  # the sender's, see `records`
    weight: float  # push-sum weight it carries
    published: float  # Unix time, seconds
    parameters: Tensor  # [P] float32
    error: float = 0.0  # || what arrived - what was published ||_2
    format: Format = "fp32"  # how it came
    ready: torch.cuda.Event | None = None  # on a GPU: when the parameters are computed

    def state_dict(self) -> Tree:
        """For checkpoints, the parameters in host memory."""
        return {f.name: on_host(getattr(self, f.name)) for f in fields(self) if f.name != "ready"}

    @staticmethod
    def from_state(state: Tree) -> Message:
        """The message that `state_dict` was taken of."""
        return Message(**state)


@dataclass(frozen=True)
class Pulse:
    """What is known of a host: the more beats, the newer."""

    host: int
    beats: int  # how often its clock has been looked at
    members: tuple[int, ...]  # ranks that take part there
    sent: tuple[int, ...]  # of each of them, the iteration of its last message; 0 before the first


@dataclass(frozen=True)
class Hello:
    """A host's sign of life, with all that it has heard of others."""

    host: int
    pulses: tuple[Pulse, ...]
    layout: bytes  # of the models there


@dataclass(frozen=True)
class Parcel:
    """A message and the members of one host that it is for."""

    message: Message
    receivers: tuple[int, ...]


def on_device(message: Message, device: torch.device) -> Tensor:
    """A message's parameters [P] on this device, ready to be read."""
    vector = message.parameters
    if vector.is_cuda and message.ready is not None:
        torch.cuda.current_stream().wait_event(message.ready)
        vector.record_stream(torch.cuda.current_stream())
    return vector.to(device, non_blocking=True)


def merge(messages: Sequence[Message]) -> Message:
    """Several messages of one sender as one: weights added, parameters and errors averaged by them."""
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
    return replace(newest, weight=total, parameters=parameters, error=error, ready=ready)
