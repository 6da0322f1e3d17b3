"""The experience that an algorithm needs in a worker that acts and learns."""

from __future__ import annotations

from gossamer.algorithms import Algorithm
from gossamer.algorithms.base import FromReplay
from gossamer.experience.base import OwnExperience
from gossamer.experience.direct import Direct
from gossamer.experience.replay.local import LocalReplay


def own_experience(algorithm: Algorithm) -> OwnExperience:
    """A replay memory for an algorithm that learns from one; otherwise each rollout is a batch."""
    if not isinstance(algorithm, FromReplay):
        return Direct()
    return LocalReplay(algorithm.replay_plan())
