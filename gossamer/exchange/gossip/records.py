"""Records that a gossiping member reports. The driver computes the consensus distance and its bound from them.

A *cut* is a consistent snapshot of all members: no member has received a message that another member sent after its own
part of the snapshot. Members take their parts independently (Lai and Yang 1987). Every message carries its sender's
epoch; before a member averages a message of a later epoch than its own, it takes its part of the cut. An even epoch
opens an observation window, the next one closes it. Within a window the mixing weights and the length of every step are
recorded.

Let p(i, k) be the parameters of member i after its local step k, y = sum_j w_j p(j, s_j) their average with received
parameters (p(i, k) itself without an exchange), and u(i, k + 1) = p(i, k + 1) - y the next optimizer step. Then every p
is a sum of earlier p and of displacements u, with any delays. The weights are rows of the realised mixing matrices.

Parameter vectors [P] are reported as random projections [D] (`projection`), 16 KB each.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from torch import Tensor

from gossamer.data import Array
from gossamer.spaces import Space


@dataclass(frozen=True)
class PolicyOutputs:
    """A member's policy outputs on the reference observations, which all members share (`workers.reference`)."""

    observations: Array  # [M] uint32, checksums of the observations
    parameters: Tensor  # [M, P] float32, of the distributions over actions
    actions: Space


@dataclass(frozen=True)
class Cut:
    """One member's part of a consistent cut."""

    epoch: int  # even: a window opens here; odd: it closes
    member: int
    iteration: int  # k, the member's optimizer steps so far
    members: tuple[int, ...]  # the active members in this member's view
    size: int  # P, elements of the parameter vector
    parameters: Tensor  # [D]  projection of p(member, iteration)
    # The following are set at a closing cut only:
    gradient: Tensor | None = None  # [D]  projection of the gradient of the last step
    moved: float | None = None  # ||p - p at this member's opening cut||_2, exact
    policy: PolicyOutputs | None = None
    bounded: bool = True  # whether the window has records of steps and messages, so that its distance has a bound


@dataclass(frozen=True)
class InTransit:
    """A message sent before the cut and received after it. It is part of the state at the cut."""

    epoch: int
    member: int  # the sender
    iteration: int
    parameters: Tensor  # [D]  projection


@dataclass(frozen=True)
class Tracked:
    """One step of one member within a window: p(member, iteration) = sum of weight * p(parent) + u."""

    epoch: int  # epoch that opened the window
    member: int
    iteration: int
    parents: tuple[tuple[int, int, float], ...]  # (member, iteration, weight), including the member's previous step
    moved: float  # ||u||_2, exact, plus an upper bound of the rounding error of lossy messages


@dataclass(frozen=True)
class Traffic:
    """Counters of one member since its last report."""

    iterations: int = 0
    sent: int = 0  # messages sent, counted once per receiver
    mixed: int = 0  # messages averaged
    refused: int = 0  # packets that the member's host rejected; each is reported by one member only
    waited: float = 0.0  # seconds blocked by the staleness bound
    staleness: dict[int, int] = field(default_factory=dict)  # iterations behind (< 0: ahead) -> averaged messages
    ages: dict[int, int] = field(default_factory=dict)  # floor(log2 milliseconds since published) -> averaged messages
    weight: float = 1.0  # push-sum weight
    cpu: float = field(default=0.0, compare=False)  # seconds of CPU time of the member's thread
    cpu_diagnostics: float = field(default=0.0, compare=False)  # seconds of `cpu` spent on these records
    edges: dict[tuple[int, int], tuple[int, int]] = field(default_factory=dict)
    """(sender, receiver) -> averaged messages, and the sum of their staleness in iterations (0 where it is ahead)."""
    sent_bytes: int = 0  # of the parameters in messages sent, in their format, and of indices; once per receiver
    sent_whole: int = 0  # of the messages sent: those with all parameters


Record = Cut | InTransit | Tracked | Traffic
