"""PQN: targets against worked-out numbers and the definition of Q(lambda), epochs and minibatches, presets."""

from __future__ import annotations

from itertools import chain, pairwise
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from some_parts import a_task
from some_values import Table, h, inverse
from torch import Tensor, nn
from torch.testing import assert_close

from gossamer.algorithms.pqn import PQN
from gossamer.config.build import network
from gossamer.config.config import Config
from gossamer.config.resolve import configure
from gossamer.data import Trajectory
from gossamer.envs.toy import Catch
from gossamer.policy import build
from gossamer.task import Task


def rng() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def rollout(reward: list[float], discount: list[float], value: list[float]) -> Trajectory:
    """One environment. Every observation is 0."""
    slot = Trajectory.empty(len(reward), 1, (1,), torch.float32)
    slot.reward[:, 0], slot.discount[:, 0] = torch.tensor(reward), torch.tensor(discount)
    slot.value[:, 0] = torch.tensor(value)
    return slot


def zeros() -> Table:
    return Table([[0.0] * 3] * 3)


def targets(lam: float, batch: Trajectory, *, rescale: bool = False) -> list[float]:
    """R_t of each step, or h(R_t): the errors of values that are 0. No target here is negative."""
    (loss,) = PQN(gae_lambda=lam, epochs=1, num_minibatches=1, rescale_values=rescale).losses(zeros(), batch, rng())
    assert loss.priority is not None
    found = torch.zeros(batch.steps)
    found[torch.randperm(batch.steps, generator=rng())] = loss.priority  # the order of the minibatch
    answer: list[float] = found.tolist()
    return answer


def test_targets_mix_the_values_of_acting_time_with_returns() -> None:
    # lambda 0.5, discount 0.5. R_2 = 4 + 0.5 * 8 = 8, both halves of the mix are V(x_3);
    # R_1 = 2 + 0.5 * (0.5 * 6 + 0.5 * 8) = 5.5;  R_0 = 1 + 0.5 * (0.5 * 2 + 0.5 * 5.5) = 2.875
    batch = rollout([1.0, 2.0, 4.0], [0.5, 0.5, 0.5], [9.0, 2.0, 6.0, 8.0])
    assert targets(0.5, batch) == [2.875, 5.5, 8.0]
    # The episode ends with the second step: what follows, 6 and 8, belongs to another one
    ended = rollout([1.0, 2.0, 4.0], [0.5, 0.0, 0.5], [9.0, 2.0, 6.0, 8.0])
    assert targets(0.5, ended) == [1 + 0.5 * (0.5 * 2 + 0.5 * 2), 2.0, 8.0]
    # It was truncated there: the reward has 0.5 times the value 3 of its final observation
    cut = rollout([1.0, 2.0 + 1.5, 4.0], [0.5, 0.0, 0.5], [9.0, 2.0, 6.0, 8.0])
    assert targets(0.5, cut) == [1 + 0.5 * (0.5 * 2 + 0.5 * 3.5), 3.5, 8.0]


def test_rescaled_values_are_returns_in_the_mix_and_learned_on_their_scale() -> None:
    batch = rollout([1.0, 2.0, 4.0], [0.5, 0.5, 0.5], [9.0, 2.0, 6.0, 8.0])  # as above
    assert targets(0.5, batch, rescale=True) == pytest.approx([h(2.875), h(5.5), h(8.0)], rel=1e-5)
    algorithm, model, obs = PQN(rescale_values=True), Table([[2.0, 9.0, 4.0]]), torch.zeros(2, 1)
    acted, _ = algorithm.act(model, obs, {}, rng(), greedy=True)
    assert acted.value.tolist() == pytest.approx([inverse(9.0)] * 2, rel=1e-5)
    assert algorithm.value(model, obs, {}).tolist() == acted.value.tolist()


def mixed(steps: list[tuple[float, float, bool]], lam: float, gamma: float) -> float:
    """The target of the first of these steps (reward, value of the next observation, whether the episode ends) by the
    definition: (1 - lambda) sum_n lambda^(n-1) R^(n) over the returns of n steps, all remaining weight on the last."""
    length = next((n for n, (_, _, ends) in enumerate(steps, 1) if ends), len(steps))
    returns = []
    for n in range(1, length + 1):
        rewards = sum(gamma**i * reward for i, (reward, _, _) in enumerate(steps[:n]))
        _, value, ends = steps[n - 1]
        returns.append(rewards + (0.0 if ends else gamma**n * value))
    weighted = sum((1 - lam) * lam**i * each for i, each in enumerate(returns[:-1]))
    return float(weighted + lam ** (length - 1) * returns[-1])


whole = st.integers(0, 8).map(float)


@given(
    st.lists(st.tuples(whole, whole, st.booleans()), min_size=1, max_size=7),
    st.sampled_from([0.0, 0.5, 0.65, 1.0]),
)
def test_targets_are_those_of_the_definition_and_nothing_leaks_across_the_ends_of_episodes(
    steps: list[tuple[float, float, bool]], lam: float
) -> None:
    reward, value, ends = zip(*steps, strict=True)
    batch = rollout(list(reward), [0.5 * (not each) for each in ends], [7.0, *value])
    expected = [mixed(steps[t:], lam, 0.5) for t in range(len(steps))]
    assert targets(lam, batch) == pytest.approx(expected)


class Seen(nn.Module):
    """Values of 0 for each observation, which are noted."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.zeros(3))
        self.obs = list[list[float]]()

    def forward(self, obs: Tensor) -> Tensor:
        self.obs.append(obs[:, 0].tolist())
        return self.scale * obs


def test_every_epoch_has_each_step_once_in_another_order() -> None:
    batch = Trajectory.empty(5, 4, (1,), torch.float32)
    batch.obs[:-1, :, 0] = torch.arange(20.0).view(5, 4)
    model = Seen()
    assert sum(1 for _ in PQN(epochs=3, num_minibatches=4).losses(model, batch, rng())) == 12
    assert [len(each) for each in model.obs] == [5] * 12
    epochs = [list(chain.from_iterable(model.obs[i : i + 4])) for i in (0, 4, 8)]
    assert [sorted(each) for each in epochs] == [[float(i) for i in range(20)]] * 3
    assert epochs[0] != epochs[1] != epochs[2]


def test_targets_do_not_change_between_the_updates_and_only_the_actions_taken_are_learned() -> None:
    batch = rollout([1.0, 1.0], [0.5, 0.5], [0.0, 0.0, 4.0])
    batch.action[:, 0] = torch.tensor([1, 2])
    model = zeros()
    for loss in PQN(gae_lambda=1.0, epochs=60, num_minibatches=1).losses(model, batch, rng()):
        model.zero_grad()
        loss.total.backward()  # type: ignore[no-untyped-call]
        with torch.no_grad():
            model.values -= model.values.grad  # half of the error, as the mean is over two steps
    # R_1 = 1 + 0.5 * 4 = 3, R_0 = 1 + 0.5 * 3 = 2.5
    assert_close(model.values, torch.tensor([[0.0, 2.5, 3.0], [0.0] * 3, [0.0] * 3]))


def settings(env: str = "catch-pixels", **given: Any) -> Config:
    return configure("paac", env=env, algorithm="pqn", **given)


@pytest.mark.parametrize("env", ["catch", "catch-pixels"])
def test_each_layer_of_its_torso_is_normalised(env: str) -> None:
    task: Task = a_task(Catch(pixels=env == "catch-pixels"), PQN(), layer_norm=settings(env).network.layer_norm)
    model = build(task, task.env.make(1).spec)
    names = [type(each).__name__ for each in model.torso.children()]  # type: ignore[union-attr]
    layers = [after for layer, after in pairwise(names) if layer in ("Conv2d", "Linear")]
    assert layers == ["LayerNorm"] * 2 if env == "catch" else ["GroupNorm", "GroupNorm", "LayerNorm"]


def test_torsos_that_cannot_be_normalised_do_without() -> None:
    assert not settings(network="resnet").network.layer_norm
    assert not settings(layer_norm=False).network.layer_norm
    assert network(settings().network).layer_norm


def test_the_paper_s_settings() -> None:
    made = settings(preset="paper")
    algorithm, run = made.algorithm, made.run
    assert isinstance(algorithm, PQN)
    assert (made.architecture.num_envs, run.rollout_length) == (128, 32)  # type: ignore[attr-defined]
    assert (algorithm.epochs, algorithm.num_minibatches, algorithm.gae_lambda) == (2, 32, 0.65)
    assert (algorithm.epsilon_start, algorithm.epsilon_end, algorithm.epsilon_steps) == (1.0, 0.001, 1_000_000)
    plan = made.optimization
    assert (type(made.optimizer).__name__, plan.learning_rate, plan.max_grad_norm) == ("RAdam", 2.5e-4, 10.0)
    assert (made.network.torso, made.network.input, made.network.layer_norm) == ("nature", "unit", True)
