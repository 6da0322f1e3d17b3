"""What is said of Gymnasium's own environments before they are made is what shows when they are."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.util import find_spec

import gymnasium
import pytest

from gossamer.envs import MissingExtra, UnsupportedSpace, resolve, support
from gossamer.envs.gym import Gym, list_ids
from gossamer.envs.support import trainable
from gossamer.system.errors import EnvironmentFailed
from gossamer.system.installation import install

OWN = [gymnasium.spec(id) for id in list_ids() if str(gymnasium.spec(id).entry_point).startswith("gymnasium.envs.")]
INSTALLED = [spec.id for spec in OWN if not support.support(spec).install]


@pytest.fixture
def nothing_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(support, "find_spec", lambda module: None)


@pytest.mark.filterwarnings("ignore:.*:UserWarning", "ignore::DeprecationWarning")  # of Gymnasium's, about old versions
@pytest.mark.parametrize("id", INSTALLED)
def test_the_table_is_true(id: str) -> None:
    try:
        Gym(id).make(1).close()
        refused = False
    except (UnsupportedSpace, EnvironmentFailed):
        refused = True
    assert refused == bool(support.support(gymnasium.spec(id)).refused)


def test_what_needs_nothing_can_be_trained() -> None:
    own = {"Acrobot-v1", "CartPole-v1", "MountainCar-v0", "Pendulum-v1", "Taxi-v4", "FrozenLake-v1", "Blackjack-v1"}
    assert own <= set(trainable(list_ids())[""])
    assert not {"HalfCheetah-v2", "tabular/CliffWalking-v0"} & {
        id for ids in trainable(list_ids()).values() for id in ids
    }


def test_what_is_registered_by_others_can_be_as_far_as_is_known() -> None:
    gymnasium.register("Theirs-v0", entry_point="theirs:Env")
    assert "Theirs-v0" in trainable(list_ids())[""]
    gymnasium.registry.pop("Theirs-v0")


@pytest.mark.usefixtures("nothing_installed")
def test_what_is_not_installed_is_said_with_its_command() -> None:
    assert "LunarLander-v3" in trainable(list_ids())[install("gym")]
    assert "HalfCheetah-v5" in trainable(list_ids())[install("mujoco")]
    with pytest.raises(MissingExtra, match=f"^LunarLander-v3: .* not installed; run {re.escape(install('gym'))}$"):
        resolve("LunarLander-v3")
    with pytest.raises(MissingExtra, match=f"run {re.escape(install('mujoco'))}$"):
        resolve("HalfCheetah-v5")


@pytest.mark.skipif(find_spec("pygame") is None, reason="the extra [gym] is not installed")
def test_a_picture_that_needs_pygame_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in [name for name in sys.modules if name.split(".")[0] == "pygame"]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "pygame", None)  # as if it were not installed
    env = Gym("CartPole-v1").make(1, render=True)
    env.reset(seed=0)
    told = f"^CartPole-v1: pygame is not installed; run {re.escape(install('gym'))}$"
    with pytest.raises(MissingExtra, match=told):
        env.frames()


@pytest.mark.skipif(find_spec("pygame") is None, reason="the extra [gym] is not installed")
def test_cartpole_can_be_shown() -> None:
    env = Gym("CartPole-v1").make(1, render=True)
    env.reset(seed=0)
    assert env.frames().shape == (1, 400, 600, 3)
    env.close()


def test_the_list_imports_no_environment() -> None:
    program = (
        "import sys; from gossamer.envs import catalogue; catalogue.learnable(); "
        "print([m for m in ('Box2D', 'pygame', 'mujoco', 'jax', 'gymnasium.envs.classic_control.cartpole') "
        "if m in sys.modules])"
    )
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert told.stdout.strip() == "[]"
