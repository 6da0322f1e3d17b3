"""Resolves the options that the user gave to a complete configuration, in layers. Invalid ones raise `UserError`."""

from __future__ import annotations

import inspect
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import Any, get_type_hints

from gossamer.algorithms import Algorithm
from gossamer.config.checks import check_effects, check_together
from gossamer.config.config import Architecture, Config, Control, OptimizationOptions, RunOptions
from gossamer.config.games import fitting
from gossamer.config.keywords import Keywords
from gossamer.config.names import (
    ALGORITHMS,
    ARCHITECTURES,
    OPTIMIZERS,
    PRESETS,
    load,
    name_of,
)
from gossamer.config.other_libraries import explained, suggestion
from gossamer.config.presets import family_name, fits, layers
from gossamer.config.probe import Probe, probe
from gossamer.envs import catalogue
from gossamer.envs.games import Games
from gossamer.envs.options import AtariOptions, GymOptions, kind_of, with_kwargs
from gossamer.envs.own import EnvMaker, env_name
from gossamer.nn.networks import NetworkOptions
from gossamer.nn.optim import StepRule
from gossamer.presets.fitting import SIZES, fit, told
from gossamer.presets.layers import Layer, algorithms_of
from gossamer.system.errors import UserError, near
from gossamer.system.options import as_plain, check_value, declared, defaults, flag, given, is_part, options, types
from gossamer.system.resources import resources

# Parts of a `Config` whose dataclass does not depend on the choices
COMMON = {"run": RunOptions, "network": NetworkOptions, "optimization": OptimizationOptions}
TOY_STEPS = 200_000  # as with vectors, for toys with pictures, too
# (option, part that lacks it) -> why it does
LACKED = {
    ("policy", "ga3c"): "whose agents are always served; leave it out",
    **{("batch_size", name): "which divides a batch into --num-minibatches" for name in ("ppo", "appo", "pqn")},
}
PLACES = ("run", "env", "architecture", "algorithm", "network", "optimizer", "optimization")


@dataclass(frozen=True)
class Choices:
    """The parts of a run: their names, or instances, whose written-out options count as given."""

    architecture: str | Architecture
    env: str
    algorithm: str | Algorithm | None = None
    optimizer: str | StepRule | None = None
    preset: str = "tuned"
    given: Mapping[str, Any] = field(default_factory=dict)  # option -> value; None counts as not given
    probed: Probe | None = None  # what `probe` says of the environment, if it has been made already

    @cached_property
    def options(self) -> dict[str, Any]:
        """Every option that was given, by name or within a part."""
        parts = [each for each in (self.architecture, self.algorithm, self.optimizer) if is_part(type(each))]
        found = {name: value for part in parts for name, value in given(part).items()}
        return {**found, **{name: value for name, value in self.given.items() if value is not None}}


def configure(
    architecture: str | Architecture,
    *,
    env: str | EnvMaker,
    algorithm: str | Algorithm | None = None,
    optimizer: str | StepRule | None = None,
    preset: str = "tuned",
    **given: Any,
) -> Config:
    """The complete configuration for keywords as `gossamer.train` takes them."""
    return resolve(Choices(architecture, env_name(env), algorithm, optimizer, preset, given))


def resolve(choices: Choices) -> Config:
    """The complete configuration for these choices."""
    return Composition(choices).config()


class Composition:
    """The chosen parts, and the values of their options from the layers."""

    def __init__(self, choices: Choices) -> None:
        if choices.preset not in PRESETS:
            raise UserError(f"--preset {choices.preset}: must be one of {', '.join(PRESETS)}")
        self.choices = choices
        architecture = architecture_kind(choices.architecture)
        several = choices.env.split(",")
        if len(several) > 1 and any(each.strip().startswith(catalogue.ALE) for each in several):
            raise UserError(
                f"--env {choices.env}: ids of ALE have a preprocessing of their own; use names, as pong,breakout, and "
                "--preprocessing gymnasium"
            )
        self.env = with_kwargs(catalogue.resolve(choices.env), choices.options.get("env_kwargs"))
        self.probed = seen = choices.probed or probe(self.env)
        default = default_algorithm(architecture, continuous=seen.continuous and choices.preset == "tuned")
        algorithm = _kind("--algorithm", choices.algorithm or default, ALGORITHMS)
        found = layers(architecture, algorithm, preset=choices.preset, seen=seen)
        self.continuous = seen.continuous
        self._fits = fits(architecture, algorithm, preset=choices.preset, seen=seen)
        own = {"action_masks": True} if seen.masks else {}
        toys = {"steps": TOY_STEPS} if self.env in catalogue.TOYS else {}
        self.layers = (Layer("the environment", {**own, **toys}), *found)
        self.kinds: dict[str, type] = {
            **COMMON,
            "env": kind_of(self.env),
            "architecture": architecture,
            "algorithm": algorithm,
            "optimizer": self._optimizer(),
        }
        self._check_names()
        self._given = self._checked()

    def _optimizer(self) -> type:
        """The optimizer that was given, or that of the last layer that has one."""
        if self.choices.optimizer is not None:
            return _kind("--optimizer", self.choices.optimizer, OPTIMIZERS)
        used = ["adam", *(layer.options["optimizer"] for layer in self.layers if "optimizer" in layer.options)]
        return _kind("--optimizer", used[-1], OPTIMIZERS)

    def _check_names(self) -> None:
        """Options of two parts must not share a name. A given option must be an option of one of the parts, and one of
        a preset at least an option of some part."""
        owner: dict[str, str] = {}
        for place in PLACES:
            for name in declared(self.kinds[place]):
                if name in owner or name in declared(Control):
                    other = owner.get(name, "run")
                    raise UserError(
                        f"{self.kinds[place].__name__}: option {name} already belongs to the {other} options; rename it"
                    )
                owner[name] = place
        for layer in self.layers:
            for name in layer.options.keys() - owner.keys() - Keywords.__annotations__.keys() - {"optimizer"}:
                raise UserError(f"preset {layer.why!r}: no part has the option {name}{near(name, owner)}")
        for name, value in self.choices.options.items():
            if name not in owner:
                raise refused(name, value, owner, self._titles())

    def _checked(self) -> dict[str, Any]:
        """The given options, as numbers where they are numbers. Raises `UserError` for a wrong type or range."""
        found = {}
        for kind in self.kinds.values():
            for name in declared(kind).keys() & self.choices.options.keys():
                each = declared(kind)[name]
                found[name] = as_plain(self.choices.options[name], types(kind)[each.name])
                check_value(flag(name), found[name], types(kind)[each.name], each.metadata)
        return found

    def _titles(self) -> tuple[str, ...]:
        c = self.choices
        chosen = name_of(self.kinds["architecture"], ARCHITECTURES), name_of(self.kinds["algorithm"], ALGORITHMS)
        return (*chosen, name_of(self.kinds["optimizer"], OPTIMIZERS), c.env)

    def values(self, fixed: Mapping[str, Any] = MappingProxyType({})) -> dict[str, Any]:
        """The value of every option: defaults, layers, sizes that fit this machine; what is given overrides them.
        `fixed`: as if they were given."""
        user = {**self._given, **fixed}
        found = self._layered(user)
        if self._fits:
            found |= fit(self.tuned(), found, user, resources(found["device"]))
        return found

    def sizes(self) -> str:
        """What was chosen for this machine, in one line; empty where presets have no rule for it."""
        if not self._fits:
            return ""
        found = self.values()
        return told(self.tuned(), found, self._given, resources(found["device"]))

    def tuned(self) -> dict[str, Any]:
        """The values without the sizes that were given; with several games environments in their shares."""
        return self._layered(self._without_sizes | self._shared)

    @property
    def _without_sizes(self) -> dict[str, Any]:
        return {name: value for name, value in self._given.items() if name not in SIZES}

    @cached_property
    def _shared(self) -> dict[str, Any]:
        """`num_envs` with several games: the tuned number, rounded up so that each game has exactly its share."""
        values = self._layered(self._without_sizes)
        if not isinstance(self.env, Games) or "num_envs" not in values:
            return {}

        def config(num_envs: int) -> Config:
            changed = self._layered({**self._without_sizes, "num_envs": num_envs})
            return build(self.kinds, changed, env=self.choices.env, preset=self.choices.preset)

        return {"num_envs": fitting(config, values["num_envs"], self.env.period) or values["num_envs"]}

    def _layered(self, user: Mapping[str, Any]) -> dict[str, Any]:
        """Defaults, then layers, then these options of the user."""
        found = {name: value for kind in self.kinds.values() for name, value in defaults(kind).items()}
        for layer in self.layers:
            found |= self._of(layer)
        for rule in (rule for layer in self.layers for rule in layer.rules):
            found |= rule({**found, **user}, set(user))
        found |= user
        if found["anneal_steps"] is None:
            found["anneal_steps"] = found["steps"]
        return found

    def _of(self, layer: Layer) -> dict[str, Any]:
        """The options of a layer that the chosen parts have; those of an optimizer only if it is the chosen one."""
        optimizer = self.kinds["optimizer"]
        other = layer.options.get("optimizer") not in (None, family_name(optimizer, OPTIMIZERS))
        kinds = [kind for kind in self.kinds.values() if not (other and kind is optimizer)]
        names = {name for kind in kinds for name in declared(kind)}
        return {name: value for name, value in layer.options.items() if name in names}

    def config(self) -> Config:
        """The complete configuration, with checked values."""
        values = self.values()
        if isinstance(self.env, Games) and "num_envs" in values.keys() - self.choices.options.keys():
            enough = fitting(self._with_envs, values["num_envs"], self.env.period)
            values = self.values({"num_envs": enough or values["num_envs"]})
        self._check_effects(values)
        made = build(self.kinds, values, env=self.choices.env, preset=self.choices.preset)
        check_together(made, self.env)
        return made

    def _with_envs(self, num_envs: int) -> Config:
        """The configuration with so many environments, before the checks."""
        values = self.values({"num_envs": num_envs})
        return build(self.kinds, values, env=self.choices.env, preset=self.choices.preset)

    def _check_effects(self, values: Mapping[str, Any]) -> None:
        standard = {name: value for kind in self.kinds.values() for name, value in defaults(kind).items()}
        check_effects(
            self.choices.options,
            values,
            standard,
            self.env.name,
            typed=self.choices.given.keys(),
            continuous=self.continuous,
        )


def build(kinds: Mapping[str, type], values: Mapping[str, Any], *, env: str, preset: str) -> Config:
    """Build a configuration from these parts and values."""
    parts: dict[str, Any] = {}
    for place, kind in kinds.items():
        own = {each.name: values[name] for name, each in declared(kind).items()}
        parts[place] = kind(env, **own) if place == "env" else kind(**own)
    if not isinstance(parts["algorithm"], Algorithm):
        raise UserError(
            f"--algorithm {kinds['algorithm'].__name__}: needs gamma, on_policy, model, act, value and losses"
        )
    return Config(preset=preset, **parts)


def default_algorithm(architecture: type, *, continuous: bool) -> str:
    """The algorithm of an architecture where none is chosen: the first of its own, else A2C, but PPO for continuous
    actions."""
    return (*algorithms_of(architecture), "ppo" if continuous else "a2c")[0]


def _kind(option: str, chosen: Any, known: dict[str, str]) -> type:
    found = load(option, chosen, known) if isinstance(chosen, str) else chosen
    kind = found if isinstance(found, type) else type(found)
    if not is_part(kind):
        raise UserError(f"{option} {chosen}: must be a dataclass, whose fields are its options")
    result: type = kind
    return result


def architecture_kind(chosen: str | Architecture) -> type:
    """The dataclass with the options of an architecture. The options of a function are its keywords."""
    found = load("architecture", chosen, ARCHITECTURES) if isinstance(chosen, str) else chosen
    if inspect.isfunction(found):
        return _of_function(found)
    kind: type = found if isinstance(found, type) else type(found)
    if not is_part(kind) or not hasattr(kind, "program"):
        raise UserError(
            f"architecture {chosen}: must be a function of a task, or a dataclass with a method program(task)"
        )
    return kind


def _of_function(function: Any) -> type:
    """A dataclass whose fields are the keywords of `function(task, *, ...) -> Program`."""
    kinds, (_, *rest) = get_type_hints(function), inspect.signature(function).parameters.values()
    simple = [each for each in rest if each.kind is each.KEYWORD_ONLY]
    annotations = {each.name: kinds.get(each.name, Any) for each in simple}

    def program(self: Any, task: Any) -> Any:
        return function(task, **{each.name: getattr(self, each.name) for each in simple})

    about = {"__doc__": function.__doc__, "__module__": function.__module__, "__qualname__": function.__qualname__}
    given = {each.name: each.default for each in simple if each.default is not each.empty}
    return options(type(function.__name__, (), {**about, **given, "__annotations__": annotations, "program": program}))


def refused(name: str, value: Any, known: Iterable[str], chosen: Collection[str]) -> UserError:
    """The error for an option that the composition lacks: why, or which parts have it, or a similar name."""
    words = f"{flag(name)} {value}".rstrip()
    for part in chosen:
        if (name, part) in LACKED:
            return UserError(f"{words}: not an option of {part}, {LACKED[name, part]}")
    owners = [owner for owner, kind in _built_in() if name in declared(kind)]
    if owners:
        listed = " and ".join(filter(None, (", ".join(owners[:-1]), owners[-1])))
        have = f"{listed} {'has' if len(owners) == 1 else 'have'} it"
        return UserError(f"{words}: not an option of {', '.join(dict.fromkeys(chosen))}; {have}")
    if meant := suggestion(name):
        return UserError(f"unknown option {flag(name)}; use {flag(meant)}")
    if instead := explained(name):
        return UserError(f"unknown option {flag(name)}; {instead}")
    return UserError(f"unknown option {flag(name)}{near(flag(name), map(flag, known))}")


def _built_in() -> Iterable[tuple[str, type]]:
    """Every part of the package that has options, with its name."""
    yield "an Atari game", AtariOptions
    yield "a Gymnasium id or factory", GymOptions
    for known in (ARCHITECTURES, ALGORITHMS, OPTIMIZERS):
        for name in known:
            yield name, load(name, name, known)
