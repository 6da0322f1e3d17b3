"""Replay: learning again from what was acted before."""

from gossamer.experience.queue.replay import Replay
from gossamer.experience.replay.limiter import Limiter
from gossamer.experience.replay.local import LocalReplay
from gossamer.experience.replay.memory import ReplayMemory
from gossamer.experience.replay.parts import ActorReplay, LearnerReplay
from gossamer.experience.replay.shard import ReplayShard
from gossamer.experience.replay.store import ReplayStore

__all__ = [
    "ActorReplay",
    "LearnerReplay",
    "Limiter",
    "LocalReplay",
    "Replay",
    "ReplayMemory",
    "ReplayShard",
    "ReplayStore",
]
