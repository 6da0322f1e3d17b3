"""A learner: a network, its optimiser, and how far they have come."""

from __future__ import annotations

import threading
from copy import deepcopy
from functools import cached_property

import torch
from torch import Tensor, nn

from gossamer.data import Trajectory, Tree
from gossamer.envs.base import Spec
from gossamer.exchange import Link, Stepped
from gossamer.exchange.flat import Flat
from gossamer.exchange.gossip.records import PolicyOutputs
from gossamer.losses import Loss
from gossamer.reference import policy_outputs
from gossamer.task import Task

_SEEDING = threading.Lock()  # torch initialises from one global stream; members of one process must not share it


class NonFinite(ArithmeticError):
    """An observation, reward, loss or gradient was NaN or infinite."""


def build(task: Task, spec: Spec) -> nn.Module:
    """The task's network on its device; equal for every member (common initial parameters)."""
    with _SEEDING, torch.random.fork_rng(devices=[]):
        torch.manual_seed(task.stream("model"))
        model = task.algorithm.model(spec.obs_shape, spec.actions, task.network)
    return model.to(task.device)


class Learner:
    """Turns trajectories into parameters."""

    def __init__(self, task: Task, spec: Spec, *, rank: int = 0) -> None:
        self.task, self.model = task, build(task, spec)
        self.opt = task.optimization.make(self.model.parameters(), task.optimization.learning_rate)
        self.rng = task.generator("learn", rank)
        self.steps = 0  # environment steps learned from
        self.updates = 0  # optimiser steps

    @cached_property
    def flat(self) -> Flat:
        """The parameters as one vector; made when an exchange asks for it. From then on they are views of it."""
        return Flat(self.model)

    @property
    def finite(self) -> bool:
        """Whether all parameters are finite."""
        return all(bool(p.isfinite().all()) for p in self.model.parameters())

    def update(self, batch: Trajectory, link: Link, position: int) -> dict[str, float]:
        """Learn from a batch that was acted at this position of the step budget; the means of what its losses report.

        Raises `NonFinite` before a NaN or infinity reaches the parameters or another member: they are as they were
        after the last good step."""
        rate = self.task.optimization.rate(position)
        for group in self.opt.param_groups:
            group["lr"] = rate
        rows: list[Tensor] = []
        names: list[str] = []
        for loss in self.task.algorithm.losses(self.model, batch, self.rng):
            self.opt.zero_grad(set_to_none=True)
            loss.total.backward()  # type: ignore[no-untyped-call]
            stepped = link.step(self._step)
            if not stepped.finite:
                raise NonFinite(f"{self._culprit(batch, loss)} became NaN or infinite at step {position:,}")
            self.updates += 1
            names = ["loss", "gradient_norm", *loss.parts]
            rows.append(torch.stack([loss.total.detach(), stepped.norm, *loss.parts.values()]))
        self.steps += batch.steps
        means = dict(zip(names, torch.stack(rows).mean(0).tolist(), strict=True))
        return {**means, "learning_rate": rate}

    def _step(self) -> Stepped:
        """The local step: clip, look whether the gradient is finite, step."""
        parameters = self.model.parameters()
        norm = nn.utils.clip_grad_norm_(parameters, self.task.optimization.max_grad_norm, foreach=True)
        finite = bool(norm.isfinite())
        if finite:
            self.opt.step()
        return Stepped(norm, finite)

    def _culprit(self, batch: Trajectory, loss: Loss) -> str:
        """What was not finite first, and in which environments: observation, reward, loss, gradient or parameter."""
        for name, values in (("observation", batch.obs), ("reward", batch.reward)):  # [T(+1), B, ...]
            if values.is_floating_point() and not values.isfinite().all():
                bad = (~values.isfinite()).movedim(1, 0).flatten(1).any(1).nonzero().flatten().tolist()
                return f"the {name} of environment {', '.join(map(str, bad))}"
        if not self.finite:
            return "a parameter"
        return "the gradient" if bool(loss.total.isfinite()) else "the loss"

    def policy_outputs(self) -> PolicyOutputs | None:
        """The present policy on the reference observations."""
        return policy_outputs(self.task, self.model)

    def state_dict(self) -> Tree:
        """Everything the next update depends on."""
        return {
            "model": deepcopy(self.model.state_dict()),  # torch gives the live tensors, which the next update changes
            "optimizer": {str(k): deepcopy(v) for k, v in self.opt.state_dict()["state"].items()},
            "rng": self.rng.get_state(),
            "steps": self.steps,
            "updates": self.updates,
        }

    def load_state_dict(self, state: Tree) -> None:
        """Go on where `state_dict` was taken."""
        self.model.load_state_dict(state["model"])
        groups = self.opt.state_dict()["param_groups"]  # the rate follows from `steps`, the rest from the task
        self.opt.load_state_dict({"state": {int(k): v for k, v in state["optimizer"].items()}, "param_groups": groups})
        for parameter, kept in self.opt.state.items():
            for name, tensor in kept.items():
                if tensor.shape == parameter.shape:  # fused Adam pairs elements by their place in memory: one layout
                    kept[name] = torch.empty_like(parameter).copy_(tensor)
        self.rng.set_state(torch.as_tensor(state["rng"]).cpu())
        self.steps, self.updates = int(state["steps"]), int(state["updates"])
