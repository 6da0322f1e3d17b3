"""Searches for the options with which a composition learns best: trials are trained as runs of a study are."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean

from gossamer.envs.own import EnvMaker, env_name
from gossamer.searches.plan import SearchDesign, settled
from gossamer.searches.ranges import Value
from gossamer.searches.trials import POINTS, Trial, Trials, check_installed
from gossamer.storage import searches, studies
from gossamer.storage.searches import TrialRecord
from gossamer.storage.studies import PlannedRun
from gossamer.studies.conductor import INCOMPLETE, Conductor
from gossamer.studies.display import StudyDisplay, last_row
from gossamer.studies.jobs import Job, JobOutcome
from gossamer.studies.study import seed_numbers
from gossamer.system.errors import UserError
from gossamer.system.options import as_number
from gossamer.system.scripts import check_guard


@dataclass(frozen=True)
class Search:
    """A search after a call of `search`."""

    directory: Path
    trials: tuple[TrialRecord, ...]  # in the order in which they began
    planned: int  # trials
    signal: int | None = None  # that asked the search to end

    @property
    def best(self) -> TrialRecord | None:
        """The finished trial with the highest value; None if none has finished."""
        finished = [trial for trial in self.trials if trial.state == "finished" and trial.value is not None]
        return max(finished, key=lambda trial: trial.value or 0.0, default=None)

    @property
    def complete(self) -> bool:
        """Whether every trial has ended, and one of them with a value."""
        return len(self.trials) >= self.planned and not self._running and self.best is not None

    @property
    def _running(self) -> bool:
        return any(trial.state == "running" for trial in self.trials)

    @property
    def exit_code(self) -> int:
        """0: complete; 128 + the signal that ended the search; 3: trials are missing, or all of them failed."""
        if self.complete:
            return 0
        return INCOMPLETE if self.signal is None else 128 + self.signal


def search(
    composition: str,
    *,
    env: str | EnvMaker,
    vary: Sequence[str],
    trials: int,
    seeds: int | Sequence[int] = 1,
    steps: int | None = None,
    directory: str | Path,
    jobs: int = 1,
    options: Sequence[str] = (),
    prune: bool = True,
) -> Search:
    """Find the values of options with the highest mean return of the last 100 training episodes.

    `composition`: words of `gossamer train`, as in `paac --algorithm ppo`. `vary`: the options that vary, as in
    `learning-rate=1e-4..1e-2:log` or `num-envs=8,16,32`; see `searches.ranges`. `seeds`: of each trial, their number
    (1 to N) or the seeds; a trial's value is the mean over them. `jobs`: trials at once; each gets an equal share of
    this machine's cores. `prune`: end trials early whose running return is below the median of the others.

    A call goes on where an earlier one ended, and may add trials. Raises `UserError` before anything is written where
    a range, or a value of one, cannot be trained, and where the directory has another search."""
    check_guard()
    check_installed()
    for name, given in (("vary", vary), ("options", options)):
        if (
            isinstance(given, str)
            or not isinstance(given, Iterable)
            or not all(isinstance(each, str) for each in given)
        ):
            raise UserError(f"{name} {given!r}: must be a list of strings")
    if not isinstance(composition, str):
        raise UserError(f"composition {composition!r}: must be the words of a command, as in 'paac --algorithm ppo'")
    trials, steps, jobs = (as_number(given, int) for given in (trials, steps, jobs))
    for name, number in (("trials", trials), ("steps", steps), ("jobs", jobs)):
        if type(number) is not int and not (name == "steps" and number is None):
            raise UserError(f"{name} {number!r}: must be a whole number")
    design = SearchDesign(
        composition=composition,
        env=env_name(env),
        vary=tuple(vary),
        trials=trials,
        seeds=seed_numbers(seeds),
        directory=Path(directory),
        steps=steps,
        options=tuple(options),
        jobs=jobs,
        prune=prune,
    )
    return conducted(design)


def conducted(design: SearchDesign, display: Callable[..., StudyDisplay] = StudyDisplay) -> Search:
    """Carry a search out; see `search`."""
    steps = design.check()
    with settled(design), display(design.trials * len(design.seeds), design.directory) as shown:
        trials = Trials(design.directory, design.ranges, design.seeds[0], prune=design.prune)
        searching = Searching(design, trials, shown, steps)
        conductor = Conductor(design.directory, design.jobs, searching, shown)
        try:
            conductor.conduct()
        finally:
            searching.write()
        return Search(design.directory, tuple(trials.records()), design.trials, conductor.received)


@dataclass
class Active:
    """A trial that is being trained."""

    trial: Trial
    runs: deque[PlannedRun]  # that have not begun
    seed: int = 0  # place of the run that is being trained, or has been, among the seeds
    waiting: bool = True  # whether no run of it is being trained
    returns: list[float] = field(default_factory=list)  # of the seeds that have ended


class Searching:
    """The runs of a search: the seeds of a trial one after the other, and a new trial where there is room."""

    def __init__(self, design: SearchDesign, trials: Trials, display: StudyDisplay, steps: int) -> None:
        """`steps`: of each run."""
        self._design, self._trials, self._display, self._steps = design, trials, display, steps
        self._active = {trial.number: self._begin(trial) for trial in trials.unfinished()}
        display.left_out(len(design.seeds) * (trials.count - len(self._active)))
        self.write()

    def next_run(self) -> PlannedRun | None:
        """The next seed of a trial that has one left, else the first of a new trial."""
        active = next((each for each in self._active.values() if each.waiting), None)
        while active is None:
            if self._trials.count >= self._design.trials:
                return None
            trial = self._trials.ask()
            earlier = self._trials.finished_with(trial.options)
            if earlier is None:
                active = self._active[trial.number] = self._begin(trial)
            else:
                self._repeat(trial, earlier)
            self.write()
        active.waiting = False
        return active.runs.popleft()

    def ended(self, outcome: JobOutcome) -> None:
        """Give a trial its value where this was its last seed."""
        number = _number(outcome.run)
        if number not in self._active:  # pruned
            return
        active = self._active[number]
        if outcome.status == "interrupted":  # a later call goes on with the trial
            del self._active[number]
        elif outcome.status == "failed" or outcome.mean_return is None:
            self._fail(active, outcome.reason or "no episode has ended, or not in every game; give --steps more")
        else:
            active.returns.append(outcome.mean_return)
            active.trial.report(outcome.mean_return, self._point(active, POINTS))
            active.seed, active.waiting = active.seed + 1, True
            if not active.runs:
                self._finish(active)
        self.write()

    def unpromising(self, running: Sequence[Job]) -> list[Job]:
        """Report running returns; the jobs of trials that the pruner ends."""
        return [job for job in running if self._is_unpromising(job)]

    def write(self) -> None:
        """Bring `search.json` and `study.json` up to date."""
        folder, records = self._design.directory, self._trials.records()
        searches.write(folder, self._design.definition, records)
        trained = [each for each in records if each.repeats is None]
        studies.write(folder, [run for each in trained for run in self._design.runs(each.number, each.options)])

    def _begin(self, trial: Trial) -> Active:
        runs = self._design.runs(trial.number, trial.options)
        trial.describe(str(Path(runs[0].directory).parent), f"gossamer train {runs[0].command}")
        return Active(trial, deque(runs))

    def _repeat(self, trial: Trial, earlier: TrialRecord) -> None:
        self._trials.repeat(trial, earlier)
        self._display.left_out(len(self._design.seeds))
        told = f"has the values of trial {earlier.number} ({earlier.value:.2f}) and is not trained again"
        self._display.note(f"trial {trial.number} {told}")

    def _is_unpromising(self, job: Job) -> bool:
        active = self._active.get(_number(job.run))
        row = last_row(job.directory)
        if active is None or row.get("mean_return") is None:
            return False
        part = int(POINTS * row["steps"] / self._steps)
        if part >= POINTS and not active.runs:  # it ends by itself
            return False
        point = self._point(active, part)
        if not active.trial.report(row["mean_return"], point) or not active.trial.is_unpromising():
            return False
        del self._active[active.trial.number]
        self._trials.prune(active.trial)
        self._display.left_out(len(active.runs))
        self.write()
        return True

    def _point(self, active: Active, part: int) -> int:
        """The point of a trial after so many parts of the current seed's run; -1: before the first has ended."""
        return active.seed * POINTS + min(part, POINTS) - 1

    def _finish(self, active: Active) -> None:
        value = fmean(active.returns)
        del self._active[active.trial.number]
        self._trials.finish(active.trial, value)
        best = max(each.value for each in self._trials.records() if each.state == "finished" and each.value is not None)
        told = ", the best so far" if value >= best else f" (best: {best:.2f})"
        self._display.note(f"trial {active.trial.number}: {shown(active.trial.options)}: {value:.2f}{told}")

    def _fail(self, active: Active, reason: str) -> None:
        del self._active[active.trial.number]
        self._trials.fail(active.trial, reason)
        self._display.left_out(len(active.runs))


def shown(options: Mapping[str, Value]) -> str:
    """The options of a trial in a few words."""
    return ", ".join(f"{name.replace('_', '-')} {brief(value)}" for name, value in options.items())


def brief(value: Value) -> str:
    """A value with four digits at most."""
    return f"{value:.4g}" if isinstance(value, float) else str(value).lower() if isinstance(value, bool) else str(value)


def _number(run: PlannedRun) -> int:
    """The number of the trial of a run."""
    return int(run.label.split()[1])
