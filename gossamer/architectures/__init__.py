"""The published architectures, each the figure of its paper."""

from gossamer.architectures.gala import gala
from gossamer.architectures.paac import paac
from gossamer.architectures.pala import pala

__all__ = ["gala", "paac", "pala"]
