"""The numbers of a report as plain data: what `--json` prints, and what tables are made of. None stands for unknown."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any, TypeAlias

import numpy as np

from gossamer.diagnostics.traffic import staleness
from gossamer.reporting import beside, measures, statistics
from gossamer.reporting import comparison as compared
from gossamer.reporting.comparison import Comparison, Method
from gossamer.reporting.curves import RETURN
from gossamer.reporting.human import SOURCE, reference
from gossamer.reporting.measures import Reached, Scores
from gossamer.reporting.published import Score, published
from gossamer.reporting.runs import LoadedRun
from gossamer.reporting.statistics import Array, Statistic

FORMAT = 1
INTERVAL = "95 % percentile intervals of a stratified bootstrap over runs"
AGGREGATES: dict[str, Statistic] = {
    "median": statistics.median,
    "iqm": statistics.iqm,
    "mean": statistics.mean,
    "optimality_gap": statistics.optimality_gap,
}
Entry: TypeAlias = dict[str, Any]


def summary(
    comparison: Comparison, scores: Scores, goals: Mapping[str, float], title: str | None = None
) -> dict[str, Any]:
    """All numbers of a report but the curves. `title`: None for one of the methods and environments."""
    aggregated = measures.aggregated_envs(comparison)
    ways = reached(comparison, goals)
    return {
        "format": FORMAT,
        "title": title,
        "metric": comparison.metric,
        "methods": {m.label: {env: len(m.of(env)) for env in comparison.envs} for m in comparison.methods},
        "score": scores.what,
        "interval": INTERVAL,
        "scores": list(_scores(comparison, scores)),
        "aggregated_over": aggregated,
        "published": _published(comparison, scores),
        "human_source": SOURCE if comparison.of_returns and any(map(reference, comparison.envs)) else None,
        "aggregates": [_aggregate(method, scores, aggregated) for method in comparison.methods if aggregated],
        "improvement": list(_improvement(comparison, scores)),
        "thresholds": [_threshold(each) for each in ways],
        "speed": list(_speed(comparison)),
        "settings": compared.settings_that_differ(comparison),
        "machines": compared.machines(comparison.runs),
        "versions": compared.versions(comparison.runs),
        "runs": [_run(method, run, scores) for method in comparison.methods for run in method.runs],
        "left_out": [{"directory": str(each.directory), "reason": each.reason} for each in comparison.left_out],
        "notes": [
            *compared.notes(comparison),
            *scores.notes,
            *_never(ways, comparison.metric),
            *_few(comparison),
            *(_not_aggregated(comparison) if comparison.of_returns else ()),
        ],
    }


def reached(comparison: Comparison, goals: Mapping[str, float]) -> list[Reached]:
    """The way to each environment's threshold, method by method."""
    return [
        measures.reached(env, method.label, runs, goal, of_returns=comparison.of_returns)
        for env, goal in goals.items()
        for method, runs in comparison.groups(env)
    ]


def _scores(comparison: Comparison, scores: Scores) -> Iterator[Entry]:
    for env in comparison.envs:
        for method, runs in comparison.groups(env):
            values = scores.of(runs)[:, None]
            entry: Entry = {"env": env, "method": method.label, "runs": len(runs), "steps": comparison.end(env)}
            entry |= {**_with_interval("iqm", statistics.iqm, values), "mean": float(values.mean())}
            entry |= {"min": float(values.min()), "max": float(values.max())}
            if comparison.of_returns and reference(env):
                entry |= _with_interval("human_iqm", statistics.iqm, measures.normalised(values, env))
            yield entry


def _with_interval(name: str, statistic: Statistic, values: Array) -> Entry:
    low, high = statistics.interval(statistic, values) or (None, None)
    return {name: float(statistic(values)), f"{name}_low": low, f"{name}_high": high}


def _aggregate(method: Method, scores: Scores, envs: Sequence[str]) -> Entry:
    values = scores.matrix(method, envs, human=True)
    entry: Entry = {"method": method.label, "runs": len(values), "envs": len(envs)}
    for name, statistic in AGGREGATES.items():
        entry |= _with_interval(name, statistic, values)
    return entry


def _improvement(comparison: Comparison, scores: Scores) -> Iterator[Entry]:
    for first, second in combinations(comparison.methods, 2):
        if envs := comparison.shared_envs((first, second)):
            ones, others = scores.matrix(first, envs), scores.matrix(second, envs)
            low, high = statistics.improvement_interval(ones, others) or (None, None)
            names: Entry = {"first": first.label, "second": second.label, "envs": len(envs)}
            runs: Entry = {"first_runs": len(ones), "second_runs": len(others)}
            yield names | runs | {"probability": float(statistics.improvement(ones, others)), "low": low, "high": high}


def _published(comparison: Comparison, scores: Scores) -> Entry | None:
    """The published scores beside the methods' interquartile means, of a single Atari game."""
    if not comparison.of_returns or len(comparison.envs) > 1 or not published(env := comparison.envs[0]):
        return None
    frames = comparison.runs[0].frames_per_step
    how = beside.TRAINING if scores.games is None else beside.protocol(scores.games, frames)
    groups = comparison.groups(env)
    own = [Score(each.label, float(statistics.iqm(scores.of(runs)[:, None])), how) for each, runs in groups]
    names = ("agent", "protocol", "score", "human_normalised")
    rows = [dict(zip(names, row, strict=True)) for row in beside.rows(env, own)]
    return {"env": env, "rows": rows, "note": beside.note(env, how), "scores": beside.entries(env, how)}


def _threshold(reached: Reached) -> Entry:
    entry: Entry = {"env": reached.env, "method": reached.label, "threshold": reached.threshold}
    entry |= {"runs": len(reached.steps), "reached": reached.number}
    for name, values in (("steps", reached.steps), ("seconds", reached.seconds)):
        low, high = statistics.median_interval(values) or (None, None)
        entry |= {name: _finite(statistics.median_of(values)), f"{name}_low": _finite(low)}
        entry |= {f"{name}_high": _finite(high), f"{name}_of_runs": [_finite(value) for value in values]}
    return entry


def _finite(value: float | None) -> float | None:
    """None where a threshold was never reached."""
    return value if value is not None and math.isfinite(value) else None


def _speed(comparison: Comparison) -> Iterator[Entry]:
    for env in comparison.envs:
        for method, runs in comparison.groups(env):
            rates = [float(run.result["steps_per_second"]) for run in runs if run.result.get("steps_per_second")]
            entry: Entry = {"env": env, "method": method.label, "runs": len(runs)}
            entry |= {"steps_per_second": float(np.median(rates)) if rates else None, "steps_per_second_of_runs": rates}
            frames = [rate * runs[0].frames_per_step for rate in rates]
            entry |= {"frames_per_second": float(np.median(frames)) if frames else None}
            entry |= {name: _used(runs, name) for name in ("cores_busy", "gpu_utilization", "frames_per_joule")}
            yield entry | _staleness(runs) | {"shares": _shares(runs)}


def _used(runs: Sequence[LoadedRun], name: str) -> float | None:
    """The median of a figure on the use of the machine (`system.usage`); None if no run has it."""
    found = [used[name] for run in runs if name in (used := run.result.get("usage") or {})]
    return float(np.median(found)) if found else None


def _staleness(runs: Sequence[LoadedRun]) -> Entry:
    """Policy lag in optimiser steps; in gossip, iterations between the sender of a message and its receiver."""
    lags = [run.lag for run in runs if run.lag is not None]
    mean, most = staleness(sum((run.staleness for run in runs), Counter[int]()))
    return {
        "policy_lag_mean": float(np.mean([mean for mean, _ in lags])) if lags else None,
        "policy_lag_max": max((greatest for _, greatest in lags), default=None),
        "gossip_staleness_mean": mean,
        "gossip_staleness_max": most,
    }


def _shares(runs: Sequence[LoadedRun]) -> dict[str, float]:
    """Part -> share of the members' time, the mean over runs."""
    known = [run.shares for run in runs if run.shares]
    parts = dict.fromkeys(part for shares in known for part in shares)
    return {part: float(np.mean([shares.get(part, 0.0) for shares in known])) for part in parts}


def _run(method: Method, run: LoadedRun, scores: Scores) -> Entry:
    return {
        "directory": str(run.record.directory),
        "method": method.label,
        "env": run.env,
        "seed": run.seed,
        "steps": run.steps,
        "frames": run.steps * run.frames_per_step,
        "seconds": run.result.get("seconds"),
        "steps_per_second": run.result.get("steps_per_second"),
        "ended": run.result["ended"],
        "score": scores.values[run.key],
        "last_mean_return": run.last_mean_return,
        "machine": run.machine,
        "version": run.version,
    }


def _never(ways: Sequence[Reached], metric: str) -> Iterator[str]:
    """The thresholds that no run reached."""
    goals = {way.env: way.threshold for way in ways}
    for env, goal in goals.items():
        if not any(way.number for way in ways if way.env == env):
            yield f"{env}: no run reached {_goal(metric, goal)}."


def _goal(metric: str, goal: float) -> str:
    return f"a mean return of {goal:g} over 100 training episodes" if metric == RETURN else f"a {metric} of {goal:g}"


def _few(comparison: Comparison) -> Iterator[str]:
    few = [
        f"{method.label} on {env} ({len(runs)})"
        for env in comparison.envs
        for method, runs in comparison.groups(env)
        if len(runs) < statistics.FEWEST
    ]
    if few:
        yield f"Too few seeds for an interval (fewer than {statistics.FEWEST}): {', '.join(few)}."


def _not_aggregated(comparison: Comparison) -> Iterator[str]:
    if len(comparison.envs) < 2:
        return
    unknown = [env for env in comparison.envs if not reference(env)]
    shared = comparison.shared_envs(comparison.methods)
    lacking = [env for env in comparison.envs if reference(env) and env not in shared]
    if unknown:
        yield f"No human score is published for {', '.join(unknown)}: not part of aggregates over environments."
    if lacking:
        yield f"Not every method has runs of {', '.join(lacking)}: not part of aggregates over environments."
