"""Environments of Gymnasium: any registered id, and any factory of the user's.

Gymnasium's own vectorised versions (CartPole-v1 has one) are not used: they reset one step late, which puts a step
that nobody chose into every episode. Single environments are stepped in this process or by workers (`vectorise`).
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import gymnasium
from gymnasium.envs.registration import EnvSpec

from gossamer.envs.base import UnknownEnv, VectorEnv, check_counts, unknown_env
from gossamer.envs.local import Local, OnError, ResumableLocal, Source
from gossamer.envs.single import place
from gossamer.envs.spaces import GymEnv
from gossamer.envs.workers import Workers
from gossamer.errors import UserError


def list_ids() -> tuple[str, ...]:
    """Gymnasium ids registered in this process. Without ale-py's, which are there or not as ale-py happens to be
    imported, and are not preprocessed: see `atari` for these games."""
    specs = gymnasium.registry.items()
    return tuple(sorted(id for id, spec in specs if not str(spec.entry_point).startswith("ale_py")))


def find_spec(id: str) -> EnvSpec:
    """Of `Id-v0`, or of `module:Id-v0`, where importing the module registers it. Raises `UnknownEnv`."""
    module, _, plain = id.rpartition(":")
    if module:
        _import(id, module)
    if plain not in gymnasium.registry:
        raise unknown_env(plain, list_ids())
    return gymnasium.spec(plain)


@dataclass(frozen=True)
class Gym:
    """A Gymnasium id (`CartPole-v1`, `minigrid:MiniGrid-Empty-5x5-v0`) and what its constructor is given besides."""

    id: str
    kwargs: tuple[tuple[str, Any], ...] = ()
    on_error: OnError = "fail"  # where one fails: end with the error, or make it again and go on

    @property
    def name(self) -> str:
        return self.id

    def make(self, num_envs: int, *, workers: int = 0, render: bool = False) -> VectorEnv:
        """See `vectorise` for `workers` and what is raised; also `UnknownEnv`."""
        # The specification travels, not the id: what a script has registered, a worker process need not know.
        options = dict(self.kwargs) | ({"render_mode": "rgb_array"} if render else {})
        make: Callable[[], GymEnv] = partial(gymnasium.make, find_spec(self.id), **options)
        return vectorise(Source(self.name, make, self.on_error), num_envs, workers)


@dataclass(frozen=True)
class Custom:
    """`module:factory`: something importable that, called without arguments, gives a `gymnasium.Env`: a function or
    the class itself. To be seen in videos it takes `render_mode`, as Gymnasium's own do."""

    target: str
    on_error: OnError = "fail"  # where one fails: end with the error, or make it again and go on

    def __post_init__(self) -> None:
        module, _, factory = self.target.partition(":")
        if not module or not factory.isidentifier():
            raise ValueError(f"env must be module:factory, not {self.target!r}")

    @property
    def name(self) -> str:
        return self.target

    def make(self, num_envs: int, *, workers: int = 0, render: bool = False) -> VectorEnv:
        """See `vectorise` for `workers` and what is raised; also `UnknownEnv` where there is no such factory."""
        self.load()
        return vectorise(Source(self.name, partial(self._one, render), self.on_error), num_envs, workers)

    def load(self) -> Callable[..., Any]:
        """The factory; `UnknownEnv` if its module or it is not there."""
        module, _, factory = self.target.partition(":")
        members = vars(_import(self.target, module))
        if not callable(members.get(factory)):
            public = [name for name, member in members.items() if callable(member) and not name.startswith("_")]
            raise unknown_env(self.target, [f"{module}:{name}" for name in public])
        loaded: Callable[..., Any] = members[factory]
        return loaded

    def _one(self, render: bool) -> GymEnv:
        factory = self.load()
        shown = render and _takes_render_mode(factory)
        env = factory(render_mode="rgb_array") if shown else factory()
        if not isinstance(env, gymnasium.Env):
            raise UnknownEnv(f"--env {self.target}: must give a gymnasium.Env, not {type(env).__name__}")
        if render and env.render_mode != "rgb_array":
            raise UserError(
                f"--env {self.target}: cannot be filmed: let it take render_mode, keep that as self.render_mode, and "
                'let render() return a uint8 array [height, width, 3] (render_mode="rgb_array"); '
                "examples/own_environment.py does"
            )
        return env


def vectorise(source: Source, num_envs: int, workers: int) -> VectorEnv:
    """`num_envs` environments stepped by `workers` processes; by this one if `workers` is 0 or 1.

    This process is the default because small environments are stepped in less time than it takes to wake a process,
    and because only here can their state be saved. Raises `ValueError` where the environments do not divide by the
    workers, `UnsupportedSpace` for spaces the library does not have, `EnvironmentFailed` where the factory raises.
    """
    check_counts(num_envs, workers)
    if workers > 1:
        return Workers(source, num_envs, workers)
    local = Local(source, num_envs)
    return ResumableLocal(local) if local.saveable else local


def _takes_render_mode(factory: Callable[..., Any]) -> bool:
    parameters = inspect.signature(factory).parameters
    return "render_mode" in parameters or any(p.kind is p.VAR_KEYWORD for p in parameters.values())


def _import(name: str, module: str) -> Any:
    """The module of a user's environment. `UnknownEnv` in one line, whatever its import raises."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is not None and f"{module}.".startswith(f"{error.name}."):
            raise UnknownEnv(f"unknown environment {name!r}: no module {error.name!r} can be imported") from error
        raise _import_failed(name, module, error) from error
    except (Exception, SystemExit) as error:  # code of the user's
        raise _import_failed(name, module, error) from error


def _import_failed(name: str, module: str, error: BaseException) -> UserError:
    where = "" if isinstance(error, SyntaxError) else place(error)  # the text of a syntax error has it
    return UserError(f"--env {name}: importing {module} raised {type(error).__name__}: {error}{where}")
