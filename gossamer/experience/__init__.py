"""How trajectories reach learners."""

from gossamer.experience.base import Experience
from gossamer.experience.direct import Direct

__all__ = ["Direct", "Experience"]
