"""Members that gossip with real vectors, and report as `gossamer.exchange.gossip.records` says."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from gossamer.diagnostics.bound import Window
from gossamer.exchange import room
from gossamer.exchange.gossip.options import Gossiping
from gossamer.exchange.gossip.projection import project
from gossamer.exchange.gossip.records import Cut, InTransit, Record, Tracked

SIZE = 6  # P, where a test asks for no other


def gossiping(architecture: str, **given: Any) -> Gossiping:
    """What `given` says, else as in GALA or PALA by default, but without diagnostics."""
    usual: dict[str, Any] = {"period": 0}
    if architecture == "pala":
        tau = given.get("staleness", 16)
        usual |= {"staleness": tau, "interval": 1 if given.get("lock_step") else int(min(4, room(tau)))}
    return Gossiping(**{**usual, **given})


@dataclass(frozen=True)
class Letter:
    sender: int
    iteration: int
    epoch: int
    vector: np.ndarray


@dataclass
class Member:
    """One of them: its parameters after its last step, what it mixed them to, its records."""

    rank: int
    vector: np.ndarray  # p(rank, iteration)
    mixed: np.ndarray  # y
    opened: np.ndarray  # its parameters at its last cut
    iteration: int = 0
    epoch: int = -1
    parents: tuple[tuple[int, int, float], ...] = ()
    letters: list[Letter] = field(default_factory=list)
    records: list[Record] = field(default_factory=list)


class Ring:
    """Any graph, any delays, any weights: a random stream decides who steps, who is told, what has come.

    Member 0 opens and closes windows; the others learn of it by letters, as Lai and Yang have it."""

    def __init__(self, members: int, seed: int, size: int = SIZE) -> None:
        self.rng, self.size = np.random.default_rng(seed), size
        vectors = [self.rng.normal(size=size) for _ in range(members)]
        self.members = [Member(rank, vector, vector, vector) for rank, vector in enumerate(vectors)]
        self.displacements: dict[tuple[int, int], np.ndarray] = {}
        self.vectors = {(rank, 0): vector for rank, vector in enumerate(vectors)}

    def run(self, steps: int) -> None:
        for _ in range(steps):
            self.step(self.members[self.rng.integers(len(self.members))])

    def settle(self) -> None:
        """Let every member hear of everything, until all have the same epoch."""
        while len({member.epoch for member in self.members}) > 1:
            newest = max(self.members, key=lambda member: member.epoch)
            for member in self.members:
                self.send(newest, member)
                self.step(member, everything=True)

    def step(self, member: Member, *, everything: bool = False) -> None:
        displacement = self.rng.normal(size=self.size) * self.rng.choice([0.0, 0.1, 1.0])
        member.iteration += 1
        member.vector = member.mixed + displacement
        event = (member.rank, member.iteration)
        self.displacements[event], self.vectors[event] = displacement, member.vector
        if member.epoch >= 0 and member.epoch % 2 == 0 and member.parents:
            moved = float(np.linalg.norm(displacement))
            member.records.append(Tracked(member.epoch, *event, member.parents, moved))
        for other in self.members:
            if other is not member and self.rng.random() < 0.5:
                self.send(member, other)
        taken = [letter for letter in member.letters if everything or self.rng.random() < 0.5]
        member.letters = [letter for letter in member.letters if letter not in taken]
        newest = max([letter.epoch for letter in taken] + [member.epoch])
        if member.rank == 0 and not everything and self.rng.random() < 0.15:
            newest += 1
        while member.epoch < newest:
            self.cut(member)
        self.mix(member, taken)

    def send(self, sender: Member, receiver: Member) -> None:
        receiver.letters.append(Letter(sender.rank, sender.iteration, sender.epoch, sender.vector))

    def cut(self, member: Member) -> None:
        member.epoch += 1
        everybody = tuple(range(len(self.members)))
        vector = project(torch.from_numpy(member.vector))
        moved = float(np.linalg.norm(member.vector - member.opened)) if member.epoch % 2 else None
        member.opened = member.vector
        cut = Cut(member.epoch, member.rank, member.iteration, everybody, self.size, vector, moved=moved)
        member.records.append(cut)

    def mix(self, member: Member, letters: list[Letter]) -> None:
        for letter in letters:
            if letter.epoch < member.epoch:
                vector = project(torch.from_numpy(letter.vector))
                member.records.append(InTransit(member.epoch, letter.sender, letter.iteration, vector))
        weights = self.rng.dirichlet(np.ones(1 + len(letters)))
        member.mixed = weights[0] * member.vector + sum(
            w * letter.vector for w, letter in zip(weights[1:], letters, strict=True)
        )
        others = [(letter.sender, letter.iteration, w) for w, letter in zip(weights[1:], letters, strict=True)]
        member.parents = ((member.rank, member.iteration, float(weights[0])), *others)


def windows(ring: Ring) -> list[Window]:
    """The whole ones, from the members' records one member after the other."""
    found: dict[int, Window] = {}
    for member in ring.members:
        for record in member.records:
            assert isinstance(record, Cut | InTransit | Tracked)
            epoch = record.epoch - record.epoch % 2
            found.setdefault(epoch, Window(epoch)).take(record)
    return [window for _, window in sorted(found.items()) if window.complete]


def cut(epoch: int, member: int, iteration: int, vector: list[float], members: int = 2, **more: Any) -> Cut:
    """A cut of vectors given as lists."""
    gradient = torch.tensor(more["gradient"]) if "gradient" in more else None
    parameters = torch.tensor(vector)
    size = more.get("size", len(vector))
    return Cut(epoch, member, iteration, tuple(range(members)), size, parameters, gradient, more.get("moved"))
