"""All-reduce: learners average their gradients before each step, so that they keep equal parameters."""

from gossamer.exchange.all_reduce.between import Between
from gossamer.exchange.all_reduce.given import Contribution, Lead, Mean, RoundOutcome, Start
from gossamer.exchange.all_reduce.gradients import Gradients
from gossamer.exchange.all_reduce.group import Group
from gossamer.exchange.all_reduce.link import AllReduce, AllReduceLink
from gossamer.exchange.all_reduce.workers import Learners, keep

__all__ = [
    "AllReduce",
    "AllReduceLink",
    "Between",
    "Contribution",
    "Gradients",
    "Group",
    "Lead",
    "Learners",
    "Mean",
    "RoundOutcome",
    "Start",
    "keep",
]
