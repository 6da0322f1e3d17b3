"""Sarsa(lambda) with accumulating traces (Rummery and Niranjan 1994; Sutton and Barto 2018, section 12.7)."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from gossamer.algorithms.action_values import ActionValues
from gossamer.algorithms.base import own_rewards
from gossamer.algorithms.exploration import (
    EPSILON_END,
    EPSILON_START,
    EPSILON_STEPS,
    EXPLORATION,
    Exploration,
    explore_a_tenth,
)
from gossamer.algorithms.losses import Loss
from gossamer.algorithms.returns import lambda_returns
from gossamer.algorithms.traces import Traces, decayed_gradients
from gossamer.data import Trajectory, Tree
from gossamer.nn.networks import Network, QNetwork, action_values
from gossamer.presets.layers import Layer
from gossamer.spaces import IMPOSSIBLE, Spec
from gossamer.system.options import option, options


def tile_coding(values: Mapping[str, Any], given: Collection[str]) -> dict[str, Any]:
    """Tile coding as in Sutton and Barto 2018, section 10.1: initial values of 0 are optimistic, and explore. Not with
    other networks, and not with observations of several parts."""
    several = values.get("action_masks", False) or values["last_action_reward"]
    network = values["network"] if "network" in given else "auto" if several else "tiles"
    if network != "tiles":
        return {}
    return {
        "network": network,
        "learning_rate": 0.2,
        "final_fraction": 1.0,
        "max_grad_norm": 1e9,
        "epsilon_start": 0.0,
        "epsilon_end": 0.0,
    }


@options
class SarsaLambda(ActionValues):
    """One gradient step per rollout, along the sum of delta_t * e_t over its T steps, averaged over environments:

        delta_t = r_t + discount_t * Q(x_{t+1}, a_{t+1}) - Q(x_t, a_t)
        e_t = lambda * discount_{t-1} * e_{t-1} + gradient of Q(x_t, a_t)

    The traces e go on from one rollout to the next and are 0 where an episode begins. With rollouts of one step it is
    Sarsa(lambda) online, with longer ones the steps of a rollout have the parameters of its start. At the end of a
    rollout, whose next action is not chosen yet, its expectation stands for it (Expected Sarsa), with the final
    epsilon. For a linear function of features, parameters change as by Sutton and Barto's traces; the gradients of
    other networks in e_{t-1} are those of earlier parameters, as theirs.

    Within a rollout sum_t delta_t e_t is sum_t (G_t - Q(x_t, a_t)) * gradient of Q(x_t, a_t), of the lambda-return G_t,
    and e_{-1} (G_0 - Q(x_0, a_0)) of the traces before it. So there are no traces of single steps to compute."""

    on_policy = True

    gamma: float = option("Discount.", 0.99, least=0, most=1, measure="per step")
    gae_lambda: float = option("Lambda of the traces; 0: one-step Sarsa.", 0.9, least=0, most=1)
    exploration: Exploration = EXPLORATION("schedule")
    epsilon_start: float = EPSILON_START(0.1)
    epsilon_end: float = EPSILON_END(0.01)
    epsilon_steps: int = EPSILON_STEPS(100_000)

    def model(self, spec: Spec, network: Network) -> nn.Module:
        """A torso with a head of action values, and traces."""
        model = QNetwork(spec, network)
        if self.gae_lambda:
            model.traces = Traces()
        return model

    presets: ClassVar[tuple[Layer, ...]] = (
        Layer("a tenth of the run explores", {"epsilon_start": 1.0}, (explore_a_tenth,)),
        Layer(
            "42x42 pictures centred on their background, a small network (not tuned)",
            {"screen_size": 42, "rollout_length": 8, "learning_rate": 5e-4, "max_grad_norm": 10.0},
            kind="pixels",
        ),
        Layer(
            "gradient descent, as Sutton and Barto; tried on Catch",
            {
                "optimizer": "sgd",
                "rollout_length": 8,
                "learning_rate": 0.02,
                "final_fraction": 0.1,
                "max_grad_norm": 10.0,
            },
            kind="vector",
        ),
        Layer("few bounded numbers: tile coding; tuned on MountainCar-v0", rules=(tile_coding,), kind="bounded"),
    )

    @torch.no_grad()
    def value(self, model: nn.Module, obs: Tensor, state: Tree) -> Tensor:
        """The value [B] of the action that is to be chosen, in expectation."""
        return self._expected(action_values(model, obs, state)[0])

    def _expected(self, q: Tensor) -> Tensor:
        """The mean [B] of the values [B, A] under the policy with the final epsilon."""
        valid = q > IMPOSSIBLE / 2
        mean = (q * valid).sum(-1) / valid.sum(-1)
        return (1 - self.epsilon_end) * q.amax(-1) + self.epsilon_end * mean

    def losses(self, model: nn.Module, batch: Trajectory, rng: torch.Generator) -> Iterator[Loss]:
        reward = own_rewards(self, model, batch)
        values = model(batch.obs.flatten(0, 1)).unflatten(0, batch.obs.shape[:2])  # [T+1, B, A]
        q = values[:-1].gather(-1, batch.action.unsqueeze(-1)).squeeze(-1)  # [T, B]
        following = torch.cat([q, self._expected(values[-1:])]).detach()
        error = lambda_returns(reward, batch.discount, following, self.gae_lambda) - q
        total = error.square().sum(0).mean() / 2
        traces = getattr(model, "traces", None)
        if isinstance(traces, Traces):
            total = total - self._earlier(model, traces, batch, q, error[0].detach())
        parts = {"q": q.mean().detach(), "td_error": error.abs().mean().detach()}
        yield Loss(total, parts)

    def _earlier(self, model: nn.Module, traces: Traces, batch: Trajectory, q: Tensor, error: Tensor) -> Tensor:
        """A scalar whose gradient is the mean of error_b * e_b, of the traces before the rollout. Renews the traces.
        `q` [T, B]; `error` [B]: G_0 - Q(x_0, a_0)."""
        parameters = [each for each in model.parameters() if each.requires_grad]
        vector = torch.cat([each.reshape(-1) for each in parameters])
        before = traces.before(batch.begins[0], len(vector))
        decay = (self.gae_lambda * batch.discount).flip(0).cumprod(0).flip(0)  # [T, B]: to the step after the rollout
        traces.kept.copy_(torch.addcmul(decayed_gradients(q, parameters, decay), decay[0].unsqueeze(1), before))
        return (error @ before / len(error)) @ vector
