"""The scenario of a simulation of actors and learners apart: workers, the network between their hosts, and crashes."""

from __future__ import annotations

from dataclasses import dataclass

from gossamer.system.errors import UserError
from gossamer.system.options import option
from gossamer.tools.simulate.quantity import BYTES, SECONDS
from gossamer.tools.simulate.scenario import bandwidth, check_scenario, crash_rate, down, latency, measured, seed

STEP_BYTES = 4 * 4 + 8 + 8 + 1  # reward, discount, log-probability, value; action; version; begin of an episode
HEARTBEATS = 2_000_000  # most in a run: more take hours to simulate


@dataclass(frozen=True)
class ActorScenario:
    """IMPALA or APPO in virtual time. Raises `UserError` for an invalid value.

    Numbers are in SI units: bytes per second, seconds, bytes, and crashes per second of each host."""

    actors: int = option("Actors of all learners together.", 64, least=1, most=4096)
    actors_per_host: int = option(
        "Most actors on each host, fewer where --actors cannot be divided equally; 0: all on the learners' host, "
        "without a network.",
        8,
        least=0,
        most=4096,
    )
    learners: int = option("Learners, all on one host. Each has an equal part of the actors.", 1, least=1, most=1024)
    envs_per_actor: int = option("Environments of each actor, stepped together.", 4, least=1, most=16_384)
    rollout_length: int = option("Steps of each environment in a rollout.", 20, least=1, most=100_000)
    step_time: float = measured(
        "Time of an actor for one step of its environments, with inference.", "4ms", SECONDS, floor=1e-6
    )
    jitter: float = option("Standard deviation of that time, relative to it (lognormal).", 0.5, least=0, most=100)
    batch_rollouts: int = option("Rollouts of each batch.", 32, least=1, most=4096)
    update_time: float = measured("Learner's time for one pass over a batch.", "50ms", SECONDS, floor=1e-6)
    updates: int = option("Optimizer steps of each pass (appo: minibatches).", 1, least=1, most=10_000)
    reuse: int = option("Passes over each batch, in turn with newer ones.", 1, least=1, most=1000)
    depth: int | None = option(
        "Batches being filled, full or trained on.",
        None,
        least=1,
        most=1024,
        hint="(default: --reuse, as many as all actors fill at a time, and one more between hosts)",
    )
    obs_size: float = measured("Size of one observation; the default is four frames of Atari.", "28.224kB", BYTES)
    parameters_size: float = measured("Size of the network's parameters.", "6.8MB", BYTES)
    bandwidth: float = bandwidth()
    latency: float = latency("1ms")
    batches: int = option("Batches of each learner; the first quarter is a warm-up.", 200, least=4, most=10_000_000)
    crash_rate: float = crash_rate("host of actors")
    down: float = down()
    seed: int = seed()

    def __post_init__(self) -> None:
        check_scenario(self)
        if self.actors % self.learners:
            raise UserError(f"--actors {self.actors}: must be a multiple of --learners {self.learners}")
        if 0 < self.actors_per_host < self.learners:
            raise UserError(
                f"--actors-per-host {self.actors_per_host}: must be at least --learners {self.learners}: each learner "
                "has actors on each host"
            )
        if self.depth is not None and self.reuse > 1 and self.reuse >= self.depth:
            raise UserError(f"--reuse {self.reuse}: needs --depth {self.reuse + 1} or more (now {self.depth})")
        if self.shortest * max(1, self.hosts) * self.learners > HEARTBEATS:
            raise UserError(
                f"--batches {self.batches}: at least {SECONDS.text(self.shortest)} of virtual time on {self.hosts} "
                "hosts, too long to simulate; use fewer batches, more bandwidth, or shorter times"
            )

    @property
    def here(self) -> int:
        """Actors on each host of actors: all hosts are equal, and each has equally many of each learner."""
        each = self.actors // self.learners  # of one learner
        most = min(self.actors_per_host, self.actors) // self.learners
        return self.learners * max((here for here in range(1, most + 1) if each % here == 0), default=0)

    @property
    def hosts(self) -> int:
        """Hosts of actors; 0: the actors are on the learners' host."""
        return self.actors // self.here if self.here else 0

    @property
    def depth_used(self) -> int:
        """`depth`, or enough for every actor to fill a slot while the learner trains on `reuse` batches. Between hosts
        one more, so that actors need not wait for parameters on their way."""
        if self.depth is not None:
            return self.depth
        return self.reuse + -(-self.actors // (self.learners * self.batch_rollouts)) + (self.hosts > 0)

    @property
    def rollout_steps(self) -> int:
        """Environment steps of a rollout."""
        return self.rollout_length * self.envs_per_actor

    @property
    def rollout_bytes(self) -> float:
        """Bytes of a rollout in transit: T + 1 observations of each environment, and what was done and received."""
        observations = (self.rollout_length + 1) * self.envs_per_actor * self.obs_size
        return observations + (self.rollout_steps + self.envs_per_actor) * STEP_BYTES

    @property
    def lag_bound(self) -> int:
        """Most optimizer steps between the parameters that an actor takes and those that learn.

        A slot of batch n is filled with parameters from after the round of passes in which batch n - depth was used for
        the last time. There are depth - 1 rounds of `reuse` passes until the last pass over batch n, and `updates` - 1
        steps within it. With reuse the first `depth` batches may be older, by reuse * (reuse - 1) / 2 passes: their
        slots are free from the beginning, before the learner's first, shorter rounds."""
        return (self.depth_used - 1) * self.reuse * self.updates + self.updates - 1

    @property
    def shortest(self) -> float:
        """Lower bound of the run's duration, in virtual seconds."""
        acting = self.rollout_length * self.step_time * self.learners * self.batch_rollouts / self.actors
        sending = self.learners * self.batch_rollouts * self.rollout_bytes / self.bandwidth if self.hosts else 0.0
        return self.batches * max(acting, sending, self.update_time * self.reuse)
