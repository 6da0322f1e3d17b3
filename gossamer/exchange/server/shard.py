"""A shard of a parameter server (Dean et al. 2012, section 4.1; Nair et al. 2015, section 4.2)."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple
from uuid import uuid4

import torch
from torch import Tensor
from torch.optim import Optimizer

from gossamer.data import Array, Tree, Version
from gossamer.runtime import GONE, Uptime
from gossamer.task import Optimization


class ShardVersion(NamedTuple):
    """Identifies parameters of a shard."""

    life: str  # of the shard; a new one after each restart of its host
    version: Version  # updates


@dataclass(frozen=True)
class Pulled:
    """Parameters of a shard."""

    stamp: ShardVersion
    parameters: Array | None  # [P] float32; None: the shard has none, and takes those that it is offered
    buffers: Mapping[str, Array] = field(default_factory=dict)  # of the network; only for workers without parameters


@dataclass(frozen=True)
class Pushed:
    """What a shard did with a gradient."""

    applied: bool
    staleness: int  # updates of the shard between the gradient's parameters and those that it met


class ParameterShard:
    """Service: some of the parameters and their optimizer. Each gradient that is not too old is an update.

    Gradients of learners that do not wait for each other meet parameters that have changed since they were computed.
    One is applied if and only if the shard has made at most `max_delay` updates in between."""

    def __init__(self, optimization: Optimization, learners: Sequence[str], max_delay: int) -> None:
        """`learners`: the names of those that push gradients here, by rank."""
        self._optimization, self._max_delay = optimization, max_delay
        self._parameters = torch.zeros(0)  # [P]; empty: none yet
        self._optimizer: Optimizer | None = None
        self._buffers: dict[str, Array] = {}  # of the network
        self._version = 0  # updates
        self._life = uuid4().hex
        self._restored, self._lost = 0, 0  # version that this life began with; updates of earlier lives that are lost
        self._names, self._learners = learners, set(range(len(learners)))  # all; those that have not left, by rank
        self._heard: dict[int, float] = {}  # learner -> seconds at the last tick before its last call
        self._uptime = Uptime()

    # Called by learners, and `pull` by actors

    def pull(self, learner: int | None, known: ShardVersion | None) -> Pulled | None:
        """Return the parameters; None if they are `known`. `learner`: None for an actor."""
        if learner is not None:
            self._hear(learner, known)
        if not len(self._parameters):
            return Pulled(self._stamp, None)
        if known == self._stamp:
            return None
        return Pulled(self._stamp, self._parameters.numpy().copy(), self._buffers if known is None else {})

    def offer(self, parameters: Array, version: int, buffers: Mapping[str, Array]) -> None:
        """Take these parameters [P] of a learner, unless there are some. `version`: of the learner's; `buffers`: what
        its network has besides parameters."""
        if not len(self._parameters):
            self._set(torch.tensor(parameters))
            self._buffers = dict(buffers)
            newest = self._restored + self._lost  # that learners know of
            self._version = self._restored = max(self._version, version)
            self._lost = max(0, newest - self._restored)

    def push(self, learner: int, gradient: Array, known: ShardVersion, rate: float) -> Pushed:
        """Update the parameters by a gradient [P], at this learning rate. `known`: the stamp of the parameters that it
        was computed at."""
        self._hear(learner, known)
        staleness = self._version - known.version
        if not len(self._parameters) or staleness > self._max_delay or self._is_lost(known):
            return Pushed(False, staleness)
        self._update(torch.from_numpy(gradient), rate)
        return Pushed(True, staleness)

    def leave(self, learner: int) -> None:
        """The learner ends."""
        self._learners.discard(learner)

    # Called by `tend`

    def forget(self, ended: Collection[str]) -> None:
        """These workers had ended before this host restarted."""
        self._learners -= {rank for rank, name in enumerate(self._names) if name in ended}

    def tick(self, now: float) -> bool:
        """It is this time (seconds). Returns whether there are learners: those that have left, or have been silent for
        `GONE` seconds while all others have left or are silent, are none. Pauses of the process do not count: see
        `Uptime`."""
        now = self._uptime.tick(now)
        self._heard = {**dict.fromkeys(self._learners, now), **self._heard}
        return any(now - self._heard[learner] <= GONE for learner in self._learners)

    def lost(self) -> tuple[int, int]:
        """The version that this life began with, and how many later updates learners know of."""
        return self._restored, self._lost

    # See `Saved`

    def settled(self) -> bool:
        return True

    def state_dict(self) -> Tree:
        optimizer = {} if self._optimizer is None else self._optimizer.state_dict()["state"].get(0, {})
        return {
            "parameters": self._parameters.clone(),
            "optimizer": {name: torch.as_tensor(each).clone() for name, each in optimizer.items()},
            "buffers": dict(self._buffers),
            "version": self._version,
        }

    def load_state_dict(self, state: Tree) -> None:
        self._version = self._restored = int(state["version"])
        self._buffers = dict(state["buffers"])
        if len(state["parameters"]):
            optimizer = self._set(state["parameters"].clone())
            if state["optimizer"]:
                groups = optimizer.state_dict()["param_groups"]
                kept = {name: each.clone() for name, each in state["optimizer"].items()}  # torch uses what it is given
                optimizer.load_state_dict({"state": {0: kept}, "param_groups": groups})

    @property
    def _stamp(self) -> ShardVersion:
        return ShardVersion(self._life, self._version)

    def _set(self, parameters: Tensor) -> Optimizer:
        """Begin with these parameters."""
        self._parameters = parameters
        self._optimizer = self._optimization.make(
            [{"params": [parameters.requires_grad_()], "hidden": False}], self._optimization.learning_rate
        )
        parameters.requires_grad_(False)
        return self._optimizer

    def _update(self, gradient: Tensor, rate: float) -> None:
        assert self._optimizer is not None, "it is made with the parameters"
        self._parameters.grad = gradient
        for group in self._optimizer.param_groups:
            group["lr"] = rate
        self._optimizer.step()
        self._version += 1

    def _hear(self, learner: int, known: ShardVersion | None) -> None:
        """A learner calls, which has parameters of this stamp."""
        self._learners.add(learner)  # it may have been silent for long
        self._heard[learner] = self._uptime.now
        if known is not None and self._is_lost(known):
            self._lost = max(self._lost, known.version - self._restored)

    def _is_lost(self, known: ShardVersion) -> bool:
        """Whether parameters are of an earlier life, and newer than those that this one began with."""
        return known.life != self._life and known.version > self._restored
