"""A run once more, from its `config.json`."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gossamer.commands.training import Place
from gossamer.config.composing import compose
from gossamer.config.config import Config, Control
from gossamer.config.file import flat, to_dict
from gossamer.config.resolve import configure, resolve
from gossamer.system.errors import UserError

GIVEN: dict[str, Any] = {"learners": 3, "epochs": 5, "steps": 5_000, "seed": 7, "hidden_sizes": (32, 16)}


def run(folder: Path, **given: Any) -> Config:
    """The configuration of a run in this folder."""
    config = configure("gala", env="catch", algorithm="ppo", optimizer="rmsprop-tf", **{**GIVEN, **given})
    (folder / "config.json").write_text(json.dumps(to_dict(config)))
    return config


def again(*words: str | Path) -> Config:
    """What `gossamer train` makes of these words."""
    typed = list(map(str, words))
    return resolve(compose(typed, prog="gossamer train", description="", command=(Place, Control)).choices)


@pytest.mark.parametrize("name", ["", "config.json"])
def test_a_run_is_repeated(tmp_path: Path, name: str) -> None:
    first = run(tmp_path, normalize_advantage=False, gamma=0.9)
    assert again("--config", tmp_path / name) == first
    assert again(f"--config={tmp_path / name}", "--run-dir", "x") == first


@pytest.mark.parametrize(
    "words",
    [
        "gala --env CartPole-v1 --learners 9 --learning-rate 0.003",
        "a2c --env CartPole-v1 --learners 4 --num-envs 16",
        "dqn --env CartPole-v1 --steps 1000000 --epsilon-steps 20000",
        "paac --env recall --memory lstm --num-envs 32",
        "paac --env CartPole-v1 --algorithm ppo --memory lstm --no-normalize-returns",
        "impala --env CartPole-v1 --replay-share 0.5 --no-parallel-loading",
        "gorila --env catch --preset paper",
        "apex --env catch --actors 2",
        "paac --env pong:2,breakout --num-envs 36",
    ],
)
def test_an_option_stays_though_a_rule_would_change_it(tmp_path: Path, words: str) -> None:
    first = again(*words.split())
    (tmp_path / "config.json").write_text(json.dumps(to_dict(first)))
    assert again("--config", tmp_path) == first


def test_options_that_are_typed_win(tmp_path: Path) -> None:
    first = run(tmp_path)
    second = again("--config", tmp_path, "--seed", "8", "--no-normalize-advantage")
    algorithm = replace(first.algorithm, normalize_advantage=False)  # type: ignore[type-var]
    assert second == replace(first.with_run(seed=8), algorithm=algorithm)


def test_what_follows_from_a_typed_option_does_not_change_others(tmp_path: Path) -> None:
    # With memory, PPO has another rate by default: the run's stays
    first, second = run(tmp_path), again("--config", tmp_path, "--memory", "gru")
    assert {name for name, value in flat(second).items() if value != flat(first)[name]} == {"memory"}


def test_the_learning_rate_falls_until_the_end_of_the_new_run(tmp_path: Path) -> None:
    run(tmp_path)
    longer = again("--config", tmp_path, "--steps", "9000")
    assert (longer.run.steps, longer.optimization.anneal_steps) == (9_000, 9_000)
    run(tmp_path, anneal_steps=4_000)
    assert again("--config", tmp_path, "--steps", "9000").optimization.anneal_steps == 4_000


def test_a_schedule_of_a_paper_is_not_taken_for_the_run_s(tmp_path: Path) -> None:
    """PAAC's paper has --steps 80000000 and names --anneal-steps, too."""
    short = configure("paac", env="catch", preset="paper", steps=1_000, anneal_steps=1_000)
    (tmp_path / "config.json").write_text(json.dumps(to_dict(short)))
    assert again("--config", tmp_path) == short
    (tmp_path / "config.json").write_text(json.dumps(to_dict(configure("paac", env="catch", preset="paper"))))
    shorter = again("--config", tmp_path, "--steps", "9000")
    assert (shorter.run.steps, shorter.optimization.anneal_steps) == (9_000, 9_000)


@pytest.mark.parametrize("words", [[], ["gala"], ["--algorithm", "ppo"]], ids=" ".join)
def test_a_preset_beside_a_run_is_refused(tmp_path: Path, words: list[str]) -> None:
    run(tmp_path)
    with pytest.raises(UserError, match=r"--preset paper: has no effect with --config, which .*; leave it out$"):
        again(*words, "--config", tmp_path, "--preset", "paper")


def test_another_algorithm_can_have_another_preset(tmp_path: Path) -> None:
    paper = configure("paac", env="catch", preset="paper", seed=7)
    (tmp_path / "config.json").write_text(json.dumps(to_dict(paper)))
    with pytest.raises(UserError, match="PAAC's paper has only a2c; omit --preset paper"):
        again("--config", tmp_path, "--algorithm", "ppo")
    other = flat(again("--config", tmp_path, "--algorithm", "ppo", "--preset", "tuned"))
    assert (other["algorithm"], other["preset"], other["seed"]) == ("ppo", "tuned", 7)


def test_another_architecture_takes_the_options_that_it_has(tmp_path: Path) -> None:
    run(tmp_path)
    other = flat(again("paac", "--config", tmp_path, "--algorithm", "a2c"))
    assert (other["architecture"], other["algorithm"], other["optimizer"]) == ("paac", "a2c", "rmsprop-tf")
    assert (other["seed"], other["hidden_sizes"]) == (7, (32, 16))
    assert not {"learners", "epochs"} & other.keys()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "cannot be read .*; give a run or its config.json"),
        ("[", "not the config.json of a run"),
        ("{}", "not the config.json of a run"),
        ('{"format": 99}', "format 99: written by a later version"),
    ],
)
def test_what_is_no_configuration_is_refused(tmp_path: Path, content: str | None, message: str) -> None:
    if content is not None:
        (tmp_path / "config.json").write_text(content)
    with pytest.raises(UserError, match=f"--config {tmp_path}: {message}"):
        again("--config", tmp_path)


def test_keyword_arguments_belong_to_their_environment(tmp_path: Path) -> None:
    options: dict[str, Any] = {"env": "FrozenLake-v1", "env_kwargs": {"map_name": "8x8", "is_slippery": False}}
    first = configure("paac", **options)
    (tmp_path / "config.json").write_text(json.dumps(to_dict(first)))
    assert again("--config", tmp_path) == first
    smaller = again("--config", tmp_path, "--env-kwargs", "map_name=4x4")
    assert flat(smaller)["env_kwargs"] == {"map_name": "4x4"}
    assert not flat(again("--config", tmp_path, "--env", "CartPole-v1"))["env_kwargs"]


def test_what_has_no_effect_in_the_new_run_is_left_out(tmp_path: Path) -> None:
    """Rules have written it into the file, or a typed option takes its place."""
    (tmp_path / "config.json").write_text(json.dumps(to_dict(configure("apex", env="catch"))))
    assert flat(again("--config", tmp_path, "--steps", "100000"))["exploration"] == "by-environment"
    (tmp_path / "config.json").write_text(json.dumps(to_dict(configure("gorila", env="catch", bundles=8))))
    assert flat(again("--config", tmp_path, "--actors", "2"))["actors"] == 2


def test_a_part_that_was_copied_brings_no_option_without_effect() -> None:
    old = configure("apex", env="catch").algorithm
    assert configure("apex", env="catch", algorithm=replace(old, n_step=5)).algorithm.n_step == 5  # type: ignore[type-var]
