"""The scenario of a simulation of a parameter server: bundles, shards, the network between them, and crashes."""

from __future__ import annotations

import math
from dataclasses import dataclass

from gossamer.exchange.server import options as shared
from gossamer.system.errors import UserError
from gossamer.system.options import option
from gossamer.tools.simulate.quantity import BYTES, SECONDS
from gossamer.tools.simulate.scenario import bandwidth, check_scenario, crash_rate, down, latency, measured, seed

CALLS = 20_000_000  # most in a run: more take hours to simulate
CALLS_EACH = 3  # of a bundle to each shard, in an iteration: two pulls and a push


@dataclass(frozen=True)
class ServerScenario:
    """Gorila in virtual time. Raises `UserError` for an invalid value.

    Numbers are in SI units: bytes per second, seconds, bytes, and crashes per second of each host."""

    bundles: int = option("Bundles of an actor, a replay memory and a learner, each a host.", 32, least=1, most=4096)
    shards: int = shared.SHARDS(4)
    rollout_steps: int = option("Environment steps of a bundle for each gradient.", 4, least=1, most=10**6)
    act_time: float = measured("Time of a bundle to act for these steps.", "10ms", SECONDS, floor=1e-6)
    update_time: float = measured("Time of a bundle to compute a gradient.", "20ms", SECONDS, floor=1e-6)
    jitter: float = option("Standard deviation of both times, relative to them (lognormal).", 0.1, least=0, most=100)
    apply_time: float = measured("Time of one shard to apply all of a gradient; each applies its part.", "5ms", SECONDS)
    max_delay: int = shared.MAX_DELAY(100)
    message_size: float = measured("Size of the network's parameters, and of a gradient.", "6.8MB", BYTES)
    bandwidth: float = bandwidth()
    latency: float = latency("100us")
    iterations: int = option("Gradients of each bundle; the first quarter is a warm-up.", 40, least=4, most=10_000_000)
    crash_rate: float = crash_rate("host, of bundles and shards")
    down: float = down()
    snapshot_time: float = measured(
        "Between two snapshots of a shard, which it goes on from after a crash.", "10s", SECONDS, floor=1e-3
    )
    seed: int = seed()

    def __post_init__(self) -> None:
        check_scenario(self)
        if math.isinf(self.down):
            raise UserError("--down inf: must be finite, because the simulation waits for the gradients of all bundles")
        if (calls := self.bundles * self.shards * CALLS_EACH * self.iterations) > CALLS:
            raise UserError(
                f"--iterations {self.iterations}: {calls:,} calls to shards, too many to simulate; use fewer "
                "iterations, bundles or shards"
            )

    @property
    def alone(self) -> float:
        """Seconds of an iteration of a bundle that is the only one."""
        calls = CALLS_EACH * (self.message_size / self.bandwidth + 2 * self.latency)
        return self.act_time + self.update_time + calls + self.part_time

    @property
    def part_size(self) -> float:
        """Bytes of one shard's parameters."""
        return self.message_size / self.shards

    @property
    def part_time(self) -> float:
        """Seconds of a shard for its part of a gradient."""
        return self.apply_time / self.shards
