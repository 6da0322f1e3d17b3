"""The published architectures, each the figure of its paper."""

from gossamer.architectures.paac import paac

__all__ = ["paac"]
