import multiprocessing
from contextlib import closing
from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("ale_py", reason="the extra [atari] is not installed")

from gossamer.data import Step
from gossamer.envs.atari import GALA, IMPALA, MACHADO, PAAC, PRESETS, Atari, AtariPreset, processes_for
from gossamer.envs.base import Resumable, UnknownEnv
from gossamer.envs.workers import Workers
from gossamer.spaces import Discrete
from gossamer.system.errors import EnvironmentFailed
from gossamer.system.processes import cores

SMALL = replace(PAAC, size=10, stack=2)


def play(game: str, preset: AtariPreset, steps: int, *, envs: int = 2, seed: int = 3, workers: int = 1) -> list[Step]:
    env = Atari(game, preset).make(envs, workers=workers)
    env.reset(seed)
    actions = np.random.default_rng(0).integers(0, env.spec.actions.outputs, (steps, envs))
    return [env.step(action) for action in actions]


def test_what_a_network_sees() -> None:
    env = Atari("pong").make(2, workers=1)
    obs = env.reset(seed=0)
    assert obs.shape == (2, 4, 84, 84)
    assert obs.dtype == env.spec.obs_dtype == np.uint8
    assert (env.spec.obs_shape, env.spec.actions, env.spec.frames_per_step) == ((4, 84, 84), Discrete(6), 4)
    step = env.step(np.zeros(2, np.int64))
    assert step.obs.shape == obs.shape
    assert {x.dtype for x in (step.reward, step.score)} == {np.dtype(np.float32)}
    assert {x.dtype for x in (step.terminated, step.truncated, step.over)} == {np.dtype(bool)}
    np.testing.assert_array_equal(step.obs[:, :3], obs[:, 1:])  # the newest picture is the last
    assert not isinstance(env, Resumable)


@pytest.mark.parametrize(("preset", "actions"), [("paac", 4), ("machado", 18)])
def test_action_sets(preset: str, actions: int) -> None:
    assert Atari("breakout", PRESETS[preset]).make(1).spec.actions == Discrete(actions)


@pytest.mark.parametrize(("width", "expected"), [(None, (3, 42, 42)), (40, (3, 42, 40))])
def test_size_is_data(width: int | None, expected: tuple[int, ...]) -> None:
    env = Atari("pong", replace(PAAC, size=42, width=width, stack=3, frame_skip=2)).make(1)
    assert env.reset(seed=0).shape == (1, *expected)
    assert env.spec.obs_shape == expected
    assert env.spec.frames_per_step == 2


def test_a_lost_life_terminates_and_the_game_goes_on() -> None:
    lives = replace(SMALL, life_loss_ends=True)
    with_lives, games = play("breakout", lives, 500), play("breakout", SMALL, 500)  # the same games, seen twice
    for a, b in zip(with_lives, games, strict=True):
        np.testing.assert_array_equal(a.obs, b.obs)
        np.testing.assert_array_equal(a.score, b.score)
        np.testing.assert_array_equal(a.over, b.terminated)  # really over
        np.testing.assert_array_equal(b.over, b.terminated)
        assert not (a.over & ~a.terminated).any()
    ends = np.array([a.terminated for a in with_lives])
    overs = np.array([a.over for a in with_lives])
    assert overs.sum() >= 3
    for env in range(2):
        lost_until_over = np.cumsum(ends[:, env])[overs[:, env]]
        np.testing.assert_array_equal(np.diff(lost_until_over, prepend=0), 5)  # a game of breakout has five lives


@pytest.mark.parametrize("preset", [IMPALA, MACHADO])
def test_the_frame_cap_cuts_short(preset: AtariPreset) -> None:
    capped = replace(preset, size=10, frame_cap=400, frame_skip=4)
    steps = play("pong", capped, 200, envs=1)  # nobody wins in 400 frames
    assert [t for t, step in enumerate(steps, 1) if step.over.any()] == [100, 200]
    cut = steps[99]
    assert cut.truncated.all()
    assert cut.over.all()
    assert not cut.terminated.any()
    assert cut.final_obs is not None
    np.testing.assert_array_equal(cut.final_obs[:, :-1], steps[98].obs[:, 1:])  # the old episode's
    assert not cut.obs[:, :-1].any()  # the new one's: nothing seen before
    assert cut.obs[:, -1].any()
    assert steps[98].final_obs is None


def test_a_capped_game_is_over_with_lives_counted_too() -> None:
    steps = play("breakout", replace(GALA, size=10, frame_cap=400), 100, envs=1)
    assert any((step.terminated & ~step.over).any() for step in steps)
    assert steps[99].over.all()


def test_reward_is_clipped_and_score_is_not() -> None:
    steps = play("space_invaders", SMALL, 150)  # invaders are worth 5 to 30
    scores = np.array([step.score for step in steps])
    assert scores.max() >= 5
    np.testing.assert_array_equal([step.reward for step in steps], np.sign(scores))
    unclipped = play("space_invaders", replace(SMALL, clip_reward=False), 150)
    np.testing.assert_array_equal([step.reward for step in unclipped], scores)


def test_a_seed_decides_everything_on_any_number_of_threads() -> None:
    preset = replace(SMALL, sticky=0.25)

    def seen(seed: int, workers: int) -> np.ndarray:
        return np.stack([step.obs for step in play("pong", preset, 60, seed=seed, workers=workers)])

    first = seen(3, 1)
    np.testing.assert_array_equal(seen(3, 2), first)
    assert (seen(4, 1) != first).any()
    assert (first[:, 0] != first[:, 1]).any()  # two environments of one run


def test_processes_play_the_same_games() -> None:
    # 5 games in 2 processes: 2 and 3. Lives, sticky actions and the frame cap: every field of a step has its use.
    preset = replace(GALA, size=10, stack=2, sticky=0.25, frame_cap=200)
    with (
        closing(Atari("breakout", preset, processes=0).make(5)) as env,
        closing(Atari("breakout", preset, processes=2).make(5)) as apart,
    ):
        assert isinstance(apart, Workers)
        assert apart.spec == env.spec
        np.testing.assert_array_equal(apart.reset(seed=5), env.reset(seed=5))
        for action in np.random.default_rng(0).integers(0, 4, (60, 5)):
            ours, theirs = apart.step(action), env.step(action)
            assert (ours.final_obs is None) == (theirs.final_obs is None)
            for field in ("obs", "reward", "score", "terminated", "truncated", "over"):
                np.testing.assert_array_equal(getattr(ours, field), getattr(theirs, field))
            if ours.final_obs is not None and theirs.final_obs is not None:
                np.testing.assert_array_equal(ours.final_obs[theirs.truncated], theirs.final_obs[theirs.truncated])
        assert apart.made() == 5


def test_a_process_that_dies_is_named_with_its_first_game() -> None:
    with closing(Atari("pong", SMALL, 2).make(4)) as env:
        env.reset(seed=0)
        second = next(each for each in multiprocessing.active_children() if each.name == "environments 1")
        second.kill()
        second.join()
        with pytest.raises(EnvironmentFailed, match=r"environment 2: its worker process was ended by SIGKILL"):
            env.step(np.zeros(4, np.int64))


@pytest.mark.parametrize(
    ("num_envs", "threads", "cores", "processes"),
    [
        *((256, 2, 2, 0), (7, 16, 16, 0)),  # as on two cores; too few games
        *((32, 4, 4, 2), (32, 16, 16, 4), (128, 16, 16, 8), (256, 64, 64, 32)),  # of one worker
        *((32, 4, 16, 2), (16, 1, 16, 1)),  # of each of several actors
    ],
)
def test_processes_by_cores_and_games(num_envs: int, threads: int, cores: int, processes: int) -> None:
    assert processes_for(num_envs, threads, cores) == processes


def test_a_reset_begins_all_over() -> None:
    env = Atari("breakout", replace(SMALL, sticky=0.25)).make(2)
    first = env.reset(seed=5)
    actions = np.random.default_rng(0).integers(0, 4, (40, 2))
    seen = [env.step(action).obs for action in actions]
    np.testing.assert_array_equal(env.reset(seed=5), first)
    np.testing.assert_array_equal([env.step(action).obs for action in actions], seen)


def test_no_ops_set_environments_apart() -> None:
    def starts(preset: AtariPreset) -> int:
        return len({obs.tobytes() for obs in Atari("freeway", preset).make(4).reset(seed=0)})  # cars always move

    assert starts(replace(SMALL, size=84, noop_max=0)) == 1
    assert starts(replace(SMALL, size=84, noop_max=1)) == 2  # none or one
    assert starts(replace(SMALL, size=84)) > 2


def test_sticky_actions_set_environments_apart() -> None:
    def differ(sticky: float) -> bool:
        env = Atari("pong", replace(SMALL, size=84, noop_max=0, sticky=sticky)).make(2)
        env.reset(seed=0)
        actions = np.random.default_rng(0).integers(0, 6, 40)
        return any((obs[0] != obs[1]).any() for obs in (env.step(np.array([a, a])).obs for a in actions))

    assert differ(0.25)
    assert not differ(0.0)


@pytest.mark.parametrize("fire_reset", [True, False])
def test_fire_reset_starts_the_game(fire_reset: bool) -> None:
    env = Atari("breakout", replace(SMALL, noop_max=0, fire_reset=fire_reset, life_loss_ends=True)).make(1)
    env.reset(seed=0)
    ends = [env.step(np.zeros(1, np.int64)).terminated[0] for _ in range(80)]
    assert any(ends) == fire_reset  # without a ball no life is lost


@pytest.mark.parametrize(
    ("game", "preset"),
    [("breakout", replace(GALA, frame_cap=600)), ("pong", replace(MACHADO, frame_cap=600, noop_max=30))],
)
def test_screens_show_what_is_played(game: str, preset: AtariPreset) -> None:
    # 210 x 160 to 10 x 10 is a mean over 21 x 16 pixels, so the screens' luminance can be compared with what the agent
    # sees, up to rounding. (Without the maximum of two frames: of colours it is not that of their luminance.)
    env = Atari(game, replace(preset, size=10, maxpool=False)).make(2, render=True)
    obs = env.reset(seed=1)
    overs = 0
    for action in np.random.default_rng(1).integers(0, env.spec.actions.outputs, (320, 2)):
        frames = env.frames()
        assert frames.shape == (2, 210, 160, 3)
        assert frames.dtype == np.uint8
        grey = frames @ np.array([0.299, 0.587, 0.114])
        seen = grey.reshape(2, 10, 21, 10, 16).mean(axis=(2, 4))
        np.testing.assert_allclose(obs[:, -1], seen, atol=1)
        step = env.step(action)
        obs, overs = step.obs, overs + int(step.over.sum())
    assert overs >= 4  # resets were seen


def test_screens_must_be_asked_for() -> None:
    env = Atari("pong", SMALL).make(1)
    env.reset(seed=0)
    with pytest.raises(RuntimeError, match="render=True"):
        env.frames()


def test_an_action_the_game_lacks_is_refused() -> None:
    env = Atari("pong", SMALL).make(1)
    env.reset(seed=0)
    for action in (-1, 6):
        with pytest.raises(ValueError, match=rf"actions must lie in 0\.\.5, not \[{action}\]"):
            env.step(np.array([action]))


def test_bad_values_are_named() -> None:
    with pytest.raises(UnknownEnv, match="'pnog'; near: pong"):
        Atari("pnog").make(1)
    with pytest.raises(ValueError, match="frame_skip must be at least 1, not 0"):
        AtariPreset(frame_skip=0)
    with pytest.raises(ValueError, match="noop_max must be 0 or more frames, not -1"):
        AtariPreset(noop_max=-1)
    with pytest.raises(ValueError, match=r"sticky must be a probability below 1, not 1\.5"):
        AtariPreset(sticky=1.5)
    with pytest.raises(ValueError, match="num_envs must be at least 1, not 0"):
        Atari("pong").make(0)


def test_workers_have_equal_shares_of_the_cores() -> None:
    shares = [Atari("pong").threads(sharing) for sharing in (1, cores(), cores() + 1)]
    assert shares == [cores(), 1, 1]
