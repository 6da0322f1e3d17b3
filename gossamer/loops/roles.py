"""What a worker does, as its arguments declare: it acts in `Envs`, and it learns from a `LearnerExperience`."""

from __future__ import annotations

from dataclasses import dataclass

from gossamer.experience import Demand, LearnerExperience
from gossamer.program import Node
from gossamer.system.errors import UserError


@dataclass(frozen=True)
class Envs:
    """The environments of a worker that acts."""

    count: int
    workers: int = 0  # threads or processes that step them; 0: what suits them. Each group has so many

    def of_group(self, groups: int) -> int:
        """Environments of each of so many groups. Raises `UserError` unless all have equally many."""
        if self.count % groups:
            fewer, more = self.count - self.count % groups, self.count + groups - self.count % groups
            enough = f"{fewer} or {more}" if fewer else more
            raise UserError(
                f"--alternating: each actor has {self.count} of the --num-envs environments, which are not {groups} "
                f"equal groups; {enough} are"
            )
        return self.count // groups

    def __str__(self) -> str:
        return f"{self.count}" + (f" / {self.workers} workers" if self.workers else "")


@dataclass(frozen=True)
class Role:
    """What a worker does."""

    envs: Envs | None = None  # that it acts in; None: it does not act
    demand: Demand | None = None  # of the experience that it learns from; None: it does not learn


def role(node: Node) -> Role:
    """The role that a worker's arguments declare."""
    given = [*node.args, *node.kwargs.values()]
    envs = next((each for each in given if isinstance(each, Envs)), None)
    learning = next((each for each in given if isinstance(each, LearnerExperience)), None)
    demand = None if learning is None else learning.demand(0 if envs is None else envs.count)
    return Role(envs, demand)
