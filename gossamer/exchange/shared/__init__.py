"""Shared parameters: learners of one machine change the same memory, without a lock."""

from gossamer.exchange.shared.memory import SharedMemory
from gossamer.exchange.shared.shared import Shared

__all__ = ["Shared", "SharedMemory"]
