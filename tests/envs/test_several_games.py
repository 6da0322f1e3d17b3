"""Several games: each is played as it would be alone, and has its share of the environments."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

from gossamer.config.resolve import configure
from gossamer.data import Array, Step
from gossamer.envs.base import EnvFactory, Resumable, UnsupportedSpace, VectorEnv, one_of_each, places
from gossamer.envs.catalogue import SETS, resolve
from gossamer.envs.games import Games, Share, games_of
from gossamer.envs.gym import Custom
from gossamer.envs.last import LastActionReward
from gossamer.envs.options import GamesOptions
from gossamer.envs.random_play import random_actions
from gossamer.envs.toy import Catch, Counter, Recall
from gossamer.envs.union import Union
from gossamer.spaces import Box, Discrete, Spec
from gossamer.spaces.observations import GAME, MASK, WHOLE
from gossamer.system.errors import UserError
from gossamer.tools.reuse import Reused

TWO = Games((Share(Counter(5, truncate=True), 2), Share(Recall(3))))  # observations [3] of both; 2 actions of both
LIGHTS = Games((Share(Custom("some_games:Small")), Share(Custom("some_games:Large"))))


@pytest.mark.parametrize(
    ("num_envs", "counts"),
    # The pattern of the shares 2 and 1 is 0 0 1; 7 environments are two of it and the first of a third
    [(3, [2, 1]), (12, [8, 4]), (1, [1, 0]), (2, [2, 0]), (7, [5, 2])],
)
def test_each_game_has_its_share_of_the_environments(num_envs: int, counts: list[int]) -> None:
    assert TWO.counts(num_envs) == counts
    env = TWO.make(num_envs)
    assert np.bincount(games_of(env.spec, env.reset(0)), minlength=2).tolist() == counts


def test_the_least_number_of_environments_that_has_every_game() -> None:
    assert (one_of_each(TWO), one_of_each(TWO.alone(1)), one_of_each(Catch())) == (3, 1, 1)


def test_environments_that_are_reused_are_of_several_games_too() -> None:
    reused = Reused(TWO)
    assert (one_of_each(reused), one_of_each(Reused(Catch()))) == (3, 1)
    assert (places(reused, 6), places(Reused(Catch()), 3)) == (places(TWO, 6), [0, 1, 2])


def played(env: VectorEnv, obs: Array, steps: int) -> tuple[list[Array], list[Step]]:
    """Observations and results of steps whose actions depend on the time and the environment."""
    seen, results = [obs], []
    for t in range(steps):
        results.append(env.step((np.arange(env.num_envs) + t) % 2))
        seen.append(results[-1].obs)
    return seen, results


def test_a_game_among_others_is_the_game_alone() -> None:
    together = TWO.make(6)  # environments 0 .. 3 count, 4 and 5 recall
    seen, results = played(together, together.reset(3), 12)
    layout = together.spec.layout
    assert layout is not None
    seeds = np.random.SeedSequence(3).generate_state(2, np.uint32) >> 1
    for game, rows in enumerate((slice(0, 4), slice(4, 6))):
        alone = TWO.shares[game].env.make(rows.stop - rows.start)
        own, steps = played(alone, alone.reset(int(seeds[game])), 12)
        for obs, mine in zip(seen, own, strict=True):
            np.testing.assert_array_equal(layout.array(obs[rows], WHOLE), mine)
            assert games_of(together.spec, obs[rows]).tolist() == [game] * (rows.stop - rows.start)
        for step, mine in zip(results, steps, strict=True):
            for name in ("reward", "score", "terminated", "truncated", "over"):
                np.testing.assert_array_equal(getattr(step, name)[rows], getattr(mine, name))
            if mine.final_obs is not None:
                assert step.final_obs is not None
                cut = mine.truncated
                np.testing.assert_array_equal(layout.array(step.final_obs[rows][cut], WHOLE), mine.final_obs[cut])


def test_games_go_on_exactly_from_a_saved_state() -> None:
    one, other = TWO.make(3), TWO.make(3)
    assert isinstance(one, Resumable)
    assert isinstance(other, Resumable)
    obs = one.reset(1)
    obs = played(one, obs, 4)[0][-1]
    other.reset(2)
    other.load_state_dict(one.state_dict())
    for mine, its in zip(played(one, obs, 7)[0], played(other, obs, 7)[0], strict=True):
        np.testing.assert_array_equal(mine, its)


def named(*actions: str) -> Spec:
    return Spec((2,), np.dtype(np.float32), Discrete(len(actions)), action_names=actions)


def test_actions_of_one_name_are_one_action() -> None:
    # As in Atari: Boxing-like `right` is number 1 of one game, and number 2 of the other
    union = Union(["a", "b"], [named("noop", "right", "left"), named("noop", "fire", "right")])
    assert union.spec.action_names == ("noop", "right", "left", "fire")
    assert union.own(0, np.array([0, 1, 2])).tolist() == [0, 1, 2]
    assert union.own(1, np.array([0, 1, 3])).tolist() == [0, 2, 1]
    with pytest.raises(ValueError, match="b has no action 2"):
        union.own(1, np.array([0, 2]))
    layout = union.spec.layout
    assert layout is not None
    masks = [layout.array(union.pack(game, np.zeros((1, 2), np.float32)), MASK)[0].tolist() for game in (0, 1)]
    assert masks == [[1, 1, 1, 0], [1, 1, 0, 1]]


def test_games_with_the_same_actions_have_no_mask() -> None:
    names = [part.name for part in TWO.make(1).spec.parts]
    assert names == [WHOLE, GAME]


def test_actions_without_names_are_those_of_the_same_number_and_the_others_are_never_drawn() -> None:
    env = LIGHTS.make(4)
    obs, rng = env.reset(0), np.random.default_rng(0)
    drawn = set()
    for _ in range(60):  # an action that a game does not have would fail in it
        action = random_actions(env.spec, rng, obs)
        drawn |= set(action[2:].tolist())
        assert action[:2].max() < 4
        obs = env.step(action).obs
    assert drawn == {0, 1, 2, 3, 4}
    with pytest.raises(ValueError, match="some_games:Small has no action 4"):
        env.step(np.array([0, 4, 0, 0]))


def test_masks_of_a_game_are_those_that_it_gives() -> None:
    # One gives its mask in the info, the other one in its observation, before the other part
    games = Games(
        (Share(Custom("more_envs:doors", masks=True)), Share(Custom("more_envs:doors_in_observation"))),
    )
    env, seeds = games.make(4), np.random.SeedSequence(0).generate_state(2, np.uint32) >> 1
    obs, layout, rng = env.reset(0), env.spec.layout, np.random.default_rng(0)
    assert layout is not None
    for game, share in enumerate(games.shares):
        alone = share.env.make(2)
        given, own = alone.reset(int(seeds[game])), alone.spec.layout
        assert own is not None
        for name in (MASK, WHOLE):
            np.testing.assert_array_equal(layout.array(obs[2 * game :][:2], name), own.array(given, name))
    for _ in range(20):  # a closed door fails
        obs = env.step(random_actions(env.spec, rng, obs)).obs


PICTURE = Spec((1, 4, 4), np.dtype(np.uint8), Discrete(2))


@pytest.mark.parametrize(
    ("other", "told"),
    [
        (replace(PICTURE, obs_shape=(1, 8, 8)), "observe [1, 4, 4] and [1, 8, 8]; resize the pictures"),
        (replace(PICTURE, obs_shape=(3,), obs_dtype=np.dtype(np.float32)), "give all games a Dict with the keys of"),
        (replace(PICTURE, actions=Box((0.0,), (1.0,))), "their actions are 2 actions and 1 continuous actions; give"),
    ],
)
def test_games_that_one_network_cannot_play(other: Spec, told: str) -> None:
    with pytest.raises(UnsupportedSpace, match=f"^one and other cannot be played by one network: .*{re.escape(told)}"):
        Union(["one", "other"], [PICTURE, other])


def test_vectors_of_different_lengths_can_be_padded() -> None:
    with pytest.raises(UnsupportedSpace, match=r"\[50\] and \[3\]; pad the vectors to one length"):
        resolve("catch,counter").make(1)


@pytest.mark.parametrize(
    ("name", "names", "shares"),
    [
        ("counter,recall", ("counter", "recall"), (1, 1)),
        ("counter:2, recall", ("counter", "recall"), (2, 1)),
        ("some_games:Small:3,some_games:Large", ("some_games:Small", "some_games:Large"), (3, 1)),
    ],
)
def test_names_and_shares(name: str, names: tuple[str, ...], shares: tuple[int, ...]) -> None:
    games = resolve(name)
    assert isinstance(games, Games)
    assert (games.names, tuple(share.count for share in games.shares)) == (names, shares)
    assert resolve(games.name) == games


@pytest.mark.parametrize("name", SETS)
def test_named_sets(name: str) -> None:
    pytest.importorskip("ale_py")
    games = resolve(name)
    assert isinstance(games, Games)
    assert len(games.shares) == games.period == int(name.removeprefix("atari-"))
    twice = resolve(f"{name}:2,pong")
    assert isinstance(twice, Games)
    assert twice.names == (*games.names, "pong")
    assert twice.period == 2 * games.period + 1


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("counter,recall,counter", "counter is there twice; give it a larger share, as counter:2"),
        ("counter:0,recall", "the share of counter must be an integer from 1 to 1000"),
        ("counter:-1,recall", "the share of counter must be an integer from 1 to 1000"),
        ("counter:1.5,recall", "the share of counter must be an integer from 1 to 1000"),
        ("recall,counter:20000", "the share of counter must be an integer from 1 to 1000"),
        ("counter:2", "one game has no share; leave :2 out, or add games after a comma"),
        ("some_games:Small:2", "one game has no share; leave :2 out, or add games after a comma"),
        ("counter,", "a name is missing beside a comma"),
    ],
)
def test_names_that_are_refused(name: str, told: str) -> None:
    with pytest.raises(UserError, match=f"^--env {name}: {told}$"):
        resolve(name)


def test_errors_name_the_environment_by_its_number() -> None:
    failing: EnvFactory = Custom("some_envs:Fails")
    env = Games((Share(Custom("some_envs:Walk")), Share(failing))).make(4)
    env.reset(0)
    played(env, env.reset(0), 2)
    with pytest.raises(UserError, match=r"^--env some_envs:Fails: environment 2: "):
        env.step(np.zeros(4, np.int64))


@pytest.mark.parametrize("workers", [0, 4])
def test_errors_of_worker_processes_have_the_number_too(workers: int) -> None:
    games = Games((Share(Custom("some_envs:Walk")), Share(Custom("some_envs:Fails"))))
    env = games.make(4, workers=workers)
    played(env, env.reset(0), 2)
    with pytest.raises(UserError, match=r"^--env some_envs:Fails: environment 2: "):
        env.step(np.zeros(4, np.int64))
    env.close()


def test_games_with_and_without_masks_play_together() -> None:
    options = GamesOptions("some_games:Masked,some_games:Plain", action_masks=True)
    env = options.factory().make(2)
    layout, obs = env.spec.layout, env.reset(0)
    assert layout is not None
    assert layout.array(obs, MASK).tolist() == [[1, 0], [1, 1]]
    env.close()


def test_atari_games_step_together_as_alone() -> None:
    pytest.importorskip("ale_py")
    games = resolve("pong,breakout")
    env = games.make(2, workers=2)
    assert env.spec.action_names == ("noop", "fire", "right", "left", "rightfire", "leftfire")
    obs, layout = env.reset(0), env.spec.layout
    assert layout is not None
    assert layout.array(obs, MASK).tolist() == [[1] * 6, [1, 1, 1, 1, 0, 0]]
    alone = games.shares[1].env.make(1, workers=1)  # type: ignore[attr-defined]
    alone.reset(int(np.random.SeedSequence(0).generate_state(2, np.uint32)[1] >> 1))
    for action in (1, 2, 2, 3):
        step, own = env.step(np.array([0, action])), alone.step(np.array([action]))
        np.testing.assert_array_equal(layout.array(step.obs[1:], WHOLE), own.obs)
    env.close(), alone.close()


def test_the_environments_of_each_game_are_spread_over_the_scale_of_exploration() -> None:
    """Six environments of the first game and three of the second, in one actor of nine."""
    assert TWO.places(9) == [0, 1, 3, 4, 6, 7, 0, 3, 6]
    assert TWO.alone(1).places(4) == [0, 1, 2, 3]
    assert places(LastActionReward(TWO), 9) == TWO.places(9)
    assert places(Catch(), 3) == [0, 1, 2]


def test_ids_with_a_preprocessing_of_their_own_are_refused_among_several() -> None:
    with pytest.raises(
        UserError, match=r"--env pong,ALE/Breakout-v5: ids of ALE have a preprocessing of their own; use"
    ):
        configure("paac", env="pong,ALE/Breakout-v5")


@pytest.mark.parametrize(("only", "expected"), [(None, [2, 2]), (1, [4])])
def test_workers_are_divided_among_the_games_that_are_played(
    only: int | None, expected: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = list[int]()

    def make(env: Custom, num_envs: int, *, workers: int = 0, render: bool = False) -> VectorEnv:
        if num_envs > 1:
            asked.append(workers)
        return made(env, num_envs)

    made = Custom.make
    monkeypatch.setattr(Custom, "make", make)
    (LIGHTS if only is None else LIGHTS.alone(only)).make(8, workers=4).close()
    assert asked == expected
