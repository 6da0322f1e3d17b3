"""The network of a simulation: what a call to another host takes, in virtual seconds, and what gets lost."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields, is_dataclass
from math import inf
from typing import Any

HEADER = 100.0  # bytes of a message besides what it carries
Partition = tuple[float, float, frozenset[str] | set[str]]  # (start, end) in seconds, the hosts of one side


def payload(method: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> float:
    """Bytes of a message: `HEADER`, and every buffer among the arguments and one level inside them.

    A buffer is what has `nbytes` (arrays, tensors, memoryviews), and bytes; lists, tuples, dicts and dataclasses are
    looked into. Numbers, names and all else are taken to fit into the header.
    """
    inside = (*args, *kwargs.values())
    return HEADER + sum(_bytes(leaf) + sum(map(_bytes, _parts(leaf))) for leaf in inside)


def _bytes(leaf: Any) -> float:
    return float(len(leaf) if isinstance(leaf, bytes | bytearray) else getattr(leaf, "nbytes", 0))


def _parts(tree: Any) -> Iterable[Any]:
    if isinstance(tree, list | tuple):
        return tree
    if isinstance(tree, dict):
        return tree.values()
    if is_dataclass(tree) and not isinstance(tree, type):
        return [getattr(tree, f.name) for f in fields(tree)]
    return ()


@dataclass(frozen=True)
class Network:
    """What lies between hosts. Calls within a host cost nothing and are never lost.

    A call's message has two links to pass, the uplink of the host it leaves and the downlink of the one it goes to.
    Each takes one message at a time, first come first served, `bytes / bandwidth` seconds each; an idle downlink takes
    in what the uplink gives out, so one message through idle links takes `latency + bytes / bandwidth`. The answer
    goes the same way back. An answer of None is only latency: it takes no bandwidth.
    """

    latency: float = 0.0  # seconds, one way
    bandwidth: float = inf  # bytes per second of each host, up and as much down
    loss: float = 0.0  # probability that a call is lost: its request or its answer, as likely
    timeout: float = 5.0  # seconds after a message that is lost was sent, until the caller gets `Unreachable`
    size: Callable[[str, tuple[Any, ...], dict[str, Any]], float] = payload  # bytes of a call, or of (answer,)

    def __post_init__(self) -> None:
        if not 0 <= self.latency < inf:
            raise ValueError(f"latency={self.latency}: seconds, not negative, not infinite")
        if not self.bandwidth > 0:
            raise ValueError(f"bandwidth={self.bandwidth}: bytes per second, above 0")
        if not 0 <= self.loss <= 1:
            raise ValueError(f"loss={self.loss}: a probability, from 0 to 1")
        if not 0 <= self.timeout < inf:
            raise ValueError(f"timeout={self.timeout}: seconds, not negative, not infinite")


class Links:
    """The network of one run: when each link is free again, and what the seed has lost."""

    def __init__(self, network: Network, partitions: Iterable[Partition], rng: random.Random) -> None:
        self.network, self._partitions, self._rng = network, tuple(partitions), rng
        self._up: defaultdict[str, float] = defaultdict(float)  # host -> when its uplink is free, in seconds
        self._down: defaultdict[str, float] = defaultdict(float)

    def reset(self, seed: str) -> None:
        """Begin anew: all links are free, losses follow from this seed."""
        self._rng.seed(seed)
        self._up.clear()
        self._down.clear()

    def seconds(self, method: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> float:
        """How long a link is taken by a message."""
        bandwidth = self.network.bandwidth
        return 0.0 if bandwidth == inf else self.network.size(method, args, kwargs) / bandwidth

    def leave(self, host: str, now: float, seconds: float) -> float:
        """Take the uplink of `host`: when the first byte comes out at the other end."""
        return _take(self._up, host, now, seconds) + self.network.latency

    def arrive(self, host: str, now: float, seconds: float) -> float:
        """The first byte is at `host`, take its downlink: when the last byte is through."""
        return _take(self._down, host, now, seconds) + seconds

    def lost(self) -> tuple[bool, bool]:
        """Whether a call loses its request, and whether its answer."""
        if not self.network.loss or self._rng.random() >= self.network.loss:
            return False, False
        request = self._rng.random() < 0.5
        return request, not request

    def cut(self, one: str, other: str, now: float) -> bool:
        """Whether a partition keeps what is sent now between two hosts from arriving."""
        return any(start <= now < end and (one in side) != (other in side) for start, end, side in self._partitions)


def _take(free: defaultdict[str, float], host: str, now: float, seconds: float) -> float:
    """Stand in line for a link: when it begins to be ours."""
    if not seconds:
        return now  # nothing to carry: no need to stand in line
    begins = max(now, free[host])
    free[host] = begins + seconds
    return begins
