"""How trajectories reach learners."""

from gossamer.experience.base import (
    ActorExperience,
    Demand,
    LearnerExperience,
    OwnExperience,
    Participant,
    Reader,
    Timer,
    Writer,
)
from gossamer.experience.choice import own_experience
from gossamer.experience.direct import Direct
from gossamer.experience.queue.ends import QueueReader, QueueWriter, RemoteWriter
from gossamer.experience.queue.loading import Assembler, NextBatch
from gossamer.experience.queue.parts import ActorQueue, LearnerQueue, RemoteActorQueue, Replaying
from gossamer.experience.queue.queue import Batching, TrajectoryQueue
from gossamer.experience.queue.slots import Slots
from gossamer.experience.replay import Drawn, LocalReplay, Replay, ReplayMemory, ReplayStore, importance

__all__ = [
    "ActorExperience",
    "ActorQueue",
    "Assembler",
    "Batching",
    "Demand",
    "Direct",
    "Drawn",
    "LearnerExperience",
    "LearnerQueue",
    "LocalReplay",
    "NextBatch",
    "OwnExperience",
    "Participant",
    "QueueReader",
    "QueueWriter",
    "Reader",
    "RemoteActorQueue",
    "RemoteWriter",
    "Replay",
    "ReplayMemory",
    "ReplayStore",
    "Replaying",
    "Slots",
    "Timer",
    "TrajectoryQueue",
    "Writer",
    "importance",
    "own_experience",
]
