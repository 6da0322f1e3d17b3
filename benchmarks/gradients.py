"""The gradient of the same batch on two devices, in float32."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gossamer.algorithms import A2C, DQN, PPO, Algorithm, AsyncPPO, Network, VTrace
from gossamer.algorithms.base import initial_state
from gossamer.data import Trajectory
from gossamer.nn import torsos
from gossamer.nn.optim import Adam
from gossamer.spaces import Discrete, Spec
from gossamer.task import Optimization, Task
from gossamer.workers.learner import Learner

SPEC = Spec((4, 84, 84), np.dtype(np.uint8), Discrete(6))
STEPS, ENVS = 8, 16


@dataclass(frozen=True)
class Case:
    """A learning problem. One minibatch: others would be drawn differently on each device."""

    algorithm: Algorithm
    memory: Any = "none"


CASES: Mapping[str, Case] = {
    "a2c": Case(A2C()),
    "a2c lstm": Case(A2C(), "lstm"),
    "ppo": Case(PPO(epochs=1, num_minibatches=1)),
    "vtrace": Case(VTrace()),
    "appo": Case(AsyncPPO(num_minibatches=1)),
    "dqn": Case(DQN()),
}


class Pictures:
    """Environments of which only the spec is asked for."""

    name, spec = "pictures", SPEC

    def make(self, num_envs: int, *, workers: int = 0, render: bool = False) -> Any:
        return self

    def close(self) -> None: ...


def difference(name: str, device: str, *, tf32: bool = False, small: bool = False) -> float:
    """||g - g_cpu|| / ||g_cpu|| of the gradient g of a case on this device. `tf32`: allow it where torch does by
    default; `small`: a small network."""
    on_cpu = gradient(CASES[name], "cpu", small=small)
    with precision(tf32=tf32):
        found = gradient(CASES[name], device, small=small)
    return float((found - on_cpu).norm() / on_cpu.norm())


def gradient(case: Case, device: str, *, small: bool = False) -> Tensor:
    """The gradient [P] float64, on the CPU, of the first loss for a random batch."""
    learner = Learner(a_task(case, device, small=small), SPEC)
    flat = learner.flat  # before the backward pass: parameters become views of it
    batch = a_batch(learner).to(device)
    loss = next(iter(case.algorithm.losses(learner.model.train(), batch, learner.rng)))
    loss.total.backward()  # type: ignore[no-untyped-call]
    return flat.gradient().cpu().double()


def a_task(case: Case, device: str, *, small: bool) -> Task:
    network = Network(torsos.small if small else torsos.nature, 1 / 255, memory=case.memory)
    optimization = Optimization(Adam().make, 1e-3, 0)
    return Task(Pictures(), case.algorithm, network, optimization, STEPS, device=device, threads=1)


def a_batch(learner: Learner) -> Trajectory:
    """A random batch, the same for each device."""
    rng = torch.Generator().manual_seed(1)
    state = {name: torch.zeros(each.shape) for name, each in initial_state(learner.model, ENVS).items()}
    batch = Trajectory.empty(STEPS, ENVS, SPEC.obs_shape, torch.uint8, state=state)
    batch.obs.copy_(torch.randint(0, 256, batch.obs.shape, generator=rng, dtype=torch.uint8))
    batch.action.random_(0, SPEC.actions.outputs, generator=rng)
    batch.reward.normal_(generator=rng)
    batch.discount.fill_(0.99)
    batch.value.normal_(generator=rng)
    batch.behaviour.fill_(-np.log(SPEC.actions.outputs))
    batch.begins[0] = True
    return batch


@contextmanager
def precision(*, tf32: bool) -> Iterator[None]:
    """Allow or refuse TF32 for convolutions and products inside."""
    before = torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = tf32
    try:
        yield
    finally:
        torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32 = before
