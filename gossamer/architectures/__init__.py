"""The published architectures and their options. Each program mirrors the figure of its paper."""

from gossamer.architectures.gala import GALA, gala
from gossamer.architectures.paac import PAAC, paac
from gossamer.architectures.pala import PALA, pala

__all__ = ["GALA", "PAAC", "PALA", "gala", "paac", "pala"]
