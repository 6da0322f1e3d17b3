"""Gymnasium environments: any registered id, and user-defined factories.

Gymnasium's vectorised versions (of CartPole-v1, for example) are not used: they reset one step late, which adds a step
without a chosen action to every episode. Single environments run in this process or in workers (`vectorise`).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from inspect import signature
from typing import Any

import gymnasium
from gymnasium.envs.registration import EnvSpec, load_env_creator
from gymnasium.vector import VectorEnv as GymVector

from gossamer.envs.base import UnknownEnv, VectorEnv, check_counts, unknown_env
from gossamer.envs.batched import batched
from gossamer.envs.local import Local, LocalRecipe, ResumableLocal
from gossamer.envs.packages import advice
from gossamer.envs.single import EnvSource, OnError, named, place
from gossamer.envs.spaces import GymEnv
from gossamer.envs.workers import Workers
from gossamer.spaces import Bounds
from gossamer.system.errors import UserError
from gossamer.system.kwargs import check_names, text
from gossamer.system.scripts import is_absent, own_module

OF_MAKE = ("max_episode_steps", "disable_env_checker", "render_mode")  # arguments of `gymnasium.make` itself
IN_A_FILE = (  # of an environment `__main__:Name`
    "other processes cannot import what a script or notebook defines: put it in a file, and give --env FILE:NAME"
)


def list_ids() -> tuple[str, ...]:
    """Return the Gymnasium ids registered in this process, without ale-py's. Those depend on whether ale-py has been
    imported and are not preprocessed; see `atari` for these games."""
    specs = gymnasium.registry.items()
    return tuple(sorted(id for id, spec in specs if not str(spec.entry_point).startswith("ale_py")))


def find_spec(id: str) -> EnvSpec:
    """Return the specification of `Id-v0`, or of `module:Id-v0` after importing the module. Raises `UnknownEnv`."""
    module, _, plain = id.rpartition(":")
    if module:
        _import(id, module)
    if plain not in gymnasium.registry:
        if instead := advice(plain):
            raise UnknownEnv(f"unknown environment {id!r}; {instead}")
        raise unknown_env(plain, list_ids())
    return gymnasium.spec(plain)


@dataclass(frozen=True)
class Gym:
    """A Gymnasium id (`CartPole-v1`, `minigrid:MiniGrid-Empty-5x5-v0`) and keyword arguments for its constructor."""

    id: str
    kwargs: tuple[tuple[str, Any], ...] = ()
    on_error: OnError = "fail"  # after a failure: raise the error, or restart the environment
    masks: bool = False  # the environment gives `info["action_mask"]`
    bounds: Bounds = "clip"  # of continuous actions

    @property
    def name(self) -> str:
        return self.id

    def make(self, num_envs: int, *, workers: int = 0, render: bool = False) -> VectorEnv:
        """See `vectorise` for `workers` and the errors raised; also raises `UnknownEnv`."""
        # Workers get the specification, since an id registered by a script is unknown in their processes.
        spec, given = find_spec(self.id), dict(self.kwargs)
        if given and spec.entry_point is not None:
            creator: Any = spec.entry_point
            with suppress(Exception, SystemExit):  # told when it is made
                creator = load_env_creator(creator) if isinstance(creator, str) else creator
            if not isinstance(creator, str):
                check_names(self.name, creator, given, OF_MAKE)
        options = given | ({"render_mode": "rgb_array"} if render else {})
        make: Callable[[], GymEnv] = partial(gymnasium.make, spec, **options)
        make = partial(_filmed, self.id, make) if render else make
        source = EnvSource(self.name, make, self.on_error, self.masks, self.bounds, text(given))
        return vectorise(source, num_envs, workers)


@dataclass(frozen=True)
class Custom:
    """`module:factory`: an importable function or class that returns a `gymnasium.Env` when called with `kwargs`, or a
    `gymnasium.vector.VectorEnv` if it has the parameter `num_envs`. For videos it must accept `render_mode`, as
    Gymnasium's environments do."""

    target: str
    kwargs: tuple[tuple[str, Any], ...] = ()
    on_error: OnError = "fail"  # after a failure: raise the error, or restart the environment
    masks: bool = False  # the environment gives `info["action_mask"]`
    bounds: Bounds = "clip"  # of continuous actions

    def __post_init__(self) -> None:
        module, _, factory = self.target.partition(":")
        if not module or not factory.isidentifier():
            raise ValueError(f"env must be module:factory, not {self.target!r}")

    @property
    def name(self) -> str:
        return self.target

    def make(self, num_envs: int, *, workers: int = 0, render: bool = False) -> VectorEnv:
        """See `vectorise` for `workers` and the errors raised; also raises `UnknownEnv` if there is no such factory."""
        check_names(self.name, self.load(), dict(self.kwargs))
        make = partial(self._several if self.is_vector else self._one, render)
        source = EnvSource(self.name, make, self.on_error, self.masks, self.bounds, text(dict(self.kwargs)))
        if not self.is_vector:
            return vectorise(source, num_envs, workers)
        self.check_vector(workers)
        return batched(source, num_envs)

    @property
    def is_vector(self) -> bool:
        """Whether the factory makes vector environments."""
        return "num_envs" in signature(self.load()).parameters

    def check_vector(self, workers: int) -> None:
        """Raise `UserError` for options that a vector environment does not have."""
        what = f"{self.name} is a vector environment"
        for name, value in self.kwargs:
            if name == "num_envs":
                raise UserError(f"--env-kwargs num_envs={value}: {what}; use --num-envs")
        if workers > 1:
            raise UserError(f"--env-workers {workers}: {what}, which steps its environments itself; leave it out")
        if self.on_error == "restart":
            raise UserError(
                f"--on-env-error restart: {what}, whose environments cannot be restarted one by one; use fail"
            )

    def load(self) -> Callable[..., Any]:
        """Import the factory. Raises `UnknownEnv` if its module or the factory does not exist."""
        module, _, factory = self.target.partition(":")
        members = vars(_import(self.target, module))
        if module == "__main__" and factory not in members:
            raise UnknownEnv(f"unknown environment {self.target!r}: not defined in this process; {IN_A_FILE}")
        if not callable(members.get(factory)):
            public = [name for name, member in members.items() if callable(member) and not name.startswith("_")]
            raise unknown_env(self.target, [f"{module}:{name}" for name in public])
        loaded: Callable[..., Any] = members[factory]
        return loaded

    def _one(self, render: bool) -> GymEnv:
        env = self._made(render)
        if isinstance(env, GymVector):
            raise UserError(
                f"--env {self.target}: a factory of vector environments needs the parameter num_envs, the number of "
                "environments to make"
            )
        if not isinstance(env, gymnasium.Env):
            old = any(base.__module__.partition(".")[0] == "gym" for base in type(env).__mro__)
            told = "; it is of the old package gym: derive it from gymnasium.Env" if old else ""
            raise UnknownEnv(f"--env {self.target}: must return a gymnasium.Env, not {type(env).__name__}{told}")
        return env

    def _several(self, render: bool, num_envs: int) -> GymVector:
        env = self._made(render, num_envs=num_envs)
        if not isinstance(env, GymVector):
            raise UnknownEnv(
                f"--env {self.target}: has the parameter num_envs, so that it must return a "
                f"gymnasium.vector.VectorEnv, not {type(env).__name__}"
            )
        return env

    def _made(self, render: bool, **more: Any) -> Any:
        """Call the factory. Raises `UserError` if the result cannot be filmed where it has to be."""
        factory, given = self.load(), {**dict(self.kwargs), **more}
        if render and _takes_render_mode(factory):
            given["render_mode"] = "rgb_array"
        env = factory(**given)
        if render and isinstance(env, gymnasium.Env | GymVector):
            _check_filmed(self.target, env)
        return env


def vectorise(source: EnvSource, num_envs: int, workers: int) -> VectorEnv:
    """Create `num_envs` environments stepped by `workers` processes, or by this process if `workers` is 0 or 1.

    This process is the default because stepping a small environment is faster than waking a process, and because only
    here the environments' state can be saved. Raises `ValueError` if `num_envs` is not divisible by `workers`,
    `UnsupportedSpace` for unsupported spaces, and `EnvironmentFailed` if the factory raises.
    """
    check_counts(num_envs, workers)
    if workers > 1:
        if num_envs % workers:
            near = num_envs - num_envs % workers or workers
            raise ValueError(f"num_envs ({num_envs}) must be a multiple of workers ({workers}), such as {near}")
        return Workers(LocalRecipe(source), num_envs, workers)
    local = Local(source, num_envs)
    return ResumableLocal(local) if local.saveable else local


def _filmed(name: str, make: Callable[[], GymEnv]) -> GymEnv:
    """An environment that renders its screens. Raises `UserError` if it does not."""
    env = make()
    _check_filmed(name, env)
    return env


def _check_filmed(name: str, env: GymEnv | GymVector) -> None:
    """Raise `UserError` if an environment that was made to render does not."""
    if env.render_mode != "rgb_array":
        raise UserError(
            f"--env {name}: cannot be filmed: accept render_mode, store it as self.render_mode, and "
            'return a uint8 array [height, width, 3] from render() for render_mode="rgb_array", as in '
            "examples/own_environment.py"
        )


def _takes_render_mode(factory: Callable[..., Any]) -> bool:
    parameters = signature(factory).parameters
    return "render_mode" in parameters or any(p.kind is p.VAR_KEYWORD for p in parameters.values())


def _import(name: str, module: str) -> Any:
    """Import the module of a user's environment. Raises `UnknownEnv` if it does not exist, and `UserError` for any
    other error of the import."""
    try:
        return own_module(module)
    except UserError as error:  # its calls of Gossamer
        raise UserError(f"--env {name}: {module} cannot be imported: {error}") from error
    except (Exception, SystemExit) as error:
        if isinstance(error, ModuleNotFoundError) and is_absent(module, error):
            raise UnknownEnv(
                f"unknown environment {name!r}: no module {error.name!r} can be imported; "
                "install its package, run from its folder, or set PYTHONPATH"
            ) from error
        raise import_failed(f"--env {name}", module, error) from error


def import_failed(given: str, module: str, error: BaseException) -> UserError:
    """The error for a user's module that raised this one. `given`: the option with its value."""
    where = "" if isinstance(error, SyntaxError) else place(error)  # a syntax error's text includes the place
    return UserError(f"{given}: importing {module} raised {named(error)}{where}")
