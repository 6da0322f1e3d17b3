"""Vector environments of the user's: what a policy sees is that of single environments, however they are reset."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import vectors
from vectors import PLACES, Count

import gossamer
from gossamer.data import Array, Step
from gossamer.envs.base import VectorEnv
from gossamer.envs.batched import Apart, Batched
from gossamer.envs.gym import Custom
from gossamer.envs.local import Local
from gossamer.envs.single import EnvSource
from gossamer.spaces.observations import MASK
from gossamer.system.errors import EnvironmentFailed, UserError

MODES = ("Disabled", "SameStep", "NextStep")
KINDS = ("Native", "sync", "parallel", "unshared", "wrapped")


@pytest.fixture(autouse=True)
def users_modules(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    monkeypatch.setattr(vectors, "places", itertools.count())


def vector(target: str, num_envs: int = PLACES, **kwargs: Any) -> VectorEnv:
    return Custom(f"vectors:{target}", tuple(kwargs.items()), masks=True).make(num_envs)


def first_valid(env: VectorEnv, obs: Array, step: int) -> Array:
    """A valid action of each environment."""
    assert env.spec.layout is not None
    valid = env.spec.layout.array(obs, MASK)
    return np.array([np.flatnonzero(row)[step % row.sum()] for row in valid])


def played(env: VectorEnv, steps: int) -> list[Step]:
    obs, found = env.reset(seed=3), list[Step]()
    for t in range(steps):
        found.append(env.step(first_valid(env, obs, t)))
        obs = found[-1].obs
    env.close()
    return found


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", KINDS)
def test_a_vector_gives_the_steps_of_single_environments(kind: str, mode: str) -> None:
    env = vector(kind, mode=mode)
    assert isinstance(env, Apart if kind in ("Native", "unshared") and mode == "NextStep" else Batched)
    places = itertools.count()
    single = Local(EnvSource("count", lambda: Count(next(places)), masks=True), PLACES)
    assert env.spec == single.spec
    for seen, expected in zip(played(env, 40), played(single, 40), strict=True):
        for name in ("obs", "reward", "score", "terminated", "truncated", "over"):
            np.testing.assert_array_equal(getattr(seen, name), getattr(expected, name))
        assert (seen.final_obs is None) == (expected.final_obs is None) == (not expected.truncated.any())
        if seen.final_obs is not None and expected.final_obs is not None:
            np.testing.assert_array_equal(seen.final_obs[seen.truncated], expected.final_obs[seen.truncated])
        assert seen.metrics == expected.metrics


def test_the_steps_of_a_vector_that_counts() -> None:
    # Environment 0: episode 0 has 2 steps and terminates, episode 1 has 3 steps and is truncated
    env = vector("Native", num_envs=1)
    steps, layout = played(env, 5), env.spec.layout
    assert layout is not None
    assert [step.reward.item() for step in steps] == [1, 2, 1, 2, 3]
    assert [(step.terminated.item(), step.truncated.item()) for step in steps] == [
        (False, False), (True, False), (False, False), (False, False), (False, True)
    ]  # fmt: skip
    # [place, episode, age, action]: the valid actions are 1 and 3 at age 0, 0, 1 and 3 at age 1, taken in turn (t mod 2
    # of two, t mod 3 of three); the environment has them from 5 on
    seen = [layout.array(step.obs, "counts")[0].tolist() for step in steps]
    assert seen == [[0, 0, 1, 6], [0, 1, 0, -1], [0, 1, 1, 6], [0, 1, 2, 5], [0, 2, 0, -1]]
    assert steps[4].final_obs is not None
    assert layout.array(steps[4].final_obs, "counts").tolist() == [[0, 1, 3, 6]]
    assert steps[1].metrics == {0: {"is_success": 1, "age": 2}}
    assert steps[4].metrics == {0: {"is_success": 0, "age": 3}}


def test_seeds_are_those_of_the_run() -> None:
    def noise(seed: int) -> Array:
        env = vector("noisy")
        assert env.spec.layout is not None
        return env.spec.layout.array(env.reset(seed), "noise")[:, 0]

    one, same, other = noise(1), noise(1), noise(2)
    np.testing.assert_array_equal(one, same)
    assert len({*one.tolist(), *other.tolist()}) == 2 * PLACES  # neighbouring seeds share no environment


def test_actions_of_every_environment_reach_it() -> None:
    env = vector("sync", num_envs=2)
    obs = env.reset(0)
    assert env.spec.layout is not None
    # environment 1 starts with an odd sum of age and place: its action 0 is valid, that of environment 0 is not
    step = env.step(np.array([3, 0]))
    assert env.spec.layout.array(step.obs, "counts")[:, 3].tolist() == [8, 5]
    assert obs.shape == step.obs.shape


@pytest.mark.parametrize(
    ("target", "told"),
    [
        ("too_few", r"--env vectors:too_few: its factory made 4 environments for num_envs=3$"),
        (
            "modeless",
            r'--env vectors:modeless: its metadata\["autoreset_mode"\] must say .*: AutoresetMode.NEXT_STEP, ',
        ),
        ("nameless", r"it must have num_envs, single_observation_space and single_action_space \("),
        ("no_vector", r"has the parameter num_envs, so that it must return a gymnasium.vector.VectorEnv, not Count$"),
        ("without_number", r"a factory of vector environments needs the parameter num_envs"),
        ("Forgets", r'step\(\) gave no info\["final_obs"\], the last observations of truncated episodes'),
        ("Fails", r"^--env vectors:Fails: step\(\) raised OSError: no coal left \(vectors.py, line \d+\)$"),
    ],
)
def test_what_a_vector_lacks_is_told(target: str, told: str) -> None:
    with pytest.raises((UserError, ValueError), match=told):
        played(vector(target), 10)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"env_workers": 2}, "--env-workers 2: vectors:Native is a vector environment, which steps its environments"),
        (
            {"env": "vectors:Native,vectors:sync", "env_workers": 4},
            "--env-workers 4: vectors:Native is a vector environment",
        ),
        ({"on_env_error": "restart"}, "--on-env-error restart: vectors:Native is a vector environment"),
        ({"env_kwargs": {"num_envs": 2}}, "--env-kwargs num_envs=2: vectors:Native is a vector environment; use --num"),
        ({"env_kwargs": {"mode": "Never"}}, "its factory, with mode=Never, raised ValueError: 'Never' is not a valid"),
    ],
)
def test_options_that_a_vector_does_not_have_are_refused(tmp_path: Path, given: dict[str, Any], told: str) -> None:
    given = {"env": "vectors:Native", **given}
    with pytest.raises((UserError, EnvironmentFailed), match=told):
        gossamer.train("paac", num_envs=4, steps=100, run_dir=tmp_path / "run", **given)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("mode", MODES)
def test_a_vector_is_trained_evaluated_resumed_and_recorded(tmp_path: Path, mode: str) -> None:
    alternating = mode == "SameStep"
    run = gossamer.train(
        "paac",
        env="vectors:Native",
        env_kwargs={"mode": mode},
        num_envs=6,
        steps=300,
        alternating=alternating,
        run_dir=tmp_path / "run",
    )
    assert run.result["steps"] >= 300
    assert gossamer.evaluate(run.directory, episodes=6).episodes == 6
    assert gossamer.resume(run.directory, steps=600).result["steps"] >= 600
    film = gossamer.record(run.directory, out=tmp_path / "film.gif")
    assert 2 <= film.steps <= 4


def test_a_vector_may_give_no_info() -> None:
    env = Custom("vectors:silent").make(PLACES)
    env.reset(seed=3)
    for _ in range(3):
        step = env.step(np.ones(PLACES, int))
    assert step.metrics == {}
    env.close()
