"""Target networks: an older copy of a network, inside it, so that checkpoints include it."""

from __future__ import annotations

from copy import deepcopy
from typing import Literal

import torch
from torch import Tensor, nn

from gossamer.system.graphs import recording

PREFIX = "target."  # of its parameters' names in the network's


class Target(nn.Module):
    """A copy of a network that is not trained. Each learner keeps its own: exchanges leave it out, since actors do not
    need it, and learners copy it from parameters that they have exchanged."""

    exchanged = False
    age: Tensor
    version = 0  # of the network's parameters, as their exchange counts it; set by the learner
    _read: tuple[Tensor, int, int] | None = None  # `age`, its torch version and its value when it was last read or set
    _rule: tuple[Literal["calls", "versions"], int] | None = (
        None  # what `period` counted in the last call, and how many
    )

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = deepcopy(model).requires_grad_(False)
        self.register_buffer("age", torch.zeros((), dtype=torch.int64))  # [] see `used` and `followed`

    def train(self, mode: bool = True) -> Target:
        """Stay in evaluation mode."""
        return super().train(False)

    def used(self, model: nn.Module, period: int) -> nn.Module:
        """Return the copy, which is renewed from `model` in the first of every `period` calls. `age` counts the calls
        since the last copy."""
        self._rule = "calls", period
        return self.renewed(model)

    def followed(self, model: nn.Module, period: int) -> nn.Module:
        """Return the copy, which is renewed from `model` when its version has reached a multiple of `period`. `age` is
        the version of the copy plus 1, at first 0. A copy that learners share may be newer than the `model` of one."""
        self._rule = "versions", period
        return self.renewed(model)

    @torch.no_grad()
    def renewed(self, model: nn.Module) -> nn.Module:
        """Return the copy, after another call with the last call's period. While the GPU's work is recorded, nothing is
        renewed: a repetition must be preceded by a call."""
        if recording() or self._rule is None:
            return self.model
        (counted, period), age = self._rule, self._age()
        if counted == "calls":
            if age == 0:
                self._copy(model)
            self._set_age((age + 1) % period)
        elif age == 0 or self.version // period > (age - 1) // period:
            self._copy(model)
            self._set_age(self.version + 1)
        return self.model

    def _age(self) -> int:
        """`age`. From a GPU, which the host would have to wait for, it is read only if something else has set it: other
        processes share `age` in host memory only."""
        known = self._read
        if not self.age.is_cuda or known is None or known[0] is not self.age or known[1] != self.age._version:
            self._read = known = self.age, self.age._version, int(self.age)
        return known[2]

    def _set_age(self, age: int) -> None:
        self.age.fill_(age)
        self._read = self.age, self.age._version, age

    def _copy(self, model: nn.Module) -> None:
        source = model.state_dict()
        for name, tensor in self.model.state_dict().items():
            tensor.copy_(source[name])


def add_target(model: nn.Module) -> None:
    """Give a network a target network."""
    model.target = Target(model)


def target_of(model: nn.Module, period: int) -> nn.Module:
    """The network's target network, copied every `period` calls; with period 0 the network itself."""
    target = getattr(model, "target", None) if period else None
    return target.used(model, period) if isinstance(target, Target) else model


def target_by_version(model: nn.Module, period: int) -> nn.Module:
    """The network's target network, copied every `period` versions of the parameters; with period 0 the network
    itself."""
    target = getattr(model, "target", None) if period else None
    return target.followed(model, period) if isinstance(target, Target) else model


def targets(model: nn.Module) -> list[Target]:
    """The network's target networks."""
    return [module for module in model.modules() if isinstance(module, Target)]
