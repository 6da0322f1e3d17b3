"""Run a program in virtual time, one worker at a time, in an order that follows from a seed: runs are reproducible.

A bug that depends on the order of events (a deadlock at shutdown, a lost update) appears with some seeds, and always
with these. Faults of networks and machines are simulated too.

* Every worker has a clock, in virtual seconds from 0. Computation takes no virtual time. Only `Context.sleep`, waiting
  in a call, and calls to other hosts advance a clock. At every call to a service and every read of `Context.stopped`,
  the scheduler continues the worker with the smallest clock; the seed decides between equal clocks. So services receive
  calls in the order of virtual time. If nothing takes time, every order of events occurs with some seed.
* `network` sets the duration and the loss of calls between hosts, and the time that services need for them; `faults`
  sets the crashes: see `Network` and `Faults`.
* A call from a service to a service on another host takes no virtual time. If that host is down or partitioned, the
  call raises `Unreachable` immediately.
* `Scheduler` defines a deadlock. `patience` is the time, in virtual seconds, that a program may run without progress.

Every worker is a thread that runs only during its turn, so a simulation uses one core. Pinned to one core
(`taskset -c 0`) it is about twice as fast, because switching threads then stays on that core.

After a run, the launcher's attributes hold its statistics, even if the run raised an error.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from gossamer.launch.simulation.engine import Engine
from gossamer.launch.simulation.faults import Faults
from gossamer.launch.simulation.network import Network
from gossamer.program import Program
from gossamer.runtime import SILENT, Observer

Trace = list[tuple[str, str]]


@dataclass
class Simulation:
    """A launcher: `Simulation(seed)(program)`, `Simulation(seed, Network(latency=0.04), Faults(slow={"act[3]": 2.0}))`.

    Workers are identified by their `Context.name`.
    """

    seed: int = 0
    network: Network = field(default_factory=Network)
    faults: Faults = field(default_factory=Faults)
    patience: float = 1_000.0  # virtual seconds; inf: a deadlock is reported only if no worker can continue
    trace: Trace = field(default_factory=list, init=False)  # (worker, service.method) in the order in which calls ended
    now: float = field(default=0.0, init=False)  # duration of the run in virtual seconds
    clocks: dict[str, float] = field(default_factory=dict, init=False)  # worker -> when it ended, in virtual seconds
    waited: dict[str, float] = field(default_factory=dict, init=False)  # worker -> virtual seconds of waiting in calls
    turns: int = field(default=0, init=False)  # number of turns of all workers
    crashes: list[tuple[float, str]] = field(default_factory=list, init=False)  # (virtual second, host)

    def __post_init__(self) -> None:
        if not self.patience > 0:
            raise ValueError(f"patience={self.patience}: must be positive (virtual seconds); inf: no limit")

    def __call__(self, program: Program, observer: Observer = SILENT) -> None:
        """Run `program` until all its workers have ended.

        Raises the error of the first worker that failed, or Deadlock, after all have ended; ValueError if a fault names
        a worker or host that is not in the program.
        """
        engine = Engine(program, observer, self.seed, self.network, self.faults, self.patience)
        self.trace, self.crashes = engine.trace, engine.crashes
        try:
            engine.run()
        finally:
            workers = engine.scheduler.workers
            self.now, self.turns = engine.scheduler.now, engine.scheduler.turns
            self.clocks = {worker.name: worker.clock for worker in workers}
            self.waited = {worker.name: worker.waited for worker in workers}
