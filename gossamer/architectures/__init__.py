"""The published architectures and their options. Each program mirrors the figure of its paper."""

from gossamer.architectures.a2c import SynchronousA2C
from gossamer.architectures.a3c import A3C
from gossamer.architectures.apex import ApeX
from gossamer.architectures.appo import APPO
from gossamer.architectures.dqn import DeepQNetwork
from gossamer.architectures.ga3c import GA3C
from gossamer.architectures.gala import GALA
from gossamer.architectures.gorila import Gorila
from gossamer.architectures.impala import IMPALA
from gossamer.architectures.paac import PAAC
from gossamer.architectures.pala import PALA
from gossamer.architectures.r2d2 import RecurrentReplay
from gossamer.architectures.sarsa import ParallelSarsa

__all__ = [
    "A3C",
    "APPO",
    "GA3C",
    "GALA",
    "IMPALA",
    "PAAC",
    "PALA",
    "ApeX",
    "DeepQNetwork",
    "Gorila",
    "ParallelSarsa",
    "RecurrentReplay",
    "SynchronousA2C",
]
