"""R2D2: recurrent Q-learning from prioritised sequences (Kapturowski et al. 2019, "Recurrent Experience Replay in
Distributed Reinforcement Learning")."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any, ClassVar

import torch
from torch import nn

from gossamer.algorithms.action_values import ActionValues, DoubleQ, check_values
from gossamer.algorithms.base import Prioritized, ReplayPlan, Valued, evaluating, own_rewards
from gossamer.algorithms.dqn import learn_after_a_tenth
from gossamer.algorithms.exploration import (
    EPSILON_END,
    EPSILON_START,
    EPSILON_STEPS,
    EXPLORATION,
    Exploration,
    explore_a_tenth,
)
from gossamer.algorithms.losses import Loss, sequence_q_learning
from gossamer.algorithms.replaying import REPLAY_DIR, SAVE_REPLAY, check_starts
from gossamer.algorithms.rescaling import EPSILON, Scale
from gossamer.algorithms.returns import n_step_of_each
from gossamer.algorithms.sequences import SequenceErrors, trained_steps, unrolled
from gossamer.algorithms.target import add_target, target_by_version
from gossamer.data import Trajectory
from gossamer.nn.networks import Network, QNetwork
from gossamer.presets.layers import Layer
from gossamer.spaces import Spec
from gossamer.system.errors import UserError
from gossamer.system.options import option, options

STEPS = 80  # that are trained of each sequence
PAPER = {  # Kapturowski et al. 2019, section 2.3 and appendix, table 2. Adam's epsilon and the gradients' clip are for
    # a loss that is a sum over the steps of a sequence, as in SEED RL and Acme; ours is their mean
    "gamma": 0.997,
    "n_step": 5,
    "double": True,
    "dueling": True,
    "rescaling_epsilon": 1e-3,
    "sequence_length": STEPS,
    "burn_in": 40,
    "rollout_length": STEPS // 2,
    "priority_eta": 0.9,
    "priority_exponent": 0.9,
    "importance_exponent": 0.6,
    "target_period": 2500,
    "exploration": "by-environment",
    "buffer_size": 4_000_000,
    "batch_size": 64,
    "replay_ratio": 0.8,
    "learning_starts": 100_000,
    "preprocessing": "paac",
    "full_action_space": True,
    "clip_rewards": False,
    "network": "nature",
    "input": "unit",
    "memory": "lstm",
    "memory_units": 512,
    "last_action_reward": True,
    "optimizer": "adam",
    "epsilon": 1e-3 / STEPS,
    "learning_rate": 1e-4,
    "anneal_steps": 0,
    "final_fraction": 1.0,
    "max_grad_norm": 80.0 / STEPS,
}


def overlap_by_half(values: Mapping[str, Any], given: Collection[str]) -> dict[str, Any]:
    """The trained steps of a sequence are those of two rollouts, so that each step is in two sequences."""
    return {"rollout_length": max(1, values["sequence_length"] // 2)}


@options
class R2D2(ActionValues):
    """Action values of a network with memory, from sequences that are drawn from a replay memory by priority.

    A sequence has the recurrent state that its actor had. The first `burn_in` steps only renew that state; the other
    `sequence_length` are trained, up to the end of the first episode. A sequence that begins with an episode has an
    exact state, and all its steps are trained. The network learns h(return) (`rescaling`); the target of Q(x_t, a_t) is

        h(r_t + .. + gamma^(n-1) r_{t+n-1} + gamma^n h^-1(Q_target(x_{t+n}, argmax_a Q(x_{t+n}, a))))

    with fewer rewards in the last n - 1 steps of a sequence."""

    on_policy = False

    gamma: float = option("Discount.", 0.997, least=0, most=1, measure="per step")
    n_step: int = option("Steps of each target before it bootstraps.", 5, least=1, most=1000, measure="steps")
    double: bool = option("The network chooses the action whose value the target network gives.", True)
    dueling: bool = option("Heads for the state's value and for the advantages of actions.", True)
    rescaling_epsilon: float = option(
        "Of h(x) = sign(x) (sqrt(|x| + 1) - 1) + epsilon x, the scale of action values.", EPSILON, least=0, most=1
    )
    sequence_length: int = option("Steps of a sequence that are trained.", 80, least=1, most=10_000, measure="steps")
    burn_in: int = option(
        "Steps before them that only renew the recurrent state.", 40, least=0, most=10_000, measure="steps"
    )
    target_period: int = option(
        "Between two copies to the target network; 0: none.", 2500, least=0, most=10**9, measure="updates"
    )
    exploration: Exploration = EXPLORATION("schedule")
    epsilon_start: float = EPSILON_START(1.0)
    epsilon_end: float = EPSILON_END(0.01)
    epsilon_steps: int = EPSILON_STEPS(100_000)
    buffer_size: int = option("Newest steps that are kept.", 100_000, least=1, most=10**10, measure="steps")
    batch_size: int = option("Of each update.", 32, least=1, most=10**6, measure="sequences")
    replay_ratio: float = option(
        "Trained steps for each environment step, if sequences end with no episode.", 1.0, above=0, most=10**6
    )
    learning_starts: int = option("In the memory before the first update.", 5000, least=1, most=10**10, measure="steps")
    priority_exponent: float = option("How much samples with large errors are preferred; 0: not.", 0.9, least=0, most=1)
    importance_exponent: float = option("How much the loss corrects for that; 1: wholly.", 0.6, least=0, most=1)
    priority_eta: float = option(
        "Priority of a sequence: eta * its largest error + (1 - eta) * the mean one.", 0.9, least=0, most=1
    )

    save_replay: bool = SAVE_REPLAY(False)
    replay_dir: str = REPLAY_DIR("")

    @property
    def scale(self) -> Scale:
        """See `ActionValues`."""
        return Scale(self.rescaling_epsilon)

    def check(self, spec: Spec, network: Network, env: str) -> None:
        """See `Limited`."""
        if network.memory == "none":
            raise UserError("--memory none: r2d2 needs a memory; use --memory lstm, or --algorithm dqn")
        check_values("r2d2", spec, network, env)

    def replay_plan(self) -> ReplayPlan:
        """See `FromReplay`."""
        window = self.burn_in + self.sequence_length
        check_starts(self.learning_starts, self.buffer_size)
        if window > self.buffer_size:
            raise UserError(
                f"--buffer-size {self.buffer_size}: must be at least {window}, --burn-in plus --sequence-length"
            )
        if self.n_step > window:
            raise UserError(f"--n-step {self.n_step}: must be at most {window}, --burn-in plus --sequence-length")
        return ReplayPlan(
            capacity=self.buffer_size,
            batch_size=self.batch_size,
            window=window,
            samples_per_insert=self.replay_ratio / self.sequence_length,
            learning_starts=self.learning_starts,
            priority=self._priority(),
            sequences=True,
            saved=self.save_replay,
            folder=self.replay_dir,
        )

    def _priority(self) -> Prioritized | None:
        """By which sequences are drawn; None: uniformly."""
        if not self.priority_exponent:
            return None
        errors = SequenceErrors(self.n_step, self.burn_in, self.priority_eta, self.rescaling_epsilon)
        return Prioritized(self.priority_exponent, self.importance_exponent, errors)

    def model(self, spec: Spec, network: Network) -> nn.Module:
        """A torso and a memory with a head of action values h(return), and a target network."""
        model = QNetwork(spec, network, dueling=self.dueling, returns=self.scale.returns)
        if self.target_period:
            add_target(model)
        return model

    def losses(self, model: nn.Module, batch: Trajectory, rng: torch.Generator) -> Iterator[Loss]:
        assert batch.mask is not None, "a sequence has a mask"
        target_net = target_by_version(model, self.target_period)
        estimate: Valued = self.scale.estimate(DoubleQ(self.gamma, model)) if self.double else self
        reward = own_rewards(estimate, target_net, batch)
        with torch.no_grad(), evaluating(target_net):
            older = unrolled(target_net, batch)
        q = unrolled(model, batch, self.burn_in)
        best = (q if self.double else older).argmax(-1, keepdim=True)
        value = self.scale.returns(older.gather(-1, best).squeeze(-1))
        returns = n_step_of_each(reward, batch.discount, value, self.n_step)
        yield sequence_q_learning(
            q[:-1],
            batch.action,
            self.scale.of(returns),
            trained_steps(batch.mask, batch.begins[0], self.burn_in),
            eta=self.priority_eta,
            weight=batch.weight,
        )

    presets: ClassVar[tuple[Layer, ...]] = (
        Layer("exploration ends after a tenth of the run", rules=(explore_a_tenth, learn_after_a_tenth)),
        Layer("a memory that sees the last action and reward", {"memory": "lstm", "last_action_reward": True}),
        Layer("sequences overlap by half", rules=(overlap_by_half,)),
        Layer(
            "42x42 pictures centred on their background, a small network (tried on Pong; not tuned)",
            {
                "screen_size": 42,
                "sequence_length": 40,
                "burn_in": 20,
                "target_period": 100,
                "epsilon_end": 0.02,
                "buffer_size": 200_000,
                "batch_size": 16,
                "replay_ratio": 4.0,
                "learning_rate": 5e-4,
                "final_fraction": 0.1,
                "max_grad_norm": 10.0,
            },
            kind="pixels",
        ),
        Layer(
            "tried on Recall and Catch, whose episodes are short: most steps of a sequence are masked, hence the ratio",
            {
                "gamma": 0.98,
                "n_step": 3,
                "sequence_length": 20,
                "burn_in": 10,
                "target_period": 100,
                "epsilon_end": 0.02,
                "batch_size": 32,
                "replay_ratio": 8.0,
                "learning_starts": 1000,
                "memory_units": 64,
                "learning_rate": 1e-3,
                "final_fraction": 0.1,
                "max_grad_norm": 10.0,
            },
            kind="vector",
        ),
    )
