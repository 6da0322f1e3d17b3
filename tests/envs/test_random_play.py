"""Random play: one seed gives one mean picture, measured once in each process, on environments of its own."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from some_parts import CountedCatch

from gossamer.data import Array
from gossamer.envs import random_play
from gossamer.envs.base import EnvFactory
from gossamer.envs.games import Games, Share
from gossamer.envs.once import OncePerProcess
from gossamer.envs.random_play import background
from gossamer.envs.toy import Catch, Counter, Recall


@pytest.fixture(autouse=True)
def forget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(random_play, "_background", OncePerProcess())


def measured(env: EnvFactory, seed: int = 0) -> Array:
    return background(env, seed, lambda silence: None)[""]


def test_the_background_is_the_mean_of_random_play(monkeypatch: pytest.MonkeyPatch) -> None:
    # In Counter(4) ages 0 1 2 3 follow each other whatever is done: over any 4 of them the mean is 1.5. Two
    # environments, the first observation and 7 steps: episodes 0 0 0 0 1 1 1 1, environments 0 and 1.
    monkeypatch.setattr(random_play, "BACKGROUND_ENVS", 2)
    monkeypatch.setattr(random_play, "BACKGROUND_STEPS", 7)
    mean = measured(Counter(4))
    assert mean.dtype == np.float32
    assert mean.tolist() == [1.5, 0.5, 0.5]


def test_the_background_follows_its_seed_and_plays_every_action() -> None:
    one, other, same = (measured(Catch(), seed) for seed in (1, 2, 1))
    np.testing.assert_array_equal(one, same)
    assert not np.array_equal(one, other)
    paddle = one.reshape(10, 5)[-1]
    assert (paddle > 0.05).all()  # it has been everywhere


def test_a_game_without_environments_has_no_background() -> None:
    games = Games((Share(Counter(4)), Share(Recall(3))))
    with pytest.raises(ValueError, match="counter: no environment plays game 1: its mean is not known"):
        background(games.alone(0), 0, lambda silence: None)


def test_members_of_one_process_measure_it_once() -> None:
    env, found = CountedCatch(), list[Array]()
    members = [threading.Thread(target=lambda: found.append(measured(env))) for _ in range(4)]
    for member in members:
        member.start()
    for member in members:
        member.join()
    assert env.made == [4]
    assert all(each is found[0] for each in found)


def test_an_environment_that_fails_is_asked_again() -> None:
    once = OncePerProcess[int]()
    with pytest.raises(ZeroDivisionError):
        once.get("key", lambda: 1 // 0)
    assert once.get("key", lambda: 1) == 1
    assert once.get("key", lambda: 2) == 1
    assert once.get("another", lambda: 2) == 2
