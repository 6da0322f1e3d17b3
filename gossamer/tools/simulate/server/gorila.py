"""Gorila in virtual time: the program of a scenario, and what it is measured by."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from gossamer import architectures
from gossamer.exchange.server.shard import Pulled
from gossamer.launch.simulation import Faults, Network, Simulation
from gossamer.loops import act_and_learn
from gossamer.program import Program
from gossamer.tools.simulate.base import Simulated
from gossamer.tools.simulate.ledger import Ledger
from gossamer.tools.simulate.server import workers
from gossamer.tools.simulate.server.figures import FIGURES, measure, panels, summary, title, warnings
from gossamer.tools.simulate.server.scenario import ServerScenario
from gossamer.tools.simulate.server.workers import Workload


def program(s: ServerScenario) -> Program:
    """The architecture's program, with bundles that compute nothing."""
    task: Any = Workload(s.rollout_steps, s.act_time, s.update_time, s.jitter, s.shards, s.alone, s.seed)
    options = architectures.Gorila(
        bundles=s.bundles,
        shards=s.shards,
        num_envs=1,
        max_delay=s.max_delay,
        loss_deviations=0,
        snapshot_seconds=s.snapshot_time,
    )
    return options.program(task).with_loops({act_and_learn: workers.act_and_learn})


def network(s: ServerScenario) -> Network:
    """The network between the hosts, and the time of the shards."""
    return Network(s.latency, s.bandwidth, size=partial(_size, s), work=partial(_work, s))


def _size(s: ServerScenario, method: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> float:
    """Bytes of a call on the network: of parameters and gradients, as large as a shard's part of a real network. Other
    calls are short. On a real link, which large messages share, they do not wait for these, so they count as empty."""
    vectors = (each.parameters if isinstance(each, Pulled) else each for each in args)
    return s.part_size * sum(isinstance(each, np.ndarray) for each in vectors)


def _work(s: ServerScenario, method: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> float:
    """Seconds of a shard for a call."""
    return s.part_time if method == "push" else 0.0


def faults(s: ServerScenario) -> Faults:
    """Every host may crash."""
    return Faults(crash_rate=s.crash_rate, down_seconds=s.down)


def ledger(s: ServerScenario, simulation: Simulation) -> Ledger:
    """Its warm-up is the first quarter of every bundle's iterations."""
    return Ledger(s.bundles, s.iterations, simulation, warm_up=s.iterations // 4)


GORILA = Simulated(
    scenario=ServerScenario,
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
