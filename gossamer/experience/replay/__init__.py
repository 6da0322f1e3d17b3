"""Replay: learning again from what was acted before."""

from gossamer.experience.queue.replay import Replay
from gossamer.experience.replay.local import LocalReplay
from gossamer.experience.replay.memory import ReplayMemory
from gossamer.experience.replay.store import Drawn, ReplayStore, importance

__all__ = ["Drawn", "LocalReplay", "Replay", "ReplayMemory", "ReplayStore", "importance"]
