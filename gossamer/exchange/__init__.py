"""How parameters move between members."""

from gossamer.exchange.base import Alone, Exchange

__all__ = ["Alone", "Exchange"]
