"""Replay: learning again from what was acted before."""

from gossamer.experience.replay.local import LocalReplay
from gossamer.experience.replay.memory import ReplayMemory
from gossamer.experience.replay.trajectories import Replay

__all__ = ["LocalReplay", "Replay", "ReplayMemory"]
