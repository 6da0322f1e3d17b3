"""Running statistics against those of all data together; values that must not move when the statistics do."""

from __future__ import annotations

import pytest
import torch
from some_parts import a_network, a_task, a_trajectory
from torch.testing import assert_close

from gossamer.algorithms import A2C, PPO, Algorithm, VTrace
from gossamer.algorithms.base import observe
from gossamer.envs.toy import Counter
from gossamer.exchange import AloneLink
from gossamer.exchange.flat import Flat
from gossamer.nn.normalization import Moments, Normalized, Sample, ValueHead, pooled
from gossamer.nn.torsos import mlp
from gossamer.spaces import Discrete
from gossamer.workers.learner import Learner


def test_moments_are_those_of_all_rollouts_together() -> None:
    moments, rollouts = Moments((2,), 1_000), torch.randn(5, 40, 2) * torch.tensor([3.0, 0.1]) + torch.tensor([50.0, 0])
    for values in rollouts:
        moments.update(Sample.of(values))
    together = rollouts.flatten(0, 1)
    assert_close(moments.mean.data, together.mean(0))
    assert_close(moments.variance.data, together.var(0, correction=0))


def test_old_rollouts_count_less_from_the_last_one_on() -> None:
    # Of at most 1 rollout before: the second has weight 1/2 (mean 2), the third 1/2 again: 0.5 * 2 + 0.5 * 8 = 5.
    moments = Moments((), 1)
    for value in (0.0, 4.0, 8.0):
        moments.update(Sample.of(torch.full((3,), value)))
    assert moments.mean.item() == 5.0


def test_samples_that_are_pooled_are_one_sample_of_all_values() -> None:
    values = torch.randn(60, 2) * torch.tensor([3.0, 0.1]) + torch.tensor([5.0, 0.0])
    found, together = pooled([Sample.of(each) for each in values.split([10, 49, 1])]), Sample.of(values)
    assert found.count == 60
    assert_close((found.mean, found.variance), (together.mean, together.variance))


def test_before_the_first_rollout_nothing_changes() -> None:
    obs = torch.tensor([[0.5, -2.0], [3.0, 100.0]])
    # 3 / sqrt(1 + 1e-8) is 3 in float32; 100 is clipped
    assert_close(Normalized((2,))(obs, torch.float32), torch.tensor([[0.5, -2.0], [3.0, 10.0]]))


def test_values_stay_what_they_were_when_the_statistics_change() -> None:
    head, features = ValueHead(4), torch.randn(10, 4)
    head.begin(Sample.of(torch.randn(50) * 2 + 1))  # the first rollout gives the untrained layer its units
    before = head(features)
    head.update(Sample.of(torch.randn(50) * 30 - 7))
    assert head.moments.deviation > 5
    assert_close(head(features), before, rtol=1e-4, atol=1e-4)


def test_a_normalised_value_is_in_units_of_returns() -> None:
    head = ValueHead(3)
    torch.nn.init.zeros_(head.linear.weight), torch.nn.init.ones_(head.linear.bias)
    head.begin(Sample.of(torch.tensor([2.0, 6.0])))  # mean 4, deviation 2: an output of 1 is 4 + 2
    assert_close(head(torch.zeros(1, 3)), torch.tensor([[6.0]]))


@pytest.mark.parametrize("algorithm", [A2C(), PPO(epochs=2, num_minibatches=2)], ids=["a2c", "ppo"])
def test_statistics_change_after_the_last_update_of_a_rollout(algorithm: Algorithm) -> None:
    # What was acted with is what is learned with: PPO's ratio is 1 only if the observations are normalised as before.
    task = a_task(Counter(), algorithm, normalize_observations=True, normalize_returns=True)
    spec = task.env.make(1).spec
    learner, batch = Learner(task, spec), a_trajectory(spec, 4, 3)
    moments, of_returns = (m for m in learner.model.modules() if isinstance(m, Moments))
    losses = algorithm.losses(learner.model, batch, learner.rng)
    for _ in range(1 if isinstance(algorithm, A2C) else 4):
        next(losses)
        assert (moments.rollouts, of_returns.rollouts) == (0, 0)  # units are set, but nothing is counted yet
    assert next(losses, None) is None
    assert (moments.rollouts, of_returns.rollouts) == (1, 1)
    assert_close(moments.mean.data, batch.obs[:-1].flatten(0, 1).mean(0))


@pytest.mark.parametrize("algorithm", [A2C(), VTrace(gamma=0.0)], ids=["a2c", "vtrace"])
def test_the_first_rollout_is_learned_in_the_units_that_it_sets(algorithm: Algorithm) -> None:
    task = a_task(Counter(), algorithm, normalize_returns=True)
    spec = task.env.make(1).spec
    learner, batch = Learner(task, spec), a_trajectory(spec, 4, 3)
    head = learner.model.value
    assert isinstance(head, ValueHead)
    torch.nn.init.zeros_(head.linear.weight), torch.nn.init.zeros_(head.linear.bias)
    batch.reward.add_(1000)  # far from what the network says before it has units
    (loss,) = algorithm.losses(learner.model, batch, learner.rng)
    assert loss.parts["value_loss"].item() == pytest.approx(1, rel=1e-3)  # all values are the mean of the returns


def test_an_update_with_statistics_is_finite_and_trains_only_weights() -> None:
    task = a_task(Counter(), PPO(), normalize_observations=True, normalize_returns=True)
    spec = task.env.make(1).spec
    learner = Learner(task, spec)
    for seed in range(3):
        learner.update(a_trajectory(spec, 4, 3, seed), AloneLink(), 0)
    assert learner.finite
    statistics = [p for p in learner.model.parameters() if not p.requires_grad]
    assert len(statistics) == 6  # mean, variance and number of rollouts, of observations and of returns
    assert all(p not in learner.opt.state for p in statistics)


def test_statistics_are_part_of_what_members_average() -> None:
    model = a_network((3,), Discrete(2), mlp, normalize_observations=True)
    flat = Flat(model)
    before = flat.vector.clone()
    observe(model, a_trajectory(Counter().make(1).spec, 4, 3), torch.zeros(4, 3))
    changed = (flat.vector != before).sum()
    assert changed == 7  # three means, three variances and the number of rollouts, in place
    flat.swap(torch.zeros_like(flat.vector))
    statistics = model.centre
    assert isinstance(statistics, Normalized)
    assert statistics.moments.variance.tolist() == [0, 0, 0]


def test_evaluating_changes_no_statistics() -> None:
    model = a_network((3,), Discrete(2), mlp, normalize_observations=True, normalize_returns=True)
    before = {name: each.clone() for name, each in model.state_dict().items()}
    for _ in range(3):
        model(torch.randn(20, 3) * 9)
    assert all(torch.equal(each, before[name]) for name, each in model.state_dict().items())


def test_members_that_restart_keep_the_weight_of_their_statistics() -> None:
    # What crosses to a member is the flat vector: 99 rollouts give the next one a weight of 1 / 100.
    old, new = (a_network((1,), Discrete(2), mlp, normalize_observations=True) for _ in range(2))
    assert isinstance(old.centre, Normalized)
    assert isinstance(new.centre, Normalized)
    old.centre.moments.mean.fill_(5.0), old.centre.moments.rollouts.fill_(99.0)
    Flat(new).vector.copy_(Flat(old).vector)
    new.observe(torch.full((4, 1), 105.0), torch.zeros(4))
    assert_close(new.centre.moments.mean.data, torch.tensor([6.0]))


def test_statistics_come_last_and_are_not_measured() -> None:
    flat = Flat(a_network((3,), Discrete(2), mlp, normalize_observations=True, normalize_returns=True))
    # six statistics, each at a multiple of 16 elements
    assert len(flat.vector) - flat.trained == 6 * 16
    assert flat.vector[flat.trained :].unique().tolist() == [0, 1]  # means and counts 0, variances 1
    assert Flat(a_network((3,), Discrete(2), mlp)).trained == flat.trained
