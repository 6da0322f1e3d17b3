"""Parameters really arrive where one acts, in every precision, by every optimiser; and nothing is lost in saving."""

from __future__ import annotations

import math
import pickle
from dataclasses import replace

import pytest
import torch
from some_parts import OPTIMIZERS, a_task, a_trajectory, differences
from torch import Tensor
from torch.optim import SGD

from gossamer.algorithms import A2C, PPO, AsyncPPO, VTrace
from gossamer.data import Trajectory
from gossamer.envs.toy import Catch
from gossamer.exchange import AloneLink
from gossamer.nn.networks import ActorCritic, auto_encoders
from gossamer.nn.torsos import autoencoder
from gossamer.policy import build
from gossamer.spaces import Spec
from gossamer.task import Task
from gossamer.workers.learner import Learner, NonFinite

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}
VECTOR, PICTURE = Catch().make(1).spec, Catch(pixels=True).make(1).spec
every_optimizer = pytest.mark.parametrize("optimizer", OPTIMIZERS)
every_dtype = pytest.mark.parametrize("dtype", DTYPES.values(), ids=DTYPES)
every_kind = pytest.mark.parametrize("pixels", [False, True], ids=["vector", "pixels"])


def batches(spec: Spec, count: int) -> list[Trajectory]:
    return [a_trajectory(spec, rollout_length=4, num_envs=3, seed=seed) for seed in range(count)]


def acted(learner: Learner, obs: Tensor) -> tuple[Tensor, Tensor]:
    """Parameters of the policy and values as an actor beside the learner gets them."""
    action, _ = learner.task.algorithm.act(learner.model, obs, {}, torch.Generator())
    return action.parameters, action.value


def from_scratch(learner: Learner, spec: Spec, obs: Tensor) -> tuple[Tensor, Tensor]:
    """The same of a network that has never computed anything before."""
    fresh = build(learner.task, spec)
    fresh.load_state_dict(learner.model.state_dict())
    with torch.no_grad():
        policy, value = fresh(obs)
    return policy.parameters, value


def test_a_saved_state_takes_no_more_bytes_than_its_tensors() -> None:
    learner = Learner(a_task(), PICTURE)
    before = len(pickle.dumps(learner.state_dict()))
    assert learner.flat.vector.numel() > 1000  # from here on, parameters are views of one vector
    assert len(pickle.dumps(learner.state_dict())) == pytest.approx(before, rel=0.1)


def test_a_state_from_another_kind_of_device_continues_with_a_new_random_stream() -> None:
    one, other, third = (Learner(a_task(), VECTOR, rank=1) for _ in range(3))
    one.update(batches(VECTOR, 1)[0], AloneLink(), 0)
    state = {**one.state_dict(), "rng": torch.zeros(16, dtype=torch.uint8)}  # as of a GPU's stream
    for learner in (other, third):
        learner.load_state_dict(state)
    assert torch.equal(other.rng.get_state(), third.rng.get_state())
    assert not torch.equal(other.rng.get_state(), Learner(a_task(), VECTOR, rank=1).rng.get_state())


@every_optimizer
@every_dtype
def test_parameters_arrive_where_one_acts(optimizer: str, dtype: torch.dtype) -> None:
    # Fused Adam leaves the version counters of its parameters as they are, so a cache that trusts them would go on
    # acting with the weights of yesterday.
    learner = Learner(a_task(optimizer=optimizer, dtype=dtype, algorithm=PPO(epochs=2, num_minibatches=2)), VECTOR)
    obs = torch.randn(5, 50)
    before = acted(learner, obs)
    for batch in batches(VECTOR, 3):
        learner.update(batch, AloneLink(), 0)
        now = acted(learner, obs)
        assert all(map(torch.equal, now, from_scratch(learner, VECTOR, obs)))
        assert not any(map(torch.equal, now, before))
        before = now


@every_dtype
def test_loaded_parameters_arrive_where_one_acts(dtype: torch.dtype) -> None:
    learner, other = (Learner(a_task(dtype=dtype), VECTOR) for _ in range(2))
    obs = torch.randn(5, 50)
    acted(learner, obs)  # whatever is kept for acting has been made
    for batch in batches(VECTOR, 3):
        other.update(batch, AloneLink(), 0)
    learner.load_state_dict(other.state_dict())
    assert all(map(torch.equal, acted(learner, obs), acted(other, obs)))


@every_optimizer
@every_dtype
@every_kind
def test_it_goes_on_bit_for_bit_where_it_was_saved(optimizer: str, dtype: torch.dtype, pixels: bool) -> None:
    # Weights of convolutions lie channels last in memory, and fused Adam pairs each with its moments by place in
    # memory: moments that came back in another layout would belong to other weights.
    task, spec = a_task(Catch(pixels=pixels), optimizer=optimizer, dtype=dtype), PICTURE if pixels else VECTOR
    first, second = batches(spec, 2)
    straight = Learner(task, spec)
    straight.update(first, AloneLink(), 0)
    saved = straight.state_dict()
    contiguous = {"optimizer": {k: {n: t.contiguous() for n, t in v.items()} for k, v in saved["optimizer"].items()}}
    resumed = Learner(task, spec)
    resumed.load_state_dict({**saved, **contiguous})  # as safetensors gives them back
    for learner in (straight, resumed):
        learner.update(second, AloneLink(), 0)
    assert differences(straight.state_dict(), resumed.state_dict()) == []


def test_a_saved_state_does_not_change_afterwards() -> None:
    learner = Learner(a_task(), VECTOR)
    first, second = batches(VECTOR, 2)
    learner.update(first, AloneLink(), 0)
    saved, as_it_was = learner.state_dict(), Learner(a_task(), VECTOR)
    as_it_was.update(first, AloneLink(), 0)
    learner.update(second, AloneLink(), 0)
    assert differences(saved, as_it_was.state_dict()) == []


def test_a_loaded_state_does_not_change_afterwards() -> None:
    first, second = batches(VECTOR, 2)
    saving, loading = (Learner(a_task(), VECTOR) for _ in range(2))
    saving.update(first, AloneLink(), 0)
    saved, as_it_was = saving.state_dict(), saving.state_dict()
    loading.load_state_dict(saved)
    loading.update(second, AloneLink(), 0)
    assert differences(saved, as_it_was) == []


def test_a_state_saved_before_the_first_update_can_be_gone_on_from() -> None:
    (batch,) = batches(VECTOR, 1)
    straight, resumed = (Learner(a_task(), VECTOR) for _ in range(2))
    resumed.load_state_dict(straight.state_dict())
    for learner in (straight, resumed):
        learner.update(batch, AloneLink(), 0)
    assert differences(straight.state_dict(), resumed.state_dict()) == []


def test_members_begin_with_common_parameters_and_draw_from_streams_of_their_own() -> None:
    torch.manual_seed(1)
    one = Learner(a_task(), VECTOR, rank=0)
    torch.manual_seed(2)
    other = Learner(a_task(), VECTOR, rank=1)
    assert differences(one.model.state_dict(), other.model.state_dict()) == []
    assert not torch.equal(one.rng.get_state(), other.rng.get_state())
    different = Learner(replace(a_task(), seed=2), VECTOR)
    assert differences(one.model.state_dict(), different.model.state_dict()) != []


def test_building_leaves_the_callers_stream_alone() -> None:
    before = torch.random.get_rng_state()
    build(a_task(), VECTOR)
    assert torch.equal(torch.random.get_rng_state(), before)


def test_an_update_reports_what_it_did() -> None:
    learner = Learner(a_task(algorithm=PPO(epochs=2, num_minibatches=3), rate=0.5, anneal_steps=24), VECTOR)
    link = AloneLink()
    found = [learner.update(batch, link, 12 * i).metrics for i, batch in enumerate(batches(VECTOR, 3))]
    expected = {"loss", "gradient_norm", "policy_loss", "value_loss", "entropy", "kl", "clip_fraction", "learning_rate"}
    assert all(set(metrics) == expected for metrics in found)
    # 12 steps a batch; the rate falls from 0.5 to 0 in 24
    assert [metrics["learning_rate"] for metrics in found] == [0.5, 0.25, 0.0]
    assert (learner.steps, learner.updates, link.version) == (36, 18, 18)


def test_steps_are_taken_at_the_rate_that_is_reported() -> None:
    # A step of SGD is the rate times the gradient. The rate falls from 1 to 0 in 24 steps, 12 to a batch.
    task = with_sgd(math.inf)
    learner = Learner(replace(task, optimization=replace(task.optimization, anneal_steps=24)), VECTOR)
    for batch, position, rate in zip(batches(VECTOR, 3), (0, 12, 24), (1.0, 0.5, 0.0), strict=True):
        before = weights(learner)
        metrics = learner.update(batch, AloneLink(), position).metrics
        assert metrics["learning_rate"] == rate
        moved = (weights(learner) - before).norm().item()
        assert moved == pytest.approx(rate * metrics["gradient_norm"], rel=1e-3)


@pytest.mark.parametrize("algorithm", [A2C, PPO, VTrace, AsyncPPO])
def test_the_entropy_bonus_falls_with_the_learning_rate(algorithm: type[A2C | PPO | VTrace | AsyncPPO]) -> None:
    # 0.4 to a quarter of it, 0.1, in 24 steps, 12 to a batch; the loss is the policy's less the bonus
    bonus = {"entropy_coef": 0.4, "entropy_final_fraction": 0.25, "value_coef": 0.0}
    single = {"epochs": 1, "num_minibatches": 1} if algorithm in (PPO, AsyncPPO) else {}
    learner = Learner(a_task(algorithm=algorithm(**bonus, **single), rate=0.5, anneal_steps=24), VECTOR)
    for batch, position, coefficient in zip(batches(VECTOR, 4), (0, 12, 24, 36), (0.4, 0.25, 0.1, 0.1), strict=True):
        found = learner.update(batch, AloneLink(), position).metrics
        assert found["loss"] == pytest.approx(found["policy_loss"] - coefficient * found["entropy"], rel=1e-4, abs=1e-6)


def test_what_is_reported_is_the_mean_over_the_minibatches() -> None:
    # With a rate of 0 nothing moves: the policy that learns is the one that acted. (Of the losses of three parts of a
    # size, the mean is the loss of all.)
    batch = a_trajectory(VECTOR, rollout_length=4, num_envs=3)
    means = [
        Learner(a_task(algorithm=PPO(epochs=1, num_minibatches=parts), rate=0.0), VECTOR)
        .update(batch, AloneLink(), 0)
        .metrics
        for parts in (1, 3)
    ]
    assert means[0]["value_loss"] == pytest.approx(means[1]["value_loss"], rel=1e-4)
    assert means[0]["policy_loss"] == pytest.approx(means[1]["policy_loss"], rel=1e-3)


def weights(learner: Learner) -> Tensor:
    return torch.cat([p.detach().flatten().clone() for p in learner.model.parameters()])


def with_sgd(max_grad_norm: float) -> Task:
    task = a_task(max_grad_norm=max_grad_norm, rate=1.0)
    return replace(task, optimization=replace(task.optimization, make=lambda params, rate: SGD(params, rate)))


def test_gradients_are_clipped_by_their_global_norm_and_the_norm_is_reported_as_it_was() -> None:
    # A step of SGD at rate 1 is the gradient itself: as long as the clip, whatever it was before.
    (batch,) = batches(VECTOR, 1)
    moved, norms = [], []
    for clip in (math.inf, 0.125):
        learner = Learner(with_sgd(clip), VECTOR)
        before = weights(learner)
        norms.append(learner.update(batch, AloneLink(), 0).metrics["gradient_norm"])
        moved.append(weights(learner) - before)
    assert norms[0] == norms[1] > 0.125
    assert moved[0].norm().item() == pytest.approx(norms[0], rel=1e-3)
    assert moved[1].norm().item() == pytest.approx(0.125, rel=1e-3)
    assert torch.nn.functional.cosine_similarity(moved[0], moved[1], dim=0).item() == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_loss_that_is_not_finite_stops_and_says_where(bad: float) -> None:
    learner = Learner(a_task(), VECTOR)
    good, worse = batches(VECTOR, 2)
    learner.update(good, AloneLink(), 0)
    worse.reward[1, 1] = bad
    with pytest.raises(NonFinite, match=r"the reward of environment 1 became NaN or infinite at step 12"):
        learner.update(worse, AloneLink(), 12)


@pytest.mark.parametrize("bad", [math.nan, -math.inf])
def test_a_gradient_that_is_not_finite_says_so_and_is_not_applied(bad: float) -> None:
    learner, link = Learner(a_task(max_grad_norm=3.0), VECTOR), AloneLink()
    for parameter in learner.model.parameters():
        parameter.grad = torch.ones_like(parameter)
    bias = next(each.grad for each in learner.model.parameters() if each.ndim == 1)
    assert bias is not None
    before, bias[0] = weights(learner), bad
    gradient = learner.gradient()
    assert not gradient.finite
    assert not gradient.norm.isfinite()
    stepped = link.step(learner)
    assert (stepped.finite, link.version) == (False, 0)
    assert torch.equal(weights(learner), before)
    assert learner.optimizer_state() == {}
    for parameter in learner.model.parameters():
        parameter.grad = torch.ones_like(parameter)
    gradient = learner.gradient()
    assert gradient.finite
    assert gradient.norm.item() == pytest.approx(len(before) ** 0.5)  # before it is clipped to 3
    assert torch.equal(weights(learner), before)
    learner.apply()
    assert not torch.equal(weights(learner), before)


@pytest.mark.parametrize("algorithm", [A2C(), PPO()], ids=["a2c", "ppo"])
def test_weights_that_explode_are_reported_by_the_next_update(algorithm: A2C | PPO) -> None:
    learner = Learner(a_task(algorithm=algorithm, rate=1e39), VECTOR)  # beyond float32: weights become infinite
    (batch,) = batches(VECTOR, 1)

    def go_on() -> None:
        for _ in range(2):
            learner.update(batch, AloneLink(), 0)
            acted(learner, batch.obs[0])

    with pytest.raises(NonFinite, match="at step"):
        go_on()


def test_the_network_is_that_of_the_task() -> None:
    model = build(a_task(Catch(pixels=True), dtype=torch.bfloat16), PICTURE)
    assert isinstance(model, ActorCritic)
    assert model.compute_dtype == torch.bfloat16
    assert model.centre.scale.item() == 1 / 64
    assert model.policy.weight.shape == (3, 256)


def test_the_loss_of_an_autoencoder_is_optimised() -> None:
    task = a_task(Catch(pixels=True), rate=1e-3)
    spec = Catch(pixels=True).make(1).spec
    with_it = replace(task, network=replace(task.network, torso=autoencoder, reconstruction_coef=2.0))
    learner = Learner(with_it, spec)
    batch = a_trajectory(spec, 4, 3)
    first, *_, last = [learner.update(batch, AloneLink(), 0).metrics for _ in range(10)]
    assert last["reconstruction_loss"] < first["reconstruction_loss"]
    parts = first["policy_loss"] - 0.01 * first["entropy"] + 0.5 * first["value_loss"]
    assert first["loss"] == pytest.approx(parts + 2.0 * first["reconstruction_loss"], rel=1e-4)


@pytest.mark.parametrize(("coefficient", "moves"), [(2.0, True), (0.0, False)])
def test_the_decoder_is_trained_by_the_reconstruction_alone(coefficient: float, moves: bool) -> None:
    task = a_task(Catch(pixels=True), torso=autoencoder, reconstruction_coef=coefficient)
    learner = Learner(task, PICTURE)
    (coder,) = auto_encoders(learner.model)
    before = [p.detach().clone() for p in coder.decoder.parameters()]
    learner.update(a_trajectory(PICTURE, 4, 3), AloneLink(), 0)
    after = list(coder.decoder.parameters())
    assert [not torch.equal(a, b) for a, b in zip(before, after, strict=True)] == [moves] * len(after)
    assert len(after) == 4  # weights and biases of two layers


def test_the_lag_of_each_trajectory_is_counted_at_every_update() -> None:
    # Two epochs of two minibatches are the updates 5, 6, 7 and 8. The parameters of version 3 acted in two of the three
    # environments, which are 2, 3, 4 and 5 updates behind; those of version 5 in one, which is 0, 1, 2 and 3 behind.
    # Versions count where a trajectory begins: newer ones after that do not.
    learner = Learner(a_task(algorithm=AsyncPPO(epochs=2, num_minibatches=2)), VECTOR)
    (batch,) = batches(VECTOR, 1)
    batch.version.copy_(torch.tensor([[3, 5, 3], *[[6, 6, 6]] * 3]))  # [T, B]
    link = AloneLink(5)
    learner.update(batch, link, 0)
    assert link.version == 9
    assert learner.take_lag() == {0: 1, 1: 1, 2: 1 + 2, 3: 1 + 2, 4: 2, 5: 2}
    assert learner.take_lag() == {}
