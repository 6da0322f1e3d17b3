"""Measures of the methods: scores, mean curves, and the steps and seconds to a threshold."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from gossamer.evaluation.acting import actions
from gossamer.reporting import statistics
from gossamer.reporting.comparison import Comparison, Method
from gossamer.reporting.curves import WINDOW, Along, grid
from gossamer.reporting.human import reference
from gossamer.reporting.runs import PROTOCOLS, Games, Key, LoadedRun
from gossamer.reporting.statistics import Array
from gossamer.system.errors import UserError, near

BESIDE = "evaluations.jsonl"
ALIKE = ("protocol", "episodes", "greedy", "epsilon", "member")  # of evaluations that are compared
TRAINING = "mean return of the last 100 training episodes (exploring actions, whole games, unclipped)"


@dataclass(frozen=True)
class Scores:
    """One score for each run."""

    what: str  # for captions
    of_training: bool  # at the steps of the shortest run of an environment; else of a checkpoint
    values: Mapping[Key, float]  # of each run
    notes: tuple[str, ...] = ()  # why evaluations are not used; which games were cut off
    games: Games | None = None  # of one run, like those of all; None: of training

    def of(self, runs: Sequence[LoadedRun]) -> Array:
        """The scores of these runs. [N]"""
        return np.array([self.values[run.key] for run in runs], np.float64)

    def matrix(self, method: Method, envs: Sequence[str], *, human: bool = False) -> Array:
        """Scores of a method, a column for each environment; with `human`, human-normalised. [N, M], where N is the
        smallest number of runs that it has of any of them."""
        columns = [self.of(method.of(env)) for env in envs]
        if human:
            columns = [normalised(column, env) for column, env in zip(columns, envs, strict=True)]
        return np.stack([column[: min(map(len, columns))] for column in columns], axis=1)


def scores(comparison: Comparison) -> Scores:
    """Scores from evaluations, where all runs have one of their end under the same protocol: after training, or else
    the last one beside it (`--eval-every`). Without those, from training. Notes say why evaluations are not used,
    and how many of their games were cut off."""
    runs, notes = comparison.runs, list[str]()
    if not comparison.of_returns:
        return replace(_trained(comparison), what=f"{comparison.metric} at the end of the shortest run")
    for name, evaluations in _kinds_of_evaluations(runs):
        if why := _not_comparable(runs, evaluations):
            notes.append(f"{name}: not used as scores, as {why}.")
        elif evaluations:
            means = {key: games.mean_return for key, games in evaluations.items()}
            one = next(iter(evaluations.values()))
            what = _told_of(one, name)
            if cut := sum(games.cut_off for games in evaluations.values()):
                which = f"{cut:,} of all {sum(games.episodes for games in evaluations.values()):,} games"
                what += f"; {which} cut off at the limit of steps"
                notes.append(
                    f"{name}: {which} were cut off at the limit of steps; scores include only the steps before."
                )
            return Scores(what, False, means, tuple(notes), one)
    return replace(_trained(comparison), notes=tuple(notes))


def _trained(comparison: Comparison) -> Scores:
    returns = {}
    for run in comparison.runs:
        end = max(comparison.end(run.env), int(run.curve.steps[0]))  # a long first episode may end after that
        returns[run.key] = float(run.curve.at(np.array([end]), "steps")[0])
    return Scores(TRAINING, True, returns)


def _kinds_of_evaluations(runs: Sequence[LoadedRun]) -> Iterator[tuple[str, dict[Key, Games]]]:
    """The name of each kind of evaluation, and the evaluations of that kind, by the run."""
    for protocol in PROTOCOLS:
        evaluations = {run.key: run.evaluations[protocol] for run in runs if protocol in run.evaluations}
        yield f"evaluation-{protocol}.json", evaluations
    yield BESIDE, {run.key: run.beside for run in runs if run.beside}


def _not_comparable(runs: Sequence[LoadedRun], evaluations: Mapping[Key, Games]) -> str:
    """Why these evaluations cannot be the scores of these runs; empty if they can, or if there are none."""
    if 0 < len(evaluations) < len(runs):
        return f"only {len(evaluations)} of the {len(runs)} runs have one"
    for run in runs if evaluations else ():
        if (steps := evaluations[run.key].steps) != run.steps:
            return f"{run.record.directory} ended at {run.steps:,} steps and was evaluated at {steps:,}"
    differing = [name for name in ALIKE if len({getattr(games, name) for games in evaluations.values()}) > 1]
    limits = {(run.env, evaluations[run.key].max_steps) for run in runs if evaluations}
    if len(limits) > len({env for env, _ in limits}):
        differing.append("max_steps")
    return f"the evaluations of the runs differ in {', '.join(differing)}" if differing else ""


def _told_of(games: Games, name: str) -> str:
    """Describes a score from these games."""
    if name == BESIDE:
        return (
            f"mean return of the last evaluation of {games.episodes} games beside training (--eval-every, protocol "
            f"{games.protocol})"
        )
    chosen = actions(games.greedy, games.epsilon)
    return f"mean return of {games.episodes} evaluation games (gossamer evaluate, protocol {games.protocol}, {chosen})"


def normalised(values: Array, env: str) -> Array:
    """Human-normalised scores: 0 is random play, 1 a human. NaN where no reference is published."""
    low, high = reference(env) or (math.nan, math.nan)
    return (values - low) / (high - low)


def aggregated_envs(comparison: Comparison) -> list[str]:
    """The environments that scores are aggregated over: those of all methods that have a reference, if several."""
    envs = [env for env in comparison.shared_envs(comparison.methods) if comparison.of_returns and reference(env)]
    return envs if len(envs) > 1 else []


@dataclass(frozen=True)
class MeanCurve:
    """Interquartile mean of several runs at the same steps, frames or seconds."""

    env: str  # empty: aggregated over environments, human-normalised
    label: str
    along: Along
    points: Array  # [K]
    iqm: Array  # [K]
    band: Array | None  # 95 % intervals [2, K]; None with fewer than 3 runs
    runs: int  # of each environment


def mean_curve(env: str, method: Method, along: Along) -> MeanCurve:
    """The mean curve of a method's runs of an environment, until the first of them ends."""
    runs = method.of(env)
    points = grid(min(_end(run, along) for run in runs))
    returns = np.stack([_returns(run, points, along) for run in runs])
    return _mean_curve(env, method.label, along, points, returns[:, None, :])


def _end(run: LoadedRun, along: Along) -> float:
    if along == "seconds":
        return float(run.curve.seconds[-1])
    return float(run.steps * (run.frames_per_step if along == "frames" else 1))


def _returns(run: LoadedRun, points: Array, along: Along) -> Array:
    if along == "frames":
        return run.curve.at(points / run.frames_per_step, "steps")
    return run.curve.at(points, along)


def in_frames(curve: MeanCurve, method: Method) -> MeanCurve:
    """A curve against steps as one against emulator frames."""
    factors = {run.frames_per_step for run in method.of(curve.env)}
    if len(factors) > 1:
        return mean_curve(curve.env, method, "frames")
    return replace(curve, along="frames", points=curve.points * factors.pop())


def aggregated_curve(comparison: Comparison, method: Method, envs: Sequence[str]) -> MeanCurve:
    """The same over several environments, of human-normalised returns against steps."""
    points = grid(float(min(comparison.end(env) for env in envs)))
    columns = [np.stack([run.curve.at(points, "steps") for run in method.of(env)]) for env in envs]
    least = min(map(len, columns))
    returns = [normalised(column[:least], env) for column, env in zip(columns, envs, strict=True)]
    return _mean_curve("", method.label, "steps", points, np.stack(returns, axis=1))


def _mean_curve(env: str, label: str, along: Along, points: Array, returns: Array) -> MeanCurve:
    """`returns`: [N, M, K]; points before every run has finished an episode are left out."""
    known = ~np.isnan(returns).any(axis=(0, 1))
    points, returns = points[known], np.moveaxis(returns[:, :, known], -1, 0)
    return MeanCurve(env, label, along, points, statistics.iqm(returns), _band(returns), returns.shape[1])


def _band(returns: Array) -> Array | None:
    """Intervals of the interquartile mean of scores [K, N, M] at each point, [2, K]; the same resamples for all."""
    if not len(returns) or returns.shape[1] < statistics.FEWEST:
        return None
    indices = statistics.resampling(returns[0], statistics.RESAMPLES_CURVE)
    ends = [statistics.percentiles(statistics.iqm(statistics.resampled(each, indices))) for each in returns]
    return np.stack(ends, axis=1)


@dataclass(frozen=True)
class Reached:
    """How many steps and seconds a method's runs took to a threshold. Infinity stands for never."""

    env: str
    label: str
    threshold: float
    steps: list[float]  # of each run
    seconds: list[float]

    @property
    def number(self) -> int:
        """Runs that reached it."""
        return sum(map(math.isfinite, self.steps))


def reached(env: str, label: str, runs: Sequence[LoadedRun], threshold: float, *, of_returns: bool = True) -> Reached:
    """When these runs reached a threshold. `of_returns`: whether it is one of returns."""
    never, least = (math.inf, math.inf), WINDOW if of_returns else 0
    places = [run.curve.reached(threshold, least) or (of_returns and _told(run, threshold)) or never for run in runs]
    return Reached(env, label, threshold, [float(steps) for steps, _ in places], [seconds for _, seconds in places])


def _told(run: LoadedRun, threshold: float) -> tuple[int, float] | None:
    """Of a run that was to end there: from its result, which knows every report, while rows are seconds apart."""
    if run.result.get("stop_at_return") == threshold and run.result.get("solved_steps"):
        return int(run.result["solved_steps"]), float(run.result["seconds"])
    return None


def thresholds(comparison: Comparison, given: Sequence[str]) -> dict[str, float]:
    """Environment -> threshold: from `--threshold 18` (for all) and `--threshold pong=18`; else the return at which the
    runs of an environment were told to end, where they agree."""
    if not given:
        if not comparison.of_returns:
            return {}
        stops = {env: {run.result.get("stop_at_return") for run in comparison.runs if run.env == env}
                 for env in comparison.envs}  # fmt: skip
        agreed = {env: next(iter(goals)) for env, goals in stops.items() if len(goals) == 1}
        return {env: float(goal) for env, goal in agreed.items() if goal is not None}
    everywhere, of_envs = dict[str, float](), dict[str, float]()
    for text in given:
        env, equals, value = text.rpartition("=")
        if equals and env not in comparison.envs:
            raise UserError(f"--threshold {text}: no run of {env}{near(env, comparison.envs)}; "
                            f"there are: {', '.join(comparison.envs)}")  # fmt: skip
        try:
            goal = float(value)
        except ValueError:
            raise UserError(f"--threshold {text}: must be a return (18) or ENV=RETURN (pong=18)") from None
        if not math.isfinite(goal):
            raise UserError(f"--threshold {text}: must be finite")
        (of_envs if equals else everywhere).update({env: goal} if equals else dict.fromkeys(comparison.envs, goal))
    return everywhere | of_envs
