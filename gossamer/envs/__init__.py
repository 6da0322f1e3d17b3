"""Where experience comes from: vectors of environments behind one protocol, made from frozen data that can travel.

Importing this package needs neither an emulator nor a game: `atari`, `gym` and `toy` load what they need when asked.
"""

from gossamer.envs.base import (
    EnvFactory,
    MissingExtra,
    Resumable,
    Spec,
    UnknownEnv,
    UnsupportedSpace,
    VectorEnv,
)
from gossamer.envs.catalogue import names, resolve

__all__ = [
    "EnvFactory",
    "MissingExtra",
    "Resumable",
    "Spec",
    "UnknownEnv",
    "UnsupportedSpace",
    "VectorEnv",
    "names",
    "resolve",
]
