"""What a worker does, as its arguments declare: it acts in `Envs`, learns from a `LearnerExperience`, or predicts by a
`BatchRule`."""

from __future__ import annotations

from dataclasses import dataclass

from gossamer.experience import Demand, LearnerExperience
from gossamer.policy.served import BatchRule, Served
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
    served: bool = False  # whether predictors evaluate the network for it
    predicts: bool = False  # whether it is one of these

    @property
    def computes(self) -> bool:
        """Whether it evaluates a network."""
        return self.predicts or self.demand is not None or (self.envs is not None and not self.served)


def role(node: Node) -> Role:
    """The role that a worker's arguments declare."""
    given = [*node.args, *node.kwargs.values()]
    envs = next((each for each in given if isinstance(each, Envs)), None)
    learning = next((each for each in given if isinstance(each, LearnerExperience)), None)
    demand = None if learning is None else learning.demand(0 if envs is None else envs.count)
    served = any(isinstance(each, Served) for each in given)
    predicts = any(isinstance(each, BatchRule) for each in given)
    return Role(envs, demand, served, predicts)
