"""The user's environments: the name of a class or function, under which every process can import it."""

from __future__ import annotations

import ast
import re
import reprlib
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import FunctionType
from typing import Any, TypeAlias, TypeGuard

import gymnasium

from gossamer.system.errors import UserError
from gossamer.system.scripts import script

EnvMaker: TypeAlias = Callable[..., gymnasium.Env[Any, Any]]  # a class, or a function that returns an environment
FILE = "envs"  # of the module that messages suggest


def env_name(env: str | EnvMaker) -> str:
    """The name of an environment, or `module:Name` of the class or function that makes it. A run keeps the name, so
    that it can be resumed and evaluated, and so that other processes can make environments.

    Raises `UserError`, with what to write in a file, if the class or function cannot be imported by a name."""
    if isinstance(env, str):
        return env
    if name := _importable(env.func if isinstance(env, partial) and not env.args and not env.keywords else env):
        return name
    raise UserError(f"env {_shown(env)}: {_advice(env)}")


def _importable(made: Any) -> str:
    """`module:Name` of a class or function at the top level of a module; empty for anything else."""
    if isinstance(made, type | FunctionType):
        module = script() if made.__module__ == "__main__" else made.__module__
        if module is not None and _member(made.__module__, made.__qualname__) is made:
            return f"{module}:{made.__qualname__}"
    return ""


def in_file(name: str) -> list[str]:
    """`arm:Arm` for each class and function that may make environments in the file `arm.py` of the current folder, for
    the name `arm` or `arm.py`: classes that derive from one named `..Env` or `..Wrapper`, functions that start with
    `make`, and what has the file's name. The file is not run."""
    stem = name.removesuffix(".py")
    try:
        found = ast.parse(Path(f"{stem}.py").read_text()).body if stem.isidentifier() else []
    except (OSError, ValueError, SyntaxError):
        return []
    return [f"{stem}:{each.name}" for each in found if _makes(each, stem)]


def _makes(node: ast.stmt, stem: str) -> TypeGuard[ast.ClassDef | ast.FunctionDef]:
    if not isinstance(node, ast.ClassDef | ast.FunctionDef):
        return False
    if node.name.lower() == stem.replace("_", "").lower() or node.name == stem:
        return True
    bases = [ast.unparse(base) for base in node.bases] if isinstance(node, ast.ClassDef) else []
    made = isinstance(node, ast.FunctionDef) and node.name.startswith("make")
    return made or any(re.search(r"(Env|Wrapper)(\[.*)?$", base) for base in bases)


def _member(module: str, name: str) -> Any:
    """What a loaded module has under a name; None for a name with a dot, as of a class in a function."""
    return vars(sys.modules[module]).get(name) if module in sys.modules else None


def _advice(env: Any) -> str:
    """What to write instead."""
    lasting = "a run must be able to import it later"
    if isinstance(env, gymnasium.Env):
        id = env.spec.id if env.spec else ""
        return f"is one environment, and a run makes several; give {f'its id, {id!r}' if id else 'its class'}"
    if isinstance(env, type) or (isinstance(env, FunctionType) and env.__name__ != "<lambda>"):
        name = env.__name__
        return f'{lasting}: put {name} at the top level of a file, as {FILE}.py, and give env="{FILE}:{name}"'
    if isinstance(env, partial) and not env.args and _importable(env.func):
        return f"{lasting}: give env={_shown(env.func)}, env_kwargs={env.keywords}"
    if isinstance(env, partial | FunctionType):
        written = f"def make(): return {_call(env) if isinstance(env, partial) else '...'}"
        return f'{lasting}: write `{written}` in a file, as {FILE}.py, and give env="{FILE}:make"'
    return "must be a name, as pong, CartPole-v1, or module:Class for your own, or the class itself"


def _call(env: partial[Any]) -> str:
    """The call that a partial stands for."""
    given = [*map(_shown, env.args), *(f"{name}={_shown(value)}" for name, value in env.keywords.items())]
    return f"{_shown(env.func)}({', '.join(given)})"


def _shown(value: Any) -> str:
    """The value on one short line."""
    if isinstance(value, type | FunctionType):
        return value.__qualname__
    if isinstance(value, partial):
        return f"partial of {_call(value)}"
    return " ".join(reprlib.repr(value).split())
