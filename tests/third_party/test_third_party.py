"""Environments of other packages: each is trained, evaluated and recorded. `make test-envs` installs the packages;
where one is absent, its test is skipped."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gossamer
from gossamer.envs import catalogue
from gossamer.envs.base import UnknownEnv
from gossamer.envs.pool import EnvPool
from gossamer.system.errors import UserError

ENVS: dict[str, tuple[str, dict[str, Any]]] = {
    "minigrid": ("minigrid:MiniGrid-Empty-5x5-v0", {}),
    "highway_env": ("highway_env:highway-fast-v0", {}),
    "flappy_bird_gymnasium": ("flappy_bird_gymnasium:FlappyBird-v0", {"use_lidar": False}),
    "nle": ("nle:NetHackScore-v0", {}),
    "envpool": ("envpool:Pong-v5", {"reward_clip": True}),
    "gymnasium_robotics": ("gymnasium_robotics:FetchReach-v4", {}),
}


# Before the other tests, while no module has been imported
@pytest.mark.parametrize(
    ("module", "id"),
    [("minigrid", "MiniGrid-Empty-5x5-v0"), ("flappy_bird_gymnasium", "FlappyBird-v0"), ("nle", "NetHackScore-v0")],
)
def test_an_id_without_its_module_is_answered_with_what_to_give(module: str, id: str) -> None:
    told = f"--env {module}:{id}$" if find_spec(module) else f"install .*, then give --env {module}:{id}$"
    with pytest.raises(UnknownEnv, match=rf"^unknown environment '{id}'; .*{told}"):
        catalogue.resolve(id)


@pytest.mark.parametrize("module", ENVS)
def test_an_environment_of_another_package_is_trained_evaluated_and_recorded(tmp_path: Path, module: str) -> None:
    pytest.importorskip(module, reason="make test-envs installs it")
    env, kwargs = ENVS[module]
    run = gossamer.train("paac", env=env, env_kwargs=kwargs, num_envs=2, steps=60, log="none", run_dir=tmp_path / "run")
    assert run.result["steps"] >= 60
    assert gossamer.evaluate(run.directory, episodes=2, max_steps=20).episodes == 2
    if module not in ("nle", "gymnasium_robotics"):  # one draws text only, the other needs OpenGL
        film = gossamer.record(run.directory, out=tmp_path / "film.gif", max_steps=5)
        assert film.path.stat().st_size > 0


def test_envpool_s_episodes_begin_in_the_step_that_ends_one() -> None:
    pytest.importorskip("envpool", reason="make test-envs installs it")
    env = EnvPool("CartPole-v1", (("max_episode_steps", 5),)).make(3)
    first = env.reset(seed=1)
    again = env.reset(seed=1)
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, env.reset(seed=2))
    steps = [env.step(np.full(3, t % 2)) for t in range(12)]
    # five steps are too few for a pole to fall: every episode is truncated, and none has a step without an action
    assert [step.truncated.all() for step in steps] == [t % 5 == 4 for t in range(12)]
    for step in (steps[4], steps[9]):
        assert step.final_obs is not None
        assert (np.abs(step.obs) <= 0.05).all()  # as at the start of an episode
        assert (np.abs(step.final_obs) > 0.05).any(1).all()
    env.close()


def test_what_envpool_does_not_have_is_refused() -> None:
    pytest.importorskip("envpool", reason="make test-envs installs it")
    with pytest.raises(UnknownEnv, match="'envpool:Pnog-v5'; near: envpool:Pong-v5"):
        catalogue.resolve("envpool:Pnog-v5")
    with pytest.raises(UserError, match=r"^--env-kwargs seed=3: Gossamer sets it; leave it out$"):
        EnvPool("Pong-v5", (("seed", 3),)).make(1)
    with pytest.raises(UserError, match=r"^--env-kwargs reward_clp=1: not an argument of .*; near: reward_clip$"):
        EnvPool("Pong-v5", (("reward_clp", 1),)).make(1)
