"""A3C: one learner is the serial algorithm to the bit, for all four methods; learners, processes and shards fail; what
is refused."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from some_parts import Slow, Watcher, a_task, differences
from some_runs import checkpoint, result
from sweeps import sweep

import gossamer
from gossamer import cli
from gossamer.algorithms import A2C, DQN, Algorithm, NStepQ, OneStepQ, Sarsa
from gossamer.algorithms.base import Acting
from gossamer.algorithms.exploration import EpsilonGreedy
from gossamer.architectures import A3C, PAAC
from gossamer.envs.toy import Catch
from gossamer.exchange import SharedMemory
from gossamer.exchange.shared import memory
from gossamer.exchange.shared.memory import Contents
from gossamer.launch.simulation import Faults, Network, Simulation
from gossamer.launch.threads import threads
from gossamer.loops import act_and_learn
from gossamer.runtime import Context
from gossamer.task import Task

METHODS: dict[str, Algorithm] = {
    "a2c": A2C(),
    "nstep-q": NStepQ(target_period=10, epsilon_steps=400),
    "one-step-q": OneStepQ(target_period=10, epsilon_steps=400),
    "sarsa": Sarsa(target_period=10, epsilon_steps=400),
    "dqn": DQN(target_period=10, epsilon_steps=400, buffer_size=400, learning_starts=80, batch_size=16),
}
ONE = {"learners": 1, "num_envs": 4, "env_workers": 0}
STEPS = 960  # 60 updates of 16 steps; with dqn none for the first 80
REFUSED = {
    "--env Pendulum-v1 --algorithm sarsa": "--algorithm sarsa: Pendulum-v1 has 1 continuous actions, not one choice "
    "among several; use a2c, ppo, vtrace or appo, for example under paac",
    "--env Pendulum-v1 --algorithm one-step-q": "--algorithm one-step-q: Pendulum-v1 has 1 continuous actions",
    "--env Pendulum-v1 --algorithm nstep-q": "--algorithm nstep-q: Pendulum-v1 has 1 continuous actions",
    "--env catch --algorithm dqn --memory lstm": "--memory lstm: dqn has none; stack pictures (--frame-stack), or use "
    "pqn, nstep-q, one-step-q, sarsa, r2d2",
    "--env catch --learners 0": "--learners 0: must be at least 1",
    "--env catch --hosts 0": "--hosts 0: must be at least 1",
    "--env catch --shards -1": "--shards -1: must be at least 0",
    "--env catch --statistics mine": "--statistics mine: must be one of shared, own",
    "--env catch --shards 1 --statistics own": "--statistics own: a parameter server (--shards) has one optimizer",
    "--env catch --shards 3000": "--shards 3000: the network's",
    "--env Pendulum-v1 --normalize-returns": "--normalize-returns: not available with shared parameters; use --no-",
    "--env catch --algorithm sarsa --exploration drawn": "--exploration drawn: must be one of schedule, by-",
    "--env catch --algorithm one-step-q --loss-scale 0": "--loss-scale 0.0: must be above 0",
    "--env catch --algorithm ppo --preset paper": "--algorithm ppo: A3C's paper has only a2c, nstep-q, one-step-q, sar",
}


def a_method(method: Algorithm, **given: Any) -> Task:
    return a_task(Catch(), method, **{"optimizer": "rmsprop-a3c", "anneal_steps": STEPS, **given})


def member_of(watcher: Watcher) -> dict[str, Any]:
    """What the only learner has saved."""
    learner: dict[str, Any] = watcher.saved["act_and_learn"]["learner"]
    return learner


@pytest.mark.parametrize(
    ("method", "changed", "form"),
    [
        *((method, {}, form) for method in METHODS for form in ({}, {"statistics": "own"}, {"shards": 2})),
        ("a2c", {"optimizer": "adam"}, {}),
        *((method, {"memory": "lstm"}, {}) for method in ("a2c", "nstep-q", "one-step-q", "sarsa")),
        ("nstep-q", {"memory": "gru"}, {"shards": 2}),
        ("sarsa", {"dtype": torch.bfloat16}, {}),
    ],
    ids=str,
)
def test_one_learner_is_the_serial_algorithm_to_the_bit(
    method: str, changed: dict[str, Any], form: dict[str, Any]
) -> None:
    alone, one = Watcher(steps=STEPS), Watcher(steps=STEPS)
    threads(PAAC(num_envs=4, env_workers=0).program(a_method(METHODS[method], **changed)), alone)
    threads(A3C(**ONE, **form).program(a_method(METHODS[method], **changed)), one)
    expected, found = member_of(alone), member_of(one)
    kept = ["model", "rng", "steps", "updates", *(["optimizer"] if "shards" not in form else [])]
    assert [differences(expected[name], found[name]) for name in kept] == [[]] * len(kept)
    assert expected["updates"] == 60 or (method == "dqn" and expected["updates"] > 300)  # 8 samples for each step
    assert {stale for report in one.records for stale in report.staleness} == {0}


def test_the_exchange_is_shared_memory_of_threads_a_file_of_processes_or_a_server() -> None:
    one = A3C(learners=3, num_envs=2).program(a_task())
    (service,) = one.services
    assert (service.name, service.args, service.host, service.saved) == ("SharedMemory", (3, ""), "machine", True)
    assert one.edges() == [("act_and_learn", "SharedMemory")]
    two = A3C(hosts=2, learners=3).program(a_task())
    (service,) = two.services
    learners, name = service.args
    assert (learners, service.host) == (6, "host0")
    assert len(name) == 16
    assert two.edges() == [(f"act_and_learn[{ranks}]", "SharedMemory") for ranks in ("0:3", "3:6")]
    apart = A3C(hosts=2, learners=3, shards=2).program(a_task())
    assert [service.name for service in apart.services] == ["ParameterShard[0]", "ParameterShard[1]"]
    assert list(apart.hosts) == ["shard0", "shard1", "host0", "host1"]


def test_a_file_that_killed_hosts_leave_is_removed_by_the_process_that_started_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at_exit = list[partial[None]]()
    monkeypatch.setattr(memory, "FOLDER", tmp_path)
    monkeypatch.setattr(memory.atexit, "register", lambda *given: at_exit.append(partial(*given)))
    (service,) = A3C(hosts=2, learners=1).program(a_task()).services
    (end,) = at_exit
    for name in (service.args[1], "another"):
        SharedMemory(2, name).create(Contents(torch.zeros(16), torch.zeros(0), torch.zeros(0)))
    (tmp_path / f"gossamer-{service.args[1]}.new").touch()  # which a host was about to rename
    end()
    assert [path.name for path in tmp_path.iterdir()] == ["gossamer-another"]


def test_a_learner_of_a_server_pulls_parameters_after_its_steps_only() -> None:
    """A rollout and the gradient of it have the same parameters, although the other learner has changed them."""
    watcher = Watcher(steps=STEPS)
    program = A3C(learners=3, num_envs=2, env_workers=0, shards=1).program(a_method(A2C()))
    Simulation(1, Network(latency=0.01))(program, watcher)
    lag = Counter[int]()
    for report in watcher.records:
        lag.update(report.lag)
    assert lag == {0: STEPS // 4}  # of each rollout of an environment
    assert max(stale for report in watcher.records for stale in report.staleness) >= 2


class Again(Watcher):
    """Lets workers and services go on from what they saved last, and takes back what dead ones had leased."""

    def restored(self, worker: str) -> Any | None:
        return self.saved.get(worker)

    def died(self, worker: str) -> None:
        self.budget.release(worker)


@pytest.mark.parametrize("form", [{"hosts": 3}, {"hosts": 2, "shards": 1}], ids=["shared", "shards"])
@sweep(200, 4)
def test_every_schedule_with_crashes_ends(form: dict[str, Any], seeds: range) -> None:
    for seed in seeds:
        rng = random.Random(seed)
        method = METHODS[rng.choice(["a2c", "nstep-q", "one-step-q", "sarsa"])]
        program = A3C(learners=2, num_envs=2, env_workers=0, **form).program(a_method(method))
        hosts = list(program.hosts)
        crashes = [(4 * rng.random(), rng.choice(hosts), 2 * rng.random()) for _ in range(3)]
        watcher = Again(steps=STEPS // 2)
        Simulation(seed, Network(latency=0.01), Faults(crashes=crashes), patience=2000.0)(
            program.with_loops({act_and_learn: slowly}), watcher
        )
        assert sum(report.steps for report in watcher.records) == STEPS // 2, seed
        if "SharedMemory" in watcher.saved:
            made = int(watcher.saved["SharedMemory"]["updates"].sum())
            reported = sum(report.updates for report in watcher.records)
            # Each crash ends two learners, which may have an update to tell
            assert reported <= made <= reported + 6, seed


def slowly(ctx: Context, *given: Any, **named: Any) -> None:
    """The loop, with rollouts that take time."""
    act_and_learn(Slow(ctx), *given, **named)  # type: ignore[arg-type]


class Explored(NStepQ):
    """Keeps the epsilons of its rollouts."""

    epsilons: ClassVar[dict[int, tuple[int, tuple[float, ...]]]] = {}  # position -> (first environment, its epsilons)

    def exploring(self, position: int, envs: Sequence[int], total: int, version: int) -> Acting:
        policy = super().exploring(position, envs, total, version)
        assert isinstance(policy, EpsilonGreedy)
        assert isinstance(policy.epsilon, tuple)
        assert position not in self.epsilons
        self.epsilons[position] = (envs[0], policy.epsilon)
        return policy


def test_learners_anneal_epsilon_and_rate_over_the_steps_of_all() -> None:
    """Epsilon falls from 1 to 0.1, 0.1, 0.01, 0.01, 0.5 and 0.5 of the six environments, at each rollout of 8 steps,
    whoever makes it."""
    Explored.epsilons.clear()
    watcher = Watcher(steps=STEPS)
    task = a_method(Explored(exploration="mixed", epsilon_start=1.0, epsilon_steps=STEPS))
    threads(A3C(learners=3, num_envs=2, env_workers=0).program(task), watcher)
    rates = [report.metrics["learning_rate"] for report in watcher.records]
    assert min(rates) == pytest.approx(0.01 * 8 / STEPS)  # of the last of 120 rollouts of 8 steps, whoever made it
    assert len(rates) == STEPS // 8
    assert sorted(Explored.epsilons) == list(range(0, STEPS, 8))
    for position, (first, epsilons) in Explored.epsilons.items():
        final, over = (0.1, 0.01, 0.5)[first // 2], position / STEPS
        assert epsilons == pytest.approx([1 - over + final * over] * 2)


def test_a_resumed_run_goes_on_from_the_shared_parameters(tmp_path: Path) -> None:
    given: dict[str, Any] = {
        "env": "catch",
        "steps": 640,
        "anneal_steps": 0,
        "learners": 2,
        "num_envs": 4,
        "rollout_length": 4,
    }
    run = gossamer.train("a3c", algorithm="one-step-q", run_dir=tmp_path / "run", log="none", threads=1, **given)
    before = checkpoint(run.directory)["services"]["SharedMemory"]
    assert int(before["updates"].sum()) == 40
    gradients = result(run.directory)["gradients"]
    assert gradients["applied"] == 40
    gossamer.resume(run.directory, steps=1280)
    after = checkpoint(run.directory)
    assert int(after["services"]["SharedMemory"]["updates"].sum()) == 80
    assert not torch.equal(before["parameters"], after["services"]["SharedMemory"]["parameters"])
    states = after["workers"].values()
    newest = max(states, key=lambda state: state["exchange"]["iteration"])
    flat = after["services"]["SharedMemory"]["parameters"]
    assert set(newest["learner"]["model"]["advantage.bias"].tolist()) <= set(flat.tolist())


@pytest.mark.parametrize("words", REFUSED)
def test_what_does_not_work_is_refused_in_one_line(
    words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", ["gossamer", "train", "a3c", *words.split()])
    assert cli.main() == 2
    told = capsys.readouterr().err.strip().splitlines()
    assert len(told) == 1
    assert REFUSED[words] in told[0]
    assert list(tmp_path.iterdir()) == []
