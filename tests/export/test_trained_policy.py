"""A loaded policy does what `evaluate` does, to the bit, with the environments' own observations and actions."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from some_policies import KINDS, Games, evaluated, played, run_of, single, with_envs
from some_runs import trained

import gossamer
from gossamer.config.build import environment
from gossamer.storage.directory import load_config
from gossamer.system.errors import UserError

STEPS, SEED = 12, 5  # longer than an episode of each of them
EPISODES = 60


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Runs of KINDS, made when asked for."""
    place, made = tmp_path_factory.mktemp("runs"), dict[str, Path]()
    patch = pytest.MonkeyPatch()
    with_envs(place, patch)

    def run(kind: str) -> Path:
        if kind not in made:
            made[kind] = run_of(kind, place / f"run{len(made)}")
        return made[kind]

    yield run
    patch.undo()


Runs = Callable[[str], Path]


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("greedy", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_actions_are_those_of_evaluate(runs: Runs, kind: str, greedy: bool, count: int) -> None:
    directory = runs(kind)
    expected = list(islice(evaluated(directory, count, SEED, greedy=greedy), STEPS))
    policy = gossamer.load(directory, greedy=greedy, seed=SEED)
    last = load_config(directory).network.last_action_reward
    found = list(islice(played(policy, Games(directory, count, SEED), last=last), STEPS))
    # The environments are random or depend on the actions, so equal rewards also mean equal observations.
    rewards = np.array([each for _, each in found], np.float32)
    np.testing.assert_array_equal(rewards, [scores for _, scores in expected])
    to_env = policy.snapshot.description.interface.adapter.action
    for (actions, _), (theirs, _) in zip(found, expected, strict=True):
        given = np.stack([to_env(one) for one in (theirs.tolist() if theirs.ndim == 1 else theirs)])
        np.testing.assert_array_equal(actions, given)
        assert actions.dtype == given.dtype
    if count == 3 and not greedy:
        assert len({actions.tobytes() for actions, _ in found}) > 1  # it does act


def test_one_observation_is_a_row_of_a_batch(runs: Runs) -> None:
    """Greedy, since a batch and its rows draw different random numbers."""
    for kind in ("discrete, from -1", "Dict", "Tuple, multi-discrete, last action", "Box, squashed"):
        games, policy = Games(runs(kind), 3, SEED), gossamer.load(runs(kind), greedy=True)
        batch = policy.act(games.obs)
        for i, (obs, _) in enumerate(games.now):
            policy.reset()
            one = policy.act(obs)
            np.testing.assert_allclose(one, batch[i], rtol=1e-5, atol=1e-6)
            assert policy.action_space.contains(one)
        assert (type(one) is int) == (policy.action_space.shape == ())


def test_memory_is_kept_until_an_episode_begins(runs: Runs) -> None:
    policy = gossamer.load(runs("LSTM"), greedy=True)

    def state(obs: Any, **more: Any) -> np.ndarray:
        policy.act(obs, **more)
        return policy.memory["hidden"].numpy()

    first, second = np.array([0.5, 1.0]), np.array([-1.0, 0.0])
    fresh, later = state(first), state(second)
    assert (state(second) != later).any()  # it depends on what was seen
    np.testing.assert_array_equal(state(first, begins=True), fresh)
    np.testing.assert_array_equal(state(second), later)
    policy.reset()
    np.testing.assert_array_equal(state(first), fresh)
    policy.reset()
    state(np.stack([first, first]))
    both = state(np.stack([second, first]), begins=[False, True])
    np.testing.assert_allclose(both, np.concatenate([later, fresh]), rtol=1e-5, atol=1e-6)
    with pytest.raises(UserError, match=r"obs: a batch of 1, and the recurrent state is of 2; reset\(\) first"):
        policy.act(first)


def test_predict_gives_an_array_for_a_single_observation_too(runs: Runs) -> None:
    policy = gossamer.load(runs("Gymnasium id"))
    action, state = policy.predict(policy.observation_space.sample())
    assert (action.shape, action.dtype, state) == ((), np.int64, None)
    assert isinstance(action.item(), int)


@pytest.mark.parametrize("kind", ["LSTM", "Dict", "Box, normalised", "masks"])
def test_predict_is_act_with_the_state_passed(runs: Runs, kind: str) -> None:
    games, acting, predicting = Games(runs(kind), 2, SEED), *(gossamer.load(runs(kind), seed=SEED) for _ in range(2))
    state, ends = None, np.ones(2, bool)  # as in Stable-Baselines3's evaluate_policy
    for _ in range(STEPS):
        obs, mask = games.obs, games.mask
        actions, state = predicting.predict(obs, state=state, episode_start=ends, action_masks=mask)
        np.testing.assert_array_equal(actions, acting.act(obs, begins=ends, mask=mask))
        assert (state is None) == (kind != "LSTM")
        _, ends = games.step(actions)
    greedy = gossamer.load(runs(kind), greedy=True)
    np.testing.assert_array_equal(
        predicting.predict(games.obs, deterministic=True, action_masks=games.mask)[0],
        greedy.act(games.obs, mask=games.mask),
    )


def returns_of(policy: gossamer.TrainedPolicy, games: Games, episodes: int) -> list[tuple[float, int]]:
    """Returns and lengths of episodes as they end: of each environment an equal share."""
    sums, lengths, begins = np.zeros(len(games.envs)), np.zeros(len(games.envs), int), True
    ended: list[list[tuple[float, int]]] = [[] for _ in games.envs]
    order: list[tuple[float, int]] = []
    while len(order) < episodes:
        rewards, begins = games.step(policy.act(games.obs, begins=begins))
        sums, lengths = sums + rewards.astype(np.float32), lengths + 1
        for i in np.flatnonzero(begins):
            if len(ended[i]) < episodes // len(games.envs):
                ended[i].append((sums[i], lengths[i]))
                order.append(ended[i][-1])
            sums[i], lengths[i] = 0, 0
    return order


@pytest.mark.parametrize("greedy", [False, True])
@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("kind", ["discrete, from -1", "LSTM", "Box, squashed", "Gymnasium id"])
def test_stable_baselines3_evaluates_a_policy(runs: Runs, kind: str, count: int, greedy: bool) -> None:
    """It finds the returns that `act` gets in the same environments."""
    reason = "Stable-Baselines3 is not installed (pip install stable_baselines3)"
    evaluation = pytest.importorskip("stable_baselines3.common.evaluation", reason=reason)
    vectors = pytest.importorskip("stable_baselines3.common.vec_env", reason=reason)
    env, games = vectors.DummyVecEnv([lambda: single(runs(kind))] * count), Games(runs(kind), count, SEED)
    env.seed(SEED)
    games.now = [one.reset(seed=SEED + i) for i, one in enumerate(games.envs)]  # as DummyVecEnv seeds them
    returns, lengths = evaluation.evaluate_policy(
        gossamer.load(runs(kind), seed=SEED),
        env,
        n_eval_episodes=EPISODES,
        deterministic=greedy,
        return_episode_rewards=True,
        warn=False,
    )
    expected = returns_of(gossamer.load(runs(kind), greedy=greedy, seed=SEED), games, EPISODES)
    assert list(zip(returns, lengths, strict=True)) == expected


@pytest.fixture(scope="module")
def several(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with two members."""
    given: dict[str, Any] = {"env": "CartPole-v1", "learners": 2, "num_envs": 2, "steps": 500, "threads": 1}
    return gossamer.train("gala", **given, run_dir=tmp_path_factory.mktemp("several") / "run").directory


@pytest.mark.parametrize("member", ["average", "best", "1"])
def test_members(several: Path, member: str) -> None:
    expected = list(islice(evaluated(several, 2, SEED, greedy=False, member=member), STEPS))
    policy = gossamer.load(several, member=member, seed=SEED)
    found = list(islice(played(policy, Games(several, 2, SEED), last=False), STEPS))
    np.testing.assert_array_equal([actions for actions, _ in found], [actions for actions, _ in expected])


WRONG: dict[str, tuple[str, Callable[[gossamer.TrainedPolicy], Any], str]] = {
    "shape": ("discrete, from -1", lambda p: p.act(np.zeros(3)), r"obs: of shape \[3\]; one observation has \[2\]"),
    "no batch": ("discrete, from -1", lambda p: p.act(np.zeros((0, 2))), "obs: an empty batch"),
    "nan": ("discrete, from -1", lambda p: p.act(np.array([0, np.nan])), "not finite: component 1 is nan"),
    "ragged": ("discrete, from -1", lambda p: p.act([[1.0], [1.0, 2.0]]), "obs: not an array"),
    "no dict": ("Dict", lambda p: p.act(np.zeros(3)), "obs: must be a dict with the keys"),
    "no tuple": ("Tuple, multi-discrete, last action", lambda p: p.act({}), "obs: must be a tuple of 2"),
    "sizes": (
        "Tuple, multi-discrete, last action",
        lambda p: p.act((np.zeros(3, np.int64), np.zeros((2, 2)))),
        "several batch sizes",
    ),
    "reward": (
        "GRU, last action and reward",
        lambda p: [p.act(np.zeros(2)), p.act(np.zeros(2))],
        r"reward: the policy observes the last reward; give act\(obs, reward=...\)",
    ),
    **{
        f"reward {reward}": (
            "GRU, last action and reward",
            lambda p, reward=reward: [p.act(np.zeros(2)), p.act(np.zeros(2), reward=reward)],
            told,
        )
        for reward, told in {
            np.nan: "reward: is NaN or infinite",
            (1.0, 2.0): r"reward: of shape \[2\]; give a number, or \[1\] of them",
            "high": "reward: not a number",
        }.items()
    },
    "predict": ("GRU, last action and reward", lambda p: p.predict(np.zeros(2)), "use act"),
    "no state": (
        "LSTM",
        lambda p: p.predict(np.zeros(2), state=(np.zeros((1, 3)),)),
        r"state: arrays of shapes \[\(1, 3\)\], and the policy's are \[\(1, \d+\), \(1, \d+\)\]; None begins anew",
    ),
    "a state of others": (
        "LSTM",
        lambda p: p.predict(np.zeros((3, 2)), state=p.predict(np.zeros((2, 2)))[1]),
        r"state: arrays of shapes \[\(2, ",
    ),
    "no mask": ("masks", lambda p: p.act(np.zeros(1)), r'give mask=info\["action_mask"\]'),
    "mask": ("discrete, from -1", lambda p: p.act(np.zeros(2), mask=np.ones(3)), "leave it out"),
    "short mask": ("masks", lambda p: p.act(np.zeros((2, 1)), mask=np.ones((1, 7))), "a row for each of the 2"),
    "closed": ("masks", lambda p: p.act(np.zeros(1), mask=np.zeros(7)), "without a valid action"),
    "begins": ("LSTM", lambda p: [p.act(np.zeros(2)), p.act(np.zeros(2), begins=[True, False])], "begins: of shape"),
    "screens": ("LSTM", lambda p: p.preprocessing(), "made:walk is not an Atari game"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_cannot_be_used_is_refused(runs: Runs, case: str) -> None:
    kind, use, told = WRONG[case]
    with pytest.raises(UserError, match=told):
        use(gossamer.load(runs(kind)))


def test_atari_from_stacks_and_from_screens(tmp_path: Path) -> None:
    pytest.importorskip("ale_py", reason="the extra [atari] is not installed")
    directory = trained(tmp_path / "run", env="pong", screen_size=42).directory
    policy = gossamer.load(directory, seed=SEED)
    env = environment(load_config(directory)).make(2, workers=1)
    obs = env.reset(SEED)
    for actions, scores in islice(evaluated(directory, 2, SEED, greedy=False), STEPS):
        found = policy.act(obs)
        np.testing.assert_array_equal(found, actions)
        step = env.step(found)
        obs = step.obs
        np.testing.assert_array_equal(step.score, scores)
    screens = policy.preprocessing()
    assert screens is not policy.preprocessing()  # each game has its own
    one = screens.reset(np.random.default_rng(0).integers(0, 256, (210, 160, 3), np.uint8))
    assert policy.observation_space.contains(one)
    assert type(policy.act(one)) is int


def test_an_episode_needs_no_vector_of_environments(runs: Runs) -> None:
    env, policy = single(runs("Gymnasium id")), gossamer.load(runs("Gymnasium id"))
    obs, _ = env.reset(seed=0)
    for _ in range(5):
        obs, *_ = env.step(policy.act(obs))
    assert env.observation_space.contains(obs)
