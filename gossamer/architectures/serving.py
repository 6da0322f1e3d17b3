"""The wiring of the actors' policies: replicas that follow the learner, or predictors beside it that serve them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from gossamer.exchange import Parameters, fetch
from gossamer.loops import Envs, end_requests, predict
from gossamer.policy import Policy, Replica
from gossamer.policy.served import BatchRule, Presence, Requests, Served
from gossamer.policy.served.options import PolicyKind, batch_rule
from gossamer.program import Program
from gossamer.task import Task


class Options(Protocol):
    """The options of `policies_of`."""

    @property
    def policy(self) -> PolicyKind: ...
    @property
    def predictors(self) -> int: ...
    @property
    def min_batch(self) -> int: ...
    @property
    def max_batch(self) -> int: ...
    @property
    def batch_timeout(self) -> float: ...


@dataclass(frozen=True)
class Policies:
    """How the actors of each learner get their actions."""

    predictors: int  # that serve them; 0: they have replicas
    rule: BatchRule

    def add_predictors(self, p: Program, task: Task, newest: Parameters, actors: Mapping[str, int]) -> Requests | None:
        """Add a learner's predictors to its host; None if there are none. `newest`: its parameters; `actors`: the names
        and ranks of its actors."""
        if not self.predictors:
            return None
        requests = p.service(Requests)(actors, groups=task.groups)
        p.worker(predict, copies=self.predictors)(task, requests, newest, rule=self.rule)
        p.worker(end_requests)(requests, newest)
        return requests

    def add_copy(self, p: Program, newest: Parameters, actors: Sequence[str]) -> Any:
        """Add to the host of these actors its copy of the parameters, or without replicas its `Presence`."""
        if self.predictors:
            return p.service(Presence)(len(actors))
        copy = p.service(Parameters)(actors)
        p.worker(fetch)(newest, copy)
        return copy

    def here(self, newest: Parameters, requests: Requests | None) -> Policy:
        """The policy of actors on the learner's host."""
        return Replica(newest) if requests is None else Served(requests)

    def elsewhere(self, copy: Any, requests: Requests | None) -> Policy:
        """The policy of actors on another host, which has this copy."""
        return Replica(copy) if requests is None else Served(requests, copy)


def policies_of(options: Options, task: Task, *, actors: int, envs: int) -> Policies:
    """The policies that these options describe, of so many actors of each learner, with so many environments each.
    Raises `UserError` if predictors could not follow them."""
    if options.policy == "replica":
        return Policies(0, BatchRule())
    rule = batch_rule(
        options.min_batch,
        options.max_batch,
        options.batch_timeout,
        actors=actors,
        envs=Envs(envs).of_group(task.groups),
        groups=task.groups,
    )
    return Policies(options.predictors, rule)
