"""How parameters move between members."""

from gossamer.exchange.base import Alone, AloneLink, Exchange, Learning, Link, LocalStep, Stepped
from gossamer.exchange.gossip.gossip import Gossip, room
from gossamer.exchange.gossip.mailboxes import LayoutMismatch, Mailboxes
from gossamer.exchange.proxy.proxy import Proxy

__all__ = [
    "Alone",
    "AloneLink",
    "Exchange",
    "Gossip",
    "LayoutMismatch",
    "Learning",
    "Link",
    "LocalStep",
    "Mailboxes",
    "Proxy",
    "Stepped",
    "room",
]
