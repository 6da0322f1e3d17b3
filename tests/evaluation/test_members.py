"""Which member plays, and what their average is."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from gossamer.evaluation.members import average, best, choose, distinct, equal, mean_return, rank, ranked
from gossamer.system.errors import UserError


def tree(weights: dict[str, float], scores: dict[str, list[float]] | None = None) -> dict[str, Any]:
    """A checkpoint of members with one parameter w = weight * (1, 2) and a buffer of 9."""
    workers = {
        name: {"learner": {"model": {"w": weight * torch.tensor([1.0, 2.0]), "offset": torch.tensor(9)}}}
        for name, weight in weights.items()
    }
    episodes = {name: [[score, 7] for score in each] for name, each in (scores or {}).items()}
    return {"workers": workers, "progress": {"members": episodes}}


MANY = {f"m[{i}]": float(i) for i in (0, 10, 2)}
SCORES = {"m[0]": [1.0, 2.0], "m[2]": [5.0, 0.0], "m[10]": []}


def test_members_have_the_order_of_their_ranks() -> None:
    assert ranked(["m[10]", "m[2]", "m[0]"]) == ["m[0]", "m[2]", "m[10]"]
    assert (rank("act_and_learn"), rank("act_and_learn[12]")) == (0, 12)


def test_the_best_is_by_its_own_mean() -> None:
    assert best({"m[0]": 1.5, "m[2]": 2.5, "m[10]": None}) == "m[2]"
    assert best({"m[2]": 2.5, "m[0]": 2.5}) == "m[0]"  # the first of equals
    assert best({"m[0]": None}) is None
    assert best({}) is None


def test_members_are_named_by_number_average_or_best() -> None:
    many = tree(MANY, SCORES)
    assert choose(many, "average") == {"m[0]": "0", "m[2]": "2", "m[10]": "10"}
    assert choose(many, "best") == {"m[2]": "2"}
    assert choose(many, "10") == {"m[10]": "10"}


def test_a_member_without_an_episode_of_each_game_is_not_the_best() -> None:
    many = tree({"m[0]": 0.0, "m[1]": 1.0})
    played = {"m[0]": [[200.0, 7, "seaquest"]], "m[1]": [[200.0, 7, "seaquest"], [-20.0, 7, "pong", {"lives": 1.0}]]}
    many["progress"]["members"] = played
    assert [mean_return(many, name) for name in played] == [None, 90.0]
    assert choose(many, "best") == {"m[1]": "1"}


@pytest.mark.parametrize("member", ["average", "best", "0"])
def test_one_member_is_all_there_is(member: str) -> None:
    assert choose(tree({"act_and_learn": 1.0}), member) == {"act_and_learn": "0"}


@pytest.mark.parametrize("said", [{"group": 0}, {"equal": True}], ids=["group", "older checkpoints"])
def test_members_with_equal_parameters_are_one_the_newest(said: dict[str, Any]) -> None:
    alike = tree(MANY, SCORES)
    for iteration, state in enumerate(alike["workers"].values()):  # m[10] has taken a step more than m[0], m[2] two
        state |= {**said, "exchange": {"iteration": 7 + iteration}}
    assert distinct(tree(MANY)["workers"]) == ["m[0]", "m[2]", "m[10]"]
    assert distinct(alike["workers"]) == ["m[2]"]
    for member in ("average", "best", "2"):
        assert choose(alike, member) == {"m[2]": "2"}
    with pytest.raises(UserError, match="no such member; there are: average, best, 2"):
        choose(alike, "0")


def test_of_each_group_one_is_in_the_average_and_any_can_be_named() -> None:
    groups = tree({f"m[{i}]": float(i // 2) for i in range(4)}, {"m[0]": [1.0], "m[3]": [2.0]})
    for i, state in enumerate(groups["workers"].values()):
        state |= {"group": i // 2, "exchange": {"iteration": 7}}
    assert not equal(groups["workers"])
    assert choose(groups, "average") == {"m[0]": "0", "m[2]": "2"}
    assert choose(groups, "best") == choose(groups, "3") == {"m[3]": "3"}
    for state in groups["workers"].values():
        state["group"] = 0
    assert equal(groups["workers"])


@pytest.mark.parametrize("member", ["1", "-1", "m[0]", "", "Best"])
def test_a_member_that_is_not_there_is_refused(member: str) -> None:
    with pytest.raises(UserError, match=r"--member .*: no such member; there are: average, best, 0, 2, 10"):
        choose(tree(MANY, SCORES), member)


def test_no_member_is_the_best_before_an_episode_has_ended() -> None:
    with pytest.raises(UserError, match="--member best: no member has finished an episode"):
        choose(tree(MANY), "best")
    with pytest.raises(UserError, match="--member best: no member has finished an episode"):
        choose({"workers": tree(MANY)["workers"], "progress": {}}, "best")  # a checkpoint of the first version


def test_the_average_is_of_parameters_alone() -> None:
    found = average(tree(MANY), MANY, ["w"])
    assert found["w"].tolist() == [4.0, 8.0]  # (0 + 10 + 2) / 3 times (1, 2)
    assert found["w"].dtype == torch.float32
    assert found["offset"] == 9
    assert found["offset"].dtype == torch.int64


def test_the_average_is_exact_where_float32_would_not_be() -> None:
    # 2^24 + 1 is no float32: added up in it, the ones would be lost
    weights = {"m[0]": 2.0**24, **{f"m[{i}]": 1.0 for i in range(1, 8)}}
    found = average(tree(weights), weights, ["w"])["w"][0]
    assert found == torch.tensor((2.0**24 + 7) / 8)
    assert found != 2.0**24 / 8
