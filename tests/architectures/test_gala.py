"""GALA: learners that begin alike, act apart, share the steps and learn together."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from some_gossip import gossiping
from some_parts import Watcher, a_task
from some_runs import solved

from gossamer.algorithms import A2C, PPO, Algorithm
from gossamer.architectures import GALA, PALA
from gossamer.data import Array
from gossamer.envs.base import VectorEnv
from gossamer.envs.toy import ToyVector
from gossamer.exchange import Exchange
from gossamer.exchange.gossip.graphs import Exponential
from gossamer.exchange.gossip.mixing import PushSum
from gossamer.exchange.gossip.records import Cut, Traffic
from gossamer.launch.simulation import Simulation
from gossamer.launch.threads import threads
from gossamer.loops import Envs, act_and_learn
from gossamer.policy import Policy
from gossamer.program import Program
from gossamer.runtime import Context
from gossamer.spaces import Discrete, Spec
from gossamer.task import Task, WorkerReport
from gossamer.workers.member import Member

LEARNERS = 4
FIGURES = ["gala", "pala"]
algorithms = pytest.mark.parametrize("algorithm", [A2C(), PPO(epochs=2, num_minibatches=2)], ids=["a2c", "ppo"])


def figure(name: str, task: Task, *, num_envs: int = 2, **mode: Any) -> Program:
    gossip = gossiping(name, **mode)
    if name == "gala":
        return GALA(learners=LEARNERS, num_envs=num_envs).program(task, gossip=gossip)
    return PALA(hosts=2, learners=LEARNERS // 2, num_envs=num_envs).program(task, gossip=gossip, couriers=1)


class ByMember(Watcher):
    """Keeps reports apart."""

    def __init__(self, *, steps: int = 64) -> None:
        super().__init__(steps=steps)
        self.reports: defaultdict[str, list[WorkerReport]] = defaultdict(list)

    def report(self, worker: str, record: Any) -> None:
        super().report(worker, record)
        if isinstance(record, WorkerReport):
            self.reports[worker].append(record)


@pytest.mark.parametrize("name", FIGURES)
@pytest.mark.parametrize(
    ("given", "newest", "adds"),
    [
        ({}, True, False),
        ({"lock_step": True}, False, False),
        ({"mixing": PushSum()}, False, True),
        ({"mixing": PushSum(), "lock_step": True}, False, False),
    ],
    ids=["uniform", "lock-step", "push-sum", "push-sum in lock-step"],
)
def test_what_an_unread_message_becomes(name: str, given: dict[str, Any], newest: bool, adds: bool) -> None:
    for service in figure(name, a_task(), **given).services:
        assert (service.kwargs["newest"], service.kwargs["adds"]) == (newest, adds)


def begin(ctx: Context, task: Task, policy: Policy, experience: Any, exchange: Exchange, *, envs: Envs) -> None:
    """The start of `act_and_learn`: parameters, and what is played first."""
    env = task.env.make(envs.count, workers=envs.workers)
    member = Member(ctx, task, [env], policy, exchange)
    slot = member.slot(envs.count)
    member.unroll(slot, 0)
    model = {name: p.detach().clone() for name, p in member.learner.model.named_parameters()}
    ctx.save((model, slot.obs.clone(), slot.action.clone(), member.learner.rng.get_state()))
    member.close()
    env.close()


@pytest.mark.parametrize("name", FIGURES)
def test_learners_begin_alike_and_act_apart(name: str) -> None:
    watcher = Watcher()
    program = figure(name, a_task(rollout_length=30), num_envs=4).with_loops({act_and_learn: begin})
    Simulation(1)(program, watcher)
    models, observed, acted, streams = zip(
        *(state for state in watcher.saved.values() if isinstance(state, tuple)), strict=True
    )
    assert len(models) == LEARNERS
    for model in models[1:]:
        assert all(torch.equal(model[key], models[0][key]) for key in models[0])
    for i in range(LEARNERS):
        for j in range(i):
            assert not torch.equal(observed[i], observed[j])
            assert not torch.equal(acted[i], acted[j])
            assert not torch.equal(streams[i], streams[j])


@algorithms
@pytest.mark.parametrize("launch", [Simulation(0), threads], ids=["simulation", "threads"])
@pytest.mark.parametrize("name", FIGURES)
def test_steps_are_shared_and_so_is_the_schedule_of_the_learning_rate(
    name: str, launch: Any, algorithm: Algorithm
) -> None:
    # Rollouts of 4 steps of 2 environments; 4 learners of 10 rollouts each. The rate falls over all their steps.
    watcher = ByMember(steps=4 * 2 * LEARNERS * 10)
    launch(figure(name, a_task(algorithm=algorithm, rollout_length=4, rate=0.01, anneal_steps=400)), watcher)
    assert len(watcher.reports) == LEARNERS
    every = [report for reports in watcher.reports.values() for report in reports]
    assert [r.steps for r in every] == [r.learned for r in every] == [8] * 10 * LEARNERS
    rates = [0.01 * (1 - 8 * i / 400) for i in range(10 * LEARNERS)]  # each rollout at its position in the budget
    assert sorted(r.metrics["learning_rate"] for r in every) == pytest.approx(sorted(rates))
    traffic = [part for r in every for part in r.exchange if isinstance(part, Traffic)]
    each = 1 if isinstance(algorithm, A2C) else 4
    assert sum(part.iterations for part in traffic) == len(every) * each  # an exchange after every optimiser step
    assert watcher.budget.acted == watcher.budget.total


@pytest.mark.parametrize("name", FIGURES)
def test_what_is_given_reaches_the_exchange(name: str) -> None:
    watcher = ByMember(steps=4 * 2 * LEARNERS * 12)
    task = a_task(rollout_length=4)
    options = {"graph": Exponential(), "mixing": PushSum(), "staleness": 1, "period": 6, "window": 2}
    Simulation(3)(figure(name, task, **options), watcher)
    traffic = [part for rs in watcher.reports.values() for r in rs for part in r.exchange if isinstance(part, Traffic)]
    cuts = [part for rs in watcher.reports.values() for r in rs for part in r.exchange if isinstance(part, Cut)]
    assert sum(part.sent for part in traffic) > 1.5 * sum(part.iterations for part in traffic)  # two receivers
    assert any(part.weight != 1.0 for part in traffic)
    assert max(k for part in traffic for k in part.staleness) <= 1
    assert {cut.epoch for cut in cuts} >= {0, 1, 2, 3}


@pytest.mark.parametrize("diagnostics", [True, False])
@pytest.mark.parametrize("architecture", [GALA, PALA])
def test_observation_windows_can_be_switched_off(architecture: type[GALA | PALA], diagnostics: bool) -> None:
    watcher = ByMember()
    task = a_task(rollout_length=4)
    Simulation(0)(architecture(num_envs=2, diagnostics=diagnostics).program(task), watcher)
    parts = [part for reports in watcher.reports.values() for report in reports for part in report.exchange]
    assert any(isinstance(part, Cut) for part in parts) == diagnostics
    assert sum(part.sent for part in parts if isinstance(part, Traffic)) > 0  # messages are counted in any case


@pytest.mark.parametrize("name", FIGURES)
def test_members_stay_together(name: str) -> None:
    watcher = ByMember(steps=4 * 2 * LEARNERS * 40)
    Simulation(2)(figure(name, a_task(rollout_length=4), lock_step=True), watcher)
    states = [state for state in watcher.saved.values() if "learner" in state]
    models = [state["learner"]["model"] for state in states]
    vectors = torch.stack([torch.cat([p.flatten() for p in model.values()]) for model in models])
    spread = (vectors - vectors.mean(0)).norm(dim=1).max() / vectors.mean(0).norm()
    assert 0 < spread < 0.05
    optimisers = [state["learner"]["optimizer"]["0"]["exp_avg"] for state in states]
    assert not torch.allclose(optimisers[0], optimisers[1])  # each one's own


class Level:
    """A game of one step: it shows a number drawn at its first reset, and pays it."""

    spec = Spec((1,), np.dtype(np.float32), Discrete(2))

    def __init__(self, num_envs: int) -> None:
        self._level = np.zeros(num_envs)

    def begin(self, where: Array, rng: np.random.Generator) -> None:
        if not self._level.any():
            self._level[:] = rng.normal()

    def play(self, action: Array, rng: np.random.Generator) -> tuple[Array, Array, Array]:
        ended = np.ones(len(self._level), bool)
        return self.observe()[:, 0], ended, ~ended

    def observe(self) -> Array:
        return self._level[:, None].astype(np.float32)

    def board(self) -> Array:
        return np.zeros((len(self._level), 1, 1))

    def state(self) -> dict[str, Array]:
        return {"level": self._level}


@dataclass(frozen=True)
class Levels:
    """Environments of which each member has other ones."""

    name = "levels"

    def make(self, num_envs: int, *, workers: int = 0, render: bool = False) -> VectorEnv:
        return ToyVector(partial(Level, num_envs), num_envs)


@pytest.mark.parametrize("name", FIGURES)
def test_members_share_their_running_statistics(name: str) -> None:
    # Rollout n moves a member's mean by 1 / n of its distance to the member's own level; each exchange on the ring of 4
    # multiplies the distances between members by about cos(pi / 4) = 0.7. After 40 rollouts all are some hundredths of
    # the levels' spread from the mean of all levels. Members that share nothing would have their own level and, as it
    # never changes, variance 0.
    watcher = ByMember(steps=4 * 2 * LEARNERS * 40)
    task = a_task(Levels(), rate=0.0, rollout_length=4, normalize_observations=True, normalize_returns=True)
    Simulation(0)(figure(name, task, lock_step=True), watcher)
    members = [state for state in watcher.saved.values() if "learner" in state]
    levels = [float(state["actor"]["env"]["game"]["level"][0]) for state in members]
    spread = max(levels) - min(levels)
    assert spread > 1
    for which in ("centre", "value"):  # of observations and of returns
        means, variances = (
            [float(state["learner"]["model"][f"{which}.moments.{moment}"]) for state in members]
            for moment in ("mean", "variance")
        )
        assert means == pytest.approx([sum(levels) / LEARNERS] * LEARNERS, abs=0.05 * spread)
        assert variances == pytest.approx([sum(variances) / LEARNERS] * LEARNERS, rel=0.1)
        assert min(variances) > 0.1


@pytest.mark.parametrize("name", FIGURES)
def test_catch_is_solved_with_the_default_settings(name: str, tmp_path: Path) -> None:
    run = solved(tmp_path / "run", name, stop_at_return=0.85, steps=150_000)
    windows = json.loads((run.directory / "gossip.json").read_text())["windows"]
    assert windows  # and in all of them members were as near to each other as the theory has it
    assert all(0 < window["distance"] <= window["bound"] for window in windows)
