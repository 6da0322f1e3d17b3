"""Where actions come from."""

from gossamer.policy.base import ActorPolicy, OwnNetwork, Policy, Source
from gossamer.policy.replica import NetworkPolicy, PulledReplica, Replica, Seats, build, life

__all__ = [
    "ActorPolicy",
    "NetworkPolicy",
    "OwnNetwork",
    "Policy",
    "PulledReplica",
    "Replica",
    "Seats",
    "Source",
    "build",
    "life",
]
