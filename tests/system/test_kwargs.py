"""Keyword arguments of environments: as typed, in Python, in files, and where environments are made."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box

import gossamer
from gossamer.config.composing import compose
from gossamer.config.file import flat, from_dict, to_dict
from gossamer.config.resolve import configure, resolve
from gossamer.envs.options import GymOptions
from gossamer.system.errors import EnvironmentFailed, UserError
from gossamer.system.kwargs import checked, joined, text, titled


class Sized(gymnasium.Env[Any, Any]):
    """Shows `size` numbers, and ends after `length` steps of reward 1."""

    def __init__(self, size: int = 2, *, length: int = 3, render_mode: str | None = None) -> None:
        self.observation_space, self.action_space = Box(-1, 1, (size,)), gymnasium.spaces.Discrete(2)
        self.render_mode, self._length, self._age = render_mode, length, 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self._age = 0
        return np.zeros(self.observation_space.shape), {}

    def step(self, action: Any) -> Any:
        self._age += 1
        return np.zeros(self.observation_space.shape), 1.0, self._age == self._length, False, {}

    def render(self) -> Any:
        return np.zeros((4, 6, 3), np.uint8)


def anything(**given: Any) -> Sized:
    return Sized(size=len(given))


@pytest.fixture(autouse=True)
def users_modules(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parent))


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("map_name=8x8 is_slippery=false", {"map_name": "8x8", "is_slippery": False}),
        ("a=1 b=-0.5 c=1e3 d=None e=True f=null", {"a": 1, "b": -0.5, "c": 1000.0, "d": None, "e": True, "f": None}),
        ('a="5" b=[1,2] c={"x":[]} d= e=x=y', {"a": "5", "b": [1, 2], "c": {"x": []}, "d": "", "e": "x=y"}),
        ("a=NaN b=nan", {"a": "NaN", "b": "nan"}),  # JSON has none of them
    ],
)
def test_words_become_values(words: str, expected: dict[str, Any]) -> None:
    found = joined(["paac", "--env-kwargs", *words.split(), "--env", "mine:Env"])
    assert found == ["paac", "--env-kwargs", json.dumps(expected), "--env", "mine:Env"]
    assert joined(found) == found
    assert joined(["--env-kwargs", *text(expected).split()])[1] == json.dumps(expected)  # as they are shown


def test_arguments_end_where_a_word_has_no_value() -> None:
    assert joined(["--env-kwargs", "a=1", "paac", "b=2"]) == ["--env-kwargs", '{"a": 1}', "paac", "b=2"]
    assert joined(["--env-kwargs=a=1", "paac"]) == ["--env-kwargs", '{"a": 1}', "paac"]
    twice = joined(["paac", "--env-kwargs", "a=1", "--env", "x", "--env-kwargs", "b=2"])
    assert twice == ["paac", "--env-kwargs", '{"a": 1, "b": 2}', "--env", "x"]
    with pytest.raises(UserError, match=r"^--env-kwargs a=2: a is given twice"):
        joined(["--env-kwargs", "a=1", "--env-kwargs", "a=2"])


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("", "--env-kwargs: needs name=value, as in --env-kwargs map_name=8x8"),
        ("a=1 a=2", "--env-kwargs a=2: a is given twice"),
        ("1a=1", "--env-kwargs 1a=1: must be name=value"),
    ],
)
def test_words_that_are_no_arguments_are_refused(words: str, told: str) -> None:
    with pytest.raises(UserError, match=f"^{told}"):
        joined(["--env-kwargs", *words.split()])


def test_values_are_those_that_a_file_gives_back() -> None:
    given = {"a": (1, (2.5, "x")), "b": {"c": None}, "d": True}
    assert checked(given) == json.loads(json.dumps(given)) == {"a": [1, [2.5, "x"]], "b": {"c": None}, "d": True}
    assert checked({}) is checked(None) is None
    for bad in (np.zeros(2), float("nan"), {1: 2}, {1, 2}, [object()]):
        with pytest.raises(UserError, match=r"^--env-kwargs a=.*: a run keeps numbers, text, .* write a function"):
            checked({"a": bad})
    with pytest.raises(UserError, match=r"^--env-kwargs 3: must be names with values"):
        checked(3)
    with pytest.raises(UserError, match=r"^--env-kwargs 'a b': must be the name of an argument"):
        checked({"a b": 1})


@pytest.mark.parametrize(
    ("env", "given", "told"),
    [
        ("FrozenLake-v1", {"mapname": "8x8"}, r"mapname=8x8: not an argument of FrozenLake-v1; .*; near: map_name$"),
        ("test_kwargs:Sized", {"sise": 3}, r"sise=3: not an argument of .*; it takes size, length, .*; near: size$"),
        ("catch", {"rows": 3}, r"\{'rows': 3\}: not an option of .*, catch; a Gymnasium id or factory has it$"),
    ],
)
def test_an_argument_that_is_not_taken_is_refused_at_the_start(env: str, given: dict[str, Any], told: str) -> None:
    with pytest.raises(UserError, match=f"^--env-kwargs {told}"):
        configure("paac", env=env, env_kwargs=given)


def test_a_value_that_the_environment_refuses_is_named() -> None:
    told = r"^--env FrozenLake-v1: environment 0: its factory, with map_name=9x9, raised KeyError: '9x9'"
    with pytest.raises(EnvironmentFailed, match=told):
        configure("paac", env="FrozenLake-v1", env_kwargs={"map_name": "9x9"})


def test_the_options_of_make_and_of_any_name_are_passed_on() -> None:
    made = configure("paac", env="CartPole-v1", env_kwargs={"max_episode_steps": 7}).env.factory().make(1)
    made.reset(seed=0)
    steps = [made.step(np.array([i % 2])) for i in range(7)]
    assert [bool(step.truncated[0]) for step in steps] == [False] * 6 + [True]
    assert configure("paac", env="test_kwargs:anything", env_kwargs={"a": 1, "b": 2, "c": 3}).env.factory().make(
        4, workers=2
    ).spec.obs_shape == (3,)


def test_a_command_line_and_a_file_have_them(tmp_path: Path) -> None:
    words = ["paac", "--env", "FrozenLake-v1", "--env-kwargs", "map_name=8x8", "is_slippery=false", "--num-envs", "4"]
    config = resolve(compose(words, prog="gossamer train", description="", command=()).choices)
    assert config == configure("paac", env="FrozenLake-v1", env_kwargs=flat(config)["env_kwargs"], num_envs=4)
    content = json.loads(json.dumps(to_dict(config)))
    assert content["env"]["env_kwargs"] == {"map_name": "8x8", "is_slippery": False}
    assert from_dict(content)[0] == config
    del content["env"]["env_kwargs"]  # as before this option existed
    assert from_dict(content)[0].env == GymOptions("FrozenLake-v1")


def test_they_are_used_wherever_the_environment_is_made(tmp_path: Path) -> None:
    run = gossamer.train(
        "paac", env=Sized, env_kwargs={"size": 5, "length": 7}, steps=400, num_envs=4, run_dir=tmp_path / "run"
    )
    assert run.result["mean_return"] == 7
    assert gossamer.evaluate(run.directory, episodes=3).returns == [7, 7, 7]
    assert gossamer.record(run.directory, out=tmp_path / "film.gif").steps == 7
    assert gossamer.resume(run.directory, steps=800).result["mean_return"] == 7
    assert gossamer.load(run.directory).act(np.zeros((2, 5))).shape == (2,)


def test_environments_that_differ_in_arguments_have_different_titles() -> None:
    assert titled("FrozenLake-v1", None) == "FrozenLake-v1"
    assert titled("FrozenLake-v1", {"map_name": "8x8", "n": "8"}) == 'FrozenLake-v1 map_name=8x8 n="8"'
