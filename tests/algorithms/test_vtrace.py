"""V-trace actor-critic and asynchronous PPO: what they reduce to, and what they correct."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from some_parts import a_task, a_trajectory
from torch import Tensor, nn

from gossamer.algorithms import A2C, PPO, Algorithm, AsyncPPO, VTrace
from gossamer.algorithms.base import evaluate, evaluate_to_end, own_rewards
from gossamer.algorithms.losses import Loss, ppo
from gossamer.algorithms.returns import vtrace
from gossamer.algorithms.target import Target
from gossamer.data import Final, Trajectory
from gossamer.envs.toy import Catch
from gossamer.exchange import AloneLink
from gossamer.nn.networks import ActorCritic
from gossamer.nn.torsos import autoencoder
from gossamer.policy import build
from gossamer.spaces import Box, Discrete, Spec
from gossamer.spaces.distributions import Categorical
from gossamer.workers.learner import Learner

SPEC = Catch().make(1).spec
NO_ENTROPY: dict[str, Any] = {"entropy_coef": 0.0, "value_coef": 0.0}
ONE_PASS: dict[str, Any] = {"epochs": 1, "num_minibatches": 1, "normalize_advantage": False}
FAR = 1000  # batches between two copies to a target network: more than there are in a test


def a_model(algorithm: Algorithm, seed: int = 1, spec: Spec = SPEC, **network: Any) -> ActorCritic:
    """A network whose policy and values are not nearly uniform."""
    model = build(a_task(algorithm=algorithm, seed=seed, **network), spec)
    assert isinstance(model, ActorCritic)
    with torch.no_grad():
        for parameter in model.policy.parameters():
            parameter.mul_(50.0)
    return model


def older(model: ActorCritic, other: ActorCritic) -> nn.Module:
    """Give the model's target network the parameters of another network; return it."""
    assert isinstance(model.target, Target)
    model.target.model.load_state_dict(other.state_dict())
    model.target.age.fill_(1)  # the next copy is FAR - 1 batches away
    return model.target.model


def acted_by(model: nn.Module, slot: Trajectory | None = None) -> Trajectory:
    """A trajectory whose behaviour policy and values are the model's own."""
    slot = slot or a_trajectory(SPEC, 5, 3)
    slot.discount[2, 1], slot.begins[3, 1] = 0.0, True  # an episode ends
    with torch.no_grad():
        policy, value = evaluate_to_end(model, slot)
        slot.behaviour.copy_(policy.log_prob(slot.action.flatten(0, 1)).view_as(slot.behaviour))
        slot.value.copy_(value)
    return slot


def losses(algorithm: Algorithm, model: nn.Module, batch: Trajectory) -> Iterator[Loss]:
    return algorithm.losses(model, batch, torch.Generator().manual_seed(0))


def gradient(algorithm: Algorithm, model: nn.Module, batch: Trajectory) -> list[Tensor]:
    """Of the first loss."""
    model.zero_grad()
    next(losses(algorithm, model, batch)).total.backward()  # type: ignore[no-untyped-call]
    return [p.grad.clone() for p in model.parameters() if p.grad is not None]


def close(one: list[Tensor], other: list[Tensor]) -> None:
    assert len(one) == len(other) > 0
    assert any(float(g.abs().max()) > 1e-3 for g in one)
    for a, b in zip(one, other, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("lam", [1.0, 0.9])
def test_without_lag_the_gradient_is_a2c_s(lam: float) -> None:
    options: dict[str, Any] = {"gamma": 0.9, "gae_lambda": lam, "value_coef": 0.5, "entropy_coef": 0.01}
    model = a_model(A2C())
    batch = acted_by(model)
    if lam == 1.0:
        close(gradient(VTrace(**options), model, batch), gradient(A2C(**options), model, batch))
    else:  # GAE's advantage is v_t - V(x_t), V-trace's r + gamma v_{t+1} - V(x_t): with lambda < 1 only values agree
        loss, other = (next(losses(kind(**options), model, batch)) for kind in (VTrace, A2C))
        torch.testing.assert_close(loss.parts["value_loss"], other.parts["value_loss"])


@pytest.mark.parametrize("surrogate", ["behaviour", "impact", "decoupled"])
def test_at_ratio_one_the_surrogate_has_the_gradient_of_vtrace(surrogate: Any) -> None:
    model = a_model(VTrace())
    batch = acted_by(model)
    ours = AsyncPPO(gae_lambda=1.0, surrogate=surrogate, **ONE_PASS, **NO_ENTROPY)
    close(gradient(ours, model, batch), gradient(VTrace(**NO_ENTROPY), model, batch))


def test_the_decoupled_surrogate_weights_by_age_and_clips_by_the_update() -> None:
    # At the first update the ratio pi / pi_old is 1 whatever mu was: V-trace's gradient again
    batch = acted_by(a_model(VTrace(), seed=2))
    model = a_model(VTrace(), seed=1)
    ours = AsyncPPO(gae_lambda=1.0, surrogate="decoupled", clip_range=1e-6, **ONE_PASS, **NO_ENTROPY)
    close(gradient(ours, model, batch), gradient(VTrace(**NO_ENTROPY), model, batch))


def test_the_behaviour_surrogate_clips_what_is_far_from_the_policy_that_acted() -> None:
    model = a_model(VTrace(), seed=1)
    batch = acted_by(a_model(VTrace(), seed=2))
    ours = AsyncPPO(surrogate="behaviour", clip_range=1e-6, **ONE_PASS, **NO_ENTROPY)
    (loss,) = losses(ours, model, batch)
    assert float(loss.parts["clip_fraction"]) == 1.0
    (free,) = losses(replace(ours, surrogate="decoupled"), model, batch)
    assert float(free.parts["clip_fraction"]) == 0.0


def test_impact_s_ratio_is_not_beyond_twice_that_to_the_policy_that_acted() -> None:
    # mu(a) = 0.8, pi_old(a) = 0.1: the denominator is 0.4; with mu(a) = 0.1, it is pi_old(a)
    for mu, old, wanted in ((0.8, 0.1, 0.4), (0.1, 0.3, 0.3)):
        anchor, weight = AsyncPPO(surrogate="impact")._anchor(
            torch.tensor([[mu]]).log(), torch.tensor([[old]]).log(), torch.tensor([[9.0]])
        )
        assert float(anchor.exp()) == pytest.approx(wanted)
        assert float(weight) == 1.0


@pytest.mark.parametrize("lam", [1.0, 0.9, 0.0])
@pytest.mark.parametrize("normalize", [False, True])
def test_without_lag_its_losses_are_ppo_s(lam: float, normalize: bool) -> None:
    options: dict[str, Any] = {"gamma": 0.9, "gae_lambda": lam, "entropy_coef": 0.01, "value_coef": 0.5, **ONE_PASS}
    options["normalize_advantage"] = normalize
    model = a_model(PPO())
    batch = acted_by(model)
    close(gradient(AsyncPPO(**options), model, batch), gradient(PPO(**options), model, batch))


def test_every_sample_is_used_once_a_pass() -> None:
    model = a_model(AsyncPPO())
    batch = acted_by(model)
    found = list(losses(AsyncPPO(epochs=3, num_minibatches=4), model, batch))
    assert len(found) == 12


@pytest.mark.parametrize(
    "algorithm",
    [
        VTrace(gamma=0.5),
        AsyncPPO(gamma=0.5, gae_lambda=0.9, **ONE_PASS),
        AsyncPPO(gamma=0.5, gae_lambda=0.9, target_period=FAR, **ONE_PASS),
    ],
    ids=["vtrace", "appo", "appo with a target network"],
)
def test_truncation_bootstraps_from_the_learner_s_own_value(algorithm: Algorithm) -> None:
    # gamma V(final) as the behaviour policy saw it, 0.5 * 2 = 1, is replaced by the learner's, or its target network's
    model = a_model(algorithm, seed=3)
    old = (
        older(model, a_model(VTrace(), seed=4))
        if isinstance(algorithm, AsyncPPO) and algorithm.target_period
        else model
    )
    batch = acted_by(a_model(VTrace(), seed=2))
    final = torch.rand(*SPEC.obs_shape)
    batch.finals.append(Final(t=2, b=1, obs=final, state={}, value=1.0))
    with torch.no_grad():
        own = float(old(final.unsqueeze(0))[1])
    wanted = batch.reward.clone()
    wanted[2, 1] += 0.5 * own - 1.0
    torch.testing.assert_close(own_rewards(algorithm, old, batch), wanted)
    without = replace(batch, finals=[])
    assert own_rewards(algorithm, old, without) is batch.reward
    found = gradient(algorithm, model, batch)
    close(found, gradient(algorithm, model, replace(without, reward=wanted)))
    alone = gradient(algorithm, model, without)
    assert max(float((a - b).abs().max()) for a, b in zip(found, alone, strict=True)) > 1e-3


@pytest.mark.parametrize("surrogate", ["behaviour", "impact", "decoupled"])
@pytest.mark.parametrize("memory", ["none", "gru"])
@pytest.mark.parametrize("actions", [Discrete(3), Box((-1.0, -1.0), (1.0, 1.0))], ids=["discrete", "box"])
def test_with_a_target_network_pi_old_and_its_values_are_the_target_s(
    surrogate: Any, memory: str, actions: Discrete | Box
) -> None:
    algorithm = AsyncPPO(gamma=0.9, gae_lambda=0.8, surrogate=surrogate, target_period=FAR, **ONE_PASS)
    network: dict[str, Any] = {"spec": replace(SPEC, actions=actions), "memory": memory, "memory_units": 8}
    model = a_model(algorithm, seed=1, **network)
    actor, previous = (a_model(VTrace(), seed, **network) for seed in (2, 3))
    slot = a_trajectory(SPEC, 5, 3)
    state = {name: torch.rand_like(each) for name, each in model.initial_state(3).items()}
    slot = replace(slot, state=state, action=torch.randn(5, 3, 2) if isinstance(actions, Box) else slot.action)
    old, batch = older(model, previous), acted_by(actor, slot)
    action, mu = batch.action.flatten(0, 1), batch.behaviour
    with torch.no_grad():
        policy, value = evaluate_to_end(old, batch)
        log_old = policy.log_prob(action).view_as(mu)
    trace = vtrace(batch.reward, batch.discount, value, log_old - mu, lam=0.8)
    following = value[1:] + 0.8 * (torch.cat([trace.target[1:], value[-1:]]) - value[1:])
    advantage = batch.reward + batch.discount * following - value[:-1]
    anchor, weight = {  # logarithm of the ratio's denominator, weight of the surrogate
        "behaviour": (mu, torch.ones_like(mu)),
        "impact": (torch.maximum(log_old, mu - math.log(2)), torch.ones_like(mu)),
        "decoupled": (log_old, (log_old - mu).exp().clamp(max=1.0)),
    }[surrogate]
    found = gradient(algorithm, model, batch)
    pi, now = evaluate(model, batch)
    wanted = ppo(
        pi,
        now,
        action,
        trace.target.flatten(),
        advantage.flatten(),
        anchor.flatten(),
        weight=weight.flatten(),
        clip_range=algorithm.clip_range,
        value_coef=algorithm.value_coef,
        entropy_coef=algorithm.entropy_coef,
    )
    model.zero_grad()
    wanted.total.backward()  # type: ignore[no-untyped-call]
    close(found, [p.grad for p in model.parameters() if p.grad is not None])
    (loss,) = losses(algorithm, model, batch)
    for name, part in wanted.parts.items():  # the clip fraction too, which the gradient does not show
        torch.testing.assert_close(loss.parts[name], part)
    thirds = list(losses(replace(algorithm, num_minibatches=3), model, batch))  # of equal size: their mean is the whole
    torch.testing.assert_close(torch.stack([third.total for third in thirds]).mean(), loss.total)


PICTURES = Spec((2, 16, 16), np.dtype(np.uint8), Discrete(3))


def with_a_final(batch: Trajectory) -> Trajectory:
    batch.finals.append(Final(t=2, b=1, obs=batch.obs[1, 1].clone(), state={}, value=1.0))
    return batch


@pytest.mark.parametrize("algorithm", [VTrace(), AsyncPPO(**ONE_PASS)], ids=["vtrace", "appo"])
def test_an_auto_encoder_learns_from_batches_with_truncated_episodes(algorithm: Algorithm) -> None:
    learner = Learner(a_task(algorithm=algorithm, torso=autoencoder), PICTURES)
    metrics = learner.update(with_a_final(a_trajectory(PICTURES, 4, 2)), AloneLink(), 0).metrics
    assert metrics["reconstruction_loss"] > 0


@pytest.mark.parametrize("algorithm", [VTrace(), AsyncPPO(**ONE_PASS)], ids=["vtrace", "appo"])
def test_after_an_update_in_bfloat16_it_acts_with_the_new_weights(algorithm: Algorithm) -> None:
    learner = Learner(a_task(algorithm=algorithm, rate=0.1, dtype=torch.bfloat16), SPEC)
    batch = with_a_final(a_trajectory(SPEC, 4, 2))
    learner.update(batch, AloneLink(), 0)
    fresh = build(a_task(algorithm=algorithm, dtype=torch.bfloat16), SPEC)
    fresh.load_state_dict(learner.model.state_dict())
    with torch.no_grad():
        assert torch.equal(learner.model(batch.obs[0])[1], fresh(batch.obs[0])[1])


def test_with_memory_two_episodes_in_one_batch_are_the_two_apart() -> None:
    model = a_model(VTrace(), memory="lstm", memory_units=8)
    whole = a_trajectory(SPEC, 6, 2, 0)
    state = model.initial_state(2)
    whole = replace(whole, state=state)
    whole.discount[3], whole.begins[4] = 0.0, True
    policy, value = evaluate_to_end(model, whole)
    halves = [
        replace(whole, obs=whole.obs[a : b + 1], begins=whole.begins[a : b + 1], reward=whole.reward[a:b])
        for a, b in ((0, 4), (4, 6))
    ]
    for (a, b), half in zip(((0, 4), (4, 6)), halves, strict=True):
        apart, values = evaluate_to_end(model, half)
        torch.testing.assert_close(apart.parameters, policy.parameters[2 * a : 2 * b])
        torch.testing.assert_close(values[:-1], value[a:b])


def test_a_target_network_is_an_older_copy_renewed_every_so_many_batches() -> None:
    algorithm = AsyncPPO(target_period=2, **ONE_PASS)
    learner = Learner(a_task(algorithm=algorithm, rate=0.01), SPEC)
    assert isinstance(learner.model, ActorCritic)
    target = learner.model.target
    assert isinstance(target, Target)

    def difference() -> float:
        own = dict(learner.model.named_parameters())
        return max(float((own[name] - p).detach().abs().max()) for name, p in target.model.named_parameters())

    found = []
    for seed in range(4):
        learner.update(a_trajectory(SPEC, 4, 3, seed), AloneLink(), 0)
        found.append(difference())
    assert all(each > 0 for each in found)
    assert found[1] > found[0]  # two updates from the copy
    assert found[2] < found[1]  # copied again before the third
    assert not any(p.requires_grad for p in target.parameters())


def test_a_target_network_is_saved_and_restored() -> None:
    task = a_task(algorithm=AsyncPPO(target_period=3, **ONE_PASS), rate=0.01)
    one, other = Learner(task, SPEC), Learner(task, SPEC)
    one.update(a_trajectory(SPEC, 4, 3, 0), AloneLink(), 0)
    other.load_state_dict(one.state_dict())
    for seed in range(1, 4):
        for learner in (one, other):
            learner.update(a_trajectory(SPEC, 4, 3, seed), AloneLink(), 0)
    for a, b in zip(one.model.state_dict().values(), other.model.state_dict().values(), strict=True):
        assert torch.equal(a, b)


class Spy(nn.Module):
    """Three actions and a value for everything, as parameters in float64."""

    def __init__(self) -> None:
        super().__init__()
        self.logits = nn.Parameter(torch.tensor([0.5, -0.2, 0.1], dtype=torch.float64))
        self.worth = nn.Parameter(torch.tensor(0.3, dtype=torch.float64))

    def forward(self, obs: Tensor) -> tuple[Categorical, Tensor]:
        return Categorical(self.logits.expand(len(obs), -1)), self.worth.expand(len(obs))


def test_the_gradient_by_finite_differences() -> None:
    # Targets, advantages and weights are constants of the loss: those of the unchanged parameters.
    spy, slot = Spy(), a_trajectory(SPEC, 4, 2, 0)
    slot.behaviour.copy_(torch.linspace(-2.5, -0.3, 8).view(4, 2))
    batch = replace(slot, **{n: getattr(slot, n).double() for n in ("reward", "discount", "behaviour", "value")})
    algorithm = VTrace(gamma=0.9, value_coef=0.5, entropy_coef=0.1)
    analytic = gradient(algorithm, spy, batch)
    with torch.no_grad():
        policy, value = evaluate_to_end(spy, batch)
        log_ratio = policy.log_prob(batch.action.flatten()).view(4, 2) - batch.behaviour
        trace = vtrace(batch.reward, batch.discount, value, log_ratio)

    @torch.no_grad()
    def loss() -> float:
        now, value = evaluate_to_end(spy, batch)
        gain = (trace.weight * trace.advantage).flatten() * now.log_prob(batch.action.flatten())
        error = (trace.target - value[:-1]).square().mean()
        return float(-gain.mean() - 0.1 * now.entropy().mean() + 0.5 * error)

    for parameter, found in zip(spy.parameters(), analytic, strict=True):
        for i in range(parameter.numel()):
            ends = []
            for step in (1e-6, -2e-6):
                parameter.data.view(-1)[i] += step
                ends.append(loss())
            parameter.data.view(-1)[i] += 1e-6
            assert (ends[0] - ends[1]) / 2e-6 == pytest.approx(float(found.view(-1)[i]), rel=1e-6, abs=1e-9)
