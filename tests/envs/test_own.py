"""Environments given as classes and functions have a name, or a message that shows what to write."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import gymnasium
import pytest
from some_envs import Walk

from gossamer.envs import UnknownEnv, resolve
from gossamer.envs.own import env_name, in_file
from gossamer.system.errors import UserError

LATER = "a run must be able to import it later"


def make() -> gymnasium.Env[Any, Any]:
    return Walk()


def test_a_name_stays() -> None:
    assert env_name("pong") == "pong"


@pytest.mark.parametrize(
    ("env", "name"),
    [(Walk, "some_envs:Walk"), (make, f"{__name__}:make"), (partial(make), f"{__name__}:make")],
    ids=["class", "function", "partial without arguments"],
)
def test_what_can_be_imported_has_its_name(env: Any, name: str) -> None:
    assert env_name(env) == name


def refused(env: Any) -> str:
    with pytest.raises(UserError) as caught:
        env_name(env)
    return str(caught.value)


def test_what_cannot_be_imported_shows_what_to_write() -> None:
    class Local(Walk):
        pass

    name = f"{test_what_cannot_be_imported_shows_what_to_write.__name__}.<locals>"
    assert refused(Local) == (
        f'env {name}.Local: {LATER}: put Local at the top level of a file, as envs.py, and give env="envs:Local"'
    )
    written = 'in a file, as envs.py, and give env="envs:make"'
    assert refused(lambda: Walk()) == f"env {name}.<lambda>: {LATER}: write `def make(): return ...` {written}"
    assert refused(partial(Walk, 3, colour="red")) == (
        f"env partial of Walk(3, colour='red'): {LATER}: write `def make(): return Walk(3, colour='red')` {written}"
    )
    assert refused(partial(Walk, colour="red")).endswith(f"{LATER}: give env=Walk, env_kwargs={{'colour': 'red'}}")


def test_a_name_that_another_object_has_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    before = make
    monkeypatch.setattr(sys.modules[__name__], "make", Walk)
    assert LATER in refused(before)


def test_an_environment_that_is_made_already_is_refused() -> None:
    assert refused(gymnasium.make("CartPole-v1")).endswith("a run makes several; give its id, 'CartPole-v1'")
    assert refused(Walk()).endswith("a run makes several; give its class")
    assert refused(7).startswith("env 7: must be a name, as pong, ")


def test_a_class_of_the_main_script_has_the_script_s_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    main = ModuleType("__main__")
    mine = type("Mine", (Walk,), {"__module__": "__main__"})
    vars(main)["Mine"] = mine
    monkeypatch.setitem(sys.modules, "__main__", main)
    assert LATER in refused(mine)  # a console or a notebook
    (tmp_path / "script.py").touch()
    main.__file__ = str(tmp_path / "script.py")
    assert env_name(mine) == "script:Mine"


ARM = """
import gymnasium
from gymnasium import Wrapper
raise RuntimeError("it is not run")
class Arm(Base): "has the name of the file"
class Long(gymnasium.Env[object, int]): ...
class Thin(Wrapper): ...
class Joint: ...
def make_short(): ...
def helper(): ...
"""


def test_what_makes_environments_in_a_file_here_is_suggested(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert in_file("arm") == []
    (tmp_path / "arm.py").write_text(ARM)
    assert in_file("arm") == in_file("arm.py") == ["arm:Arm", "arm:Long", "arm:Thin", "arm:make_short"]
    with pytest.raises(UnknownEnv, match=r"^unknown environment 'arm'; near: arm:Arm, .* \(in arm\.py\)$"):
        resolve("arm")
    (tmp_path / "arm.py").write_text("class Arm(:")
    assert in_file("arm") == []
    with pytest.raises(UnknownEnv, match=r"^unknown environment 'Arm'; gossamer list shows all$"):
        resolve("Arm")
