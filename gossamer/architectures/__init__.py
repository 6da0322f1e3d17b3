"""The published architectures, each the figure of its paper, and their options."""

from gossamer.architectures.gala import GALA, gala
from gossamer.architectures.paac import PAAC, paac
from gossamer.architectures.pala import PALA, pala

__all__ = ["GALA", "PAAC", "PALA", "gala", "paac", "pala"]
