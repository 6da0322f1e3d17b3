"""Which of Gymnasium's environments are supported, determined without importing them."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec

import gymnasium
from gymnasium.envs.registration import EnvSpec

from gossamer.envs.base import MissingExtra, UnsupportedSpace
from gossamer.system.installation import install, pip

# Module prefix of an environment -> why it is not supported. Tested against the spaces of all installed ones.
REFUSED = {
    "gymnasium.envs.tabular.cliffwalking:": "its actions are a Box of integers",
    "gymnasium.envs.mujoco.pusher_v4:": "it needs mujoco below version 3; Pusher-v5 does not",
}
# Module prefix of an environment -> the module that it needs, and what has it: one of our extras, or a package for pip.
NEEDS = {
    "gymnasium.envs.box2d.": ("Box2D", "gym"),
    "gymnasium.envs.phys2d.": ("jax", "gymnasium[jax]"),
    "gymnasium.envs.tabular.": ("jax", "gymnasium[jax]"),
    "gymnasium.envs.mujoco.": ("mujoco", "mujoco"),
}


@dataclass(frozen=True)
class Support:
    """Whether an environment is supported. Unknown environments count as supported until they are created."""

    refused: str = ""  # why it is not supported
    install: str = ""  # the command that installs a missing package


def support(spec: EnvSpec) -> Support:
    """Return the support of a registered environment."""
    entry = str(spec.entry_point)
    if entry.startswith("<function _raise_"):
        return Support("Gymnasium has removed it")
    refused = next((why for place, why in REFUSED.items() if entry.startswith(place)), "")
    needs = [need for place, need in NEEDS.items() if entry.startswith(place)]
    missing = next((package for module, package in needs if find_spec(module) is None), "")
    return Support(refused, missing and _command(missing))


def _command(package: str) -> str:
    """The command that installs one of our extras, or another package."""
    return f'{pip()} install "{package}"' if "[" in package else install(package)


def check_installed(name: str, spec: EnvSpec) -> None:
    """Raises `MissingExtra` if a package is missing, `UnsupportedSpace` if the environment is not supported either."""
    found = support(spec)
    if found.install and found.refused:
        raise UnsupportedSpace(f"{name}: {found.refused} (and it needs {found.install})")
    if found.install:
        raise MissingExtra(f"{name}: a required package is not installed; run {found.install}")


def trainable(ids: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
    """Return the supported ids by the command that installs their missing packages (`""`: none missing)."""
    groups: dict[str, list[str]] = {"": []}
    for id in ids:
        found = support(gymnasium.spec(id))
        if not found.refused:
            groups.setdefault(found.install, []).append(id)
    return {command: tuple(group) for command, group in groups.items()}
