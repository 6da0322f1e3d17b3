"""Options: types, ranges, and which of them were given."""

from __future__ import annotations

import pickle
from dataclasses import FrozenInstanceError, dataclass, replace
from typing import Any, Literal

import numpy as np
import pytest

from gossamer.system.errors import UserError
from gossamer.system.options import declared, defaults, described, given, in_words, option, options, values, word


@options
class Part:
    """For the tests."""

    count: int = option("How many.", 3, least=1, most=10, measure="steps")
    rate: float = option("How fast.", 0.5, above=0)
    kind: Literal["a", "b"] = option("Which.", "a")
    limit: float | None = option("Until.", None, least=0, unset="never")
    torso: str = option("What.", "x", name="network")


@dataclass(frozen=True)
class Plain:
    """A user's, without texts or ranges."""

    name: str
    count: int = 3


def test_what_was_given_is_remembered_even_where_it_is_the_default() -> None:
    assert given(Part()) == {}
    assert given(Part(3, torso="y")) == {"count": 3, "network": "y"}
    assert given(pickle.loads(pickle.dumps(Part(rate=1.0)))) == {"rate": 1.0}
    assert Part(count=3) == Part()
    assert given(Plain("p")) == {"count": 3}  # what does not remember counts as given


@pytest.mark.parametrize(
    ("name", "typed"), [("DQN", "dqn"), ("NStepQ", "nstep-q"), ("A2C", "a2c"), ("VTrace", "vtrace")]
)
def test_a_class_has_a_name_as_typed(name: str, typed: str) -> None:
    assert word(type(name, (), {})) == typed


def test_options_are_known_by_their_names() -> None:
    assert list(declared(Part)) == ["count", "rate", "kind", "limit", "network"]
    assert values(replace(Part(), count=4))["count"] == 4
    assert defaults(Plain) == {"count": 3}


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"count": 0}, "--count 0: must be at least 1"),
        ({"count": 11}, "--count 11: must be at most 10"),
        ({"count": 1.5}, r"--count 1\.5: must be of type int"),
        ({"count": True}, "--count True: must be of type int"),
        ({"count": np.True_}, "--count .*True.*: must be of type int"),
        ({"count": np.float64(1.5)}, r"--count .*1\.5.*: must be of type int"),
        ({"count": float("inf")}, "--count inf: must be of type int"),
        ({"count": np.int64(0)}, "--count 0: must be at least 1"),
        ({"count": None}, "--count None: must be of type int"),
        ({"rate": True}, "--rate True: must be of type float"),
        ({"rate": 0}, "--rate 0: must be above 0"),
        ({"rate": float("nan")}, "--rate nan: must be a number"),
        ({"rate": float("inf")}, "--rate inf: must be finite"),
        ({"kind": "c"}, "--kind c: must be one of a, b"),
        ({"limit": -1.0}, r"--limit -1\.0: must be at least 0"),
        ({"torso": 3}, "--network 3: must be of type str"),
    ],
)
def test_bad_values_are_refused_where_they_enter(wrong: dict[str, Any], told: str) -> None:
    with pytest.raises(UserError, match=told):
        Part(**wrong)
    with pytest.raises(UserError, match=told):
        replace(Part(), **wrong)


@pytest.mark.parametrize("count", [np.int32(4), np.float64(4), 4.0])
def test_numbers_are_stored_as_those_of_python(count: Any) -> None:
    made = Part(count=count, limit=np.float32(0.25))
    assert (made.count, type(made.count), made.limit, type(made.limit)) == (4, int, 0.25, float)
    assert given(made) == {"count": 4, "limit": 0.25}


def test_parts_are_frozen() -> None:
    with pytest.raises(FrozenInstanceError):
        Part().count = 4  # type: ignore[misc]


def test_a_description_has_what_is_counted_and_the_range() -> None:
    said = {name: described(each) for name, each in declared(Part).items()}
    assert said == {
        "count": "How many. [steps, 1 to 10]",
        "rate": "How fast. [above 0]",
        "kind": "Which.",
        "limit": "Until. [at least 0]",
        "network": "What.",
    }


def test_an_option_without_a_default_is_refused() -> None:
    @dataclass(frozen=True)
    class Lacks:
        count: int

    with pytest.raises(UserError, match="Lacks: option count needs a default"):
        defaults(Lacks)


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("learning_rate", 0.001, ["--learning-rate", "0.001"]),
        ("separate_critic", True, ["--separate-critic"]),
        ("separate_critic", False, ["--no-separate-critic"]),
        ("hidden_sizes", (256, 128), ["--hidden-sizes", "256,128"]),
        ("env_kwargs", {"map_name": "8x8"}, ["--env-kwargs", '{"map_name": "8x8"}']),
    ],
)
def test_an_option_in_words_of_the_command_line(name: str, value: Any, words: list[str]) -> None:
    assert in_words(name, value) == words
