"""Messages and members that gossip by hand, for the tests."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from gossamer.exchange import Gradient
from gossamer.exchange.flat import Flat
from gossamer.exchange.gossip.messages import Message

TOKEN, LAYOUT = b"0123456789abcdef", b"layout-1"
SIZE = 32  # P


def a_message(sender: int, iteration: int, value: float | None = None, **more: Any) -> Message:
    """`value`: of all its parameters; its iteration where none is given."""
    parts: dict[str, Any] = {"epoch": 0, "weight": 1.0, "published": 0.0, **more}
    vector = torch.full((SIZE,), float(iteration if value is None else value))
    return Message(sender, iteration, parameters=vector, **parts)


def told(messages: Any) -> list[tuple[int, int]]:
    """(sender, iteration) of each."""
    return [(m.sender, m.iteration) for m in messages]


def begun(service: Any, method: str, *args: Any) -> Iterator[None]:
    """A call of a @waits method that can be driven by hand: `next` lets it look."""
    return getattr(service, method).waits(service, *args)


def answer(call: Iterator[None]) -> Any:
    """What a call that need not wait any longer returns."""
    try:
        next(call)
    except StopIteration as end:
        return end.value
    raise AssertionError("it still waits")


class Vector(nn.Module):
    """A model of one vector."""

    def __init__(self, value: Tensor) -> None:
        super().__init__()
        self.value = nn.Parameter(value.clone())


@dataclass
class Learns:
    """What an exchange sees of a member."""

    model: nn.Module

    @cached_property
    def flat(self) -> Flat:
        return Flat(self.model)

    def policy_outputs(self) -> None: ...


@dataclass
class Local:
    """A local step that is nothing but the optimiser's."""

    opt: Optimizer
    finite: bool = True

    def gradient(self, *, checked: bool = True) -> Gradient:
        return Gradient(torch.zeros(()), self.finite, torch.zeros(()))

    def apply(self) -> None:
        self.opt.step()


@dataclass
class Place:
    """A context of a member that is run by hand. Its time goes on by sleeping."""

    rank: int = 0
    restarts: int = 0
    copies: int = 2
    stopped: bool = False
    time: float = 100.0
    slept: list[float] = field(default_factory=list)

    def now(self) -> float:
        return self.time

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.time += seconds
