"""What only a GPU can show; `make test-gpu` runs it. How often the host waits is counted without one, too: see
`workers/test_transfers.py`."""

from __future__ import annotations

import math
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from some_parts import a_task
from some_rounds import ALGORITHMS, Reading, Round
from torch.cuda import nccl

import gossamer
from benchmarks.gradients import CASES, difference
from gossamer.algorithms import PPO
from gossamer.data import Batch, Trajectory
from gossamer.envs.toy import Catch
from gossamer.exchange import AloneLink
from gossamer.exchange.all_reduce.given import added
from gossamer.policy import NetworkPolicy
from gossamer.workers.actor import Actor
from gossamer.workers.clock import Clock
from gossamer.workers.learner import Learner, NonFinite

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason=f"torch {torch.__version__} finds no GPU"),
]
STEPS, ENVS = 6, 8
two_gpus = pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")


@pytest.mark.parametrize("name", CASES)
def test_gradients_are_those_of_the_cpu(name: str) -> None:
    assert difference(name, "cuda") < 1e-4


def test_the_host_waits_once_a_step_and_once_a_batch() -> None:
    learner, actor, slot = acting_and_learning()
    for _ in range(3):  # the first kernels of each kind are loaded
        actor.unroll(slot)
        learner.update(slot, AloneLink(), 0)
    with waits() as found:
        actor.unroll(slot)
    assert len(found) == STEPS
    with waits() as found:
        learner.update(slot, AloneLink(), 0)
    assert len(found) == 1


def test_a_gradient_that_is_not_finite_reaches_no_parameter() -> None:
    learner, actor, slot = acting_and_learning()
    actor.unroll(slot)
    slot.reward[2, 1] = math.nan
    with pytest.raises(NonFinite, match=r"^the reward of environment 1 became NaN"):
        learner.update(slot, AloneLink(), 0)
    assert learner.finite


@pytest.mark.parametrize("name", ALGORITHMS)
def test_what_is_recorded_does_what_was_computed(name: str) -> None:
    found = []
    for graphs in (False, True):
        one = Round(ALGORITHMS[name], "cuda", cuda_graphs=graphs, dtype=torch.float32)
        for _ in range(8):
            one.act()
            one.learn()
        found.append(one)
    computed, repeated = found
    assert repeated.member.learner.recorded is not None
    assert repeated.member.learner.recorded.repeats, repeated.member.learner.recorded.failure
    assert torch.allclose(computed.weights, repeated.weights, rtol=1e-2, atol=1e-4)
    assert float((computed.weights - repeated.weights).norm() / computed.weights.norm()) < 1e-3


def test_recordings_of_several_widths_share_memory() -> None:
    found = []
    for graphs in (False, True):
        one = Round(ALGORITHMS["ppo"], "cuda", cuda_graphs=graphs, dtype=torch.float32)
        for number in range(12):
            one.act()
            batch = one.end.batch()
            assert isinstance(batch, Batch)
            fresh = batch.data
            data = Trajectory.concatenated([fresh, fresh.column(0)]) if number % 2 else fresh
            one.end.trained(batch, one.member.update(replace(batch, data=data)))
        found.append(one)
    computed, repeated = found
    assert repeated.member.learner.recorded is not None
    assert repeated.member.learner.recorded.repeats, repeated.member.learner.recorded.failure
    assert float((computed.weights - repeated.weights).norm() / computed.weights.norm()) < 1e-3


def test_a_network_that_reads_from_the_gpu_is_computed() -> None:
    one = Round(ALGORITHMS["ppo"], "cuda", torso=Reading)
    for _ in range(5):
        one.act()
        one.learn()
    assert one.member.learner.recorded is not None
    assert one.member.learner.recorded.failure
    assert one.weights.isfinite().all()


def test_several_threads_record_and_repeat() -> None:
    errors = list[BaseException]()

    def work() -> None:
        try:
            with torch.cuda.stream(torch.cuda.Stream()):
                one = Round(ALGORITHMS["ppo"], "cuda")
                for _ in range(20):
                    one.act()
                    one.learn()
                assert one.member.learner.recorded is not None
                assert one.member.learner.recorded.repeats, one.member.learner.recorded.failure
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert errors == []


@pytest.mark.parametrize("architecture", ["paac", "gala", "impala", "appo", "ga3c", "dqn", "gorila", "apex"])
def test_it_trains(architecture: str, tmp_path: Path) -> None:
    run = gossamer.train(architecture, env="catch-pixels", steps=3000, device="cuda", run_dir=tmp_path / "run")
    assert run.result["steps"] >= 3000
    assert run.result["ended"] == "all steps done"


@two_gpus
def test_gradients_of_two_gpus_are_added_by_nccl() -> None:
    assert nccl.is_available([torch.ones(2, device="cuda:0"), torch.ones(2, device="cuda:1")])
    vectors = [torch.full((1000,), float(number + 1), device=f"cuda:{number % 2}") for number in range(4)]
    for leader in ("cuda:0", "cuda:1"):
        found = added([each.clone() for each in vectors], torch.device(leader))
        assert found.device == torch.device(leader)
        assert (found == 10.0).all()


@two_gpus
@pytest.mark.parametrize(
    "options",
    [
        {"architecture": "a2c"},
        {"architecture": "impala", "num_envs": 8},
        {"architecture": "appo", "num_envs": 8, "policy": "served"},
        {"architecture": "gala", "num_envs": 4},
        {"architecture": "gala", "num_envs": 4, "learners": 4, "group_size": 2},
    ],
    ids=str,
)
def test_learners_train_on_two_gpus(options: dict[str, Any], tmp_path: Path) -> None:
    before = [torch.cuda.memory_allocated(number) for number in range(2)]
    for number in range(2):
        torch.cuda.reset_peak_memory_stats(number)
    run = gossamer.train(
        env="catch", steps=20_000, device="cuda", run_dir=tmp_path / "run", log="none", **{"learners": 2, **options}
    )
    assert all(torch.cuda.max_memory_allocated(number) > before[number] for number in range(2))
    assert gossamer.evaluate(run.directory, episodes=5).mean_return >= -1


def acting_and_learning() -> tuple[Learner, Actor, Trajectory]:
    """A learner with an actor that acts with its network, and memory for a rollout."""
    toy = Catch(pixels=True)
    spec = toy.make(1).spec
    task = replace(a_task(toy, PPO(), max_grad_norm=0.5, rollout_length=STEPS), device="cuda")
    learner = Learner(task, spec)
    policy = NetworkPolicy(learner.model, task.algorithm, task.generator("act"))
    actor = Actor(toy.make(ENVS), policy, gamma=0.99, seed=1, clock=Clock())
    return learner, actor, Trajectory.empty(STEPS, ENVS, spec.obs_shape, torch.uint8, device="cuda")


@contextmanager
def waits() -> Iterator[list[str]]:
    """The calls inside that wait for the GPU, as torch warns of them."""
    found: list[str] = []
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("warn")
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            yield found
            found += [str(each.message) for each in caught if "synchronizing CUDA operation" in str(each.message)]
    finally:
        torch.cuda.set_sync_debug_mode("default")
