"""Options of architectures whose actors may be served by predictors, and their checks. Each architecture gives the
defaults, as in `predictors: int = PREDICTORS(1)`."""

from __future__ import annotations

from functools import partial
from typing import Literal, TypeAlias

from gossamer.policy.served.messages import BatchRule
from gossamer.system.errors import UserError
from gossamer.system.options import option

PolicyKind: TypeAlias = Literal["replica", "served"]

POLICY = partial(
    option, "Where actors get actions: each has a replica of the network, or predictors beside the learner serve all."
)
PREDICTORS = partial(
    option, "Of --policy served: threads that evaluate the network, of each learner.", least=1, most=1024
)
MIN_BATCH = partial(
    option, "A predictor waits for so many of the learner's environments, or --batch-timeout.", least=1, most=10**6
)
MAX_BATCH = partial(
    option, "Environments that a predictor evaluates at once, at most; 0: all of the learner's.", least=0, most=10**6
)
BATCH_TIMEOUT = partial(option, "How long a predictor waits for --min-batch.", least=0, most=60, measure="seconds")


def batch_rule(
    min_batch: int, max_batch: int, timeout: float, *, actors: int, envs: int, groups: int = 1, option: str = "--actors"
) -> BatchRule:
    """The rule of these options, for so many actors of a learner. Each has `groups` of so many environments, and asks
    for the actions of one group at a time. `option`: that has the number of actors. Raises `UserError` if the rule
    could not be followed."""
    total, who = actors * envs, option.removeprefix("--")
    if min_batch > total:
        waiting = f"the environments of the {who} of a learner"
        if groups > 1:
            waiting = f"with --alternating, which has half of the {groups * total} environments wait at a time"
        raise UserError(f"--min-batch {min_batch}: must be at most {total}, {waiting}")
    if max_batch and min_batch > max_batch:
        raise UserError(f"--min-batch {min_batch}: must be at most --max-batch {max_batch}")
    if 0 < max_batch < envs:
        raise UserError(
            f"--max-batch {max_batch}: must be at least {envs}, the environments of one of the {who}"
            f"{' in a group' * (groups > 1)}, which are evaluated together; use more {option}"
        )
    return BatchRule(min_batch, max_batch or total, timeout)
