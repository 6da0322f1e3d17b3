"""Served policies: actors without a network ask predictors, which evaluate it for many actors at once (GA3C,
Babaeizadeh et al. 2017; SEED, Espeholt et al. 2020)."""

from gossamer.policy.served.messages import Answered, BatchRule, Few, Key, PolicyAnswer, Request, Taken, Welcome, Who
from gossamer.policy.served.network import RemoteNetwork
from gossamer.policy.served.policy import Served, ServedPolicy
from gossamer.policy.served.predictor import Predictor
from gossamer.policy.served.presence import Presence
from gossamer.policy.served.requests import Requests

__all__ = [
    "Answered",
    "BatchRule",
    "Few",
    "Key",
    "PolicyAnswer",
    "Predictor",
    "Presence",
    "RemoteNetwork",
    "Request",
    "Requests",
    "Served",
    "ServedPolicy",
    "Taken",
    "Welcome",
    "Who",
]
