"""Run a program one worker at a time, in virtual time, in an order that a seed decides: a seed is always the same run.

What depends on the order of events (a deadlock at shutdown, a lost update) shows up in some seed and stays there; what
depends on a network, on slow or dying machines shows up without them.

* Every worker has a clock, in virtual seconds from 0. Code takes no time: only `Context.sleep`, waiting in a call, and
  calls to other hosts move a clock on. The smallest clock goes next, and among equals the seed decides, at every call
  to a service and every look at `Context.stopped`. So services see calls in the order of virtual time, and where
  nothing takes time every order of events is the order of some seed.
* `network` says what calls between hosts take and how many get lost, `faults` what goes wrong: see `Network`, `Faults`.
* Services that call services of other hosts reach them at once; where the host is down or cut off they get
  `Unreachable` at once, too.
* When it is a deadlock is said at `Scheduler`; `patience` is how long, in virtual seconds, others may go on in vain.

Every worker is a thread and runs only when it has the turn, so a simulation uses one core, and on one alone
(`taskset -c 0`) it is about twice as quick: handing over the turn then crosses no cores.

After a run, however it ended, the launcher holds its figures.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from gossamer.launch.simulation.engine import Engine
from gossamer.launch.simulation.faults import Faults
from gossamer.launch.simulation.network import Network
from gossamer.program import SILENT, Observer, Program

Trace = list[tuple[str, str]]


@dataclass
class Simulation:
    """A launcher: `Simulation(seed)(program)`, `Simulation(seed, Network(latency=0.04), Faults(slow={"act[3]": 2.0}))`.

    Workers are named as their `Context.name`.
    """

    seed: int = 0
    network: Network = field(default_factory=Network)
    faults: Faults = field(default_factory=Faults)
    patience: float = 1_000.0  # virtual seconds; inf: only where nobody can go on is it a deadlock
    trace: Trace = field(default_factory=list, init=False)  # (worker, service.method) as calls ended at the service
    now: float = field(default=0.0, init=False)  # virtual seconds the run took
    clocks: dict[str, float] = field(default_factory=dict, init=False)  # worker -> when it ended, in virtual seconds
    waited: dict[str, float] = field(default_factory=dict, init=False)  # worker -> virtual seconds it was parked
    turns: int = field(default=0, init=False)  # how often somebody went on
    crashes: list[tuple[float, str]] = field(default_factory=list, init=False)  # (virtual second, host)

    def __post_init__(self) -> None:
        if not self.patience > 0:
            raise ValueError(f"patience={self.patience}: virtual seconds, above 0; inf to wait for ever")

    def __call__(self, program: Program, observer: Observer = SILENT) -> None:
        """Raises what the first failing worker raised, or Deadlock, after all workers have ended.

        ValueError where a fault names a worker or host that the program has not.
        """
        engine = Engine(program, observer, self.seed, self.network, self.faults, self.patience)
        self.trace, self.crashes = engine.trace, engine.crashes
        try:
            engine.run()
        finally:
            workers = engine.scheduler.workers
            self.now, self.turns = engine.scheduler.now, engine.scheduler.count
            self.clocks = {worker.name: worker.clock for worker in workers}
            self.waited = {worker.name: worker.waited for worker in workers}
