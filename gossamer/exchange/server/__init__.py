"""A parameter server: parameters that live on shards, to which learners push gradients."""

from gossamer.exchange.server.pull import Pulling
from gossamer.exchange.server.server import Server, ServerLink
from gossamer.exchange.server.shard import ParameterShard
from gossamer.exchange.server.workers import tend

__all__ = ["ParameterShard", "Pulling", "Server", "ServerLink", "tend"]
