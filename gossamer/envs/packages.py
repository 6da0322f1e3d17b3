"""Which package has an environment: advice for ids that Gymnasium does not know."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib import import_module
from importlib.metadata import entry_points
from importlib.util import find_spec

import gymnasium

from gossamer.system.installation import pip

# Ids of a package -> the module that registers them, and what pip is to install. gymnasium-robotics 1.4.2 needs
# members of MuJoCo's enumerations to equal NumPy's integers, which they do not from MuJoCo 3.12 on
KNOWN = {
    r"(MiniGrid|BabyAI)-": ("minigrid", "minigrid"),
    r"(highway|merge|roundabout|parking|intersection|racetrack|exit|two-way|u-turn|lane-keeping)(-\w+)*-v\d": (
        "highway_env",
        "highway-env",
    ),
    r"FlappyBird-": ("flappy_bird_gymnasium", "flappy-bird-gymnasium"),
    r"NetHack": ("nle", "nle"),
    r"MiniHack-": ("minihack", "minihack"),
    r"(Fetch|HandReach|HandManipulate|AdroitHand|AntMaze|PointMaze|FrankaKitchen)": (
        "gymnasium_robotics",
        'gymnasium-robotics "mujoco<3.12"',
    ),
    r"Panda(Reach|Push|Slide|PickAndPlace|Stack|Flip)": ("panda_gym", "panda-gym"),
    r"MinAtar/": ("minatar", "minatar"),
    r"(sumo-rl|SumoEnvironment)": ("sumo_rl", "sumo-rl"),
    r"CityLearn": ("citylearn", "citylearn"),
}
GROUP = "gymnasium.envs"  # of the entry points by which packages name what registers their environments


def advice(id: str) -> str:
    """How to name the environment, or how to install its package; empty if no package is known to have it."""
    if not re.search(r"-v\d+$", id):
        return ""
    for module in _installed(id):
        try:
            import_module(module)
        except Exception:  # whatever is wrong with a package that the user has not asked for
            continue
        if id in gymnasium.registry:
            return f"--env {module}:{id}"
    for pattern, (module, package) in KNOWN.items():
        if re.match(pattern, id) and find_spec(module) is None:
            return f"run {pip()} install {package}, then give --env {module}:{id}"
    return ""


def _installed(id: str) -> Iterator[str]:
    """Modules that can be imported and that may register the id."""
    known = [module for pattern, (module, _) in KNOWN.items() if re.match(pattern, id)]
    named = [each.value.partition(":")[0].partition(".")[0] for each in entry_points(group=GROUP)]
    return (module for module in dict.fromkeys([*known, *named]) if find_spec(module) is not None)
