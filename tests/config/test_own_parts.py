"""An architecture and an algorithm need their own file and no other: defaults, presets, and every command."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
import toys
from rich.console import Console

import gossamer
from gossamer.config.file import flat, from_dict, to_dict
from gossamer.config.resolve import configure
from gossamer.system.errors import UserError
from gossamer.tools.show import show

TOY = "toys:Toy"


def options(architecture: str = TOY, env: str = "catch", **given: Any) -> dict[str, Any]:
    return flat(configure(architecture, env=env, **given))


def chosen(found: dict[str, Any], *names: str) -> tuple[Any, ...]:
    return tuple(found[name] for name in names)


def test_the_algorithm_of_an_architecture_is_the_first_that_it_names() -> None:
    assert options()["algorithm"] == "toys:Rule"
    assert options(env="Pendulum-v1")["algorithm"] == "toys:Rule"  # where others have ppo
    assert options(algorithm="a2c")["algorithm"] == "a2c"


def test_presets_are_those_of_the_kind_of_environment_and_of_both_parts_together() -> None:
    names = "num_envs", "envelope", "rollout_length", "tilt", "learning_rate"
    assert chosen(options(), *names) == (5, 2, 7, 2.0, 2e-3)
    assert chosen(options(env="catch-pixels"), *names) == (5, 1, 3, 0.5, 1e-3)
    assert chosen(options(env="Pendulum-v1"), *names) == (5, 1, 5, 1.0, 1e-3)  # no layer: defaults of the dataclasses
    assert chosen(options(algorithm="a2c"), "num_envs", "envelope", "rollout_length") == (5, 1, 5)
    assert chosen(options("paac", algorithm="toys:Rule"), "num_envs", "rollout_length", "tilt") == (32, 7, 2.0)
    assert options(num_envs=9)["num_envs"] == 9


def test_a_paper_s_settings_have_their_optimizer_and_no_tuned_layers() -> None:
    names = "num_envs", "envelope", "rollout_length", "tilt", "optimizer", "epsilon", "steps"
    assert chosen(options(preset="paper"), *names) == (2, 1, 5, 0.25, "rmsprop-tf", 0.1, 77)
    assert chosen(options(preset="paper", optimizer="adam"), "optimizer", "epsilon", "tilt") == ("adam", 1e-5, 0.25)
    with pytest.raises(UserError, match="--algorithm a2c: TOYS:TOY's paper has only toys:Rule; omit --preset paper"):
        options(preset="paper", algorithm="a2c")


def test_a_preset_with_an_unknown_option_is_refused() -> None:
    with pytest.raises(UserError, match="preset 'tried': no part has the option rollout_lenght; near: rollout_length"):
        options(algorithm="toys:Misspelt")


def test_it_is_shown_with_its_presets() -> None:
    text = io.StringIO()
    show(TOY, Console(file=text, width=200))
    lines = text.getvalue().splitlines()
    assert any("One learner that does everything." in line for line in lines)
    for told in (
        "toys:Rule, pixels: tried on pictures",
        "toys:Rule, vector: tried on vectors",
        "--preset paper: the toy's paper",
    ):
        assert f"  {told}" in lines
    (tilts,) = [line.split() for line in lines if line.startswith("  --tilt")]
    assert tilts == ["--tilt", "0.5", "2.0", "-", "-", "-", "0.25"]  # the rule, a2c on three kinds, the paper


def test_it_is_measured() -> None:
    found = gossamer.bench(TOY, env="catch", threads=1, seconds=0.02, rounds=1)
    assert (found["architecture"], found["algorithm"], found["num_envs"]) == (TOY, "toys:Rule", 5)
    assert found["whole"] > 0


def test_it_trains_and_its_run_is_read_again(tmp_path: Path) -> None:
    run = gossamer.train(toys.Toy(envelope=3), env="catch", steps=140, run_dir=tmp_path / "run")
    assert run.result["steps"] == 140  # four rollouts of 7 steps of 5 environments
    assert gossamer.evaluate(run.directory, episodes=2).mean_return in (-1.0, 0.0, 1.0)
    made = configure(toys.Toy(envelope=3), env="catch")
    assert from_dict(to_dict(made)) == (made, [])
