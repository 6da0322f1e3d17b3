"""A2C in virtual time: the program of a scenario, and what it is measured by."""

from __future__ import annotations

from functools import partial
from typing import Any

from gossamer import architectures
from gossamer.exchange.all_reduce import Start
from gossamer.exchange.all_reduce.group import Part, Reduced
from gossamer.launch.simulation import Faults, Network, Simulation
from gossamer.loops import act_and_learn
from gossamer.program import Program
from gossamer.tools.simulate.all_reduce import workers
from gossamer.tools.simulate.all_reduce.figures import FIGURES, measure, panels, summary, title, warnings
from gossamer.tools.simulate.all_reduce.scenario import AllReduceScenario
from gossamer.tools.simulate.all_reduce.workers import Workload
from gossamer.tools.simulate.base import Simulated
from gossamer.tools.simulate.ledger import Ledger


def program(s: AllReduceScenario) -> Program:
    """The architecture's program, with learners that compute nothing."""
    task: Any = Workload(s.rollout_steps, s.act_time, s.update_time, s.jitter, s.hosts, s.seed)
    options = architectures.SynchronousA2C(hosts=s.hosts, learners=s.learners, num_envs=1)
    return options.program(task).with_loops({act_and_learn: workers.act_and_learn})


def network(s: AllReduceScenario) -> Network:
    """The network between the hosts."""
    return Network(s.latency, s.bandwidth, size=partial(_size, s))


def _size(s: AllReduceScenario, method: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> float:
    """Bytes of a call on the network: of a slice, or of the parameters and the optimizer's state of a host. Other calls
    are short. On a real link, which large messages share, they do not wait for these, so they count as empty."""
    slices = sum(isinstance(each, Part | Reduced) for each in args)
    return s.part_size * slices + 3 * s.message_size * sum(isinstance(each, Start) for each in args)


def faults(s: AllReduceScenario) -> Faults:
    """Every host may crash."""
    return Faults(crash_rate=s.crash_rate, down_seconds=s.down)


def ledger(s: AllReduceScenario, simulation: Simulation) -> Ledger:
    """Its warm-up is the first quarter of every learner's iterations."""
    return Ledger(s.hosts * s.learners, s.iterations, simulation, warm_up=s.iterations // 4)


A2C = Simulated(
    scenario=AllReduceScenario,
    program=program,
    network=network,
    faults=faults,
    ledger=ledger,
    figures=FIGURES,
    measure=measure,
    warnings=warnings,
    summary=summary,
    title=title,
    panels=panels,
)
