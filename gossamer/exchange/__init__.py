"""How parameters move between members."""

from gossamer.exchange.all_reduce import AllReduce, Between, Gradients, Group, Learners, keep
from gossamer.exchange.base import (
    Alone,
    AloneLink,
    Dropped,
    Exchange,
    Gradient,
    Learning,
    Link,
    LocalStep,
    Recordable,
    Stepped,
)
from gossamer.exchange.broadcast import Broadcast, Follower, Parameters, fetch, offer_copy
from gossamer.exchange.gossip.gossip import Gossip, room
from gossamer.exchange.gossip.mailboxes import LayoutMismatch, Mailboxes
from gossamer.exchange.proxy.proxy import Proxy
from gossamer.exchange.server import ParameterShard, Pulling, Server, tend
from gossamer.exchange.shared import Shared, SharedMemory

__all__ = [
    "AllReduce",
    "Alone",
    "AloneLink",
    "Between",
    "Broadcast",
    "Dropped",
    "Exchange",
    "Follower",
    "Gossip",
    "Gradient",
    "Gradients",
    "Group",
    "LayoutMismatch",
    "Learners",
    "Learning",
    "Link",
    "LocalStep",
    "Mailboxes",
    "ParameterShard",
    "Parameters",
    "Proxy",
    "Pulling",
    "Recordable",
    "Server",
    "Shared",
    "SharedMemory",
    "Stepped",
    "fetch",
    "keep",
    "offer_copy",
    "room",
    "tend",
]
