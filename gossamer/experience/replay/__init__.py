"""Replay: learning again from what was acted before."""

from gossamer.experience.queue.replay import Replay
from gossamer.experience.replay.local import LocalReplay
from gossamer.experience.replay.memory import ReplayMemory

__all__ = ["LocalReplay", "Replay", "ReplayMemory"]
