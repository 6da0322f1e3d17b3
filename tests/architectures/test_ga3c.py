"""GA3C: with predictors and trainers in turn it is PAAC to the bit; parked workers; what is refused."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from some_parts import Slow, Watcher, a_task, differences
from some_rollouts import Recorded, recorded
from sweeps import sweep

import gossamer
from gossamer import cli
from gossamer.algorithms import A2C, DQN, NStepQ, SarsaLambda, VTrace
from gossamer.architectures import GA3C, IMPALA, PAAC
from gossamer.envs.toy import Catch, Counter
from gossamer.launch.simulation import Faults, Simulation
from gossamer.launch.threads import threads
from gossamer.loops import act
from gossamer.runtime import Context
from gossamer.system.errors import UserError
from gossamer.task import Task

STEPS, ENVS = 480, 4
IN_TURN: dict[str, Any] = {"min_batch": ENVS, "batch_timeout": 5.0, "queue_size": 0}


def task(**given: Any) -> Task:
    return a_task(Counter(5, truncate=True), A2C(), memory_units=8, **given)


@pytest.mark.parametrize("memory", ["none", "lstm"])
@pytest.mark.parametrize("launch", [threads, Simulation(1)], ids=["threads", "simulation"])
def test_one_agent_learns_what_paac_learns_to_the_bit(launch: Any, memory: str) -> None:
    """Its rollouts are those of PAAC: one agent with all environments. Truncated episodes, whose last reward counts."""
    paac, ga3c = Watcher(steps=STEPS), Watcher(steps=STEPS)
    launch(PAAC(num_envs=ENVS, env_workers=0).program(task(memory=memory)), paac)
    program = GA3C(agents=1, num_envs=ENVS, env_workers=0, **IN_TURN).program(task(memory=memory))
    launch(program, ga3c)
    assert differences(paac.saved["act_and_learn"]["learner"], ga3c.saved["learn"]["learner"]) == []
    assert {behind for report in ga3c.records for behind in report.lag} == {0}


@pytest.mark.parametrize("agents", [2, 4])
@pytest.mark.parametrize("memory", ["none", "lstm"])
@pytest.mark.parametrize("launch", [threads, Simulation(1)], ids=["threads", "simulation"])
def test_each_of_several_agents_acts_as_an_actor_with_its_own_network(launch: Any, memory: str, agents: int) -> None:
    """To the bit, at learning rate 0, with a request for each step of each agent. The actors are simulated: as a
    thread, one that begins after an update has other random streams."""
    learning = a_task(Catch(), Recorded(), rate=0.0, memory=memory, memory_units=8)
    several: dict[str, Any] = {"num_envs": ENVS * agents, "env_workers": 0}
    ga3c = recorded(launch, GA3C(agents=agents, **several, **IN_TURN, max_batch=ENVS).program(learning), rollouts=10)
    actors = recorded(Simulation(1), IMPALA(actors=agents, **several).program(learning), rollouts=10)
    assert ga3c == actors
    assert ga3c.total() == 10 * ENVS * agents


def test_several_agents_in_turn_learn_what_actors_of_impala_learn() -> None:
    """With a batch of one rollout of each, which all agents wait for. Their observations are evaluated together."""
    impala, ga3c = Watcher(steps=64), Watcher(steps=64)  # four updates: later, rounding makes other actions
    learning = a_task(Catch(), VTrace())
    several: dict[str, Any] = {"num_envs": ENVS, "env_workers": 0}
    Simulation(1)(IMPALA(actors=2, depth=1, **several).program(learning), impala)
    Simulation(1)(GA3C(agents=2, min_rollouts=2, **IN_TURN, **several).program(learning), ga3c)
    ours, theirs = (each.saved["learn"]["learner"]["model"] for each in (ga3c, impala))
    for name, value in theirs.items():  # the order of the environments in a batch may differ
        torch.testing.assert_close(ours[name], value, rtol=1e-4, atol=1e-5)
    assert {behind for report in ga3c.records for behind in report.lag} == {0}


@pytest.mark.parametrize("launch", [threads, Simulation(1)], ids=["threads", "simulation"])
def test_agents_predictors_and_trainers_are_parked_and_every_step_is_acted(launch: Any) -> None:
    watcher = Watcher(steps=STEPS)
    ga3c = GA3C(agents=2, predictors=2, trainers=2, num_envs=ENVS, env_workers=0, adjust_seconds=0.05, most=2)
    program = ga3c.program(task())
    assert len(program.crew) == 4 + 4 + 4 + 1
    launch(program, watcher)
    assert sum(report.steps for report in watcher.records) == STEPS
    assert sum(report.learned for report in watcher.records) == STEPS


class Released(Watcher):
    """An observer that takes back what dead workers had leased."""

    deaths = 0  # of workers

    def died(self, worker: str) -> None:
        self.deaths += 1
        self.budget.release(worker)


def slow_act(ctx: Context, *args: Any, **given: Any) -> None:
    act(Slow(ctx), *args, **given)  # type: ignore[arg-type]


@pytest.mark.parametrize("memory", ["none", "lstm"])
@sweep(200, 2)
def test_a_host_that_fails_goes_on(memory: str, seeds: range) -> None:
    for seed in seeds:
        rng, watcher = random.Random(seed), Released(steps=160)
        crashes = [(4 * rng.random(), "machine", 0.1) for _ in range(2)]
        ga3c = GA3C(
            agents=2, predictors=2, trainers=2, num_envs=ENVS, env_workers=0, min_rollouts=rng.choice([1, 2]),
            adjust_seconds=rng.choice([0.0, 0.5]),
        )  # fmt: skip
        given = replace(task(memory=memory), groups=rng.choice([1, 2]))
        program = ga3c.program(given).with_loops({act: slow_act})
        Simulation(seed, faults=Faults(crashes=crashes), patience=100.0)(program, watcher)
        assert watcher.deaths > 0, seed
        assert sum(report.steps for report in watcher.records) == 160, seed


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            {"min_rollouts": 9},
            "--min-rollouts 9: 4 agents and --queue-size 0 have 4 rollouts .* use --queue-size 5",
        ),
        ({"min_rollouts": 4, "max_rollouts": 3}, "--min-rollouts 4: must be at most --max-rollouts 3"),
        ({"min_batch": 17}, "--min-batch 17: must be at most 16, the environments of the agents of a learner"),
        ({"max_batch": 3}, "--max-batch 3: must be at least 4, .* use more --agents"),
        ({"num_envs": 2}, "--num-envs 2: fewer environments than --agents 4; each of the agents needs one or more"),
    ],
)
def test_what_cannot_run_is_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(UserError, match=said):
        GA3C(**options).program(task())


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--policy served", "--policy served: not an option of ga3c, whose agents are always served; leave it out"),
        ("--policy replica", "--policy replica: not an option of ga3c, whose agents are always served; leave it out"),
        ("--predictors 0", "--predictors 0: must be at least 1"),
        ("--trainers 0", "--trainers 0: must be at least 1"),
    ],
)
def test_the_command_line_refuses_in_a_line(
    words: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", ["gossamer", "train", "ga3c", "--env", "catch", *words.split()])
    assert cli.main() == 2
    told = capsys.readouterr().err.strip().splitlines()
    assert len(told) == 1
    assert said in told[0]
    assert list(tmp_path.iterdir()) == []


def test_an_algorithm_with_a_replay_memory_is_refused() -> None:
    with pytest.raises(UserError, match="--algorithm dqn: learns from a replay memory, which ga3c has not"):
        GA3C().program(a_task(Catch(), DQN()))


def test_an_algorithm_with_traces_is_refused() -> None:
    """A trainer's batch has any agents' rollouts: traces would be those of other environments."""
    with pytest.raises(UserError, match=r"--algorithm sarsa-lambda: keeps traces .* use paac, a2c, gala or sarsa"):
        GA3C().program(a_task(Catch(), SarsaLambda()))


def test_epsilons_of_environments_need_a_number_of_agents_that_stays() -> None:
    given = a_task(Catch(), NStepQ(exploration="mixed"))
    with pytest.raises(UserError, match=r"--exploration mixed: .* --adjust-seconds changes how many .* schedule"):
        GA3C(adjust_seconds=20.0).program(given)
    GA3C().program(given)


def test_running_statistics_need_a_single_trainer(tmp_path: Path) -> None:
    options: dict[str, Any] = {"env": "catch", "normalize_returns": True, "steps": 100, "run_dir": tmp_path / "run"}
    with pytest.raises(UserError, match="--normalize-returns: not available with shared parameters"):
        gossamer.train("ga3c", trainers=2, **options)
    assert not (tmp_path / "run").exists()
