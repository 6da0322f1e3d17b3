"""A learner: a network, its optimiser, and how far they have come."""

from __future__ import annotations

import math
import threading
from copy import deepcopy

import torch
from torch import Tensor, nn

from gossamer.data import Trajectory, Tree
from gossamer.envs.base import Spec
from gossamer.exchange import Exchange
from gossamer.task import Task

_SEEDING = threading.Lock()  # torch initialises from one global stream; members of one process must not share it


class NonFiniteLoss(ArithmeticError):
    """A loss or gradient was NaN or infinite."""


def build(task: Task, spec: Spec) -> nn.Module:
    """The task's network on its device; equal for every member (common initial parameters)."""
    with _SEEDING, torch.random.fork_rng(devices=[]):
        torch.manual_seed(task.stream("model"))
        model = task.algorithm.model(spec.obs_shape, spec.actions, task.network)
    return model.to(task.device)


class Learner:
    """Turns trajectories into parameters."""

    def __init__(self, task: Task, spec: Spec, *, rank: int = 0, copies: int = 1) -> None:
        """One of `copies` learners that share the task's steps evenly."""
        self.task, self.model, self.copies = task, build(task, spec), copies
        self.opt = task.optimization.make(self.model.parameters(), task.optimization.learning_rate)
        self.rng = task.generator("learn", rank)
        self.steps = 0  # environment steps learned from
        self.updates = 0  # optimiser steps

    @property
    def left(self) -> bool:
        """Whether this learner's share of the task's steps is not done yet."""
        return self.steps * self.copies < self.task.steps

    def update(self, batch: Trajectory, exchange: Exchange) -> dict[str, float]:
        """Learn from a batch; the means of what its losses report. `NonFiniteLoss` if any is NaN or infinite."""
        plan = self.task.optimization
        rate = plan.rate(self.steps * self.copies)
        for group in self.opt.param_groups:
            group["lr"] = rate
        rows: list[Tensor] = []
        names: list[str] = []
        for loss in self.task.algorithm.losses(self.model, batch, self.rng):
            self.opt.zero_grad(set_to_none=True)
            loss.total.backward()  # type: ignore[no-untyped-call]
            norm = nn.utils.clip_grad_norm_(self.model.parameters(), plan.max_grad_norm, foreach=True)
            exchange.apply(self.model, self.opt)
            self.updates += 1
            names = ["loss", "gradient_norm", *loss.parts]
            rows.append(torch.stack([loss.total.detach(), norm, *loss.parts.values()]))
        self.steps += batch.steps
        means = dict(zip(names, torch.stack(rows).mean(0).tolist(), strict=True))  # the one wait for the device
        if not all(map(math.isfinite, means.values())):
            bad = ", ".join(name for name, mean in means.items() if not math.isfinite(mean))
            raise NonFiniteLoss(f"{bad} became NaN or infinite at step {self.steps:,}")
        return {**means, "learning_rate": rate}

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
