"""Which of Gymnasium's own environments can be trained, said without importing any of them."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec

import gymnasium
from gymnasium.envs.registration import EnvSpec

from gossamer.envs.base import MissingExtra, UnsupportedSpace

CONTINUOUS = "its actions are continuous, which no algorithm here can learn yet; Discrete ones can be learned"
DISCRETE = "its observations are not vectors or pictures"

# Where an environment's class is -> why it cannot be learned. Tested against the spaces of each that can be made.
REFUSED = {
    "gymnasium.envs.mujoco.": CONTINUOUS,
    "gymnasium.envs.phys2d.pendulum": CONTINUOUS,
    "gymnasium.envs.classic_control.pendulum": CONTINUOUS,
    "gymnasium.envs.classic_control.continuous_mountain_car": CONTINUOUS,
    "gymnasium.envs.box2d.bipedal_walker": CONTINUOUS,
    "gymnasium.envs.box2d.car_racing": CONTINUOUS,
    "gymnasium.envs.toy_text.": DISCRETE,
    "gymnasium.envs.tabular.": DISCRETE,
}
# Where it is -> the module that it needs, and how that is installed.
NEEDS = {
    "gymnasium.envs.box2d.": ("Box2D", 'pip install "gossamer[gym]"'),
    "gymnasium.envs.phys2d.": ("jax", 'pip install "gymnasium[jax]"'),
    "gymnasium.envs.tabular.": ("jax", 'pip install "gymnasium[jax]"'),
    "gymnasium.envs.mujoco.": ("mujoco", 'pip install "gymnasium[mujoco]"'),
}


@dataclass(frozen=True)
class Support:
    """Whether an environment can be trained. What is not known here can, as far as can be said before it is made."""

    refused: str = ""  # why it cannot be learned
    install: str = ""  # the command that installs what it needs, where that is not there


def support(spec: EnvSpec) -> Support:
    """Of a registered id."""
    entry = str(spec.entry_point)
    if entry.startswith("<function _raise_"):
        return Support("Gymnasium has removed it")
    refused = next((why for place, why in REFUSED.items() if entry.startswith(place)), "")
    if spec.kwargs.get("continuous", False):
        refused = CONTINUOUS
    needs = [need for place, need in NEEDS.items() if entry.startswith(place)]
    install = next((command for module, command in needs if find_spec(module) is None), "")
    return Support(refused, install)


def check_installed(name: str, spec: EnvSpec) -> None:
    """Raises `MissingExtra` where something is to be installed first, `UnsupportedSpace` where that would not help."""
    found = support(spec)
    if found.install and found.refused:
        raise UnsupportedSpace(f"{name}: {found.refused} (and it needs {found.install})")
    if found.install:
        raise MissingExtra(f"{name}: a package that it needs is not installed; run {found.install}")


def trainable(ids: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
    """Those of the registered ids that can be learned, by the command that has to be run first (`""`: none)."""
    groups: dict[str, list[str]] = {"": []}
    for id in ids:
        found = support(gymnasium.spec(id))
        if not found.refused:
            groups.setdefault(found.install, []).append(id)
    return {command: tuple(group) for command, group in groups.items()}
