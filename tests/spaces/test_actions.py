"""Every kind of action is learned, gossips, resumes and is evaluated."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from some_runs import rows

import gossamer

# Bandits: one step to an episode, and a reward that is 0 for the best action and below it for any other.
BANDITS = """
import gymnasium, numpy as np
from gymnasium.spaces import Box, Discrete, MultiBinary, MultiDiscrete

class Bandit(gymnasium.Env):
    observation_space = Box(-1, 1, (1,), np.float32)
    def __init__(self, space, best, render_mode):
        self.action_space, self.best, self.render_mode = space, np.asarray(best, np.float64), render_mode
    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.ones(1, np.float32), {}
    def step(self, action):
        loss = np.abs(np.asarray(action, np.float64) - self.best).sum()
        return np.ones(1, np.float32), -float(loss), True, False, {}
    def render(self):
        return np.zeros((16, 16, 3), np.uint8)

def discrete(render_mode=None):
    return Bandit(Discrete(5), 3, render_mode)

def multi_discrete(render_mode=None):
    return Bandit(MultiDiscrete([3, 4]), [2, 1], render_mode)

def multi_binary(render_mode=None):
    return Bandit(MultiBinary(4), [1, 0, 0, 1], render_mode)

def box(render_mode=None):
    return Bandit(Box(np.array([-1, -2]), np.array([1, 2]), dtype=np.float32), [0.5, -1.2], render_mode)
"""
REUSED: dict[str, Any] = {"reuse": 2, "depth": 3, "replay_share": 0.5}
KINDS = ["discrete", "multi_discrete", "multi_binary", "box"]
kinds = pytest.mark.parametrize("kind", KINDS)


@pytest.fixture(autouse=True)
def _bandits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bandits.py").write_text(BANDITS)
    monkeypatch.syspath_prepend(tmp_path)


def trained(tmp_path: Path, kind: str, architecture: str = "paac", **given: Any) -> gossamer.Run:
    options: dict[str, Any] = {"algorithm": "ppo", "threads": 1, **given}
    return gossamer.train(architecture, env=f"bandits:{kind}", run_dir=tmp_path / "run", overwrite=True, **options)


@kinds
@pytest.mark.parametrize(("algorithm", "rate"), [("a2c", 0.01), ("ppo", 0.003)])
def test_the_best_action_is_found(tmp_path: Path, kind: str, algorithm: str, rate: float) -> None:
    # Random actions lose 1.4 or more on average. A normal policy with little deviation left loses some hundredths
    goal = None if kind == "box" else -0.2
    run = trained(tmp_path, kind, algorithm=algorithm, steps=40_000, learning_rate=rate, stop_at_return=goal)
    assert gossamer.evaluate(run.directory, episodes=50, greedy=True).mean_return > -0.1


GRU: dict[str, Any] = {"memory": "gru", "memory_units": 8}
SHORT: dict[str, Any] = {"rollout_length": 8, "steps": 320, "num_envs": 4, "epochs": 1, "num_minibatches": 2}


def check_finite(run: gossamer.Run) -> None:
    """The run has reached its end, and learned numbers that can be evaluated."""
    assert run.result["ended"] == "all steps done"
    losses = [row["loss"] for row in rows(run.directory) if row.get("loss") is not None]
    assert losses
    assert all(map(math.isfinite, losses))
    assert math.isfinite(gossamer.evaluate(run.directory, episodes=4).mean_return)


@kinds
@pytest.mark.parametrize(
    ("architecture", "given"),
    [
        ("impala", {"algorithm": "vtrace", **GRU, **REUSED}),
        ("appo", {"algorithm": "appo"}),
        ("appo", {"algorithm": "appo", **GRU, **SHORT}),
    ],
    ids=["impala", "appo", "appo with memory"],
)
def test_actions_pass_through_the_queue(tmp_path: Path, kind: str, architecture: str, given: dict[str, Any]) -> None:
    check_finite(trained(tmp_path, kind, architecture, **{"steps": 1_000, "num_envs": 4, **given}))


@pytest.mark.parametrize("kind", ["discrete", "box"])
@pytest.mark.parametrize("memory", [{}, GRU], ids=["", "memory"])
@pytest.mark.parametrize("surrogate", ["impact", "behaviour"])
def test_every_surrogate_learns_from_older_batches_with_memory_and_continuous_actions(
    tmp_path: Path, kind: str, memory: dict[str, Any], surrogate: str
) -> None:
    given = {"algorithm": "appo", "surrogate": surrogate, "target_period": 3, **memory, **REUSED, **SHORT}
    check_finite(trained(tmp_path, kind, "appo", **given))


@kinds
@pytest.mark.parametrize("architecture", ["paac", "gala", "pala"])
def test_a_run_resumes_plays_and_its_members_compare_policies(tmp_path: Path, kind: str, architecture: str) -> None:
    bounded = {"sync": "bounded", "staleness": 4, "interval": 1}
    members = {"paac": {}, "gala": {"learners": 2, **bounded}, "pala": {"learners": 1, **bounded}}[architecture]
    run = trained(tmp_path, kind, architecture, steps=400, num_envs=4, rollout_length=8, **members)
    kl = [row["gossip/kl"] for row in rows(run.directory) if row.get("gossip/kl") is not None]
    assert bool(kl) == bool(members)
    assert all(0 <= each < 1 for each in kl)
    again = gossamer.resume(run.directory, steps=600, final_fraction=0.1)
    assert again.result["steps"] >= 600
    assert gossamer.evaluate(run.directory, episodes=5).episodes == 5
    film = gossamer.record(run.directory, out=tmp_path / "film.gif")
    assert film.steps == 1
    assert film.path.stat().st_size > 0
