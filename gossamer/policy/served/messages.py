"""What actors ask of predictors, and what these answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from gossamer.data import Array, Tree, Version


@dataclass(frozen=True)
class BatchRule:
    """When a predictor evaluates the requests that wait, and how many. All counts are environments."""

    least: int = 1  # wait for so many
    most: int = 1 << 30  # take no more, but at least one request, whatever its size
    timeout: float = 0.0  # seconds after which fewer than `least` are taken

    def __str__(self) -> str:
        return f"{self.least} to {self.most} envs"


class Who(NamedTuple):
    """A life of an actor or of a predictor."""

    rank: int
    restarts: int  # of its host


class Key(NamedTuple):
    """A request: the same each time that it is sent."""

    actor: Who
    number: int  # 1, 2, .. of this life of the actor


@dataclass(frozen=True)
class Request:
    """Observations of an actor's environments. Read where they lie: the actor leaves them unchanged until it has the
    answer.

    `rows` is None without a memory. Otherwise row b is i + 1 if obs[b] is of the actor's environment i, and 0 if an
    episode begins with it, whose recurrent state is the initial one."""

    obs: Tensor  # [B, *O]
    rows: Tensor | None  # [B] int64
    acts: bool = True  # on all environments, in order, whose recurrent state is then that after `obs`

    @property
    def envs(self) -> int:
        """B."""
        return len(self.obs)

    def unpacked(self) -> Request:
        """Itself."""
        return self

    def reply(self, answer: PolicyAnswer) -> PolicyAnswer:
        """The answer as its actor gets it."""
        return answer

    def packed(self) -> PackedRequest:
        """For another host; on the CPU without a copy."""
        rows = None if self.rows is None else self.rows.cpu().numpy()
        return PackedRequest(self.obs.movedim(1, -1).cpu().numpy(), rows, self.acts)


@dataclass(frozen=True)
class PackedRequest:
    """`Request` in transit between hosts: arrays, which are pickled out of band."""

    obs: Array  # [B, ..], channels last
    rows: Array | None
    acts: bool

    @property
    def envs(self) -> int:
        """B."""
        return len(self.obs)

    def unpacked(self) -> Request:
        """The request with tensors. Copies them, because received arrays may be read-only."""
        rows = None if self.rows is None else torch.tensor(self.rows)
        return Request(torch.tensor(self.obs).movedim(-1, 1), rows, self.acts)

    def reply(self, answer: PolicyAnswer) -> PackedAnswer:
        """The answer as its actor gets it."""
        return answer.packed()


@dataclass(frozen=True)
class PolicyAnswer:
    """What the network answers for a request."""

    outputs: tuple[Tensor, ...]  # [B, ..]  of the network: distributions and values, or action values
    distributions: bool  # whether the first ones are the parameters of distributions over actions
    version: Version  # of its parameters
    state: Tree  # [B, ...] recurrent state before the observations; empty if the request acts, and without memory

    def packed(self) -> PackedAnswer:
        """For another host."""
        state = {name: each.cpu().numpy() for name, each in self.state.items()}
        return PackedAnswer(tuple(each.cpu().numpy() for each in self.outputs), self.distributions, self.version, state)

    def unpacked(self) -> PolicyAnswer:
        """Itself."""
        return self


@dataclass(frozen=True)
class PackedAnswer:
    """`PolicyAnswer` in transit between hosts."""

    outputs: tuple[Array, ...]
    distributions: bool
    version: Version
    state: dict[str, Array]

    def unpacked(self) -> PolicyAnswer:
        """The answer with tensors. Copies them, because received arrays may be read-only."""
        state = {name: torch.tensor(each) for name, each in self.state.items()}
        return PolicyAnswer(tuple(map(torch.tensor, self.outputs)), self.distributions, self.version, state)


@dataclass(frozen=True)
class Welcome:
    """What an actor learns of the network when it begins."""

    initial: Tree  # [1, ...] recurrent state at the start of an episode; empty without memory
    version: Version  # of the first parameters


@dataclass(frozen=True)
class Taken:
    """Requests that one predictor answers, oldest first."""

    requests: Mapping[Key, Request | PackedRequest]
    states: Mapping[Key, Tree]  # recurrent state [B, ...] of the actor's environments; missing: the initial one


@dataclass(frozen=True)
class Few:
    """Fewer environments wait than a predictor wants."""

    oldest: Key


@dataclass(frozen=True)
class Answered:
    """What a predictor has computed for a request."""

    reply: PolicyAnswer | PackedAnswer
    after: Tree | None  # recurrent state [B, ...] of the actor's environments after it; None: unchanged
