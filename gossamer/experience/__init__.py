"""How trajectories reach learners."""

from gossamer.experience.base import (
    ActorExperience,
    Demand,
    Kept,
    LearnerExperience,
    OwnExperience,
    Participant,
    Reader,
    Timer,
    Writer,
)
from gossamer.experience.choice import own_experience
from gossamer.experience.direct import Direct
from gossamer.experience.pool.parts import AgentPool, TrainerPool
from gossamer.experience.pool.pool import RolloutPool, Sizes
from gossamer.experience.queue.loading import Assembler, NextBatch
from gossamer.experience.queue.parts import ActorQueue, LearnerQueue, RemoteActorQueue, Replaying
from gossamer.experience.queue.queue import Batching, TrajectoryQueue
from gossamer.experience.queue.reader import QueueReader
from gossamer.experience.queue.slots import Slots
from gossamer.experience.queue.writers import QueueWriter, RemoteWriter
from gossamer.experience.replay import (
    ActorReplay,
    LearnerReplay,
    Limiter,
    LocalReplay,
    Replay,
    ReplayMemory,
    ReplayShard,
    ReplayStore,
)
from gossamer.experience.replay.store import Drawn

__all__ = [
    "ActorExperience",
    "ActorQueue",
    "ActorReplay",
    "AgentPool",
    "Assembler",
    "Batching",
    "Demand",
    "Direct",
    "Drawn",
    "Kept",
    "LearnerExperience",
    "LearnerQueue",
    "LearnerReplay",
    "Limiter",
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
    "ReplayShard",
    "ReplayStore",
    "Replaying",
    "RolloutPool",
    "Sizes",
    "Slots",
    "Timer",
    "TrainerPool",
    "TrajectoryQueue",
    "Writer",
    "own_experience",
]
