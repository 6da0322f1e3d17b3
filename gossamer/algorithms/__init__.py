"""Algorithms: network heads, action selection and losses, independent of the architecture."""

from gossamer.algorithms.a2c import A2C
from gossamer.algorithms.appo import AsyncPPO
from gossamer.algorithms.base import Algorithm
from gossamer.algorithms.dqn import DQN
from gossamer.algorithms.nstep_q import NStepQ
from gossamer.algorithms.one_step import OneStepQ, Sarsa
from gossamer.algorithms.ppo import PPO
from gossamer.algorithms.pqn import PQN
from gossamer.algorithms.r2d2 import R2D2
from gossamer.algorithms.sarsa_lambda import SarsaLambda
from gossamer.algorithms.vtrace import VTrace
from gossamer.nn.networks import Network

__all__ = [
    "A2C",
    "DQN",
    "PPO",
    "PQN",
    "R2D2",
    "Algorithm",
    "AsyncPPO",
    "NStepQ",
    "Network",
    "OneStepQ",
    "Sarsa",
    "SarsaLambda",
    "VTrace",
]
