"""What can be named is there, and a user's own part is found as the package's are."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import gossamer
from gossamer.architectures import GALA
from gossamer.config.names import ALGORITHMS, ARCHITECTURES, NETWORKS, OPTIMIZERS, load, name_of
from gossamer.config.other_libraries import ABSENT, ELSEWHERE, absent, suggestion, table
from gossamer.config.resolve import COMMON, configure
from gossamer.envs.options import AleOptions, AtariOptions, GamesOptions, GymOptions
from gossamer.system.errors import UserError
from gossamer.system.options import declared, defaults

ROOT = Path(__file__).parents[2]
OF_ENVIRONMENTS = [AtariOptions, AleOptions, GymOptions, GamesOptions]
KINDS = [
    *COMMON.values(),
    *OF_ENVIRONMENTS,
    *(load("", name, known) for known in (ARCHITECTURES, ALGORITHMS, OPTIMIZERS) for name in known),
]


def test_every_name_is_found_and_found_again() -> None:
    for known in (ARCHITECTURES, ALGORITHMS, NETWORKS, OPTIMIZERS):
        for name in known:
            assert name_of(load("", name, known), known) == name


def test_type_checkers_see_what_the_package_exports() -> None:
    (typed,) = [node for node in ast.parse(Path(gossamer.__file__).read_text()).body if isinstance(node, ast.If)][1:]
    seen = {each.name: line.module for line in typed.body if isinstance(line, ast.ImportFrom) for each in line.names}
    exported = {name: getattr(gossamer, name) for name in gossamer.__all__ if name != "__version__"}
    assert seen == {name: thing.__module__ for name, thing in exported.items()}
    for known in (ARCHITECTURES, ALGORITHMS):
        assert {load("", name, known) for name in known} <= set(exported.values())


def test_every_option_has_a_help_text_and_a_default_within_its_range() -> None:
    for kind in KINDS:
        assert all(each.metadata["help"] for each in declared(kind).values()), kind
        assert defaults(kind).keys() == declared(kind).keys()
        kind("catch") if kind in OF_ENVIRONMENTS else kind()


MINE = """
from dataclasses import dataclass
from gossamer.algorithms import A2C
from gossamer.architectures import PAAC
from gossamer.system.options import option, options
class Plain: pass
@dataclass(frozen=True)
class Lacks:
    gamma: float = 0.9
@options
class Clash:
    seed: int = option("Taken.", 1)
    def program(self, task): return PAAC().program(task)
@options
class Mine:
    num_envs: int = option("How many.", 3, least=1)
    def program(self, task): return PAAC(num_envs=self.num_envs).program(task)
def function(task, *, num_envs: int = 5, twice: bool = False):
    return PAAC(num_envs=num_envs * (1 + twice)).program(task)
"""


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine.py").write_text(MINE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "mine", raising=False)


def test_an_architecture_of_the_user_s_is_a_dataclass_or_a_function(mine: None) -> None:
    made = configure("mine:Mine", env="catch", num_envs=4)
    assert name_of(type(made.architecture), ARCHITECTURES) == "mine:Mine"
    made = configure("mine:function", env="catch", twice=True)
    assert vars(made.architecture) | {"num_envs": 5, "twice": True} == vars(made.architecture)
    assert name_of(type(made.architecture), ARCHITECTURES) == "mine:function"


@pytest.mark.parametrize(
    ("architecture", "algorithm", "told"),
    [
        (
            "mine:Plain",
            "a2c",
            "architecture mine:Plain: must be a function of a task, or a dataclass with a method program",
        ),
        ("mine:Clash", "a2c", "Clash: option seed already belongs to the run options; rename it"),
        ("mine:nothing", "a2c", "mine:nothing: cannot be imported"),
        ("paac", "mine:Plain", "--algorithm mine:Plain: must be a dataclass, whose fields are its options"),
        ("paac", "mine:Lacks", "--algorithm Lacks: needs gamma, on_policy, model, act, value and losses"),
        ("paac", "nowhere:Mine", "--algorithm nowhere:Mine: cannot be imported"),
    ],
)
def test_a_part_that_cannot_be_one_is_refused(mine: None, architecture: str, algorithm: str, told: str) -> None:
    with pytest.raises(UserError, match=told):
        configure(architecture, env="catch", algorithm=algorithm)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("x = undefined", r"NameError: name 'undefined' is not defined \(broken.py, line 2\)"),
        ("def f(:", r"SyntaxError: invalid syntax \(broken.py, line 2\)"),
        ("import not_there_at_all", r"ModuleNotFoundError: No module named 'not_there_at_all' \(broken.py, line 2\)"),
        ("raise SystemExit('bye')", r"SystemExit: bye \(broken.py, line 2\)"),
    ],
)
@pytest.mark.parametrize("option", ["architecture", "--algorithm", "--network", "--callback", "--log"])
def test_an_error_in_a_user_s_module_is_told_with_its_place(
    text: str, told: str, option: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken.py").write_text(f"\n{text}\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(UserError, match=f"^{option} broken:Mine: importing broken raised {told}$"):
        load(option, "broken:Mine", {})


def test_names_of_other_libraries_are_those_of_the_page() -> None:
    page = (ROOT / "docs" / "options.md").read_text()
    assert table() in page
    assert absent() in page
    known = {name for kind in KINDS for name in declared(kind)} | {"env", "run_dir"}
    assert not set(ABSENT) & known
    assert set(ELSEWHERE) <= known
    assert (suggestion("n_steps"), suggestion("ent-coef"), suggestion("lambda_"), suggestion("gamma")) == (
        ("rollout_length", "entropy_coef", "gae_lambda", None)
    )
    assert suggestion("colour") is None


USER = """
import gossamer
run = gossamer.train(gossamer.GALA(learners=4), algorithm=gossamer.PPO(epochs=3), env="pong", steps=100)
run = gossamer.train("gala", env="pong", learners=4, epochs=3, sync="bounded")
"""
WRONG = {
    'gossamer.GALA(learners="four")': "arg-type",
    "gossamer.PPO(epoch=3)": "call-arg",
    'gossamer.train("gala", env="pong", learners="four")': "typeddict-item|arg-type",
    'gossamer.train("gala", env="pong", n_steps=4)': "call-arg",
    'gossamer.train("gala")': "call-arg",
    'gossamer.train("gala", env="pong", sync="always")': "arg-type",
}


@pytest.mark.long
def test_mypy_knows_the_types_of_options_in_a_user_s_script(tmp_path: Path) -> None:
    lines = ["import gossamer", *WRONG]
    (tmp_path / "right.py").write_text(USER)
    (tmp_path / "wrong.py").write_text("\n".join(lines))
    command = [sys.executable, "-m", "mypy", "--no-error-summary", "--cache-dir", str(tmp_path), "--config-file", ""]
    done = subprocess.run([*command, "right.py", "wrong.py"], cwd=tmp_path, capture_output=True, text=True, check=False)
    errors = [line for line in done.stdout.splitlines() if ": error: " in line]
    assert [line.split(":")[:2] for line in errors] == [["wrong.py", str(n)] for n in range(2, len(lines) + 1)], (
        done.stdout
    )
    assert isinstance(GALA(learners=2), GALA)
