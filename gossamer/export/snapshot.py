"""One policy of a run: its parameters, and what its network is built from."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from gossamer.algorithms import Algorithm
from gossamer.algorithms.target import PREFIX, Target
from gossamer.algorithms.traces import STATE, Traces
from gossamer.config.build import environment, network
from gossamer.config.file import check_format, part, to_dict
from gossamer.config.names import ALGORITHMS, load
from gossamer.envs.interface import Interface, describe
from gossamer.envs.last import LastParts
from gossamer.evaluation.members import AVERAGE, average, choose, mean_return, named
from gossamer.nn.networks import NetworkOptions
from gossamer.spaces import Spec
from gossamer.storage.checkpoint import Store
from gossamer.storage.contents import CHECKPOINTS, CONFIG, SPEC
from gossamer.storage.directory import load_config
from gossamer.system.errors import UserError
from gossamer.system.machine import resolve_dtype


@dataclass(frozen=True)
class Description:
    """What a network is built from."""

    config: Mapping[str, Any]  # content of the run's `config.json`, of the current format
    interface: Interface

    @cached_property
    def algorithm(self) -> Algorithm:
        """Its options as trained. Raises `UserError` if it is the user's own and cannot be imported."""
        kind: type[Algorithm] = _own("--algorithm", self.config["algorithm"]["name"])
        return part("algorithm", kind, self.config)

    @cached_property
    def options(self) -> NetworkOptions:
        """Of the network."""
        return part("network", NetworkOptions, self.config)

    @property
    def spec(self) -> Spec:
        """What the network observes, the last action and reward included."""
        spec = self.interface.spec
        return LastParts(spec).spec if self.options.last_action_reward else spec

    def model(self, device: str, dtype: torch.dtype | None = None) -> nn.Module:
        """A network on this device, in evaluation mode, without what only learning needs. `dtype`: of its torso; None:
        as trained. Raises `UserError` if the torso is the user's own and cannot be imported."""
        if ":" in self.options.torso:
            _own("--network", self.options.torso)
        parts = network(self.options)
        parts = replace(parts, dtype=dtype or parts.dtype or resolve_dtype(device, pictures=self.spec.pixels))
        with torch.random.fork_rng(devices=[]):  # the caller's random stream stays as it is
            made = self.algorithm.model(self.spec, parts)
        for name, module in list(made.named_children()):
            if isinstance(module, Target | Traces):
                delattr(made, name)
        return made.to(device).eval()


@dataclass(frozen=True)
class Snapshot:
    """One policy."""

    description: Description
    weights: dict[str, Tensor]  # the state of the network, see `of_policy`
    checkpoint: str
    steps: int  # training steps
    member: str | None  # `average`, or the number of the member; None if there is only one
    training_return: float | None  # mean of the last 100 training episodes: of the member, or of all for the average

    def model(self, device: str, dtype: torch.dtype | None = None) -> nn.Module:
        """The network with these parameters. Raises `UserError` if they do not fit, or are not finite."""
        made = self.description.model(device, dtype)
        try:
            made.load_state_dict(self.weights)
        except RuntimeError as error:
            raise UserError(f"{self.checkpoint}: its parameters do not fit its config.json ({error})") from error
        bad = [name for name, tensor in made.state_dict().items() if not tensor.isfinite().all()]
        if bad:
            raise UserError(f"{self.checkpoint}: {bad[0]} is NaN or infinite; use another checkpoint")
        return made


def of_run(directory: Path, checkpoint: str, member: str | int) -> Snapshot:
    """A policy of a run directory. Raises `UserError` if it is none, or has no such checkpoint or member."""
    description = describe_run(directory)
    found = Store(directory / CHECKPOINTS).get(checkpoint)
    tree = found.load()
    whose = choose(tree, member)
    parameters = dict(description.model("cpu").named_parameters()) if len(whose) > 1 else {}
    label = named(tree, whose)
    score = found.score if label in (None, AVERAGE) else mean_return(tree, next(iter(whose)))
    weights = of_policy(average(tree, whose, parameters))
    return Snapshot(description, weights, found.path.name, found.steps, label, score)


def of_policy(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The state of a network without a target network and traces, which only learning needs."""
    return {name: tensor for name, tensor in state.items() if not name.startswith((PREFIX, STATE))}


def describe_run(directory: Path) -> Description:
    """What a run's network is built from. A run of a version that wrote no `spec.json` makes its environment once."""
    if not (directory / SPEC).is_file():
        config = load_config(directory)
        factory = environment(config)
        with closing(factory.make(1)) as env:
            return Description(to_dict(config), describe(factory, env))
    content = read_json(directory / CONFIG)
    try:
        check_format(content)
        return Description(content, Interface.from_dict(read_json(directory / SPEC)))
    except (KeyError, TypeError, ValueError) as error:
        if isinstance(error, UserError):
            raise
        raise UserError(f"{directory / SPEC}: truncated or altered ({error}); restore it, or remove it") from error


def read_json(file: Path) -> dict[str, Any]:
    """The object in a file. Raises `UserError` if it is missing or damaged."""
    try:
        found = json.loads(file.read_text())
    except (FileNotFoundError, NotADirectoryError) as error:
        raise UserError(f"{file.parent}: neither a run nor an export (no {file.name})") from error
    except (OSError, ValueError) as error:
        raise UserError(f"{file}: truncated or altered ({error}); restore it") from error
    if not isinstance(found, dict):
        raise UserError(f"{file}: truncated or altered (no object); restore it")
    return found


def _own(option: str, name: str) -> Any:
    """Import a part that may be the user's own."""
    try:
        return load(option, name, ALGORITHMS)
    except UserError as error:
        why = error.__cause__ or error
        raise UserError(f"the policy needs {name} ({why}); make its module importable, see PYTHONPATH") from error
