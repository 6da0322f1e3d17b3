"""Every architecture learns in the simulation as it does elsewhere, and bfloat16 as float32 does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from some_runs import learned

from gossamer.config.names import ARCHITECTURES
from gossamer.launch.simulation import Network, Simulation
from gossamer.training import experiment


@pytest.mark.long
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_pictures(precision: str, tmp_path: Path) -> None:
    learned(
        tmp_path, "paac", env="catch-pixels", algorithm="ppo", network="small", steps=60_000, stop_at_return=0.8,
        precision=precision, least=0.7,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("name", "algorithm", "steps"),
    [
        pytest.param("paac", "pqn", 150_000, marks=pytest.mark.long),
        pytest.param("gala", "pqn", 150_000, marks=pytest.mark.long),
        pytest.param("paac", "nstep-q", 150_000, marks=pytest.mark.long),
        pytest.param("paac", "dqn", 150_000, marks=pytest.mark.long),
        pytest.param("gala", "dqn", 150_000, marks=pytest.mark.long),
        pytest.param("gala", "nstep-q", 150_000, marks=pytest.mark.long),
        *(
            pytest.param("a3c", algorithm, 150_000, marks=pytest.mark.long)
            for algorithm in ("a2c", "nstep-q", "one-step-q", "sarsa", "dqn")
        ),
    ],
)
def test_catch_is_learned_with_the_default_settings(name: str, algorithm: str, steps: int, tmp_path: Path) -> None:
    learned(tmp_path, name, algorithm=algorithm, steps=steps)


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "algorithm", "least"),
    [
        ("paac", "pqn", 475),
        ("paac", "nstep-q", 475),
        ("a3c", "nstep-q", 200),
        ("a3c", "one-step-q", 200),
        ("a3c", "sarsa", 200),
    ],
)
def test_cart_pole_is_learned_from_action_values_with_the_default_settings(
    name: str, algorithm: str, least: float, tmp_path: Path
) -> None:
    learned(tmp_path, name, env="CartPole-v1", algorithm=algorithm, least=least, episodes=20, greedy=True)


@pytest.mark.long
@pytest.mark.parametrize("name", ["a2c", "ga3c", "r2d2"])  # others have tests of their own
def test_catch_is_learned_in_threads_with_no_other_option(name: str, tmp_path: Path) -> None:
    learned(tmp_path, name, steps=150_000)


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "given"),
    [*((name, {}) for name in ARCHITECTURES), ("impala", {"hosts": 1}), ("appo", {"hosts": 1})],
    ids=str,
)
def test_catch_is_learned_in_the_simulation_with_the_default_settings(
    name: str, given: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Of 100 games of Catch, each 1 or -1, a mean of 0.8 is 10 lost.
    simulation = Simulation(1, Network(latency=0.01, bandwidth=1e8))
    monkeypatch.setattr(experiment, "threads", simulation)
    learned(tmp_path, name, steps=150_000, **given)
    assert simulation.trace or name == "paac"  # paac has no services
