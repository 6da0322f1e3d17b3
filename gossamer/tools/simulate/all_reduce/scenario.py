"""The scenario of a simulation of an all-reduce: hosts, their learners, the network between them, and crashes."""

from __future__ import annotations

import math
from dataclasses import dataclass

from gossamer.system.errors import UserError
from gossamer.system.options import option
from gossamer.tools.simulate.quantity import BYTES, SECONDS
from gossamer.tools.simulate.scenario import bandwidth, check_scenario, crash_rate, down, latency, measured, seed

CALLS = 20_000_000  # most in a run: more take hours to simulate


@dataclass(frozen=True)
class AllReduceScenario:
    """A2C in virtual time. Raises `UserError` for an invalid value.

    Numbers are in SI units: bytes per second, seconds, bytes, and crashes per second of each host."""

    hosts: int = option("Hosts, each one process.", 8, least=2, most=4096)
    learners: int = option("Learners on each host, each a thread.", 1, least=1, most=1024)
    rollout_steps: int = option("Environment steps of a learner for each gradient.", 80, least=1, most=10**6)
    act_time: float = measured("Time of a learner to act for these steps.", "40ms", SECONDS, floor=1e-6)
    update_time: float = measured("Time of a learner to compute a gradient.", "20ms", SECONDS, floor=1e-6)
    jitter: float = option("Standard deviation of both times, relative to them (lognormal).", 0.1, least=0, most=100)
    message_size: float = measured("Size of a gradient.", "6.8MB", BYTES)
    bandwidth: float = bandwidth()
    latency: float = latency("100us")
    iterations: int = option("Steps of each learner; the first quarter is a warm-up.", 20, least=4, most=10_000_000)
    crash_rate: float = crash_rate()
    down: float = down()
    seed: int = seed()

    def __post_init__(self) -> None:
        check_scenario(self)
        if math.isinf(self.down):
            raise UserError("--down inf: must be finite, because the simulation waits for the steps of all learners")
        if (calls := 2 * self.hosts**2 * self.iterations) > CALLS:
            raise UserError(
                f"--iterations {self.iterations}: {calls:,} calls between hosts, too many to simulate; use fewer "
                "iterations or hosts"
            )

    @property
    def part_size(self) -> float:
        """Bytes of one host's slice."""
        return self.message_size / self.hosts
