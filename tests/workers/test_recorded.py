"""Steps and updates as CUDA graphs, on a GPU that is not there: see `some_gpu.Graph`."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from some_gpu import Graph, Traffic, a_gpu
from some_rounds import ALGORITHMS, ENVS, Reading, Round
from torch import Tensor

from gossamer.algorithms import A2C, PPO, Algorithm, AsyncPPO
from gossamer.data import Batch, Trajectory
from gossamer.envs.base import EnvFactory
from gossamer.envs.toy import Catch, Counter
from gossamer.exchange import Broadcast, Parameters
from gossamer.nn.inputs import Centred
from gossamer.policy import NetworkPolicy
from gossamer.system.graphs import WARM, Repeated
from gossamer.workers.learner import NonFinite
from gossamer.workers.recorded import MOST, RecordedUpdates

ROUNDS = 6
ANNEALED = PPO(num_minibatches=2, epochs=2, entropy_final_fraction=0.1)
CASES: dict[str, tuple[Algorithm, dict[str, Any]]] = {
    **{name: (algorithm, {}) for name, algorithm in ALGORITHMS.items()},
    "annealed": (ANNEALED, {"anneal_steps": 200}),  # the entropy bonus and the learning rate fall
    "rmsprop": (PPO(num_minibatches=2), {"optimizer": "rmsprop-tf"}),  # the steps are not part of the recording
    "bfloat16": (AsyncPPO(num_minibatches=2), {"dtype": torch.bfloat16}),
    "normalized": (PPO(num_minibatches=2), {"normalize_returns": True}),
    "memory": (A2C(), {"memory": "lstm"}),  # steps alone are recorded
}


@pytest.fixture
def traffic(monkeypatch: pytest.MonkeyPatch) -> Iterator[Traffic]:
    with a_gpu(monkeypatch) as found:
        yield found


def recorded(one: Round) -> RecordedUpdates:
    found = one.member.learner.recorded
    assert found is not None
    return found


def policy(one: Round) -> NetworkPolicy:
    found = one.member.player.policies[0]
    assert isinstance(found, NetworkPolicy)
    return found


@pytest.mark.parametrize("name", CASES)
def test_repetitions_do_what_was_computed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    algorithm, changes = CASES[name]
    found, actions = list[Round](), list[list[Tensor]]()
    for graphs in (False, True):
        with a_gpu(monkeypatch):
            one = Round(algorithm, "cuda", cuda_graphs=graphs, **changes)
            acted = []
            for number in range(ROUNDS):
                with one.end.slot(0) as slot:
                    one.member.unroll(slot, 16 * number)
                    acted.append(slot.action.cpu().clone())
                one.learn(16 * number)
            found.append(one)
            actions.append(acted)
    computed, repeated = found
    assert torch.equal(torch.stack(actions[0]), torch.stack(actions[1]))
    assert torch.equal(computed.weights, repeated.weights)
    assert computed.member.learner.updates == repeated.member.learner.updates > 0
    assert computed.member.learner.recorded is None
    assert (repeated.member.learner.recorded is None) == (name == "memory")
    if name != "memory":
        assert recorded(repeated).repeats, recorded(repeated).failure


def test_updates_and_steps_are_repeated_with_one_call_each(traffic: Traffic) -> None:
    one = Round(PPO(num_minibatches=2, epochs=3), "cuda")
    for _ in range(4):
        one.act()
        one.learn()
    Graph.replays = 0
    one.act()
    assert Graph.replays == 4 + 1  # steps of a rollout, and the value after it
    one.learn()
    assert Graph.replays == 5 + 6 + 1  # optimizer steps, and what follows the last one


def test_metrics_and_versions_are_those_of_the_repetition(monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for graphs in (False, True):
        with a_gpu(monkeypatch):
            parameters = Parameters()
            one = Round(ALGORITHMS["appo"], "cuda", exchange=Broadcast(parameters), cuda_graphs=graphs)
            for _ in range(ROUNDS):
                one.act()
                updated = one.learn()
            newest = parameters.first()
            found.append((updated.metrics, one.member.link.version, newest.stamp, newest.parameters.cpu()))
    (metrics, *versions, published), (others, *its, shown) = found
    assert metrics == others
    assert versions == its
    assert torch.equal(published, shown)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_what_is_not_finite_reaches_no_parameter(bad: float, traffic: Traffic) -> None:
    one = Round(ALGORITHMS["ppo"], "cuda")
    for _ in range(4):
        one.act()
        one.learn()
    assert recorded(one).repeats
    with one.end.slot(0) as slot:
        one.member.unroll(slot, 0)
        slot.reward[1, 2] = bad
    with pytest.raises(NonFinite, match=r"^the reward of environment 2 became NaN or infinite at step 0$"):
        one.learn()
    assert torch.isfinite(one.weights).all()


def test_batches_with_final_observations_are_computed(traffic: Traffic) -> None:
    one = Round(ALGORITHMS["appo"], "cuda", Counter(3, truncate=True))
    for _ in range(5):
        one.act()
        one.learn()
    assert not recorded(one).repeats


def test_a_network_that_reads_from_the_gpu_is_computed(traffic: Traffic) -> None:
    one = Round(ALGORITHMS["ppo"], "cuda", torso=Reading)
    for _ in range(4):
        one.act()
        one.learn()
    assert not recorded(one).repeats
    assert "_local_scalar_dense" in recorded(one).failure
    assert one.member.learner.updates == 4 * 4  # every batch was learned from


def test_parameters_that_move_are_not_recorded_for_ever(traffic: Traffic) -> None:
    one = Round(A2C(), "cuda")
    flat = one.member.learner.flat
    repeated = []
    for _ in range(MOST + 2):
        flat.swap(flat.vector.clone())
        for _ in range(3):  # at an address, the third batch is recorded
            one.act()
            one.learn()
        repeated.append(recorded(one).repeats)
    assert repeated == [True] * MOST + [False] * 2
    assert recorded(one).failure.startswith(f"{MOST} were")
    assert torch.isfinite(one.weights).all()


def test_batches_of_each_width_are_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    """`--replay-share` adds a trajectory more to some batches than to others."""
    found = []
    for graphs in (False, True):
        with a_gpu(monkeypatch):
            one = Round(PPO(num_minibatches=2), "cuda", cuda_graphs=graphs)
            repeated = []
            for number in range(10):
                one.act()
                batch = one.end.batch()
                assert isinstance(batch, Batch)
                fresh = batch.data
                data = Trajectory.concatenated([fresh, fresh.column(0)]) if number % 2 else fresh
                one.end.trained(batch, one.member.update(replace(batch, data=data)))
                repeated.append(graphs and recorded(one).repeats)
            found.append(one.weights)
    assert repeated == [False] * 2 * WARM + [True] * (10 - 2 * WARM)
    assert torch.equal(*found)


def test_an_optimizer_that_was_loaded_is_recorded_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for graphs in (False, True):
        with a_gpu(monkeypatch):
            one = Round(PPO(num_minibatches=2), "cuda", cuda_graphs=graphs)
            for number in range(8):
                if number == 4:
                    one.member.learner.load_state_dict(one.member.learner.state_dict())
                one.act()
                one.learn()
            found.append(one.weights)
    assert torch.equal(*found)


@pytest.mark.parametrize("env", [Catch(pixels=True), Counter(3)], ids=["pictures", "vectors"])
def test_a_policy_records_each_number_of_environments_once(env: EnvFactory, traffic: Traffic) -> None:
    one = Round(A2C(), "cuda", env)
    one.act()
    acting = policy(one)
    before = acting.rng.get_state()
    obs = one.end.batch().data.obs[0]
    few = obs[: ENVS - 1]
    answers = list[Tensor]()
    for graphs in (acting.recorded_for, None):
        same = replace(acting, recorded_for=graphs)
        same.rng.set_state(before)
        answers += [same(each, {})[0].parameters for each in (obs, few) * 4]
    assert all(torch.equal(a, b) for a, b in zip(answers[:8], answers[8:], strict=True))


def test_a_recording_follows_the_background(traffic: Traffic) -> None:
    """Target networks copy it, too."""
    Graph.replays = 0
    centred = Centred((1, 2, 2), 1.0).to("cuda")
    repeated = Repeated(lambda x, others: centred(x, torch.float32), centred, records=True)
    x = torch.full((3, 1, 2, 2), 5.0, device="cuda")
    found = list[float]()
    for background in (1.0, 2.0):
        centred.offset.fill_(background)
        centred(x, torch.float32)  # by itself, which keeps what it computes
        found += [float(repeated(x, {}).mean()) for _ in range(WARM + 2)]
    assert found == [4.0] * (WARM + 2) + [3.0] * (WARM + 2)
    assert Graph.replays == 2 + WARM + 2
