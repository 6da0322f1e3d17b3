"""The network of a simulation: how many virtual seconds calls between hosts take, and which calls are lost."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields, is_dataclass
from math import inf
from typing import Any

HEADER = 100.0  # bytes of a message in addition to its buffers
Partition = tuple[float, float, frozenset[str] | set[str]]  # (start, end) in seconds, the hosts of one side


def payload(method: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> float:
    """The size of a message in bytes: `HEADER` plus all buffers among the arguments and one level inside them.

    Buffers are bytes and objects with `nbytes` (arrays, tensors, memoryviews). Buffers inside lists, tuples, dicts and
    dataclasses are counted. Numbers, strings and everything else count as part of the header.
    """
    inside = (*args, *kwargs.values())
    return HEADER + sum(_bytes(leaf) + sum(map(_bytes, _parts(leaf))) for leaf in inside)


def no_work(method: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> float:
    """Calls take services no time."""
    return 0.0


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
    """The network between hosts. Calls within a host take no time and are never lost.

    A message passes two links: the uplink of its source host and the downlink of its target host. Each link transmits
    one message at a time, first come, first served, in `bytes / bandwidth` seconds. An idle downlink receives while the
    uplink sends, so a message over idle links takes `latency + bytes / bandwidth` in total. The answer returns in the
    same way. An answer of None uses no bandwidth: it takes only `latency`.

    Before the answer, a service needs `work` seconds for a call. It executes calls of other hosts one at a time, first
    come, first served; they take effect when their work is done.
    """

    latency: float = 0.0  # seconds, one way
    bandwidth: float = inf  # bytes per second of each uplink and each downlink
    loss: float = 0.0  # probability that a call is lost; request and answer are lost equally often
    timeout: float = 5.0  # seconds from sending a lost message until the caller gets `Unreachable`
    size: Callable[[str, tuple[Any, ...], dict[str, Any]], float] = payload  # bytes of a call, or of (answer,)
    work: Callable[[str, tuple[Any, ...], dict[str, Any]], float] = no_work  # seconds that a service needs for a call

    def __post_init__(self) -> None:
        if not 0 <= self.latency < inf:
            raise ValueError(f"latency={self.latency}: must be at least 0 and finite (seconds)")
        if not self.bandwidth > 0:
            raise ValueError(f"bandwidth={self.bandwidth}: must be positive (bytes per second)")
        if not 0 <= self.loss <= 1:
            raise ValueError(f"loss={self.loss}: must be a probability, from 0 to 1")
        if not 0 <= self.timeout < inf:
            raise ValueError(f"timeout={self.timeout}: must be at least 0 and finite (seconds)")


class Links:
    """The state of the network in one run: when each link is free, and the random losses."""

    def __init__(self, network: Network, partitions: Iterable[Partition], rng: random.Random) -> None:
        self.network, self._partitions, self._rng = network, tuple(partitions), rng
        self._up: defaultdict[str, float] = defaultdict(float)  # host -> virtual second at which its uplink is free
        self._down: defaultdict[str, float] = defaultdict(float)  # the same for downlinks
        self._work: defaultdict[int, float] = defaultdict(float)  # service -> when the work of all its calls is done

    def reset(self, seed: str) -> None:
        """Free all links and services, and reseed the losses."""
        self._rng.seed(seed)
        self._up.clear()
        self._down.clear()
        self._work.clear()

    def crashed(self, services: Iterable[int]) -> None:
        """Drop the work of these services."""
        for service in services:
            self._work.pop(service, None)

    def seconds(self, method: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> float:
        """How long a message occupies a link, in virtual seconds."""
        bandwidth = self.network.bandwidth
        return 0.0 if bandwidth == inf else self.network.size(method, args, kwargs) / bandwidth

    def send(self, host: str, now: float, seconds: float) -> float:
        """Occupy the uplink of `host` for `seconds`. Returns when the first byte reaches the target host."""
        return _occupy(self._up, host, now, seconds) + self.network.latency

    def receive(self, host: str, now: float, seconds: float) -> float:
        """Occupy the downlink of `host` for `seconds`. Returns when the last byte has arrived."""
        return _occupy(self._down, host, now, seconds) + seconds

    def work(self, service: int, now: float, call: tuple[str, tuple[Any, ...], dict[str, Any]]) -> float:
        """Occupy a service for a call, behind all earlier ones. Returns when its work is done."""
        self._work[service] = max(now, self._work[service]) + self.network.work(*call)
        return self._work[service]

    def draw_loss(self) -> tuple[bool, bool]:
        """Whether the next call loses its request, and whether it loses its answer."""
        if not self.network.loss or self._rng.random() >= self.network.loss:
            return False, False
        request = self._rng.random() < 0.5
        return request, not request

    def partitioned(self, one: str, other: str, now: float) -> bool:
        """Whether a partition separates the two hosts now."""
        return any(start <= now < end and (one in side) != (other in side) for start, end, side in self._partitions)


def _occupy(free: defaultdict[str, float], host: str, now: float, seconds: float) -> float:
    """Occupy a link for `seconds`, behind all earlier messages. Returns when the transmission begins."""
    if not seconds:
        return now  # an empty message does not wait for the link
    begins = max(now, free[host])
    free[host] = begins + seconds
    return begins
