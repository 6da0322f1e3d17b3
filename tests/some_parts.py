"""Small learning problems, and an observer to run them under, for the tests."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import SGD, Adagrad, Adam, Optimizer, RAdam
from torch.optim.optimizer import ParamsT

from gossamer.algorithms import A2C, Algorithm, Network
from gossamer.data import Trajectory, numpy_dtype
from gossamer.envs.base import EnvFactory, VectorEnv
from gossamer.envs.toy import Catch
from gossamer.nn.muon import Muon
from gossamer.nn.networks import ActorCritic
from gossamer.nn.optim import rmsprop_a3c, rmsprop_dqn, rmsprop_tf, rmsprop_torch
from gossamer.nn.torsos import TorsoFactory, mlp, small
from gossamer.runtime import Answer, Context, Silent
from gossamer.spaces import Space, Spec
from gossamer.task import Optimization, Task, WorkerReport
from gossamer.training.budget import Budget

OPTIMIZERS: dict[str, Callable[[ParamsT, float], Optimizer]] = {
    "adam": partial(Adam, eps=1e-5, fused=True),
    "adagrad": partial(Adagrad, eps=1e-5, fused=True),
    "radam": partial(RAdam, eps=1e-5, foreach=True),
    "muon": Muon,
    "sgd": SGD,
    "rmsprop-a3c": rmsprop_a3c,
    "rmsprop-tf": rmsprop_tf,
    "rmsprop-torch": rmsprop_torch,
    "rmsprop-dqn": rmsprop_dqn,
}


def a_task(
    env: EnvFactory | None = None,
    algorithm: Algorithm | None = None,
    *,
    optimizer: str = "adam",
    rate: float = 0.01,
    anneal_steps: int = 0,
    max_grad_norm: float = float("inf"),
    dtype: torch.dtype | None = torch.float32,
    rollout_length: int = 4,
    seed: int = 1,
    **network: Any,
) -> Task:
    """Vectors through the MLP; pictures centred, through the small network. `network`: further fields of `Network`."""
    env = env or Catch()
    pixels = env.make(1).spec.pixels
    parts = Network(small, 1 / 64, centre=True, dtype=dtype) if pixels else Network(mlp, dtype=dtype)
    optimization = Optimization(OPTIMIZERS[optimizer], rate, anneal_steps, max_grad_norm=max_grad_norm)
    return Task(env, algorithm or A2C(), replace(parts, **network), optimization, rollout_length, seed, threads=1)


@dataclass(frozen=True)
class CountedCatch:
    """Catch; `made` has the number of environments of each call of `make`."""

    made: list[int] = field(default_factory=list, compare=False)

    @property
    def name(self) -> str:
        return "catch"

    def make(self, num_envs: int, *, workers: int = 0, render: bool = False) -> VectorEnv:
        self.made.append(num_envs)
        return Catch().make(num_envs)


def a_trajectory(spec: Spec, rollout_length: int, num_envs: int, seed: int = 0) -> Trajectory:
    """Random play that never was, by a policy that could have: shapes and ranges are right."""
    rng = torch.Generator().manual_seed(seed)
    slot = Trajectory.empty(rollout_length, num_envs, spec.obs_shape, numpy_dtype(spec.obs_dtype))
    slot.obs.copy_(torch.randint(0, 256 if spec.pixels else 2, slot.obs.shape, generator=rng))
    slot.action.copy_(torch.randint(0, spec.actions.outputs, slot.action.shape, generator=rng))
    slot.reward.copy_(torch.randn(slot.reward.shape, generator=rng))
    slot.discount.fill_(0.9)
    slot.value.copy_(torch.randn(slot.value.shape, generator=rng))
    return slot


def a_network(obs_shape: tuple[int, ...], actions: Space, torso: TorsoFactory, **options: Any) -> ActorCritic:
    """An actor-critic for one array of this shape: bytes if it is a picture, else float32."""
    dtype = np.dtype(np.uint8 if len(obs_shape) == 3 else np.float32)
    return ActorCritic(Spec(obs_shape, dtype, actions), Network(torso, **options))


@torch.no_grad()
def sharpen(model: nn.Module, factor: float = 50.0) -> None:
    """Make an actor-critic's policy depend on what it is shown: the initial weights of its head are nearly 0."""
    assert isinstance(model, ActorCritic)
    for weights in model.policy.parameters():
        weights *= factor


class Watcher(Silent):
    """An observer that keeps what it is told, with a budget of so many steps."""

    def __init__(
        self, saved: dict[str, Any] | None = None, *, steps: int = 64, acted: int = 0, stop_after: int | None = None
    ) -> None:
        """`saved`: what workers and services start from; `stop_after`: reports until it asks to end."""
        self.budget = Budget(steps, acted)
        self.before, self.saved, self.stop_after = saved or {}, dict[str, Any](), stop_after
        self.records: list[WorkerReport] = []

    def restored(self, worker: str) -> Any | None:
        return self.before.get(worker)

    def report(self, worker: str, record: Any) -> None:
        if isinstance(record, WorkerReport):
            self.records.append(record)
            self.budget.report(worker, record.steps)

    def claim(self, worker: str, steps: int, *, idle: bool = True) -> int | Answer:
        position = self.budget.lease(worker, steps)
        return Answer.END if position is None else position

    def save(self, worker: str, state: Any) -> None:
        self.saved[worker] = state

    def stopping(self) -> bool:
        return self.stop_after is not None and len(self.records) >= self.stop_after


class Slow:
    """A context whose worker takes half a second for each rollout."""

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx

    def __getattr__(self, name: str) -> Any:
        return getattr(self._ctx, name)

    def claim(self, *given: Any) -> int | None:
        self._ctx.sleep(0.5)
        return self._ctx.claim(*given)


def leaves(tree: Any, path: str = "") -> dict[str, Any]:
    """A tree's leaves by path, to compare trees with."""
    if isinstance(tree, dict):
        return {k: v for key, branch in tree.items() for k, v in leaves(branch, f"{path}[{key!r}]").items()}
    if isinstance(tree, list | tuple):
        return {k: v for i, branch in enumerate(tree) for k, v in leaves(branch, f"{path}[{i}]").items()}
    return {path: tree}


def differences(one: Any, other: Any) -> list[str]:
    """Where two trees are not bit for bit the same."""
    a, b = leaves(one), leaves(other)
    return sorted(a.keys() ^ b.keys()) + [path for path in a.keys() & b.keys() if not _same(a[path], b[path])]


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        return a.dtype == b.dtype and a.shape == b.shape and torch.equal(a, b)
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        return a.dtype == b.dtype and np.array_equal(a, b)
    return bool(a == b and type(a) is type(b))
