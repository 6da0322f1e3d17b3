"""What goes over between host memory and a GPU while agents act and learn, on a GPU that is not there."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from some_gpu import Traffic, a_gpu
from some_rounds import ALGORITHMS, ENVS, ROLLOUT, Round

from gossamer.data import Batch
from gossamer.envs.base import EnvFactory
from gossamer.envs.toy import Catch, Counter
from gossamer.exchange import Broadcast, Follower, Parameters
from gossamer.policy import build
from gossamer.workers.learner import NonFinite


@pytest.fixture
def traffic(monkeypatch: pytest.MonkeyPatch) -> Iterator[Traffic]:
    with a_gpu(monkeypatch) as found:
        yield found


@pytest.mark.parametrize("name", ALGORITHMS)
def test_acting_waits_once_a_step_and_a_batch_is_read_once(name: str, traffic: Traffic) -> None:
    one = Round(ALGORITHMS[name], "cuda")
    one.act()
    one.learn()  # the age of a target network is read once
    pictures = torch.uint8, ENVS * 42 * 42
    for _ in range(3):
        traffic.clear()
        with one.end.slot(0) as slot:
            one.member.unroll(slot, 0)
            assert traffic.reads == ["copy to the host"] * ROLLOUT  # the actions
            assert traffic.waits == []
            assert traffic.queued[pictures] == ROLLOUT + 1  # as bytes; x_T once more, as x_0 of the next rollout
        while isinstance(batch := one.end.batch(), Batch):
            traffic.clear()
            updated = one.member.update(batch)
            assert (traffic.reads, traffic.waits, traffic.queued) == (["tolist"], [], {})
            one.end.trained(batch, updated)


@pytest.mark.parametrize("name", ALGORITHMS)
@pytest.mark.parametrize("env", [Catch(pixels=True), Counter(3, truncate=True)], ids=["catch", "truncated"])
def test_it_computes_the_same_as_on_the_cpu(name: str, env: EnvFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for device in ("cpu", "cuda"):
        with a_gpu(monkeypatch) if device == "cuda" else nullcontext():
            one = Round(ALGORITHMS[name], device, env)
            for _ in range(4):
                one.act()
                one.learn()
            found.append((one.weights, one.member.learner.opt.state_dict()["state"]))
    (on_cpu, its), (on_gpu, others) = found
    assert one.member.learner.updates > 0
    assert torch.equal(on_cpu, on_gpu)
    assert all(torch.equal(its[i][name], others[i][name]) for i in its for name in its[i])


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_what_is_not_finite_reaches_no_parameter_and_is_reported(bad: float, traffic: Traffic) -> None:
    one = Round(ALGORITHMS["ppo"], "cuda")
    one.act()
    one.learn()
    with one.end.slot(0) as slot:
        one.member.unroll(slot, 0)
        slot.reward[1, 2] = bad
    before, state = one.weights, one.member.learner.optimizer_state()
    with pytest.raises(NonFinite, match=r"^the reward of environment 2 became NaN or infinite at step 0$"):
        one.learn()
    assert torch.isfinite(one.weights).all()
    first = _steps(state) - _steps(one.member.learner.optimizer_state())
    assert first.abs().max() <= 1  # the minibatch before the bad one may have been the first
    assert torch.equal(one.weights, before) == bool((first == 0).all())


def _steps(state: dict[str, Any]) -> torch.Tensor:
    """Steps that the optimizer has taken of each parameter."""
    return torch.stack([each["step"] for each in state.values()])


def test_actors_on_the_gpu_of_the_learner_take_its_parameters_there(traffic: Traffic) -> None:
    one = Round(ALGORITHMS["appo"], "cuda", exchange=Broadcast(parameters := Parameters()))
    follower = Follower(parameters, build(one.member.task, one.member.spec))
    one.act()
    one.learn()
    traffic.clear()
    assert follower.refresh() == one.member.version() > 0
    assert (traffic.reads, traffic.waits, traffic.queued) == ([], [], {})
    newest = parameters.first()
    assert newest is not None
    shown = torch.cat([each.detach().flatten() for each in follower.model.parameters()])
    assert torch.equal(shown.cpu(), one.weights.cpu())
    traffic.clear()
    packed = newest.packed()  # for another host
    assert traffic.reads == ["copy to the host"]
    assert torch.equal(torch.from_numpy(packed.parameters), newest.parameters.cpu())
