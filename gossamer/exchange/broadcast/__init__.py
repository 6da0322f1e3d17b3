"""Broadcast: learners publish their parameters, and actors take the newest (IMPALA, Espeholt et al. 2018)."""

from gossamer.exchange.broadcast.broadcast import Broadcast, BroadcastLink, Follower
from gossamer.exchange.broadcast.parameters import Parameters, Published
from gossamer.exchange.broadcast.workers import fetch, offer_copy

__all__ = ["Broadcast", "BroadcastLink", "Follower", "Parameters", "Published", "fetch", "offer_copy"]
