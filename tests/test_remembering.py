"""What agents learn with memory, and do not learn without."""

from __future__ import annotations

from pathlib import Path

import pytest
from some_runs import learned, rows

import gossamer


def trained(tmp_path: Path, memory: str, steps: int) -> Path:
    """The directory of a training on `recall` (a cue, 20 steps, the answer)."""
    units = {} if memory == "none" else {"memory_units": 64}
    run = gossamer.train(
        "paac", env="recall", algorithm="ppo", steps=steps, memory=memory, threads=1,
        run_dir=tmp_path / "run", log="none", **units,
    )  # fmt: skip
    return run.directory


def test_a_cue_is_remembered_for_twenty_steps_also_in_films(tmp_path: Path) -> None:
    run = trained(tmp_path, "lstm", 110_000)
    assert gossamer.evaluate(run, episodes=200, greedy=True).mean_return >= 0.95
    films = [gossamer.record(run, out=tmp_path / "film.gif", greedy=True, seed=seed) for seed in range(10)]
    assert sum(film.score for film in films) >= 9  # guesses do that in 1 % of cases


def test_without_memory_the_answer_is_a_guess(tmp_path: Path) -> None:
    # 200 guesses: 0.5 with a standard deviation of 0.035; 0.15 is four of them
    run = trained(tmp_path, "none", 40_000)
    assert gossamer.evaluate(run, episodes=200).mean_return == pytest.approx(0.5, abs=0.15)


def test_a_cue_is_remembered_with_action_values_of_sequences(tmp_path: Path) -> None:
    learned(
        tmp_path, "dqn", env="recall", algorithm="r2d2", steps=20_000, stop_at_return=0.9, least=0.95, episodes=200,
        greedy=True,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("algorithm", "steps"),
    [
        ("pqn", 60_000),
        *(pytest.param(each, 120_000, marks=pytest.mark.long) for each in ("nstep-q", "one-step-q", "sarsa")),
    ],
)
def test_a_cue_is_remembered_with_action_values_of_rollouts(tmp_path: Path, algorithm: str, steps: int) -> None:
    """To the end of the run: a policy is unsteady when it first remembers."""
    learned(
        tmp_path, "paac", env="recall", algorithm=algorithm, steps=steps, memory="lstm", threads=1, least=0.95,
        episodes=200, greedy=True,
    )  # fmt: skip


@pytest.mark.long
def test_a_cue_is_remembered_by_the_architecture_r2d2(tmp_path: Path) -> None:
    """To the end of the run: some environments explore to the end, and a policy is unsteady when it first remembers."""
    learned(tmp_path, "r2d2", env="recall", steps=60_000, least=0.95, episodes=200, greedy=True)


def test_without_memory_action_values_do_not_tell_the_cue(tmp_path: Path) -> None:
    run = gossamer.train("dqn", env="recall", algorithm="dqn", steps=20_000, run_dir=tmp_path / "run", log="none")
    assert gossamer.evaluate(run.directory, episodes=200).mean_return == pytest.approx(0.5, abs=0.15)


@pytest.mark.long
def test_catch_is_learned_by_r2d2_with_the_default_settings(tmp_path: Path) -> None:
    learned(tmp_path, "dqn", algorithm="r2d2", steps=150_000)


@pytest.mark.parametrize("architecture", ["gala", "pala"])
def test_members_with_memory_gossip_and_are_compared(tmp_path: Path, architecture: str) -> None:
    options = {"learners": 2, "num_envs": 4, "rollout_length": 8, "threads": 1, "memory_units": 8}
    run = gossamer.train(
        architecture,
        env="recall",
        algorithm="ppo",
        steps=2_000,
        memory="gru",
        num_minibatches=2,
        run_dir=tmp_path,
        **options,
    )
    for figure in ("gossip/distance", "gossip/kl"):
        assert any(row.get(figure) is not None for row in rows(run.directory)), figure
    assert gossamer.evaluate(run.directory, episodes=4).episodes == 4


@pytest.mark.long
def test_a_cue_is_remembered_with_a2c_and_default_options(tmp_path: Path) -> None:
    learned(tmp_path, "paac", env="recall", algorithm="a2c", steps=200_000, memory="lstm", least=0.95, episodes=200)


HIDDEN = """
import gymnasium, numpy as np

class Hidden(gymnasium.ObservationWrapper):
    "CartPole-v1 without its velocities: one observation does not say where the pole falls."
    def __init__(self, render_mode=None):
        super().__init__(gymnasium.make("CartPole-v1", render_mode=render_mode))
        space = self.env.observation_space
        self.observation_space = gymnasium.spaces.Box(space.low[[0, 2]], space.high[[0, 2]], dtype=np.float32)
    def observation(self, obs):
        return obs[[0, 2]]
"""


@pytest.mark.long
@pytest.mark.parametrize(("memory", "least", "most"), [("lstm", 475, 500), ("none", 0, 200)])
def test_cartpole_without_velocities_is_solved_with_memory_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, memory: str, least: float, most: float
) -> None:
    (tmp_path / "hidden.py").write_text(HIDDEN)
    monkeypatch.syspath_prepend(tmp_path)
    options = {"algorithm": "ppo", "memory": memory, "threads": 1} | ({"memory_units": 64} if memory == "lstm" else {})
    run = gossamer.train("paac", env="hidden:Hidden", steps=200_000, run_dir=tmp_path / "run", **options)
    assert least <= gossamer.evaluate(run.directory, episodes=50, greedy=True).mean_return <= most
