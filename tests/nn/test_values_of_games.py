"""Values of several games: one output and running statistics for each (PopArt)."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from gossamer.algorithms.base import return_scaling
from gossamer.data import Trajectory
from gossamer.envs.games import Games, Share
from gossamer.envs.random_play import background
from gossamer.envs.toy import Catch, Counter, Recall
from gossamer.nn.inputs import centre_on
from gossamer.nn.networks import ActorCritic, Network
from gossamer.nn.normalization import EPSILON, SHORT, Sample, ValueHead, pooled
from gossamer.nn.torsos import mlp, small
from gossamer.spaces.observations import WHOLE

TWO = Games((Share(Counter()), Share(Recall(3))))


def rollouts(count: int, seed: int = 0) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Returns [12] and games [12] of some rollouts: 8 steps of game 0 around 3, 4 of game 1 around 2000."""
    rng = torch.Generator().manual_seed(seed)
    game = torch.tensor([0] * 8 + [1] * 4)
    noise = torch.randn(count, 12, generator=rng)
    scale, mean = torch.tensor([1.0, 500.0])[game], torch.tensor([3.0, 2000.0])[game]
    return [(each * scale + mean, game) for each in noise]


def test_statistics_of_each_game_are_those_of_its_returns() -> None:
    head = ValueHead(4, 2)
    seen = rollouts(5)
    for returns, game in seen:
        head.update(head.sample(returns, game))
    for number in (0, 1):  # all rollouts weigh the same until there are SHORT of them
        values = torch.cat([returns[game == number] for returns, game in seen]).numpy().astype(np.float64)
        assert head.moments.mean[number].item() == pytest.approx(values.mean(), rel=1e-5)
        assert head.moments.deviation[number].item() == pytest.approx(np.sqrt(values.var() + EPSILON), rel=1e-5)
    assert len(seen) < SHORT


def test_after_many_rollouts_older_ones_count_less_in_each_game_that_a_rollout_has() -> None:
    """Every third rollout, and the first ones, have no values of game 1, whose statistics then stay."""
    head, mean, variance, counts = ValueHead(4, 2), np.zeros(2), np.ones(2), [0, 0]
    for n, (returns, game) in enumerate(rollouts(3 * SHORT)):
        returns, game = (returns, game) if n % 3 and n > 50 else (returns[:8] + 0.01 * n, game[:8])
        head.update(head.sample(returns, game))
        for number in set(game.tolist()):
            weight = 1 / (1 + min(counts[number], SHORT))
            counts[number] += 1
            values = returns[game == number].numpy().astype(np.float64)
            apart = values.mean() - mean[number]
            mean[number] += weight * apart
            variance[number] += weight * (values.var() - variance[number]) + weight * (1 - weight) * apart**2
    assert_close(head.moments.mean.double().numpy(), mean, rtol=1e-4, atol=0)
    assert_close(head.moments.variance.double().numpy(), variance, rtol=1e-4, atol=0)


def test_values_of_all_games_stay_when_the_statistics_of_one_change() -> None:
    head, features = ValueHead(4, 2), torch.randn(10, 4)
    head.begin(head.sample(*rollouts(1)[0]))
    before = head(features).detach()
    only = torch.full((6,), 1, dtype=torch.int64)
    head.update(head.sample(torch.randn(6) * 1e4, only))  # of game 1; nothing of game 0
    assert head.moments.deviation[1] > 3000
    assert head.moments.deviation[0] < 2
    assert_close(head(features), before, rtol=1e-4, atol=1e-2)


def test_learners_pool_the_statistics_of_each_game() -> None:
    seen = rollouts(3)
    samples = [Sample.of_games(returns, game, 2) for returns, game in seen]
    whole = Sample.of_games(torch.cat([r for r, _ in seen]), torch.cat([g for _, g in seen]), 2)
    found = pooled(samples)
    assert_close(found.mean, whole.mean)
    assert_close(found.variance, whole.variance)
    assert found.count.tolist() == whole.count.tolist() == [24, 12]  # type: ignore[union-attr]


def test_a_network_has_the_value_of_its_game_and_scales_by_it() -> None:
    env = TWO.make(4)
    model = ActorCritic(env.spec, Network(mlp, normalize_returns=True))
    head = model.value
    assert isinstance(head, ValueHead)
    torch.nn.init.zeros_(head.linear.weight)
    first = Sample(torch.tensor([2.0, 2.0]), torch.tensor([5.0, 70.0]), torch.tensor([4.0, 900.0]))
    head.begin(first), head.update(first)
    obs = torch.from_numpy(env.reset(0))  # games 0, 0, 1, 1
    assert_close(model(obs)[1], torch.tensor([5.0, 5.0, 70.0, 70.0]))
    batch = Trajectory.empty(3, 4, env.spec.obs_shape, torch.uint8)
    batch.obs.copy_(obs.expand(4, -1, -1))
    scaled = return_scaling(model, batch, torch.zeros(3, 4))
    # [T * B]: the game of an environment is that of its column; deviations 2 and 30
    assert_close(scaled(torch.full((12,), 60.0)), torch.tensor([30.0, 30.0, 2.0, 2.0] * 3))
    assert_close(scaled(torch.full((2,), 60.0), torch.tensor([3, 4])), torch.tensor([2.0, 30.0]))


def test_members_with_equal_statistics_average_to_the_mean_of_their_values() -> None:
    # Gossip averages all parameters. Outputs are linear in the layer, as long as the units are the same
    heads, features = [ValueHead(4, 2) for _ in range(3)], torch.randn(10, 4)
    for head in heads:
        head.begin(head.sample(*rollouts(1)[0]))
    mean = torch.stack([head(features) for head in heads]).mean(0)
    average = ValueHead(4, 2)
    states = [head.state_dict() for head in heads]
    average.load_state_dict({name: torch.stack([state[name] for state in states]).mean(0) for name in states[0]})
    assert_close(average(features), mean, rtol=1e-4, atol=1e-2)


def test_pictures_of_each_game_are_centred_on_its_own_background() -> None:
    env = Games((Share(Catch(pixels=True)), Share(Catch(pixels=True))))  # they differ in their seeds
    means = background(env, 0, lambda silence: None)
    assert means[WHOLE].shape == (2, 1, 42, 42)
    assert not np.array_equal(*means[WHOLE])
    made = env.make(2)
    model = ActorCritic(made.spec, Network(small, input_scale=0.5, centre=True))
    centre_on(model, means)
    obs, layout = torch.from_numpy(made.reset(0)), made.spec.layout
    assert layout is not None
    found = model.centre(obs, torch.float32)[WHOLE]
    assert_close(found, (layout.part(obs, WHOLE) - torch.from_numpy(means[WHOLE])) * 0.5)
    assert_close(model.centre(obs[1:], torch.float32)[WHOLE], found[1:])


def test_the_game_is_an_input_only_if_asked_for() -> None:
    env = TWO.make(2)
    obs = torch.from_numpy(env.reset(0))
    same = obs.clone()
    layout = env.spec.layout
    assert layout is not None
    _, place = layout.places["game"]
    same[:, place] = same[:, place].flip(1)  # the other game
    for asked in (False, True):
        model = ActorCritic(env.spec, Network(mlp, observe_game=asked))
        changed = not torch.equal(model(obs)[0].parameters, model(same)[0].parameters)
        assert changed is asked
