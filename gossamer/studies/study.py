"""Runs a study: several runs at once, those that are finished left out, failures survived."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gossamer.envs.own import EnvMaker, env_name
from gossamer.storage.studies import PlannedRun
from gossamer.studies.conductor import INCOMPLETE, Conductor
from gossamer.studies.display import StudyDisplay
from gossamer.studies.jobs import Job, JobOutcome
from gossamer.studies.plan import Design, check, settled
from gossamer.system.errors import UserError
from gossamer.system.options import as_number
from gossamer.system.scripts import check_guard


@dataclass(frozen=True)
class Study:
    """A study after a call of `study`."""

    directory: Path
    outcomes: tuple[JobOutcome, ...]  # in the order of `study.json`; runs that were never started are missing
    planned: int  # runs
    signal: int | None = None  # that asked the study to end

    @property
    def counts(self) -> dict[str, int]:
        """Runs by status; `not started` are those that are missing."""
        counts = Counter[str](outcome.status for outcome in self.outcomes)
        return {**counts, "not started": self.planned - counts.total()}

    @property
    def complete(self) -> bool:
        """Whether every run is finished."""
        return all(status.startswith("finished") or not count for status, count in self.counts.items())

    @property
    def exit_code(self) -> int:
        """0: every run is finished; 128 + the signal that ended the study, as 130 for Ctrl-C; 3: runs failed, or a
        signal ended some of them alone."""
        if self.complete:
            return 0
        return INCOMPLETE if self.signal is None else 128 + self.signal


def study(
    compositions: Sequence[str],
    *,
    envs: Sequence[str | EnvMaker],
    seeds: int | Sequence[int] = 5,
    steps: int | None = None,
    directory: str | Path,
    jobs: int = 1,
    cluster: str | None = None,
    options: Sequence[str] = (),
) -> Study:
    """Train every composition on every environment with every seed; `study.json` in `directory` lists the runs.

    `compositions`: words of `gossamer train`, as in `paac --algorithm ppo`, or `LABEL: words`. `envs`: as in `train`.
    `seeds`: their number (1 to N), or the seeds. `jobs`: runs at once; each gets an equal share of this machine's
    cores. `options`: words for every run. `cluster`: Ray cluster that every run's hosts are placed on; the runs' files
    are written here.

    A call goes on where an earlier one ended: finished runs are left out, others continue from their last checkpoint.
    A run that fails is reported, and the others go on. Raises `UserError` before anything is written where a
    composition cannot be trained, where the directory has another study, or where another process is running it."""
    check_guard()
    for name, given in (("compositions", compositions), ("envs", envs), ("options", options)):
        if isinstance(given, str) or not isinstance(given, Iterable):
            raise UserError(f"{name} {given!r}: must be a list of strings")
        if name != "envs" and (wrong := [each for each in given if not isinstance(each, str)]):
            raise UserError(f"{name}: {wrong[0]!r} is not a string")
    names, numbers = tuple(env_name(each) for each in envs), seed_numbers(seeds)
    steps, jobs = (as_number(given, int) for given in (steps, jobs))
    for name, number in (("steps", steps), ("jobs", jobs)):
        if not _is_int(number) and not (name == "steps" and number is None):
            raise UserError(f"{name} {number!r}: must be a whole number")
    if not isinstance(directory, str | Path):
        raise UserError(f"directory {directory!r}: must be a path")
    if not isinstance(cluster, str | None):
        raise UserError(f"cluster {cluster!r}: must be local, auto or IP:PORT")
    design = Design(tuple(compositions), names, numbers, Path(directory), steps, tuple(options), jobs, cluster)
    return conducted(design)


def seed_numbers(given: int | Sequence[int]) -> tuple[int, ...]:
    """The seeds 1 to N, or those given. Raises `UserError` where these are no whole numbers."""
    count = as_number(given, int)
    if _is_int(count):
        return tuple(range(1, count + 1))
    wanted = f"seeds {given!r}: must be a whole number, or a list of them"
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise UserError(wanted)
    seeds = tuple(as_number(seed, int) for seed in given)
    if not all(map(_is_int, seeds)):
        raise UserError(wanted)
    return seeds


def _is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def conducted(design: Design, display: Callable[..., StudyDisplay] = StudyDisplay) -> Study:
    """Carry a study out; see `study`."""
    runs = design.runs()
    check(runs)
    with settled(design.directory, runs), display(len(runs), design.directory) as shown:
        planned = Planned(runs)
        conductor = Conductor(design.directory, design.jobs, planned, shown)
        conductor.conduct()
    places = {run.directory: place for place, run in enumerate(runs)}
    ordered = sorted(planned.outcomes, key=lambda outcome: places[outcome.run.directory])
    return Study(design.directory, tuple(ordered), len(runs), conductor.received)


class Planned:
    """All runs of a study, in their order."""

    def __init__(self, runs: Sequence[PlannedRun]) -> None:
        self._pending = deque(runs)
        self.outcomes: list[JobOutcome] = []

    def next_run(self) -> PlannedRun | None:
        """The run to start next."""
        return self._pending.popleft() if self._pending else None

    def ended(self, outcome: JobOutcome) -> None:
        """Keep how a run ended."""
        self.outcomes.append(outcome)

    def unpromising(self, running: Sequence[Job]) -> Sequence[Job]:
        """None: a study trains all of its runs."""
        return ()
