"""Deep Q-learning with replay (Mnih et al. 2015); double (van Hasselt et al. 2016), dueling (Wang et al. 2016), with
n-step targets and exploration by environment (Horgan et al. 2018), or on a scale of its own (Pohlen et al. 2018)."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from gossamer.algorithms.action_values import DoubleQ, RescaledValues, normalize_layers
from gossamer.algorithms.base import Acting, Prioritized, ReplayPlan, Valued, evaluating, own_rewards
from gossamer.algorithms.exploration import (
    EPSILON_END,
    EPSILON_START,
    EPSILON_STEPS,
    EXPLORATION,
    Exploration,
    epsilon_greedy,
    explore_a_tenth,
    fraction,
)
from gossamer.algorithms.losses import Loss, q_learning
from gossamer.algorithms.replaying import REPLAY_DIR, SAVE_REPLAY, check_starts
from gossamer.algorithms.rescaling import OF_RETURNS, Scale
from gossamer.algorithms.returns import n_step
from gossamer.algorithms.target import add_target, target_by_version
from gossamer.data import Trajectory, Version
from gossamer.nn.networks import Network, QNetwork
from gossamer.presets import accelerated
from gossamer.presets.layers import Layer
from gossamer.spaces import Spec
from gossamer.system.errors import UserError
from gossamer.system.options import option, options


def learn_after_a_tenth(values: Mapping[str, Any], given: Collection[str]) -> dict[str, Any]:
    """Short runs begin to learn within a tenth of their steps, while epsilon falls."""
    return {"learning_starts": min(values["learning_starts"], max(1, values["steps"] // 10))}


@options
class DQN(RescaledValues):
    """Action values from windows of `n_step` steps that are drawn from a replay memory, uniformly or by priority.

    Actors choose a random action with probability epsilon, else the one of the highest value. The target of Q(x_0, a_0)
    is the sum of n discounted rewards and the discounted value of x_n by the target network; with `double`, of the
    action that the network itself prefers there. There is no correction for the window's actions after the first.

    With `rescale_values` the network learns h(return) (`rescaling`), and the target is h(that sum), in which the value
    by the target network is h^-1 of its output."""

    on_policy = False

    gamma: float = option("Discount.", 0.99, least=0, most=1, measure="per step")
    n_step: int = option("Steps of each target before it bootstraps.", 1, least=1, most=1000, measure="steps")
    double: bool = option("The network chooses the action whose value the target network gives.", True)
    dueling: bool = option("Heads for the state's value and for the advantages of actions.", False)
    huber: bool = option("Errors above 1 count linearly; otherwise all are squared.", True)
    target_period: int = option(
        "Between two copies to the target network; 0: none.", 500, least=0, most=10**9, measure="updates"
    )
    exploration: Exploration = EXPLORATION("schedule")
    epsilon_start: float = EPSILON_START(1.0)
    epsilon_end: float = EPSILON_END(0.01)
    epsilon_steps: int = EPSILON_STEPS(100_000)
    epsilon_updates: int = option(
        "Until epsilon has fallen, in place of steps, as a server counts updates of its parameters; 0: steps count.",
        0,
        least=0,
        most=10**12,
        measure="updates",
    )
    buffer_size: int = option("Newest steps that are kept.", 100_000, least=1, most=10**10, measure="steps")
    batch_size: int = option("Of each update.", 32, least=1, most=10**6, measure="samples")
    samples_per_insert: float = option("Samples that are drawn for each step.", 8.0, above=0, most=10**6)
    learning_starts: int = option("In the memory before the first update.", 1000, least=1, most=10**10, measure="steps")
    priority_exponent: float = option("How much samples with large errors are preferred; 0: not.", 0.0, least=0, most=1)
    importance_exponent: float = option("How much the loss corrects for that; 1: wholly.", 0.4, least=0, most=1)

    save_replay: bool = SAVE_REPLAY(False)
    replay_dir: str = REPLAY_DIR("")

    def replay_plan(self) -> ReplayPlan:
        """See `FromReplay`."""
        check_starts(self.learning_starts, self.buffer_size)
        for name, needed in (("batch-size", self.batch_size), ("n-step", self.n_step)):
            if needed > self.buffer_size:
                raise UserError(f"--buffer-size {self.buffer_size}: must be at least --{name} {needed}")
        return ReplayPlan(
            capacity=self.buffer_size,
            batch_size=self.batch_size,
            window=self.n_step,
            samples_per_insert=self.samples_per_insert,
            learning_starts=self.learning_starts,
            priority=self._priority(),
            saved=self.save_replay,
            folder=self.replay_dir,
            inner=False,
        )

    def _priority(self) -> Prioritized | None:
        """By which windows are drawn; None: uniformly."""
        if not self.priority_exponent:
            return None
        errors = partial(n_step_errors, scale=self.scale)
        return Prioritized(self.priority_exponent, self.importance_exponent, errors)

    def model(self, spec: Spec, network: Network) -> nn.Module:
        """A torso with a head of action values, and a target network."""
        model = QNetwork(spec, network, dueling=self.dueling, returns=self.scale.returns)
        if self.target_period:
            add_target(model)
        return model

    def exploring(self, position: int, envs: Sequence[int], total: int, version: Version) -> Acting:
        """See `Exploring`."""
        over = fraction(position, self.epsilon_steps)
        if self.epsilon_updates:
            over = fraction(version, self.epsilon_updates)
        return self.scale.acting(epsilon_greedy(self, over, envs, total))

    def losses(self, model: nn.Module, batch: Trajectory, rng: torch.Generator) -> Iterator[Loss]:
        target_net = target_by_version(model, self.target_period)
        estimate: Valued = self.scale.estimate(DoubleQ(self.gamma, model)) if self.double else self
        reward = own_rewards(estimate, target_net, batch)
        with evaluating(target_net):
            bootstrap = estimate.value(target_net, batch.obs[-1], {})
        target = self.scale.of(n_step(reward, batch.discount, bootstrap)[0])
        yield q_learning(model(batch.obs[0]), batch.action[0], target, huber=self.huber, weight=batch.weight)

    presets: ClassVar[tuple[Layer, ...]] = (
        Layer("exploration ends after a tenth of the run", rules=(explore_a_tenth, learn_after_a_tenth)),
        Layer(
            "42x42 pictures centred on their background, a small network; targets and layers tuned on Pong",
            {
                "screen_size": 42,
                "rollout_length": 4,
                "n_step": 3,
                "target_period": 100,
                "epsilon_end": 0.02,
                "buffer_size": 200_000,
                "batch_size": 64,
                "samples_per_insert": 4.0,
                "learning_starts": 5000,
                "learning_rate": 5e-4,
                "final_fraction": 0.1,
                "max_grad_norm": 10.0,
            },
            (normalize_layers,),
            kind="pixels",
        ),
        Layer(
            "tried on Catch and CartPole-v1",
            {
                "rollout_length": 4,
                "gamma": 0.98,
                "n_step": 3,
                "huber": False,
                "target_period": 500,
                "epsilon_end": 0.02,
                "batch_size": 128,
                "samples_per_insert": 16.0,
                "learning_rate": 5e-4,
                "final_fraction": 0.1,
                "max_grad_norm": 10.0,
            },
            kind="vector",
        ),
        Layer("tried on Pong", {"num_envs": 16}, kind="pixels", beside=("paac",)),
        Layer("tried on CartPole-v1", {"num_envs": 8}, kind="vector", beside=("paac",)),
        accelerated.DQN,
    )


def n_step_errors(
    reward: Tensor, discount: Tensor, value: Tensor, chosen: Tensor, begins: Tensor, *, scale: Scale = OF_RETURNS
) -> Tensor:
    """|R - Q(x_0, a_0)| [W] of windows on a scale, by the values of acting time. See `Errors`."""
    target = n_step(reward, discount, value[-1])[0]
    return (scale.of(target) - scale.of(chosen[0])).abs()
