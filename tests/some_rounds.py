"""Actor-learners that act for a rollout and learn, in turn, on any device."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from some_parts import a_task
from torch import Tensor, nn

from gossamer.algorithms import A2C, DQN, PPO, Algorithm, AsyncPPO, VTrace
from gossamer.data import Batch, Updated
from gossamer.envs.base import EnvFactory
from gossamer.envs.toy import Catch
from gossamer.exchange import Alone, Exchange
from gossamer.experience import Direct, LocalReplay
from gossamer.nn.torsos import small
from gossamer.policy import Replica
from gossamer.workers.member import Member

ROLLOUT, ENVS = 4, 3
REPLAYED = DQN(
    buffer_size=64,
    batch_size=8,
    n_step=2,
    learning_starts=8,
    samples_per_insert=1.0,
    epsilon_steps=100,
    epsilon_end=0.5,
)
ALGORITHMS: dict[str, Algorithm] = {
    "a2c": A2C(),
    "ppo": PPO(num_minibatches=2, epochs=2),
    "vtrace": VTrace(),
    "appo": AsyncPPO(num_minibatches=2, target_period=2),
    "dqn": replace(REPLAYED, target_period=3),
    "by-environment": replace(REPLAYED, exploration="by-environment", double=True),
}


class Place:
    """The context of a worker that runs alone."""

    name, rank, copies, stopped, restarts = "act_and_learn", 0, 1, False, 0
    restored = report = save = stop = lambda *given: None


class Reading(nn.Module):
    """A torso that looks at what it computes."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.inner = small(shape)

    def forward(self, x: Tensor) -> Tensor:
        features: Tensor = self.inner(x)
        return features if float(features.sum()) > 0 else features * 1.0


class Round:
    """An actor-learner that acts for a rollout, then learns."""

    def __init__(
        self,
        algorithm: Algorithm,
        device: str,
        env: EnvFactory | None = None,
        exchange: Exchange | None = None,
        *,
        cuda_graphs: bool = True,
        **changes: Any,
    ) -> None:
        """`changes`: to `a_task`. The learning rate is a float32: recordings have it as a tensor."""
        env = env or Catch(pixels=True)
        given = {"max_grad_norm": 0.5, "rollout_length": ROLLOUT, "rate": 2.0**-7, **changes}
        task = replace(a_task(env, algorithm, **given), device=device, cuda_graphs=cuda_graphs)
        self.member = Member(Place(), task, [env.make(ENVS)], Replica(), exchange or Alone())
        parts = LocalReplay(algorithm.replay_plan()) if isinstance(algorithm, DQN) else Direct()
        self.end = parts.join(Place(), self.member)

    def act(self) -> None:
        with self.end.slot(0) as slot:
            self.member.unroll(slot, 0)

    def learn(self, position: int = 0) -> Updated:
        """Learn from what there is. `position`: of the batches."""
        updated = Updated({})
        while isinstance(batch := self.end.batch(), Batch):
            updated = self.member.update(replace(batch, position=position))
            self.end.trained(batch, updated)
        return updated

    @property
    def weights(self) -> torch.Tensor:
        return torch.cat([each.detach().flatten() for each in self.member.learner.model.parameters()]).clone()
