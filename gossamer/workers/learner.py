"""A learner: a network, its optimizer, and their progress."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property, partial
from typing import Any

import torch
from torch import Tensor, nn

from gossamer.algorithms import Algorithm
from gossamer.algorithms.base import scheduled, varying, with_numbers
from gossamer.algorithms.losses import Loss
from gossamer.algorithms.target import Target, targets
from gossamer.data import Trajectory, Tree, Updated, copied
from gossamer.exchange import Dropped, Gradient, Link, Recordable, Stepped
from gossamer.exchange.flat import Flat
from gossamer.exchange.gossip.records import PolicyOutputs
from gossamer.nn.networks import Normalizing, WithTorso, auto_encoders, reconstruction_loss
from gossamer.nn.torsos import AutoEncoder
from gossamer.policy import build
from gossamer.spaces import Spec
from gossamer.system.errors import UserError
from gossamer.task import Task
from gossamer.workers.recorded import Pass, RecordedUpdates, Taken
from gossamer.workers.reference import policy_outputs


class NonFinite(UserError, ArithmeticError):
    """An observation, reward, loss or gradient was NaN or infinite."""


def _groups(model: nn.Module, trained: Sequence[nn.Parameter]) -> list[dict[str, Any]]:
    """The trained parameters in groups, for `StepRule.make`: the torso's, which are hidden layers, and the others."""
    torso = set(model.torso.parameters()) if isinstance(model, WithTorso) else set()
    groups = [{"params": [p for p in trained if (p in torso) is inside], "hidden": inside} for inside in (True, False)]
    return [group for group in groups if group["params"]]


def _row(loss: Loss, norm: Tensor) -> Tensor:
    """The metrics [M] of an optimizer step."""
    return torch.stack([loss.total, norm, *loss.parts.values()])


@contextmanager
def training(model: nn.Module) -> Iterator[None]:
    """Training mode inside, evaluation mode after it: dropout and batch normalisation of a user's network."""
    model.train()
    try:
        yield
    finally:
        model.eval()


class Learner:
    """Updates a network from trajectories."""

    def __init__(self, task: Task, spec: Spec, *, rank: int = 0) -> None:
        self.task, self.model, self._actions = task, build(task, spec), spec.actions
        self._trained = [each for each in self.model.parameters() if each.requires_grad]  # running statistics have none
        self.opt = task.optimization.make(_groups(self.model, self._trained), task.optimization.learning_rate)
        self.rng, self._rank = task.generator("learn", rank), rank
        self.steps = 0  # environment steps learned from
        self.updates = 0  # optimizer steps
        self.waited = 0.0  # seconds, for gradients of other learners
        self._lag, self._staleness, self._dropped = Counter[int](), Counter[int](), Counter[Dropped]()
        self._loss = torch.zeros(())  # that the gradients are of
        self._bad: Tensor | None = None  # []  1 if a gradient of the batch was not finite; see `_later`
        self.recorded = RecordedUpdates(self.model, self._trained, self.rng) if self._recordable() else None
        if self._later:  # a number would be part of a recording
            for group in self.opt.param_groups:
                group["lr"], group["capturable"] = torch.zeros((), device=task.device), True
        self.rate = task.optimization.learning_rate

    @cached_property
    def flat(self) -> Flat:
        """The parameters as one vector. Created at first access; from then on the parameters are views of it."""
        return Flat(self.model)

    @cached_property
    def _coders(self) -> list[AutoEncoder]:
        return auto_encoders(self.model)

    @cached_property
    def _targets(self) -> list[Target]:
        return targets(self.model)

    @property
    def rate(self) -> float:
        """The learning rate of the next step."""
        return self._rate

    @rate.setter
    def rate(self, rate: float) -> None:
        self._rate = rate
        for group in self.opt.param_groups:
            if isinstance(group["lr"], Tensor):
                group["lr"].fill_(rate)
            else:
                group["lr"] = rate

    @cached_property
    def _later(self) -> bool:
        """Whether gradients are checked once for all steps of a batch. The optimizer itself leaves out the steps that
        follow a gradient that is not finite: fused Adam can (`found_inf`). To check before each step, the host would
        have to wait for the GPU."""
        adam = isinstance(self.opt, torch.optim.Adam) and bool(self.opt.defaults["fused"])
        return adam and self._trained[0].is_cuda

    def finish(self, link: Link) -> None:
        """Take the steps that other learners still take, after the last batch of this one."""
        link.finish(self)

    @property
    def finite(self) -> bool:
        """Whether all parameters are finite."""
        return all(bool(p.isfinite().all()) for p in self.model.parameters())

    def update(self, batch: Trajectory, link: Link, position: int, *, own: bool = True) -> Updated:
        """Train on a batch. Return the mean metrics of its losses and, if losses give priorities, the last ones.

        `position`: environment steps in the run's budget before this batch; it sets the learning rate and whatever else
        has a schedule. `own`: see `Batch`. Raises `NonFinite`, which names environments of an `own` batch, before NaN
        or infinity reaches the parameters or another member; the parameters are those after the last finite step."""
        self.rate = rate = self.task.optimization.rate(position)
        algorithm = scheduled(self.task.algorithm, self.task.optimization.progress(position))
        version, rows = link.refresh(), list[Tensor]()
        for target in self._targets:
            target.version = version
        names, priority = list[str](), None
        self._bad = None
        with training(self.model):
            for each in self._passes(algorithm, batch, link):
                loss = each.loss
                self._loss = loss.total
                stepped = link.step(each.local)
                if not stepped.finite:
                    raise self._non_finite(batch, self._loss, position, own=own)
                self._count(stepped)
                names = ["loss", "gradient_norm", *loss.parts]
                priority = priority if loss.priority is None else loss.priority
                rows.append(_row(loss, stepped.norm) if each.row is None else each.row)
        table = torch.stack(rows)  # [optimizer steps, metrics]
        read = torch.cat([table.mean(0).double(), batch.version[0].double()]).tolist()  # all at once
        means = dict(zip(names, read, strict=False))
        if self._later and not math.isfinite(means["gradient_norm"]):
            first = table[:, 1].isfinite().tolist().index(False)
            raise self._non_finite(batch, table[first, 0], position, own=own)
        self.steps += batch.steps
        self._count_lag(read[len(names) :], version, len(rows))
        return Updated({**means, "learning_rate": rate}, priority)

    def _passes(self, algorithm: Algorithm, batch: Trajectory, link: Link) -> Iterator[Pass]:
        """The passes over a batch, recorded if possible."""
        if self.recorded is None or link.recordable is Recordable.NOTHING:
            return self._computed(algorithm, batch)
        if isinstance(self.model, Normalizing) and self.model.share is not None:  # in the middle of a pass
            return self._computed(algorithm, batch)
        whole = link.recordable is Recordable.STEP and self._later
        work = partial(self._stepped if whole else self._computed, self._scheduled(algorithm))
        return self.recorded(batch, partial(self._computed, algorithm), work, f"whole: {whole}")

    @torch.enable_grad()  # an environment of this thread may have turned it off
    def _computed(self, algorithm: Algorithm, batch: Trajectory) -> Iterator[Pass]:
        """Compute losses and gradients."""
        for each in algorithm.losses(self.model, batch, self.rng):
            loss = self._with_reconstruction(each)
            self.opt.zero_grad(set_to_none=True)
            loss.total.backward()  # type: ignore[no-untyped-call]
            yield Pass(Loss(loss.total.detach(), loss.parts, loss.priority), self)

    def _stepped(self, algorithm: Algorithm, batch: Trajectory) -> Iterator[Pass]:
        """Compute losses and gradients, and take the steps."""
        for each in self._computed(algorithm, batch):
            self._loss = each.loss.total
            gradient = self.gradient(checked=False)
            self.apply()
            yield replace(each, local=Taken(gradient), row=_row(each.loss, gradient.norm))

    def _scheduled(self, algorithm: Algorithm) -> Algorithm:
        """The algorithm with its scheduled numbers as tensors, for a recording."""
        for name, tensor in self._numbers.items():
            tensor.fill_(getattr(algorithm, name))
        return with_numbers(algorithm, self._numbers)

    def _recordable(self) -> bool:
        """Whether passes can be recorded. Those of a memory depend on where episodes begin; scheduled hyperparameters
        are tensors in a recording."""
        task = self.task
        if not task.records or task.network.memory != "none":
            return False
        return all(isinstance(getattr(task.algorithm, name), float) for name in varying(task.algorithm))

    @cached_property
    def _numbers(self) -> dict[str, Tensor]:
        """The hyperparameters with a schedule."""
        return {name: torch.zeros((), device=self.task.device) for name in varying(self.task.algorithm)}

    def _count(self, stepped: Stepped) -> None:
        self.waited += stepped.waited
        if stepped.dropped is None:
            self.updates += 1
            if stepped.staleness is not None:
                self._staleness[stepped.staleness] += 1
        else:
            self._dropped[stepped.dropped] += 1

    def _with_reconstruction(self, loss: Loss) -> Loss:
        """Add the loss of the network's auto-encoder, if it has one."""
        error = reconstruction_loss(self._coders)
        if error is None:
            return loss
        total = loss.total + self.task.network.reconstruction_coef * error
        return replace(loss, total=total, parts={**loss.parts, "reconstruction_loss": error.detach()})

    def _count_lag(self, began: Sequence[float], version: int, updates: int) -> None:
        """Count how old the parameters that began each trajectory were at each of the updates. `began`: their versions;
        `version`: of the parameters at the first update."""
        for before, trajectories in Counter(began).items():
            for update in range(updates):
                self._lag[version + update - int(before)] += trajectories

    def take_lag(self) -> dict[int, int]:
        """Policy lag of the updates since the last call: {version at the update - version that acted: trajectories}."""
        lag, self._lag = dict(self._lag), Counter[int]()
        return lag

    def take_gradients(self) -> tuple[dict[int, int], dict[str, int]]:
        """The gradients since the last call: {staleness: gradients that were applied}, {why: that were dropped}."""
        applied, dropped = dict(self._staleness), {why.value: count for why, count in self._dropped.items()}
        self._staleness, self._dropped = Counter[int](), Counter[Dropped]()
        return applied, dropped

    def gradient(self, *, checked: bool = True) -> Gradient:
        """See `LocalStep`."""
        norm = nn.utils.get_total_norm([p.grad for p in self._trained if p.grad is not None], foreach=True)
        most = self.task.optimization.max_grad_norm
        if not checked and self._later:
            if most < math.inf:
                nn.utils.clip_grads_with_norm_(self._trained, most, norm, foreach=True)
            now = (~norm.isfinite()).float()
            self._bad = now if self._bad is None else torch.maximum(self._bad, now)
            self.opt.found_inf = self._bad  # type: ignore[attr-defined]  # which torch.amp sets, too
            return Gradient(norm, True, self._loss)
        size = float(norm)
        if size > most:  # `clip_grad_norm_` would multiply shorter ones, too, by 1
            nn.utils.clip_grads_with_norm_(self._trained, most, norm, foreach=True)
        return Gradient(norm, math.isfinite(size), self._loss)

    def apply(self) -> None:
        """See `LocalStep`."""
        self.opt.step()

    def _non_finite(self, batch: Trajectory, loss: Tensor, position: int, *, own: bool) -> NonFinite:
        return NonFinite(f"{self._culprit(batch, loss, own=own)} became NaN or infinite at step {position:,}")

    def _culprit(self, batch: Trajectory, loss: Tensor, *, own: bool) -> str:
        """Name the first non-finite quantity: observation or reward (with environments, if it is the worker's `own`),
        parameter, loss, gradient."""
        for name, values in (("observation", batch.obs), ("reward", batch.reward)):  # [T(+1), B, ...]
            if values.is_floating_point() and not values.isfinite().all():
                if not own:
                    return f"a batch's {name}"
                bad = (~values.isfinite()).movedim(1, 0).flatten(1).any(1).nonzero().flatten().tolist()
                return f"the {name} of environment {', '.join(map(str, bad))}"
        if not self.finite:
            return "a parameter"
        return "the gradient" if bool(loss.isfinite()) else "the loss"

    def policy_outputs(self) -> PolicyOutputs | None:
        """Evaluate the current policy on the reference observations."""
        return policy_outputs(self.task, self.model, self._actions)

    def optimizer_state(self) -> Tree:
        """A copy of what the optimizer has accumulated; empty before the first step."""
        return {str(k): copied(v) for k, v in self.opt.state_dict()["state"].items()}

    def load_optimizer(self, state: Tree) -> None:
        """Copy what `optimizer_state` has returned, here or at another learner."""
        groups = self.opt.state_dict()["param_groups"]  # `update` sets the learning rate, the task the rest
        self.opt.load_state_dict({"state": {int(k): v for k, v in state.items()}, "param_groups": groups})
        self._moved()
        for parameter, kept in self.opt.state.items():
            for name, tensor in kept.items():
                # Fused Adam needs moments in the parameter's memory layout. Copies leave `state` as it is
                like = parameter if tensor.shape == parameter.shape else tensor
                kept[name] = torch.empty_like(like).copy_(tensor)

    def statistics(self) -> list[Tensor]:
        """See `Learning`. An optimizer that begins with its first step takes one with a gradient and a rate of zero."""
        if not self.opt.state:
            rate, self.rate = self.rate, 0.0
            for parameter in self._trained:
                parameter.grad = torch.zeros_like(parameter)
            self.opt.step()
            self.opt.zero_grad(set_to_none=True)
            self.rate = rate
            for tensor in self._accumulated():
                tensor.zero_()
        return self._accumulated()

    def share_statistics(self, tensors: Sequence[Tensor]) -> None:
        """See `Learning`."""
        given = iter(tensors)
        for parameter in self._trained:
            kept = self.opt.state[parameter]
            kept.update({name: next(given) for name in kept})
        self._moved()

    def _moved(self) -> None:
        """The optimizer's state has other memory."""
        if self.recorded is not None:
            self.recorded.forget()

    def _accumulated(self) -> list[Tensor]:
        return [tensor for parameter in self._trained for tensor in self.opt.state[parameter].values()]

    def state_dict(self) -> Tree:
        """Return all state that the next update depends on."""
        return {
            # The next update modifies torch's live tensors. Parameters are views of one vector: with `deepcopy` pickle
            # would write the whole of it for each of them
            "model": {name: tensor.detach().clone() for name, tensor in self.model.state_dict().items()},
            "optimizer": self.optimizer_state(),
            "rng": self.rng.get_state(),
            "steps": self.steps,
            "updates": self.updates,
        }

    def load_state_dict(self, state: Tree) -> None:
        """Restore a state of `state_dict`."""
        self.model.load_state_dict(state["model"])
        self.load_optimizer(state["optimizer"])
        self.steps, self.updates = int(state["steps"]), int(state["updates"])
        self.task.restore(self.rng, state["rng"], f"learn {self.updates}", self._rank)
