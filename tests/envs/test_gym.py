import math
import multiprocessing
import os
import signal
import subprocess
import sys
from pathlib import Path

import gymnasium
import numpy as np
import pytest

from gossamer.envs import catalogue
from gossamer.envs.base import Resumable, UnknownEnv, UnsupportedSpace, VectorEnv, env_seeds
from gossamer.envs.gym import Custom, Gym, list_ids
from gossamer.spaces import Box, Discrete, MultiBinary, MultiDiscrete, Space
from gossamer.system.errors import UserError


@pytest.fixture(autouse=True)
def users_modules(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parent))


def actions(steps: int, envs: int, number: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, number, (steps, envs))


def close_and_compare(one: VectorEnv, other: VectorEnv, steps: int) -> int:
    """Step both alike and return how many episodes were cut short."""
    cut = 0
    assert one.spec == other.spec
    np.testing.assert_array_equal(one.reset(seed=3), other.reset(seed=3))
    for action in actions(steps, one.num_envs, one.spec.actions.outputs):
        a, b = one.step(action), other.step(action)
        np.testing.assert_equal(vars(a), vars(b))
        cut += int(a.truncated.sum())
    one.close()
    other.close()
    return cut


def test_vector_is_single_environments_reset_by_hand() -> None:
    env = Gym("CartPole-v1", (("max_episode_steps", 12),)).make(3)
    singles = [gymnasium.make("CartPole-v1", max_episode_steps=12) for _ in range(3)]
    obs = env.reset(seed=5)
    for i, (single, seed) in enumerate(zip(singles, env_seeds(5, 3), strict=True)):
        np.testing.assert_array_equal(obs[i], single.reset(seed=seed)[0])
    ends = {"terminated": 0, "truncated": 0, "both": 0}
    for action in actions(200, 3, 2):
        step = env.step(action)
        for i, single in enumerate(singles):
            x, reward, terminated, truncated, _ = single.step(int(action[i]))
            assert step.reward[i] == step.score[i] == reward
            assert step.terminated[i] == terminated
            assert step.truncated[i] == (truncated and not terminated)
            assert step.over[i] == (terminated or truncated)
            if step.truncated[i]:
                assert step.final_obs is not None
                np.testing.assert_array_equal(step.final_obs[i], x)
            if terminated or truncated:
                ends["both" if terminated and truncated else "terminated" if terminated else "truncated"] += 1
                x, _ = single.reset()
            np.testing.assert_array_equal(step.obs[i], x)
    assert all(ends.values()), ends  # otherwise this test saw too little


def test_environments_and_runs_differ() -> None:
    env = Gym("CartPole-v1").make(4)
    first = env.reset(seed=0)
    assert len(np.unique(first, axis=0)) == 4
    assert len(np.unique(np.concatenate([first, env.reset(seed=1)]), axis=0)) == 8  # neighbouring seeds share none
    np.testing.assert_array_equal(env.reset(seed=0), first)


def test_workers_give_the_same_trajectories_as_this_process() -> None:
    walk = Custom("some_envs:Walk")
    assert close_and_compare(walk.make(4), walk.make(4, workers=2), steps=60) > 3


def test_workers_know_what_this_script_registered() -> None:
    gymnasium.register("Walk-v0", entry_point="some_envs:Walk", max_episode_steps=4)
    walk = Gym("Walk-v0")
    assert close_and_compare(walk.make(2), walk.make(2, workers=2), steps=30) > 3
    gymnasium.registry.pop("Walk-v0")


def test_first_action_is_the_spaces() -> None:
    env = Custom("some_envs:Walk").make(3)  # Discrete(3, start=-1); it shows its last action
    env.reset(seed=0)
    np.testing.assert_array_equal(env.step(np.array([0, 1, 2])).obs[:, 1], [-1, 0, 1])
    assert env.spec.actions == Discrete(3)
    assert env.spec.obs_dtype == np.float32


@pytest.mark.parametrize("workers", [0, 2])
def test_pictures_come_channel_first(workers: int) -> None:
    env = Custom("some_envs:Picture").make(2, workers=workers)  # [3, 4, 2], counted through
    obs = env.reset(seed=0)
    assert env.spec.obs_shape == (2, 3, 4)
    assert env.spec.pixels
    assert obs.dtype == np.uint8
    np.testing.assert_array_equal(obs[1, 0], np.arange(24).reshape(3, 4, 2)[..., 0])
    np.testing.assert_array_equal(obs[1, 1], np.arange(24).reshape(3, 4, 2)[..., 1])
    env.close()


def test_stacked_and_grey_pictures_keep_their_order() -> None:
    stacked = Custom("some_envs:stacked").make(1)
    np.testing.assert_array_equal(stacked.reset(seed=0)[0], np.arange(24).reshape(2, 3, 4))
    grey = Custom("some_envs:grey").make(1)
    np.testing.assert_array_equal(grey.reset(seed=0)[0], np.arange(12).reshape(1, 3, 4))
    assert grey.spec.obs_shape == (1, 3, 4)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("pair_of_actions", r"some_envs:pair_of_actions: actions of Tuple\(.*MultiDiscrete.*ActionWrapper"),
        ("words", r"some_envs:words: observations of Text\(.*TransformObservation"),
        (
            "nothing_seen",
            r'some_envs:nothing_seen: observations "a" of Box\(.*are not supported: they are empty',
        ),
        ("nothing_done", r"some_envs:nothing_done: actions of MultiDiscrete\(\[\]\) are not supported: they are empty"),
    ],
)
@pytest.mark.parametrize("workers", [0, 2])
def test_unsupported_spaces_are_refused(name: str, says: str, workers: int) -> None:
    with pytest.raises(UnsupportedSpace, match=says):
        Custom(f"some_envs:{name}").make(2, workers=workers)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize(
    ("name", "ours"),
    [
        ("from_five", Discrete(3)),
        ("multi_discrete", MultiDiscrete((2, 3, 2, 3))),
        ("multi_binary", MultiBinary(6)),
        ("box", Box((-1.0, -2.0, -1.0, -2.0), (1.0, 2.0, 1.0, 2.0))),
        ("half_open", Box((0.0,), (math.inf,))),
    ],
)
def test_every_kind_of_action_reaches_the_environment_as_its_space_wants_it(
    name: str, ours: Space, workers: int
) -> None:
    # These environments raise unless their action space contains the action, and observe it
    env = Custom(f"some_envs:{name}").make(2, workers=workers)
    assert env.spec.actions == ours
    env.reset(seed=0)
    rng, start = np.random.default_rng(0), {"from_five": 5, "multi_discrete": 1}.get(name, 0)
    for _ in range(20):
        action = ours.random(rng, 2)
        np.testing.assert_allclose(env.step(action).obs, (action + start).reshape(2, -1))
    env.close()


def test_continuous_actions_are_clipped_to_their_bounds() -> None:
    env = Custom("some_envs:box").make(1)
    env.reset(seed=0)
    assert env.step(np.array([[-3.0, 3.0, 0.5, 9.0]], np.float32)).obs.tolist() == [[-1.0, 2.0, 0.5, 2.0]]


def test_environments_divide_by_workers() -> None:
    with pytest.raises(ValueError, match=r"num_envs \(7\) must be a multiple of workers \(3\), such as 6"):
        Gym("CartPole-v1").make(7, workers=3)
    with pytest.raises(ValueError, match=r"num_envs \(2\) must be a multiple of workers \(3\), such as 3"):
        Gym("CartPole-v1").make(2, workers=3)


def three_steps(env: VectorEnv) -> None:
    for _ in range(3):
        env.step(np.ones(2, np.int64))


def test_an_interrupt_is_left_to_this_process() -> None:
    others = set(multiprocessing.active_children())
    env = Custom("some_envs:Walk").make(2, workers=2)
    env.reset(seed=0)
    workers = set(multiprocessing.active_children()) - others
    assert len(workers) == 2
    for worker in workers:
        assert worker.pid is not None
        os.kill(worker.pid, signal.SIGINT)  # as ctrl-C sends it to all of a terminal's processes
    three_steps(env)
    env.close()


INTERRUPTED = """
import os, signal, threading
from gossamer.envs.gym import Custom
def interrupt():
    while not begun.wait(0.05):
        os.killpg(0, signal.SIGINT)  # as ctrl-C sends it to all of a terminal's processes
signal.signal(signal.SIGINT, lambda *_: None)
begun = threading.Event()
interrupts = threading.Thread(target=interrupt)
interrupts.start()
try:
    env = Custom("some_envs:Walk").make(2, workers=2)
    env.reset(seed=0)
finally:
    begun.set()
    interrupts.join()
env.close()
"""


def test_an_interrupt_while_workers_start_is_left_to_this_process() -> None:
    path = os.pathsep.join(filter(None, sys.path))
    words, env = [sys.executable, "-c", INTERRUPTED], {**os.environ, "PYTHONPATH": path}
    done = subprocess.run(words, env=env, start_new_session=True, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_users_environment_goes_on_exactly_where_it_was_saved() -> None:
    walk = Custom("some_envs:Walk")
    env, other = walk.make(3), walk.make(3)
    assert isinstance(env, Resumable)
    assert isinstance(other, Resumable)
    env.reset(seed=1)
    for action in actions(10, 3, 3):
        env.step(action)
    saved = env.state_dict()
    straight = [env.step(action) for action in actions(40, 3, 3)]
    other.load_state_dict(saved)
    for action, expected in zip(actions(40, 3, 3), straight, strict=True):
        np.testing.assert_equal(vars(other.step(action)), vars(expected))


def test_a_registered_environment_is_resumable_unless_a_wrapper_has_a_state() -> None:
    gymnasium.register("Walk-v1", entry_point="some_envs:Walk")
    gymnasium.register("Walk-v2", entry_point="some_envs:Walk", max_episode_steps=4)  # TimeLimit counts steps
    env = Gym("Walk-v1").make(2)
    assert isinstance(env, Resumable)
    env.load_state_dict(env.state_dict())  # before any reset, too
    env.step(np.ones(2, np.int64))
    assert not isinstance(Gym("Walk-v2").make(1), Resumable)
    assert not isinstance(Gym("CartPole-v1").make(1), Resumable)
    gymnasium.registry.pop("Walk-v1")
    gymnasium.registry.pop("Walk-v2")


@pytest.mark.parametrize("workers", [0, 2])
def test_frames_are_what_the_environments_render(workers: int) -> None:
    env = Custom("some_envs:Walk").make(2, workers=workers, render=True)
    env.reset(seed=0)
    env.step(np.array([2, 2]))
    np.testing.assert_array_equal(env.frames(), np.ones((2, 4, 6, 3)))  # painted with its age
    env.close()


def test_frames_must_be_asked_for() -> None:
    env = Custom("some_envs:Walk").make(1)
    env.reset(seed=0)
    with pytest.raises(RuntimeError, match="render=True"):
        env.frames()


def test_unknown_ids_and_factories_are_named() -> None:
    with pytest.raises(UnknownEnv, match="'CartPol-v1'; near: CartPole-v1"):
        Gym("CartPol-v1").make(1)
    with pytest.raises(UnknownEnv, match="'nowhere:make': no module 'nowhere'"):
        Custom("nowhere:make").make(1)
    with pytest.raises(UnknownEnv, match="'some_envs:Wlak'; near: some_envs:Walk"):
        Custom("some_envs:Wlak").make(1)
    with pytest.raises(ValueError, match="must be module:factory, not 'some_envs'"):
        Custom("some_envs")
    with pytest.raises(UnknownEnv, match=r"--env some_envs:no_env: must return a gymnasium\.Env, not str"):
        Custom("some_envs:no_env").make(1)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("import not_there_at_all", r"ModuleNotFoundError: No module named 'not_there_at_all' \(broken.py, line 1\)"),
        ("def f(:", r"SyntaxError: invalid syntax \(broken.py, line 1\)"),
        ("\nraise ValueError('of its own')", r"ValueError: of its own \(broken.py, line 2\)"),
        ("raise SystemExit('bye')", r"SystemExit: bye \(broken.py, line 1\)"),
    ],
)
@pytest.mark.parametrize("name", ["broken:make", "broken:Make-v0"])
def test_a_module_that_cannot_be_imported_is_named(
    text: str, told: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken.py").write_text(text + "\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(UserError, match=f"^--env {name}: importing broken raised {told}$"):
        catalogue.resolve(name)


def test_a_module_can_register_its_ids(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "registers.py").write_text(
        "import gymnasium\ngymnasium.register('Registered-v0', entry_point='some_envs:Walk')\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    assert Gym("registers:Registered-v0").make(1).spec.actions == Discrete(3)
    assert "Registered-v0" in list_ids()
    gymnasium.registry.pop("Registered-v0")
    del sys.modules["registers"]
