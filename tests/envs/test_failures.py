"""What goes wrong in an environment of a user's: named in one line, or survived by a restart."""

from __future__ import annotations

import os
import pickle
import re
import subprocess
import sys
from contextlib import closing
from functools import partial
from pathlib import Path

import numpy as np
import psutil
import pytest
import some_envs
from some_envs import WRONG, Fails, FailsToStart, Walk, answers

from gossamer.envs.base import Restarting, VectorEnv, env_seeds
from gossamer.envs.gym import Custom, Gym, vectorise
from gossamer.envs.local import AT_MOST, Local
from gossamer.envs.single import EnvSource
from gossamer.envs.workers import later_seeds
from gossamer.system.errors import EnvironmentFailed, UserError


@pytest.fixture(autouse=True)
def users_modules(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    monkeypatch.setattr(some_envs.Made, "count", 0)


def until_it_fails(env: VectorEnv) -> EnvironmentFailed:
    with closing(env), pytest.raises(EnvironmentFailed) as caught:
        many_steps(env)
    return caught.value


def many_steps(env: VectorEnv) -> None:
    env.reset(seed=0)
    for _ in range(20):
        env.step(np.ones(env.num_envs, np.int64))


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("Fails", r"environment 0: step\(\) raised OSError: no coal left \(some_envs\.py, line \d+\)"),
        ("FailsOddly", r"environment 0: step\(\) raised UnpicklableError: of two arguments \(some_envs.py, line \d+\)"),
        ("FailsSilently", r"environment 0: step\(\) raised NotImplementedError \(some_envs.py, line \d+\)"),
        ("FailsToStart", r"environment 0: reset\(\) raised OSError: no coal yet \(some_envs\.py, line \d+\)"),
        (
            "OldReset",
            r"environment 0: reset\(\) must return \(observation, info\), not an array of .*; before Gym 0.26 .*",
        ),
        (
            "Seedless",
            r"environment 0: reset\(\) must take a seed: def reset\(self, \*, seed=None, options=None\), with .*",
        ),
    ],
)
def test_an_error_names_the_environment_and_its_place(name: str, told: str, workers: int) -> None:
    error = until_it_fails(Custom(f"some_envs:{name}").make(4, workers=workers))
    assert re.fullmatch(f"--env some_envs:{name}: {told}", str(error)), str(error)
    assert (error.env, error.index) == (f"some_envs:{name}", 0)
    assert isinstance(error, UserError)


def test_the_error_and_its_traceback_are_kept() -> None:
    error = until_it_fails(Custom("some_envs:Fails").make(1))
    assert isinstance(error.__cause__, OSError)
    assert 'raise OSError("no coal left")' in error.trace
    error.advice = "train on"
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.trace, again.index) == (str(error), error.trace, 0)


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ("shape", r"step() gave an observation of shape (1,); its observation_space has (2,)"),
        ("scalar", r"step() gave an observation of shape (); its observation_space has (2,)"),
        ("text", r"step() gave an observation of <U1; its observation_space has numbers"),
        ("ragged", r"step() gave an observation that is not an array"),
        ("nan", r"step() gave an observation that is not finite: component 1 is nan"),
        ("beyond float32", r"step() gave an observation that is too large for float32: component 0 is 1e+300"),
        (
            "four values",
            r"terminated, truncated, info), not 4 values; done of Gym before 0.26 is terminated, or truncated",
        ),
        ("one value", r"truncated, info), not an array of float64 with shape (2,)"),
        ("no reward", r"the reward must be a number, not None"),
        ("two rewards", r"the reward must be a number, not an array of float64 with shape (2,)"),
        ("a reward that is no number", r"the reward must be finite in float32, not nan"),
        ("a reward beyond float32", r"the reward must be finite in float32, not 1e+39"),
        ("a reward beyond float64", r"the reward must be finite in float32, not inf"),
        ("no flag", r"terminated must be True or False, not None"),
        ("a dict", r"truncated must be True or False, not dict"),
    ],
)
def test_a_wrong_answer_is_refused_at_the_first_step(wrong: str, told: str) -> None:
    env = Local(EnvSource("mine", partial(answers, wrong)), 2)
    env.reset(seed=0)
    with pytest.raises(EnvironmentFailed, match=re.escape(told)) as caught:
        env.step(np.ones(2, np.int64))
    assert caught.value.index == 0


def test_every_wrong_answer_is_tried() -> None:
    (mark,) = test_a_wrong_answer_is_refused_at_the_first_step.pytestmark  # type: ignore[attr-defined]
    assert [wrong for wrong, _ in mark.args[1]] == list(WRONG)


def test_large_numbers_are_no_error() -> None:
    """The sum of their squares is infinite in float32, they are not."""

    def large(answer: tuple[object, ...]) -> tuple[object, ...]:
        return np.array([3e38, -3e38]), np.float32(2), np.bool_(False), np.array([False]), {}

    env = Local(EnvSource("mine", lambda: some_envs.Answers(large)), 1)
    env.reset(seed=0)
    step = env.step(np.ones(1, np.int64))
    np.testing.assert_array_equal(step.obs, np.array([[3e38, -3e38]], np.float32))
    assert (step.reward.item(), step.over.item()) == (2.0, False)


def test_pixels_must_be_bytes() -> None:
    error = until_it_fails(Custom("some_envs:unit_pixels").make(1))
    assert "reset() gave an observation of float64; its observation_space has uint8 pixels" in str(error)
    error = until_it_fails(Custom("some_envs:large_pixels").make(1))
    assert "reset() gave an observation with pixels from 250 to 273; they must lie in 0..255" in str(error)
    wide, plain = (Custom(f"some_envs:{name}").make(1).reset(seed=0) for name in ("wide_pixels", "Picture"))
    np.testing.assert_array_equal(wide, plain)
    assert wide.dtype == np.uint8


def test_a_factory_that_fails_is_named() -> None:
    with pytest.raises(EnvironmentFailed, match=r"environment 0: its factory raised RuntimeError: no licence \("):
        Custom("some_envs:refuses").make(2)
    with pytest.raises(EnvironmentFailed, match=r"environment 2: its factory raised OSError: no room for three"):
        Custom("some_envs:third_fails").make(4)
    with pytest.raises(EnvironmentFailed, match=r"environment 0: must set observation_space and action_space"):
        Custom("some_envs:NoSpaces").make(2)
    some_envs.Made.count = 0
    with pytest.raises(EnvironmentFailed, match=r"environment 1: has 2 actions and obs.*the first one has 3 actions"):
        Custom("some_envs:of_two_kinds").make(2)


def test_a_factory_that_fails_in_a_worker_process_is_named() -> None:
    error = until_it_fails(Custom("some_envs:third_fails").make(6, workers=2))  # the third of each process
    assert (error.index, "its factory raised OSError: no room for three" in str(error)) == (2, True)


def test_a_worker_process_that_dies_is_named() -> None:
    error = until_it_fails(Custom("some_envs:Dies").make(4, workers=2))
    assert str(error) == "--env some_envs:Dies: environment 0: its worker process ended with exit code 7 during step()"


def restarted(factory: Custom | Gym, workers: int, steps: int = 4) -> tuple[list[np.ndarray], VectorEnv]:
    env = factory.make(2, workers=workers)
    found = [env.reset(seed=0)]
    for _ in range(steps):
        step = env.step(np.ones(2, np.int64))
        found.append(step.obs)
        if step.truncated.any():
            break
    assert step.truncated.tolist() == step.over.tolist() == [True, True]
    assert not step.terminated.any()
    assert step.reward.tolist() == [0, 0]
    assert step.final_obs is not None
    np.testing.assert_array_equal(step.final_obs, found[-2])  # the last good observations
    assert not np.array_equal(step.obs, found[0])  # another episode than the first
    return found, env


@pytest.mark.parametrize(("name", "workers"), [("Fails", 0), ("Fails", 2), ("Dies", 2)])
def test_a_failed_environment_is_restarted_and_its_episode_cut_short(name: str, workers: int) -> None:
    found, env = restarted(Custom(f"some_envs:{name}", on_error="restart"), workers)
    assert len(found) == 4  # reset, two good steps, and the one that failed
    assert isinstance(env, Restarting)
    assert sorted(failure.index or 0 for failure in env.failures()) == [0, 1]
    assert env.failures() == ()
    for _ in range(2):  # and on it goes
        assert not env.step(np.ones(2, np.int64)).over.any()
    assert env.step(np.ones(2, np.int64)).truncated.all()
    assert len(env.failures()) == 2
    env.close()


def test_restarts_follow_the_seed() -> None:
    factory = Custom("some_envs:Fails", on_error="restart")
    np.testing.assert_array_equal(restarted(factory, 0)[0], restarted(factory, 0)[0])


@pytest.mark.parametrize(("name", "workers"), [("FailsOddly", 0), ("FailsToStart", 0), ("DiesAtOnce", 2)])
def test_an_environment_that_always_fails_ends_it_all(name: str, workers: int) -> None:
    error = until_it_fails(Custom(f"some_envs:{name}", on_error="restart").make(2, workers=workers))
    assert str(error).endswith(f"; it was restarted {AT_MOST} times and failed each time")


class FailsTwice(Walk):
    """Fails at the reset that follows its first failure, too."""

    fails = 0

    def reset(self, **given: object) -> object:
        if FailsTwice.fails == 1:
            FailsTwice.fails += 1
            raise OSError("again")
        return super().reset(**given)  # type: ignore[arg-type]

    def step(self, action: int) -> object:
        if FailsTwice.fails == 0:
            FailsTwice.fails += 1
            raise OSError("once")
        return super().step(action)


def test_a_restart_that_fails_is_tried_again() -> None:
    env = vectorise(EnvSource("mine", FailsTwice, "restart"), 1, 0)
    env.reset(seed=0)
    assert env.step(np.zeros(1, np.int64)).truncated.all()
    assert isinstance(env, Restarting)
    assert [failure.what.split(" (")[0] for failure in env.failures()] == [
        "step() raised OSError: once",
        "reset() raised OSError: again",
    ]


def test_without_restarts_nothing_is_made_again() -> None:
    for kind in (Fails, FailsToStart):
        until_it_fails(Local(EnvSource("mine", kind), 1))


def test_worker_processes_have_the_same_spaces_as_the_first_environment() -> None:
    error = until_it_fails(Custom("more_envs:OtherInWorkers").make(2, workers=2))
    assert "environment 0: has other spaces than the one that was made first" in str(error)


ORPHANS = """
import sys
import numpy as np
from gossamer.envs.gym import Custom
if __name__ == "__main__":
    env = Custom("more_envs:HangsSoon").make(2, workers=2)
    env.reset(0)
    env.step(np.zeros(2, int))
    print(*[each._process.pid for each in env._processes], flush=True)
    env.step(np.zeros(2, int))
"""


def test_worker_processes_end_after_a_run_that_was_killed_also_where_an_environment_hangs(tmp_path: Path) -> None:
    script = tmp_path / "orphans.py"
    script.write_text(ORPHANS)
    path = os.pathsep.join([str(Path(__file__).parent), str(Path(__file__).parents[2])])
    environ = {**os.environ, "PYTHONPATH": path}
    with subprocess.Popen([sys.executable, script], stdout=subprocess.PIPE, text=True, env=environ) as run:
        assert run.stdout is not None
        workers = [psutil.Process(int(word)) for word in run.stdout.readline().split()]
        run.kill()
    assert len(workers) == 2
    gone, alive = psutil.wait_procs(workers, timeout=30)
    assert (len(gone), alive) == (2, [])


def test_after_a_crash_seeds_are_not_those_of_the_beginning() -> None:
    """So that an environment does not play the run's first episodes again."""
    for seed in range(200):
        assert not set(later_seeds(seed).integers(2**31, size=4).tolist()) & set(env_seeds(seed, 8))
