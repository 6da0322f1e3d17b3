"""The trials of a search, kept by Optuna in an SQLite file: Optuna's own dashboard opens it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from gossamer.searches.ranges import Range, Varied
from gossamer.storage.searches import TrialRecord, TrialState
from gossamer.system.errors import UserError
from gossamer.system.installation import install

DATABASE = "search.db"
NAME = "search"  # of the Optuna study
POINTS = 10  # parts of a run; at the end of each one the running return is reported
RANDOM_TRIALS = 10  # before the sampler models the results
UNPRUNED_TRIALS = 5  # trials that end before others are pruned
WARMUP_POINTS = 2  # of a trial, before it can be pruned
REASON, DIRECTORY, COMMAND, REPEATS = "reason", "directory", "command", "repeats"  # attributes of a trial


def check_installed() -> None:
    """Raise `UserError` where Optuna is missing."""
    if find_spec("optuna") is None:
        raise UserError(f"gossamer search needs Optuna: {install('optuna')}")


class Trial:
    """A trial that is not finished."""

    def __init__(self, made: Any) -> None:
        self._made = made
        self.number: int = made.number
        self.options: dict[str, Any] = made.params
        self._reported = max(made.study.trials[made.number].intermediate_values, default=-1)

    def describe(self, directory: str, command: str) -> None:
        """Keep where its runs are, and the command that trains the first."""
        self._made.set_user_attr(DIRECTORY, directory)
        self._made.set_user_attr(COMMAND, command)

    def report(self, value: float, point: int) -> bool:
        """Keep the running return at a point, and at those before it that have none yet. Whether there were any."""
        reported = self._reported
        for each in range(self._reported + 1, point + 1):
            self._made.report(value, each)
        self._reported = max(reported, point)
        return self._reported > reported

    def is_unpromising(self) -> bool:
        """Whether its best value so far is below the median of the other trials at the same point (Optuna's
        `MedianPruner`)."""
        return bool(self._made.should_prune())


class Trials:
    """All trials of a search."""

    def __init__(self, folder: Path, ranges: Sequence[Varied], seed: int, *, prune: bool) -> None:
        """`seed`: of the sampler, a tree-structured Parzen estimator (Bergstra et al. 2011). `folder` must exist."""
        import optuna
        from sqlalchemy import URL

        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self._states = optuna.trial.TrialState
        self._trial = optuna.trial.Trial
        self._distributions = {each.option: _distribution(each) for each in ranges}
        self._study = optuna.create_study(
            storage=URL.create("sqlite", database=str(folder.resolve() / DATABASE)).render_as_string(),
            study_name=NAME,
            direction="maximize",
            load_if_exists=True,
            pruner=optuna.pruners.MedianPruner(UNPRUNED_TRIALS, WARMUP_POINTS) if prune else optuna.pruners.NopPruner(),
        )
        # A later call draws other random values than the trials that are there.
        self._study.sampler = optuna.samplers.TPESampler(
            n_startup_trials=RANDOM_TRIALS, seed=seed + self.count, constant_liar=True
        )

    @property
    def count(self) -> int:
        """Trials so far, whatever their state."""
        return len(self._study.get_trials(deepcopy=False))

    def unfinished(self) -> list[Trial]:
        """Trials that an earlier call left unfinished. If it was killed while it chose a trial's values, those that are
        missing are chosen now."""
        running = (self._states.RUNNING, self._states.WAITING)
        left = [self._trial(self._study, each._trial_id) for each in self._study.trials if each.state in running]
        for made in left:
            for option, distribution in self._distributions.items():
                made._suggest(option, distribution)  # one that is there stays
        return [Trial(made) for made in left]

    def ask(self) -> Trial:
        """A new trial, with values that the sampler chose."""
        return Trial(self._study.ask(self._distributions))

    def finish(self, trial: Trial, value: float) -> None:
        """A trial has reached this value."""
        self._study.tell(trial.number, value)

    def finished_with(self, options: Mapping[str, Any]) -> TrialRecord | None:
        """The first finished trial with these values."""
        finished = (each for each in self.records() if each.state == "finished")
        return next((each for each in finished if each.options == options), None)

    def repeat(self, trial: Trial, earlier: TrialRecord) -> None:
        """A trial has the values of an earlier one, which has finished: it takes its value and its runs."""
        assert earlier.value is not None, "a finished trial has a value"
        trial.describe(earlier.directory, earlier.command)
        trial._made.set_user_attr(REPEATS, earlier.number)
        self.finish(trial, earlier.value)

    def prune(self, trial: Trial) -> None:
        """A trial has been ended early."""
        self._study.tell(trial.number, state=self._states.PRUNED)

    def fail(self, trial: Trial, reason: str) -> None:
        """A trial has no value. It is not repeated."""
        trial._made.set_user_attr(REASON, reason)
        self._study.tell(trial.number, state=self._states.FAIL)

    def records(self) -> list[TrialRecord]:
        """All of them, in their order."""
        return [self._record(each) for each in self._study.trials]

    def _record(self, each: Any) -> TrialRecord:
        names: dict[Any, TrialState] = {
            self._states.COMPLETE: "finished", self._states.PRUNED: "pruned", self._states.FAIL: "failed",
        }  # fmt: skip
        attributes = each.user_attrs
        return TrialRecord(
            number=each.number,
            state=names.get(each.state, "running"),
            options=each.params,
            value=each.value,
            directory=attributes.get(DIRECTORY, ""),
            command=attributes.get(COMMAND, ""),
            reason=attributes.get(REASON, ""),
            repeats=attributes.get(REPEATS),
        )


def _distribution(varied: Varied) -> Any:
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    if not isinstance(varied, Range):
        return CategoricalDistribution(varied.values)
    if varied.whole:
        return IntDistribution(varied.low, varied.high, log=varied.log, step=varied.step or 1)
    return FloatDistribution(varied.low, varied.high, log=varied.log, step=varied.step)
