"""Reference observations are the same for all members; evaluating a policy on them leaves no trace in the member."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from some_masks import DOORS, ENVS, all_valid, valid_softmax
from some_parts import CountedCatch, a_task, sharpen
from torch import nn

from gossamer.algorithms import PQN
from gossamer.diagnostics.divergence import divergence
from gossamer.envs.once import OncePerProcess
from gossamer.envs.toy import Catch
from gossamer.exchange.flat import Flat
from gossamer.nn.networks import ActorCritic
from gossamer.policy import build
from gossamer.spaces import Discrete
from gossamer.workers import reference as module
from gossamer.workers.learner import Learner
from gossamer.workers.reference import policy_outputs, reference_observations

ACTIONS = Discrete(3)  # Catch's


@pytest.fixture(autouse=True)
def forget(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test plays anew, as each process does."""
    monkeypatch.setattr(module, "_played", OncePerProcess())


def played(**changed: Any) -> tuple[np.ndarray, np.ndarray]:
    module._played = OncePerProcess()  # as in another process
    return reference_observations(a_task(Catch(), **changed))


def test_they_are_many_of_the_task_and_the_same_in_every_process() -> None:
    observations, checksums = played()
    assert observations.shape == (module.STEPS // module.EVERY, 50)
    assert len(np.unique(observations, axis=0)) > 30
    assert len(np.unique(checksums)) == len(np.unique(observations, axis=0))
    again, same = played()
    assert np.array_equal(observations, again)
    assert np.array_equal(checksums, same)
    assert not np.array_equal(played(seed=2)[0], observations)


def test_members_of_one_process_share_them() -> None:
    env = CountedCatch()
    task = a_task(env)
    env.made.clear()
    learners = [Learner(task, Catch().make(1).spec, rank=rank) for rank in range(3)]
    threads = [threading.Thread(target=learner.policy_outputs) for learner in learners]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert env.made == [1]


def test_a_slow_environment_gives_fewer_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    whole, _ = played()
    ticks = iter(range(1000))
    monkeypatch.setattr(module, "SECONDS", 100)
    monkeypatch.setattr(module.time, "monotonic", lambda: next(ticks))  # a second to a step
    few, _ = played()
    assert 10 < len(few) < 40
    assert np.array_equal(few, whole[: len(few)])


@pytest.mark.parametrize("pixels", [False, True])
def test_the_outputs_are_the_policy_s(pixels: bool) -> None:
    task = a_task(Catch(pixels))
    model = build(task, task.env.make(1).spec)
    found = policy_outputs(task, model, ACTIONS)
    observations, checksums = reference_observations(task)
    with torch.no_grad():
        parameters = model(torch.from_numpy(observations))[0].parameters
    torch.testing.assert_close(found.parameters, parameters)
    assert np.array_equal(found.observations, checksums)


class Counts(nn.Module):
    """Counts its uses in training mode."""

    uses: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("uses", torch.zeros(()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.uses += self.training
        return x


def fickle(obs_shape: tuple[int, ...]) -> nn.Module:
    """A torso that draws random numbers and keeps statistics whenever it is used in training mode."""
    return nn.Sequential(nn.Linear(50, 8), nn.Tanh(), Counts(), nn.Dropout(0.5))


def test_evaluating_leaves_no_trace() -> None:
    """Neither in running statistics, nor in torch's random stream, nor in which parts are in training mode."""
    plain = a_task()
    task = replace(plain, network=replace(plain.network, torso=fickle, orthogonal=False))
    model = build(task, task.env.make(1).spec)
    model.torso[1].eval()  # type: ignore[index]
    before, random = {k: v.clone() for k, v in model.state_dict().items()}, torch.get_rng_state()
    modes = [part.training for part in model.modules()]
    policy_outputs(task, model, ACTIONS)
    assert all(torch.equal(v, before[k]) for k, v in model.state_dict().items())
    assert torch.equal(torch.get_rng_state(), random)
    assert [part.training for part in model.modules()] == modes


def test_acting_in_low_precision_takes_the_parameters_that_came_after() -> None:
    """A network keeps its weights cast to bfloat16 while it acts; vectors that are swapped in are cast anew."""
    task = a_task(Catch(pixels=True), dtype=torch.bfloat16)
    model = build(task, task.env.make(1).spec)
    flat = Flat(model)
    first = policy_outputs(task, model, ACTIONS).parameters
    flat.swap(0.5 * flat.vector)
    second = policy_outputs(task, model, ACTIONS).parameters
    fresh = build(task, task.env.make(1).spec)
    fresh.load_state_dict(model.state_dict())
    assert not torch.equal(first, second)
    assert torch.equal(second, policy_outputs(task, fresh, ACTIONS).parameters)


@pytest.mark.parametrize("memory", ["none", "gru"])
def test_masked_policies_are_compared_by_their_valid_choices(memory: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ENVS)
    task, spec = a_task(DOORS, memory=memory, memory_units=8), DOORS.make(1).spec
    observations = torch.from_numpy(reference_observations(task)[0])
    outputs, probabilities = [], []
    for seed in (1, 2):
        model = build(replace(task, seed=seed), spec)
        assert isinstance(model, ActorCritic)
        sharpen(model, 200)
        outputs.append(policy_outputs(task, model, spec.actions).parameters)
        state, begins = model.initial_state(len(observations)), torch.ones(len(observations), dtype=torch.bool)
        with torch.no_grad():
            unmasked = model.step(all_valid(model, observations), state, begins)[0].parameters
        probabilities.append(valid_softmax(model, observations, unmasked))
    # KL(p || q) = sum p ln(p / q) over the valid choices, and both choices; p = 0 adds nothing
    by_hand = sum(
        (torch.xlogy(p, p) - torch.xlogy(p, q)).sum(1).mean().item() for p, q in zip(*probabilities, strict=True)
    )
    assert by_hand > 0.05  # the two policies are not alike
    assert divergence(torch.stack(outputs), spec.actions)[0, 1].item() == pytest.approx(by_hand, rel=1e-4)


def test_policies_by_value_are_compared_as_they_explore() -> None:
    """With epsilon 0.3 among three actions the parameters are ln 0.8 and twice ln 0.1. With 0 KL would be infinite."""
    task = a_task(Catch(), algorithm=PQN(epsilon_end=0.3))
    found = policy_outputs(task, build(task, task.env.make(1).spec), ACTIONS)
    assert found is not None
    chances = found.parameters.exp().sort(-1).values
    torch.testing.assert_close(chances, torch.tensor([0.1, 0.1, 0.8]).expand_as(chances))
    never = a_task(Catch(), algorithm=PQN(epsilon_end=0.0))
    assert policy_outputs(never, build(never, never.env.make(1).spec), ACTIONS) is None
