"""How trajectories reach learners."""

from gossamer.experience.base import Reader, Writer
from gossamer.experience.direct import Direct
from gossamer.experience.ends import QueueReader, QueueWriter, RemoteWriter
from gossamer.experience.loading import Assembler, NextBatch
from gossamer.experience.queue import Batching, TrajectoryQueue
from gossamer.experience.replay import Replay
from gossamer.experience.slots import Slots

__all__ = [
    "Assembler",
    "Batching",
    "Direct",
    "NextBatch",
    "QueueReader",
    "QueueWriter",
    "Reader",
    "RemoteWriter",
    "Replay",
    "Slots",
    "TrajectoryQueue",
    "Writer",
]
