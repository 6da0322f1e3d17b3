import copy
import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gossamer.envs.base import EnvFactory, Resumable
from gossamer.envs.toy import CELL, Catch, Counter, Identity

TOYS: list[EnvFactory] = [
    Catch(),
    Catch(pixels=True),
    Identity(states=3, length=4),
    Counter(3),
    Counter(3, truncate=True),
]


def test_counter_counts_steps_and_episodes() -> None:
    env = Counter(length=3).make(2)
    np.testing.assert_array_equal(env.reset(seed=0), [[0, 0, 0], [0, 0, 1]])  # [age, episode, environment]
    ages, episodes, rewards, overs = [], [], [], []
    for _ in range(7):
        step = env.step(np.zeros(2, np.int64))
        assert step.final_obs is None
        assert not step.truncated.any()
        np.testing.assert_array_equal(step.terminated, step.over)
        np.testing.assert_array_equal(step.obs[0, :2], step.obs[1, :2])
        np.testing.assert_array_equal(step.reward, step.score)
        ages.append(step.obs[0, 0])
        episodes.append(step.obs[0, 1])
        rewards.append(step.reward[0])
        overs.append(step.over[0])
    assert ages == [1, 2, 0, 1, 2, 0, 1]  # the third step's observation is the next episode's first
    assert episodes == [0, 0, 1, 1, 1, 2, 2]
    assert rewards == [0, 1, 2, 0, 1, 2, 0]  # r_t for the action taken at age t
    assert overs == [False, False, True, False, False, True, False]


def test_counter_cut_short_shows_its_last_observation() -> None:
    env = Counter(length=2, truncate=True).make(2)
    env.reset(seed=0)
    assert env.step(np.zeros(2, np.int64)).final_obs is None
    step = env.step(np.zeros(2, np.int64))
    assert step.truncated.all()
    assert step.over.all()
    assert not step.terminated.any()
    np.testing.assert_array_equal(step.final_obs, [[2, 0, 0], [2, 0, 1]])
    np.testing.assert_array_equal(step.obs, [[0, 1, 0], [0, 1, 1]])


@given(length=st.integers(1, 30))
@settings(max_examples=20)
def test_counter_returns_the_same_whatever_is_done(length: int) -> None:
    env = Counter(length).make(1)
    env.reset(seed=0)
    actions = np.random.default_rng(length).integers(0, 2, (length, 1))
    assert sum(env.step(a).reward[0] for a in actions) == length * (length - 1) / 2


def test_a_reset_counts_from_the_beginning() -> None:
    env = Counter(length=2).make(1)
    env.reset(seed=0)
    for _ in range(3):
        env.step(np.zeros(1, np.int64))
    np.testing.assert_array_equal(env.reset(seed=1), [[0, 0, 0]])


@pytest.mark.parametrize(("action", "ends_in"), [(0, 0), (1, 2), (2, 4)])  # left wall, the middle, right wall
def test_catch_pays_where_the_paddle_is(action: int, ends_in: int) -> None:
    env = Catch().make(64)
    ball = env.reset(seed=1).reshape(64, 10, 5)[:, 0].argmax(axis=1)
    assert set(ball) == {0, 1, 2, 3, 4}
    for t in range(9):
        step = env.step(np.full(64, action))
        if t < 8:
            assert not step.reward.any()
            assert not step.over.any()
    assert step.over.all()
    assert step.terminated.all()
    np.testing.assert_array_equal(step.reward, np.where(ball == ends_in, 1, -1))


def test_catch_can_always_be_won() -> None:
    env = Catch().make(32)
    board = env.reset(seed=2).reshape(32, 10, 5)
    for _ in range(27):  # three episodes
        ball = board[:, :-1].sum(axis=1).argmax(axis=1)
        paddle = board[:, -1].argmax(axis=1)
        step = env.step(1 + np.sign(ball - paddle))
        board = step.obs.reshape(32, 10, 5)
        np.testing.assert_array_equal(step.reward, step.over)


def test_catch_in_pixels_is_the_same_game() -> None:
    small, large = Catch().make(4), Catch(pixels=True).make(4)
    vector, picture = small.reset(seed=3), large.reset(seed=3)
    rows, columns = (np.arange(10) * 42 + 21) // 10, (np.arange(5) * 42 + 21) // 5  # the cells' middles
    for action in np.random.default_rng(0).integers(0, 3, (20, 4)):
        cells = picture[:, 0][:, rows][:, :, columns]
        np.testing.assert_array_equal(cells.reshape(4, 50), 255 * vector)
        vector, picture = small.step(action).obs, large.step(action).obs
    assert picture.dtype == np.uint8
    assert picture.shape == (4, 1, 42, 42)


def test_identity_pays_for_the_light_that_is_on() -> None:
    env = Identity(states=3, length=4).make(8)
    light = env.reset(seed=4)
    for t in range(1, 13):
        right = light.argmax(axis=1)
        action = np.where(np.arange(8) < 4, right, (right + 1) % 3)  # half of them wrong
        step = env.step(action)
        np.testing.assert_array_equal(step.reward, [1, 1, 1, 1, 0, 0, 0, 0])
        assert (step.over == (t % 4 == 0)).all()
        np.testing.assert_array_equal(step.obs.sum(axis=1), 1)
        light = step.obs


@pytest.mark.parametrize("toy", [Catch(), Identity(length=2)])
def test_a_seed_decides_everything(toy: EnvFactory) -> None:
    def seen(seed: int) -> np.ndarray:
        env = toy.make(8)
        actions = np.random.default_rng(0).integers(0, 3, (30, 8))
        return np.stack([env.reset(seed), *(env.step(a).obs for a in actions)])

    np.testing.assert_array_equal(seen(5), seen(5))
    assert (seen(5) != seen(6)).any()
    assert (seen(5)[:, 0] != seen(5)[:, 1]).any()  # two environments of one run


@pytest.mark.parametrize("toy", TOYS, ids=repr)
def test_goes_on_exactly_where_it_was_saved(toy: EnvFactory) -> None:
    actions = np.random.default_rng(0).integers(0, 2, (20, 4))
    env, other = toy.make(4), toy.make(4)
    assert isinstance(env, Resumable)
    assert isinstance(other, Resumable)
    env.reset(seed=7)
    for action in actions:
        env.step(action)
    saved = env.state_dict()
    before = copy.deepcopy(saved)
    straight = [env.step(action) for action in actions]
    np.testing.assert_equal(saved, before)  # what was saved does not move on with the environment

    other.load_state_dict(saved)
    for action, expected in zip(actions, straight, strict=True):
        np.testing.assert_equal(vars(other.step(action)), vars(expected))


def test_saved_state_is_plain_data() -> None:
    env = Catch().make(2)
    env.reset(seed=0)
    assert isinstance(env, Resumable)
    saved = json.loads(json.dumps(env.state_dict(), default=np.ndarray.tolist))
    expected = env.step(np.ones(2, np.int64)).obs
    env.load_state_dict(saved)
    np.testing.assert_array_equal(env.step(np.ones(2, np.int64)).obs, expected)


def test_frames_show_the_board() -> None:
    env = Catch().make(2, render=True)
    board = env.reset(seed=0).reshape(2, 10, 5)
    frames = env.frames()
    assert frames.shape == (2, 10 * CELL, 5 * CELL, 3)
    assert frames.dtype == np.uint8
    np.testing.assert_array_equal(frames[:, CELL // 2 :: CELL, CELL // 2 :: CELL, 1], 255 * board)
    counter = Counter(length=4).make(1)
    counter.reset(seed=0)
    counter.step(np.zeros(1, np.int64))
    np.testing.assert_array_equal(counter.frames()[0, 0, ::CELL, 0], [255, 0, 0, 0])  # one step of four


def test_bad_counts_are_named() -> None:
    with pytest.raises(ValueError, match="Identity: length must be at least 1, not 0"):
        Identity(length=0)
    with pytest.raises(ValueError, match="num_envs must be at least 1, not 0"):
        Catch().make(0)
    with pytest.raises(ValueError, match=r"workers must be 0 .* or more, not -1"):
        Catch().make(1, workers=-1)
