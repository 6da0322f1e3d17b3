"""IMPALA and APPO in virtual time: the program of a scenario, and what it is measured by."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from gossamer import architectures
from gossamer.config.names import ARCHITECTURES, load
from gossamer.data import Packed
from gossamer.exchange.broadcast.parameters import PackedParameters
from gossamer.launch.simulation import Faults, Network, Simulation
from gossamer.loops import act, learn
from gossamer.program import Program
from gossamer.tools.simulate.actors import workers
from gossamer.tools.simulate.actors.figures import FIGURES, measure, panels, summary, title, warnings
from gossamer.tools.simulate.actors.scenario import ActorScenario
from gossamer.tools.simulate.actors.workers import Workload
from gossamer.tools.simulate.base import Simulated
from gossamer.tools.simulate.ledger import Ledger


def program(s: ActorScenario, architecture: str) -> Program:
    """The architecture's program, with workers that compute nothing."""
    task = Workload(s.rollout_length, s.step_time, s.jitter, s.update_time, s.updates, s.seed)
    here = s.here or s.actors  # actors on each host that has some
    kind: type[architectures.IMPALA] = load("architecture", architecture, ARCHITECTURES)
    options = kind(
        hosts=s.hosts,
        learners=s.learners,
        actors=here // s.learners,
        num_envs=here,  # workers that compute nothing need no more than one each
        env_workers=1,
        batch_rollouts=s.batch_rollouts,
        depth=s.depth_used,
        reuse=s.reuse,
    )
    wired = options.program(task)  # type: ignore[arg-type]  # the stand-ins' task
    return wired.with_loops({act: workers.act, learn: workers.learn})


def network(s: ActorScenario) -> Network:
    """The network between the hosts."""
    return Network(s.latency, s.bandwidth, size=partial(_size, s))


def _size(s: ActorScenario, method: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> float:
    """Bytes of a call on the network: of rollouts and parameters. Other calls are short. On a real link, which large
    messages share, they do not wait for these, so they count as empty."""
    rollouts = sum(isinstance(each, Packed) for each in args)
    parameters = sum(isinstance(each, PackedParameters) for each in args)
    return rollouts * s.rollout_bytes + parameters * s.parameters_size


def faults(s: ActorScenario) -> Faults:
    """Hosts of actors crash; that of the learners does not."""
    return Faults(crash_rate=s.crash_rate, down_seconds=s.down, spared=frozenset({"learner"}))


def ledger(s: ActorScenario, simulation: Simulation) -> Ledger:
    """Its warm-up is the first quarter of every learner's batches."""
    return Ledger(s.learners, s.batches, simulation, warm_up=s.batches // 4)


IMPALA = Simulated(
    scenario=ActorScenario,
    program=partial(program, architecture="impala"),
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


def simulated(architecture: str) -> Simulated[ActorScenario]:
    """An architecture that is IMPALA, or derives from it, by its name."""
    return replace(IMPALA, program=partial(program, architecture=architecture))
