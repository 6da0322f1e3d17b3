"""Measures the speed of a program and of its parts on this machine, in one run."""

from __future__ import annotations

import resource
import statistics
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from functools import partial
from itertools import cycle
from typing import Any, Literal, Unpack

import numpy as np
import torch

from gossamer.algorithms import Algorithm
from gossamer.config.build import learners, num_envs, program, task
from gossamer.config.config import Architecture, Config
from gossamer.config.file import flat
from gossamer.config.names import Keywords
from gossamer.config.resolve import configure
from gossamer.data import Array, Step
from gossamer.envs.base import VectorEnv
from gossamer.envs.watchdog import Watchdog, complain
from gossamer.errors import UserError
from gossamer.exchange import Alone, Exchange
from gossamer.launch.threads import threads
from gossamer.machine import keep_freed_memory, machine
from gossamer.member import Member
from gossamer.observations import MASK
from gossamer.optim import StepRule
from gossamer.program import Context, Program, Silent
from gossamer.random_play import random_actions
from gossamer.task import Activity, Report, Task
from gossamer.training.experiment import probe

WARM_UP_SECONDS = 1.0


class Reports(Silent):
    """Observer: keeps rates and step counts. It ends the program after `seconds` of reports after the warm-up."""

    def __init__(self, seconds: float = float("inf"), phase: Callable[[str], None] = lambda text: None) -> None:
        """`phase` is called with the text of each `Activity`."""
        self.seconds, self._phase = seconds, phase
        self.rates: dict[str, float] = {}  # part -> steps per second, of all members
        self.begun: float | None = None
        self.marks: list[tuple[float, int]] = []  # (seconds, steps of all members), after the warm-up
        self._steps: dict[str, int] = {}
        self._lock = threading.Lock()  # workers are threads

    def report(self, worker: str, record: Any) -> None:
        with self._lock:
            if isinstance(record, Report):
                now = time.perf_counter()
                self.begun = self.begun or now
                self._steps[worker] = self._steps.get(worker, 0) + record.steps
                if now - self.begun >= WARM_UP_SECONDS:
                    self.marks.append((now, sum(self._steps.values())))
            elif isinstance(record, Activity) and record.text:
                self._phase(record.text)
            elif isinstance(record, dict):
                self.rates = {part: self.rates.get(part, 0.0) + rate for part, rate in record.items()}

    def stopping(self) -> bool:
        return len(self.marks) > 1 and self.marks[-1][0] - self.marks[0][0] >= self.seconds

    def rate(self) -> float:
        """Steps per second."""
        start, *_, end = self.marks
        return (end[1] - start[1]) / (end[0] - start[0])


class Replayed:
    """Environments that repeat recorded steps, without computing."""

    def __init__(self, env: VectorEnv, steps: Sequence[Step]) -> None:
        self.spec, self.num_envs = env.spec, env.num_envs
        self._steps = cycle(steps)
        self.reset, self.frames, self.close = env.reset, env.frames, env.close

    def step(self, action: Array) -> Step:
        return next(self._steps)


class RandomPlay:
    """Random actions: drawn in advance, or at each step if only some are valid."""

    def __init__(self, env: VectorEnv) -> None:
        self._env, self._rng, self._obs = env, np.random.default_rng(0), env.reset(0)
        self._masked = MASK in {part.name for part in env.spec.parts}
        self._drawn = cycle([random_actions(env.spec, self._rng, self._obs) for _ in range(64)])

    def step(self) -> Step:
        """Step the environments."""
        masked = self._masked
        step = self._env.step(random_actions(self._env.spec, self._rng, self._obs) if masked else next(self._drawn))
        self._obs = step.obs
        return step


def parts(ctx: Context, task: Task, exchange: Exchange, *, num_envs: int, env_workers: int, seconds: float) -> None:
    """Replaces the loop `act_and_learn`: times its three parts separately, with the same objects and shapes. All copies
    run in parallel, as in training.

    `inference` is acting in environments that repeat recorded steps. It includes the last forward pass of a rollout,
    for the bootstrap value, and the cast of new parameters if the network computes in bfloat16."""
    with (
        Watchdog(task.env.name, complain) as watchdog,
        closing(watchdog.watch(task.env.make(num_envs, workers=env_workers))) as env,
    ):
        member = Member(ctx, task, env, exchange)
        slot = member.slot()
        member.unroll(slot)
        playing = RandomPlay(env)
        steps = [playing.step() for _ in range(8)]
        ctx.report(Activity("environments alone"))
        env_rate = _rate(playing.step, num_envs, seconds)
        member.actor.env = Replayed(env, steps)

        def act() -> None:
            with torch.no_grad():
                next(member.learner.model.parameters()).mul_(1.0)  # counts as new parameters
            member.unroll(slot)

        ctx.report(Activity("updates alone"))
        update_rate = _rate(lambda: member.learner.update(slot, member.link, 0), slot.steps, seconds)
        ctx.report(Activity("inference alone"))
        inference_rate = _rate(act, slot.steps, seconds)
        ctx.report({"env": env_rate, "inference": inference_rate, "update": update_rate})


def _rate(call: Callable[[], object], steps: int, seconds: float) -> float:
    """Steps per second of a call that makes `steps` steps."""
    for _ in range(3):
        call()
    start, count = time.perf_counter(), 0
    while (passed := time.perf_counter() - start) < seconds:
        call()
        count += 1
    return count * steps / passed


def bench(
    architecture: str | Architecture,
    *,
    env: str,
    algorithm: str | Algorithm | None = None,
    optimizer: str | StepRule | None = None,
    preset: Literal["tuned", "paper"] = "tuned",
    seconds: float = 3.0,
    rounds: int = 5,
    progress: Callable[[int, str], None] = lambda round_, part: None,
    **options: Unpack[Keywords],
) -> dict[str, Any]:
    """Rates in steps/s: `env`, `inference` and `update` alone, the `whole` program, and the serial `roofline`
    1 / (1/env + 1/inference + 1/update); `ratio` = whole / roofline.

    Each round measures all of them, for `seconds` each. The figures are medians over the rounds. `progress` is called
    with the round (1, 2, ..) and the part that begins, from any thread."""
    if not seconds > 0 or rounds < 1:
        raise UserError(f"--seconds {seconds} --rounds {rounds}: both must be positive")
    config = configure(architecture, env=env, algorithm=algorithm, optimizer=optimizer, preset=preset, **options)
    probe(config)
    config = config.with_run(steps=10**15)  # the observer ends it by time
    keep_freed_memory()
    rows = [_round(config, seconds, partial(progress, number)) for number in range(1, rounds + 1)]
    return {**_figures(rows), **_origin(config)}


def round_seconds(seconds: float) -> float:
    """Estimated duration of a round in which each part is measured for `seconds`."""
    return 4 * seconds + WARM_UP_SECONDS + 2.0  # environments and networks are created twice


def _round(config: Config, seconds: float, phase: Callable[[str], None]) -> dict[str, float]:
    """Measure the parts, one after the other, then the whole program."""
    apart, workers = Program("parts"), flat(config).get("env_workers", 0)
    apart.worker(parts, copies=learners(config))(
        task(config), Alone(), num_envs=num_envs(config), env_workers=workers, seconds=seconds
    )
    threads(apart, seen := Reports(phase=phase))
    phase("whole program")
    threads(program(config), whole := Reports(seconds))
    roofline = 1 / sum(1 / rate for rate in seen.rates.values())
    return {**seen.rates, "whole": whole.rate(), "roofline": roofline, "ratio": whole.rate() / roofline}


def _figures(rows: Sequence[dict[str, float]]) -> dict[str, Any]:
    """Medians and ranges over rounds."""
    found = {name: [row[name] for row in rows] for name in ("env", "inference", "update", "whole", "roofline", "ratio")}
    median = {name: statistics.median(values) for name, values in found.items()}
    return {
        **{name: round(value, 3 if name == "ratio" else 1) for name, value in median.items()},
        "bound_by": min(("env", "inference", "update"), key=lambda part: median[part]),
        "range": {name: [round(min(values), 3), round(max(values), 3)] for name, values in found.items()},
    }


def _origin(config: Config) -> dict[str, Any]:
    """The settings and the machine of the measurement."""
    what, settings = task(config), flat(config)
    return {
        "architecture": settings["architecture"],
        "env_name": settings["env"],
        "algorithm": settings["algorithm"],
        "network": settings["network"],
        "learners": learners(config),
        "num_envs": num_envs(config),
        "device": what.device,
        "precision": str(what.network.dtype).removeprefix("torch."),
        "peak_memory_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
        "machine": machine(),
    }
