"""Measures the speed of a program and of its parts on this machine, in one run."""

from __future__ import annotations

import resource
import statistics
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Unpack

from gossamer.algorithms import Algorithm
from gossamer.config.build import device, learners, num_envs, program, task
from gossamer.config.config import Architecture, Config
from gossamer.config.file import flat
from gossamer.config.keywords import Keywords
from gossamer.config.resolve import Choices, resolve
from gossamer.envs.once import remember, spec_of
from gossamer.envs.own import EnvMaker, env_name
from gossamer.envs.watchdog import complain
from gossamer.launch.threads import threads
from gossamer.nn.optim import StepRule
from gossamer.presets.layers import Preset
from gossamer.program import Program
from gossamer.runtime import Silent
from gossamer.spaces import Spec
from gossamer.system.errors import UserError
from gossamer.system.machine import keep_freed_memory, machine
from gossamer.system.processes import cores
from gossamer.system.usage import GPU, Usage, open_gpu
from gossamer.task import Activity, WorkerReport
from gossamer.tools.parts import Crew, programs
from gossamer.tools.reuse import Reused, ReusedEnv
from gossamer.training.dry_run import try_network

WARM_UP_SECONDS = 1.0
SAMPLE_SECONDS = 0.1  # between two looks at the machine
FINE = ("ratio", "busy", "gpu_utilization", "gpu_memory_gb", "frames_per_joule")  # figures with three decimals
PARTS = ("env", "inference", "update")
LIMITS = ("acting", "learning", "cores")  # of a program whose actors and learners run at the same time


class Reports(Silent):
    """Observer: keeps rates and step counts. It ends the program after `seconds` of reports after the warm-up."""

    def __init__(
        self,
        seconds: float = float("inf"),
        phase: Callable[[str], None] = lambda text: None,
        gpu: GPU | None = None,
    ) -> None:
        """`phase` is called with the text of each `Activity`. `gpu`: where there is one to be watched."""
        self.seconds, self._phase, self._gpu = seconds, phase, gpu
        self.rates: dict[str, float] = {}  # part -> steps per second, of all workers
        self.used: dict[str, float] = {}  # of the machine from the warm-up to the end (`Usage.row`)
        self._usage: Usage | None = None
        self._sampled = 0.0
        self.begun: float | None = None
        self.marks: list[tuple[float, int]] = []  # (seconds, steps of all members), after the warm-up
        self._steps: dict[str, int] = {}
        self._lock = threading.Lock()  # workers are threads

    def report(self, worker: str, record: Any) -> None:
        with self._lock:
            if isinstance(record, WorkerReport):
                now = time.perf_counter()
                self.begun = self.begun or now
                self._steps[worker] = self._steps.get(worker, 0) + record.steps
                if now - self.begun >= WARM_UP_SECONDS:
                    self.marks.append((now, sum(self._steps.values())))
                    self._watch(now)
            elif isinstance(record, Activity) and record.text:
                self._phase(record.text + told(self.rates))
            elif isinstance(record, dict):
                self.rates |= {part: self.rates.get(part, 0.0) + rate for part, rate in record.items()}

    def stopping(self) -> bool:
        with self._lock:
            ended = len(self.marks) > 1 and self.marks[-1][0] - self.marks[0][0] >= self.seconds
            if ended and self._usage and not self.used:
                self._usage.sample()
                self.used = self._usage.row()
            return ended

    @property
    def busy(self) -> float:
        """Cores, from the warm-up to the end."""
        return self.used.get("cores_busy", 0.0)

    def _watch(self, now: float) -> None:
        if self._usage is None:
            self._usage = Usage(self._gpu)
        elif now - self._sampled >= SAMPLE_SECONDS:
            self._sampled = now
            self._usage.sample()

    def rate(self) -> float:
        """Steps per second."""
        start, *_, end = self.marks
        return (end[1] - start[1]) / (end[0] - start[0])


def bench(
    architecture: str | Architecture,
    *,
    env: str | EnvMaker,
    algorithm: str | Algorithm | None = None,
    optimizer: str | StepRule | None = None,
    preset: Preset = "tuned",
    seconds: float = 3.0,
    rounds: int = 5,
    progress: Callable[[int, str], None] = lambda round_, part: None,
    **options: Unpack[Keywords],
) -> dict[str, Any]:
    """Rates in steps/s: `env`, `inference` and `update` alone, the `whole` program, and the `roofline`; `ratio` =
    whole / roofline. Of the whole program also `frames_per_second`; `busy`, the cores that it keeps busy; and of a GPU
    `gpu_utilization`, `gpu_memory_gb`, `gpu_watts` and `frames_per_joule`.

    Where acting and learning take turns, the roofline is 1 / (1/env + 1/inference + 1/update). Where actors and
    learners run at the same time, it is the least of `acting` = 1 / (1/env + 1/inference), `learning` = update /
    passes over each step, and `cores`: what this machine's cores can do if none of them ever waits, from the CPU
    seconds of each part.

    With `alternating`, max(1/env, 1/inference) replaces their sum, and `plain` is the whole program without it.

    Each round measures all of them, for `seconds` each. The figures are medians over the rounds. `progress` is called
    with the round (1, 2, ..) and the part that begins, followed by the rates that are known; from any thread.

    Environments are made once, for all rounds."""
    return measure(
        Choices(architecture, env_name(env), algorithm, optimizer, preset, options), seconds, rounds, progress
    )


def measure(choices: Choices, seconds: float, rounds: int, progress: Callable[[int, str], None]) -> dict[str, Any]:
    """`bench`, with the composition as data."""
    if not seconds > 0 or rounds < 1:
        raise UserError(f"--seconds {seconds} --rounds {rounds}: both must be positive")
    keep_freed_memory()
    config = resolve(choices)
    frames = try_network(config, program(config)).frames_per_step
    config = config.with_run(steps=10**15)  # the observer ends it by time
    gpu, why_not = open_gpu(device(config.run.device))
    if why_not:
        print(f"bench: {why_not}", file=sys.stderr)
    with Reused(config.env.factory()) as env:
        measured = replace(config, env=ReusedEnv(config.env, env))
        wired = program(measured)
        spec = spec_of(task(config).env, complain)
        remember(task(measured).env, spec)
        rows = [_round(measured, wired, seconds, partial(progress, number), gpu) for number in range(1, rounds + 1)]
    return {**_figures([row | _per_frame(row, frames) for row in rows]), **_origin(config, wired, spec)}


def round_seconds(seconds: float, *, alternating: bool = False) -> float:
    """Estimated duration of a round in which each part is measured for `seconds`."""
    programs = 2 if alternating else 1  # whole ones, beside the parts; each makes environments and networks
    return (3 + programs) * seconds + programs * WARM_UP_SECONDS + 1.0 + programs


def _round(
    config: Config, wired: Program, seconds: float, phase: Callable[[str], None], gpu: GPU | None
) -> dict[str, float]:
    """Measure the parts, one after the other, then the whole program."""
    seen, crew = Reports(phase=phase), Crew.of(wired)
    for program_of_parts in programs(config, crew, seconds):
        threads(program_of_parts, seen)
    rates = {part: seen.rates[part] for part in PARTS}
    if not crew.apart:
        rates["update"] /= crew.passes  # of replay: steps whose windows are learned from
    if config.run.alternating:
        phase("whole program without --alternating" + told(rates))
        threads(program(config.with_run(alternating=False)), plain := Reports(seconds))
        rates["plain"] = plain.rate()
    phase("whole program" + told(rates))
    threads(wired, whole := Reports(seconds, gpu=gpu))
    limits = _limits(seen.rates, crew, alternating=config.run.alternating)
    roofline = min(limits.values())
    overall = {"whole": whole.rate(), "roofline": roofline, "ratio": whole.rate() / roofline}
    used = {"busy": whole.busy} | {k: v for k, v in whole.used.items() if k.startswith("gpu")}
    return {**rates, **(limits if crew.apart else {}), **overall, **used}


def _per_frame(row: Mapping[str, float], frames: int) -> dict[str, float]:
    """Frames of the emulator a second of the whole program, and a joule of the GPU's energy. `frames`: of a step."""
    found = {"frames_per_second": row["whole"] * frames}
    return found | ({"frames_per_joule": row["whole"] * frames / row["gpu_watts"]} if row.get("gpu_watts") else {})


def told(rates: Mapping[str, float]) -> str:
    """The rates of parts that have been measured, after the part that begins."""
    known = ", ".join(f"{part} {rates[part]:,.0f}" for part in PARTS if part in rates)
    return f"; {known} steps/s" if known else ""


def _limits(rates: Mapping[str, float], crew: Crew, *, alternating: bool) -> dict[str, float]:
    """Steps per second that the program cannot exceed, by what limits it."""
    costs = {part: (crew.passes if part == "update" else 1.0) / rates[part] for part in PARTS}  # seconds for each step
    acting = costs["env"], costs["inference"]
    each = max(acting) if alternating else sum(acting)
    if not crew.apart:
        return {"serial": 1 / (each + costs["update"])}
    work = sum(rates[f"{part} cores"] * cost for part, cost in costs.items())  # of one core, for each step
    return {
        "acting": 1 / each,
        "learning": 1 / costs["update"],
        "cores": cores() / work,
    }


def _figures(rows: Sequence[dict[str, float]]) -> dict[str, Any]:
    """Medians and ranges over rounds."""
    values_of = {name: [row[name] for row in rows] for name in rows[0]}
    median = {name: statistics.median(values) for name, values in values_of.items()}
    limits = LIMITS if LIMITS[0] in median else PARTS
    return {
        **{name: round(value, 3 if name in FINE else 1) for name, value in median.items()},
        "bound_by": min(limits, key=lambda name: median[name]),
        "range": {name: [round(min(values), 3), round(max(values), 3)] for name, values in values_of.items()},
    }


def _origin(config: Config, wired: Program, spec: Spec) -> dict[str, Any]:
    """The settings and the machine of the measurement."""
    what, settings = task(config, wired), flat(config)
    return {
        "architecture": settings["architecture"],
        "env_name": settings["env"],
        "algorithm": settings["algorithm"],
        "network": settings["network"],
        "learners": learners(wired),
        "num_envs": num_envs(wired),
        "device": what.device,
        "precision": str(what.dtype(pictures=spec.pixels)).removeprefix("torch."),
        "peak_memory_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
        "machine": machine(what.device),
    }
