"""The published architectures and their options. Each program mirrors the figure of its paper."""

from gossamer.architectures.appo import APPO, appo
from gossamer.architectures.gala import GALA, gala
from gossamer.architectures.impala import IMPALA, impala
from gossamer.architectures.paac import PAAC, paac
from gossamer.architectures.pala import PALA, pala

__all__ = ["APPO", "GALA", "IMPALA", "PAAC", "PALA", "appo", "gala", "impala", "paac", "pala"]
