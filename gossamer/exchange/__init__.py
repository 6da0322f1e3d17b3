"""How parameters move between members."""

from gossamer.exchange.base import Alone, Exchange
from gossamer.exchange.gossip.gossip import Gossip, room
from gossamer.exchange.gossip.mailboxes import LayoutMismatch, Mailboxes
from gossamer.exchange.proxy.proxy import Proxy

__all__ = ["Alone", "Exchange", "Gossip", "LayoutMismatch", "Mailboxes", "Proxy", "room"]
