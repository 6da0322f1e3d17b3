"""Vector environments behind one protocol, created from frozen, serialisable factories.

Importing this package imports no emulator. `atari` and `gym` import emulators and user modules when they are needed.
"""

from gossamer.envs.base import (
    EnvFactory,
    MissingExtra,
    Resumable,
    UnknownEnv,
    UnsupportedSpace,
    VectorEnv,
)
from gossamer.envs.catalogue import names, resolve
from gossamer.spaces import Spec

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
