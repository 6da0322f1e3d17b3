"""What agents learn with memory, and do not learn without."""

from __future__ import annotations

from pathlib import Path

import pytest
from some_runs import rows

import gossamer


def returns(tmp_path: Path, steps: int, memory: str) -> float:
    """The mean return of 200 episodes of `recall` (a cue, 20 steps, the answer) after training."""
    run = gossamer.train(
        "paac", env="recall", algorithm="ppo", steps=steps, memory=memory, memory_units=64, threads=1, run_dir=tmp_path
    )
    return gossamer.evaluate(run.directory, episodes=200).mean_return


def test_a_cue_is_remembered_for_twenty_steps(tmp_path: Path) -> None:
    assert returns(tmp_path, 110_000, "lstm") >= 0.95


def test_without_memory_the_answer_is_a_guess(tmp_path: Path) -> None:
    # 200 guesses: 0.5 with a standard deviation of 0.035; 0.65 is four of them
    assert returns(tmp_path, 20_000, "none") < 0.65


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
    assert any(
        row.get("gossip/distance") is not None or row.get("gossip/kl") is not None for row in rows(run.directory)
    )
    assert gossamer.evaluate(run.directory, episodes=4).episodes == 4
