"""The last episodes of several games: each counts the same, however many end."""

from __future__ import annotations

import pytest

from gossamer.task import Episode
from gossamer.training.progress import Progress, of_games
from gossamer.training.recent import Recent


def episodes(game: str, scores: list[float]) -> list[Episode]:
    return [Episode(score, 10, game) for score in scores]


def test_the_mean_return_of_several_games_is_the_mean_of_theirs() -> None:
    recent = Recent(games=2)
    recent.extend([*episodes("short", [1.0] * 300), *episodes("long", [5.0, 7.0])])
    assert recent.returns == {"short": 1.0, "long": 6.0}
    assert recent.mean_return == 3.5
    assert len(recent) == 102  # 100 of each at most
    assert not recent.full
    again = Recent(games=2)
    again.load(recent.to_list())
    assert (again.returns, len(again)) == (recent.returns, 102)
    recent.drop(2, ["long", "short", "long"])  # the third one is later than these
    assert (recent.returns, len(recent)) == ({"short": 1.0, "long": 5.0}, 100)
    recent.drop(3, ["long", "long", "long"])
    assert (recent.returns, len(recent)) == ({"short": 1.0}, 99)


def test_the_last_episodes_of_one_game_are_dropped() -> None:
    recent = Recent()
    recent.extend(episodes("pong", [1.0, 2.0, 3.0]))
    recent.drop(2, ["pong"])
    assert [each.score for each in recent] == [1.0]
    recent.drop(5)
    assert not len(recent)


def test_metrics_of_several_games_are_means_of_theirs() -> None:
    progress = Progress(1_000, 1, games=2)
    progress.recent.extend(Episode(1.0, 10, "short", metrics={"won": 1.0}) for _ in range(30))
    progress.recent.extend([Episode(1.0, 10, "long", metrics={"won": 0.0, "depth": 3.0})])
    assert progress.own_metrics() == {
        "episode/won": 0.5, "episode/won/short": 1.0, "episode/won/long": 0.0,
        "episode/depth": 3.0, "episode/depth/long": 3.0,
    }  # fmt: skip


def test_there_is_no_mean_before_an_episode_of_each_game() -> None:
    recent = Recent(games=2)
    recent.extend(episodes("short", [1.0] * 300))
    assert (recent.of_all, recent.full, recent.mean_return) == (False, False, None)
    recent.extend(episodes("long", [5.0]))
    assert (recent.of_all, recent.full, recent.mean_return) == (True, False, 3.0)
    recent.extend(episodes("long", [5.0] * 100))
    assert recent.full
    assert not Recent().of_all


def test_one_game_has_one_mean_whatever_its_episodes_say() -> None:
    recent = Recent()
    recent.load([[1.0, 10], [2.0, 10]])  # of a checkpoint, which does not name the game
    recent.extend(episodes("pong", [6.0]))
    assert (recent.mean_return, recent.returns) == (3.0, {})
    assert recent.to_list() == [[1.0, 10], [2.0, 10], [6.0, 10]]


def test_human_normalised_scores_of_games_that_all_have_them() -> None:
    # Pong: (-20.7 .. 14.6), Boxing (0.1 .. 12.1), Breakout (1.7 .. 30.5)
    found = of_games({"pong": 14.6, "boxing": 0.1, "breakout": 16.1})
    assert found["return/pong"] == 14.6
    assert found["human_normalised_mean"] == pytest.approx(0.5)  # (1 + 0 + 0.5) / 3
    assert found["human_normalised_median"] == pytest.approx(0.5)
    assert of_games({"pong": 14.6}, every=False) == {"return/pong": 14.6}
    assert of_games({"pong": 1.0, "mine:Env": 2.0}) == {"return/pong": 1.0, "return/mine:Env": 2.0}
