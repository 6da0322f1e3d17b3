"""What workers do is read from the kinds of their arguments, in every architecture."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from some_parts import a_task

from gossamer.algorithms import A2C, VTrace
from gossamer.algorithms.base import ReplayPlan
from gossamer.architectures import APPO, GALA, IMPALA, PAAC, PALA
from gossamer.config.build import learners, num_envs, task, unresolved
from gossamer.config.resolve import configure
from gossamer.exchange import Alone
from gossamer.experience import Demand, Direct
from gossamer.loops import Envs, Role, role
from gossamer.policy import Replica
from gossamer.program import Program
from gossamer.runtime import Context
from gossamer.tools.parts import Crew


class Drawing(A2C):
    """Learns from windows of 3 steps, drawn from a memory: 32 for each batch, 8 for each step."""

    def replay_plan(self) -> ReplayPlan:
        return ReplayPlan(capacity=5000, batch_size=32, window=3, samples_per_insert=8.0, learning_starts=100)


OFF_POLICY = a_task(algorithm=VTrace())
TOGETHER = Role(Envs(6, 3), Demand(batch_envs=6, rollout_envs=6))
DRAWN = Role(
    Envs(6, 3), Demand(batch_envs=32, rollout_envs=6, passes=8.0, window=3, stored=5000, capacity=5000, starts=100)
)
# 8 environments of 2 actors are 4 of each, and a batch is one rollout of each actor. Depth 3: 3 batches are held.
QUEUED = Demand(batch_envs=8, rollout_envs=24, depth=3)
# A host's 8 environments are shared by 2 actors for each of 2 learners: 2 of each. 12 rollouts are a batch of 24. Half
# of what is learned from is replayed, and each batch is used twice: each step is learned from 2 / (1 - 0.5) = 4 times.
REPLAYED = Demand(batch_envs=24, rollout_envs=72, passes=4.0, depth=3, elsewhere=50)
ACTORS: dict[str, Any] = {"actors": 2, "num_envs": 8, "env_workers": 1, "depth": 3}
APART: dict[str, Any] = {
    "hosts": 2, "learners": 2, "actors": 2, "num_envs": 8, "batch_rollouts": 12, "depth": 3, "reuse": 2,
    "replay_share": 0.5, "replay_size": 50,
}  # fmt: skip


@pytest.mark.parametrize(
    ("wired", "expected"),
    [
        (lambda: PAAC(num_envs=6, env_workers=3).program(a_task()), {"act_and_learn": TOGETHER}),
        (
            lambda: PAAC(num_envs=6, env_workers=3).program(a_task(algorithm=Drawing())),
            {"act_and_learn": DRAWN},
        ),
        (lambda: GALA(learners=2, num_envs=6, env_workers=3).program(a_task()), {"act_and_learn": TOGETHER}),
        (
            lambda: PALA(hosts=2, learners=2, num_envs=6, env_workers=3).program(a_task()),
            {"act_and_learn": TOGETHER, "carry": Role(), "watch": Role()},
        ),
        (lambda: IMPALA(**ACTORS).program(OFF_POLICY), {"act": Role(Envs(4, 1)), "learn": Role(demand=QUEUED)}),
        (
            lambda: APPO(parallel_loading=True, **ACTORS).program(OFF_POLICY),
            {"act": Role(Envs(4, 1)), "learn": Role(demand=QUEUED), "load": Role()},
        ),
        (
            lambda: IMPALA(**APART).program(OFF_POLICY),
            {
                "act": Role(Envs(2)),
                "learn": Role(demand=REPLAYED),
                "fetch": Role(),
                "watch": Role(),
                "beat": Role(),
            },
        ),
        (
            lambda: IMPALA(policy="served", **ACTORS).program(OFF_POLICY),
            {
                "act": Role(Envs(4, 1), served=True),
                "learn": Role(demand=QUEUED),
                "predict": Role(predicts=True),
                "end_requests": Role(),
            },
        ),
    ],
    ids=[
        "paac",
        "paac with a replay memory",
        "gala",
        "pala",
        "impala",
        "appo with a loader",
        "impala between hosts",
        "impala, served",
    ],
)
def test_every_worker_of_an_architecture_has_its_role(wired: Callable[[], Program], expected: dict[str, Role]) -> None:
    found = [(worker.make.__name__, role(worker)) for worker in wired().workers]
    assert {name for name, _ in found} == expected.keys()
    for name, each in found:
        assert each == expected[name]


@pytest.mark.parametrize(
    ("policy", "sharing"),
    [
        ({}, 4),  # a learner and three actors
        ({"policy": "served", "predictors": 2}, 3),  # a learner and two predictors
    ],
    ids=["replica", "served"],
)
def test_workers_that_evaluate_a_network_share_the_cores(policy: dict[str, Any], sharing: int) -> None:
    assert task(configure("impala", env="catch", actors=3, num_envs=6, **policy)).sharing == sharing


def loop(ctx: Context, *given: Any, **named: Any) -> None: ...


@pytest.mark.parametrize(
    ("given", "named", "expected"),
    [
        ((Replica(), Direct(), Alone()), {"envs": Envs(6, 3)}, TOGETHER),
        ((), {"plays": Envs(6, 3), "how": Replica(), "learns": Direct(), "with_others": Alone()}, TOGETHER),
        ((Direct(), Envs(6, 3)), {}, TOGETHER),
        ((Direct(),), {}, Role(demand=Demand(batch_envs=0, rollout_envs=0))),
        ((), {"num_envs": 6, "env_workers": 3, "batching": 2, "experience": "direct", "envs": 6}, Role()),
    ],
    ids=["as it is", "other names", "without names", "without environments", "names alone"],
)
def test_the_names_of_arguments_mean_nothing(given: tuple[Any, ...], named: dict[str, Any], expected: Role) -> None:
    program = Program("renamed")
    program.worker(loop)(*given, **named)
    assert role(program.workers[0]) == expected


def test_settings_are_counted_by_roles() -> None:
    together = unresolved(configure("pala", env="catch", hosts=3, learners=2, num_envs=6))
    assert (learners(together), num_envs(together)) == (6, 6)
    apart = unresolved(configure("impala", env="catch", **APART))
    assert (learners(apart), num_envs(apart)) == (2, 2)


def test_the_crew_of_a_measurement_is_counted_by_roles() -> None:
    assert Crew.of(unresolved(configure("gala", env="catch", learners=2, num_envs=6, env_workers=0))) == Crew(
        actors=2, num_envs=6, env_workers=0, learners=2, columns=6, window=0, passes=1.0, apart=False
    )
    assert Crew.of(unresolved(configure("impala", env="catch", **APART))) == Crew(
        actors=8, num_envs=2, env_workers=0, learners=2, columns=24, window=0, passes=4.0, apart=True
    )
    drawn = replace(configure("paac", env="catch", num_envs=6, env_workers=0), algorithm=Drawing())
    assert Crew.of(unresolved(drawn)) == Crew(
        actors=1, num_envs=6, env_workers=0, learners=1, columns=32, window=3, passes=8.0, apart=False
    )
