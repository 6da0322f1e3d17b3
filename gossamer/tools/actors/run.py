"""The run of a scenario of actors and learners."""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path
from typing import Any

import torch

from gossamer.architectures import IMPALA
from gossamer.config.names import ARCHITECTURES, load
from gossamer.data import Packed
from gossamer.exchange.broadcast.parameters import PackedParameters
from gossamer.launch.simulation import Faults, Network, Simulation
from gossamer.loops import act, learn
from gossamer.program import Program
from gossamer.tools.actors import workers
from gossamer.tools.actors.figures import FIGURES, figures, warnings
from gossamer.tools.actors.ledger import Ledger
from gossamer.tools.actors.picture import draw
from gossamer.tools.actors.scenario import ActorScenario
from gossamer.tools.actors.workers import Workload
from gossamer.tools.measured import in_units
from gossamer.tools.table import units


def simulated(architecture: str, chosen: ActorScenario, plot: Path | None) -> dict[str, Any]:
    """The figures of a scenario, with their units, warnings, and the scenario. `plot`: a .png file for a plot."""
    began = time.perf_counter()
    simulation, ledger = run(chosen, architecture)
    found = figures(chosen, simulation, ledger, time.perf_counter() - began)
    whole = {**found, "units": units(FIGURES), "warnings": warnings(chosen, found), "scenario": in_units(chosen)}
    if plot is not None:
        draw(whole, chosen, ledger, plot)
    return whole


def run(chosen: ActorScenario, architecture: str = "impala") -> tuple[Simulation, Ledger]:
    """Run the simulation of a scenario."""
    faults = Faults(crash_rate=chosen.crash_rate, down_seconds=chosen.down, spared=frozenset({"learner"}))
    simulation = Simulation(chosen.seed, network(chosen), faults)
    ledger = Ledger(chosen.learners, chosen.batches, simulation)
    torch.set_num_threads(1)
    simulation(program(chosen, architecture), ledger)
    return simulation, ledger


def program(s: ActorScenario, architecture: str) -> Program:
    """The architecture's program, with workers that compute nothing."""
    task = Workload(s.rollout_length, s.step_time, s.jitter, s.update_time, s.updates, s.seed)
    here = s.here or s.actors  # actors on each host that has some
    kind: type[IMPALA] = load("architecture", architecture, ARCHITECTURES)
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
