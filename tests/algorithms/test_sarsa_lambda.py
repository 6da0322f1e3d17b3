"""Sarsa(lambda): parameters change as by the backward view with accumulating traces, written out step by step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from some_parts import a_task, a_trajectory
from torch import Tensor, nn
from torch.testing import assert_close

from gossamer.algorithms.sarsa_lambda import SarsaLambda
from gossamer.algorithms.traces import Traces, decayed_gradients
from gossamer.data import Final, Trajectory
from gossamer.envs.toy import Catch
from gossamer.exchange import AloneLink
from gossamer.policy import build
from gossamer.spaces import IMPOSSIBLE
from gossamer.workers.learner import Learner

FEATURES, ACTIONS, GAMMA, RATE, EPSILON = 4, 3, 0.9, 0.05, 0.2


class Linear(nn.Module):
    """Action values that are linear in the observation."""

    def __init__(self) -> None:
        super().__init__()
        self.weights = nn.Parameter(torch.zeros(FEATURES, ACTIONS))
        self.traces = Traces()

    def forward(self, obs: Tensor) -> Tensor:
        return obs @ self.weights


@dataclass
class Life:
    """Steps of one environment: x_0 .. x_n, and of each step action, reward, how it ended, and where it was cut."""

    obs: Tensor  # [n+1, F]
    action: Tensor  # [n]
    reward: Tensor  # [n]
    ended: Tensor  # [n] bool
    cut: Tensor  # [n] bool, of those that have not ended
    final: Tensor  # [n, F]  last observation of an episode that was cut

    @staticmethod
    def random(steps: int, seed: int) -> Life:
        rng = np.random.default_rng(seed)
        over = rng.random(steps) < 0.25
        ended = over & (rng.random(steps) < 0.5)
        return Life(
            torch.from_numpy(rng.normal(size=(steps + 1, FEATURES))).float(),
            torch.from_numpy(rng.integers(0, ACTIONS, steps)),
            torch.from_numpy(rng.normal(size=steps)).float(),
            torch.from_numpy(ended),
            torch.from_numpy(over & ~ended),
            torch.from_numpy(rng.normal(size=(steps, FEATURES))).float(),
        )


def rollouts(lives: list[Life], length: int) -> list[Trajectory]:
    """These lives side by side, as actors with values of 0 fill slots."""
    found = []
    for start in range(0, len(lives[0].action), length):
        slot = Trajectory.empty(length, len(lives), (FEATURES,), torch.float32)
        for b, life in enumerate(lives):
            at = slice(start, start + length)
            slot.obs[:, b], slot.action[:, b] = life.obs[start : start + length + 1], life.action[at]
            slot.reward[:, b] = life.reward[at]
            over = life.ended | life.cut
            slot.discount[:, b] = GAMMA * ~over[at]
            slot.begins[1:, b] = over[at]
            slot.begins[0, b] = start == 0 or bool(over[start - 1])
            for t in range(length):
                if life.cut[start + t]:
                    slot.finals.append(Final(t, b, life.final[start + t], {}, 0.0))
        found.append(slot)
    return found


def backward_view(lives: list[Life], length: int, lam: float) -> Tensor:
    """The weights after Sarsa(lambda) with accumulating traces (Sutton and Barto 2018, section 12.7), which change
    after every `length` steps by the mean over environments. At such a change the next action is not known yet."""
    weights = torch.zeros(FEATURES, ACTIONS, dtype=torch.float64)
    traces = [torch.zeros_like(weights) for _ in lives]
    changes = torch.zeros_like(weights)

    def expected(obs: Tensor) -> Tensor:
        q = obs.double() @ weights
        return (1 - EPSILON) * q.max() + EPSILON * q.mean()

    for t in range(len(lives[0].action)):
        renewed = (t + 1) % length == 0
        for life, trace in zip(lives, traces, strict=True):
            x, a = life.obs[t].double(), life.action[t]
            trace *= GAMMA * lam
            trace[:, a] += x
            target = life.reward[t].double()
            if life.cut[t]:
                target = target + GAMMA * expected(life.final[t])
            elif not life.ended[t]:
                following = life.obs[t + 1].double() @ weights
                target = target + GAMMA * (expected(life.obs[t + 1]) if renewed else following[life.action[t + 1]])
            changes += RATE * (target - (x @ weights)[a]) * trace / len(lives)
            if life.ended[t] or life.cut[t]:
                trace.zero_()
        if renewed:
            weights += changes
            changes.zero_()
    return weights


def rng() -> torch.Generator:
    return torch.Generator().manual_seed(0)


@pytest.mark.parametrize("lam", [0.0, 0.5, 0.9, 1.0])
@pytest.mark.parametrize("length", [1, 4, 24])
@pytest.mark.parametrize("envs", [1, 3])
def test_parameters_change_as_by_traces_step_by_step(envs: int, length: int, lam: float) -> None:
    lives = [Life.random(24, seed) for seed in range(envs)]
    algorithm, model = SarsaLambda(gamma=GAMMA, gae_lambda=lam, epsilon_end=EPSILON), Linear()
    for batch in rollouts(lives, length):
        model.zero_grad()
        (loss,) = algorithm.losses(model, batch, rng())
        loss.total.backward()  # type: ignore[no-untyped-call]
        with torch.no_grad():
            model.weights -= RATE * model.weights.grad  # type: ignore[operator]
    assert_close(model.weights.detach(), backward_view(lives, length, lam).float(), atol=1e-4, rtol=1e-4)


def test_traces_reach_back_beyond_the_rollout_and_not_beyond_the_episode() -> None:
    # Three features, each of one observation, all values 0, lambda 0.5, discount 0.5. Rollouts of one step: only the
    # third has a reward, 16, an error of 16. The traces of the first two are then 1/16 and 1/4, of its own 1.
    batch = Trajectory.empty(1, 1, (FEATURES,), torch.float32)
    batch.discount.fill_(0.5)
    found = []
    for begins in (False, True):
        model = Linear()
        for t, reward in enumerate((0.0, 0.0, 16.0)):
            batch.obs.zero_()
            batch.obs[0, 0, t] = 1.0
            batch.reward.fill_(reward)
            batch.begins[0] = t == 0 or (begins and t == 2)
            model.zero_grad()
            (loss,) = SarsaLambda(gae_lambda=0.5).losses(model, batch, rng())
            loss.total.backward()  # type: ignore[no-untyped-call]
        assert model.weights.grad is not None
        found.append((-model.weights.grad[:, 0]).tolist())
    assert found == [[1.0, 4.0, 16.0, 0.0], [0.0, 0.0, 16.0, 0.0]]


@pytest.mark.parametrize(
    ("env", "more"), [(Catch(), {}), (Catch(pixels=True), {}), (Catch(pixels=True), {"layer_norm": True})]
)
def test_each_environment_has_the_gradients_of_its_own_steps(env: Catch, more: dict[str, Any]) -> None:
    task = a_task(env, SarsaLambda(), **more)
    spec = task.env.make(1).spec
    model, batch = build(task, spec), a_trajectory(spec, 5, 3)
    parameters, weight = [*model.parameters()], torch.rand(5, 3)
    q = model(batch.obs[:-1].flatten(0, 1))[:, 0].view(5, 3)
    found = decayed_gradients(q, parameters, weight)
    for b in range(3):
        each = torch.autograd.grad((weight[:, b] * q[:, b]).sum(), parameters, retain_graph=True)
        assert_close(found[b], torch.cat([gradient.flatten() for gradient in each]))


def test_a_learner_goes_on_exactly_with_its_traces() -> None:
    task = a_task(algorithm=SarsaLambda(), optimizer="sgd")
    spec = task.env.make(1).spec
    first, again, fresh = (Learner(task, spec) for _ in range(3))
    one, two = (a_trajectory(spec, 5, 3, seed) for seed in range(2))
    first.update(one, AloneLink(), 0)
    again.load_state_dict(first.state_dict())
    fresh.load_state_dict({**first.state_dict(), "model": {**first.state_dict()["model"], KEY: torch.zeros(0, 0)}})
    for learner in (first, again, fresh):
        learner.update(two, AloneLink(), 0)
    assert torch.equal(first.flat.vector, again.flat.vector)
    assert not torch.equal(first.flat.vector, fresh.flat.vector)


KEY = "traces._extra_state"


@pytest.mark.parametrize(("epsilon", "expected"), [(0.0, 5.0), (0.5, 4.0), (1.0, 3.0)])
def test_the_value_of_an_observation_is_that_of_the_action_to_come(epsilon: float, expected: float) -> None:
    class Fixed(nn.Module):
        def forward(self, obs: Tensor) -> Tensor:
            return torch.tensor([[1.0, 5.0, IMPOSSIBLE]])  # the last action is not valid

    found: Any = SarsaLambda(epsilon_end=epsilon).value(Fixed(), torch.zeros(1, 1), {})
    assert found.tolist() == [expected]


def test_traces_stay_in_one_place_in_memory() -> None:
    """A CUDA graph of an update reads and writes them there."""
    spec = Catch().make(1).spec
    learner = Learner(a_task(algorithm=SarsaLambda()), spec)
    traces = learner.model.traces
    assert isinstance(traces, Traces)
    learner.update(a_trajectory(spec, 4, 3, 0), AloneLink(), 0)
    place, before = traces.kept.data_ptr(), traces.kept.clone()
    learner.update(a_trajectory(spec, 4, 3, 1), AloneLink(), 0)
    assert traces.kept.data_ptr() == place
    assert not torch.equal(traces.kept, before)
