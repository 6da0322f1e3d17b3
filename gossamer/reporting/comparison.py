"""Runs as methods. Runs whose settings differ in nothing but seed, environment and options that do not change what is
learned form a method, which is named after the settings that differ between methods."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gossamer.reporting.curves import RETURN
from gossamer.reporting.runs import LeftOut, LoadedRun
from gossamer.system.options import flag

ALWAYS = ("architecture", "algorithm")  # of a label


@dataclass(frozen=True)
class Method:
    """The runs with one label."""

    label: str
    runs: tuple[LoadedRun, ...]  # in the order of environments, then seeds

    def of(self, env: str) -> tuple[LoadedRun, ...]:
        """Its runs of an environment."""
        return tuple(run for run in self.runs if run.env == env)


@dataclass(frozen=True)
class Comparison:
    """All that a report is about."""

    methods: tuple[Method, ...]
    left_out: tuple[LeftOut, ...] = ()
    metric: str = RETURN  # that curves and scores are of

    @property
    def of_returns(self) -> bool:
        """Whether scores are returns, which can be compared with those of humans and papers."""
        return self.metric == RETURN

    @property
    def runs(self) -> list[LoadedRun]:
        """All runs."""
        return [run for method in self.methods for run in method.runs]

    @property
    def envs(self) -> list[str]:
        """All environments, in the order of their names."""
        return sorted({run.env for run in self.runs})

    def groups(self, env: str) -> Iterator[tuple[Method, tuple[LoadedRun, ...]]]:
        """The methods that have runs of an environment, with these runs."""
        return ((method, runs) for method in self.methods if (runs := method.of(env)))

    def end(self, env: str) -> int:
        """Steps of the shortest run of an environment: scores are compared there."""
        return min(run.steps for run in self.runs if run.env == env)

    def shared_envs(self, methods: Sequence[Method]) -> list[str]:
        """The environments that all these methods have runs of."""
        return [env for env in self.envs if all(method.of(env) for method in methods)]


def compare(runs: Sequence[LoadedRun], left_out: Sequence[LeftOut] = (), metric: str = RETURN) -> Comparison:
    """Runs as methods, in the order in which their labels come up."""
    automatic = labels([run.settings for run in runs], [run.env for run in runs])
    by_label: dict[str, list[LoadedRun]] = {}
    for run, label in zip(runs, automatic, strict=True):
        by_label.setdefault(run.label or label, []).append(run)
    ordered = {label: sorted(each, key=lambda run: (run.env, run.seed)) for label, each in by_label.items()}
    return Comparison(tuple(Method(label, tuple(each)) for label, each in ordered.items()), tuple(left_out), metric)


def labels(settings: Sequence[Mapping[str, Any]], envs: Sequence[str]) -> list[str]:
    """A label for each of these settings: architecture, algorithm, and the options that differ between runs of these
    two on the same environment, since an option of one architecture says nothing about another."""
    alike: dict[tuple[str, ...], dict[str, list[Mapping[str, Any]]]] = {}
    for each, env in zip(settings, envs, strict=True):
        alike.setdefault(_kind(each), {}).setdefault(env, []).append(each)
    differing = {
        kind: {name for group in by_env.values() for name in differences(group)} for kind, by_env in alike.items()
    }
    return [_label(each, [name for name in each if name in differing[_kind(each)]]) for each in settings]


def _kind(settings: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(settings[name] for name in ALWAYS)


def differences(settings: Sequence[Mapping[str, Any]]) -> list[str]:
    """The options that do not have the same value everywhere, where they exist."""
    names = dict.fromkeys(name for each in settings for name in each)
    return [name for name in names if len({shown(each[name]) for each in settings if name in each}) > 1]


def _label(settings: Mapping[str, Any], names: Iterable[str]) -> str:
    parts = dict.fromkeys(str(settings[name]) for name in ALWAYS)
    options = [f"{flag(name).removeprefix('--')} {shown(settings[name])}" for name in names if name not in ALWAYS]
    return ", ".join([" ".join(parts), *options])


def shown(value: Any) -> str:
    """An option's value as text."""
    return f"{value:g}" if isinstance(value, float) else f"{value}"


def settings_that_differ(comparison: Comparison) -> dict[str, dict[str, str]]:
    """Option -> label -> its value, for options that differ between methods on the same environment. Several values of
    one method (on several environments) stand side by side; a method without the option has an empty text."""
    named = dict.fromkeys(
        name
        for env in comparison.envs
        for name in _between([[run.settings for run in runs] for _, runs in comparison.groups(env)])
    )
    return {name: {method.label: _values(method, name) for method in comparison.methods} for name in named}


def _between(groups: Sequence[Sequence[Mapping[str, Any]]]) -> list[str]:
    """Options whose values differ between these groups, or that only some of them have."""
    names = dict.fromkeys(name for group in groups for each in group for name in each)
    return [name for name in names if len({_text(group, name) for group in groups}) > 1]


def _values(method: Method, name: str) -> str:
    return _text([run.settings for run in method.runs], name)


def _text(settings: Iterable[Mapping[str, Any]], name: str) -> str:
    return " / ".join(dict.fromkeys(shown(each[name]) for each in settings if name in each))


def notes(comparison: Comparison) -> list[str]:
    """Notes that a reader has to know before comparing these runs."""
    return [*_within(comparison), *_lengths(comparison), *_stopped(comparison), *_machines(comparison.runs)]


def _within(comparison: Comparison) -> Iterator[str]:
    for env in comparison.envs:
        for method, runs in comparison.groups(env):
            if different := differences([run.settings for run in runs]):
                yield f"{method.label}, {env}: these runs have one label and differ in {', '.join(different)}."
            twice = [str(seed) for seed, count in Counter(run.seed for run in runs).items() if count > 1]
            if twice:
                yield f"{method.label}, {env}: several runs have seed {', '.join(twice)}; they are not independent."


def _lengths(comparison: Comparison) -> Iterator[str]:
    for env in comparison.envs:
        steps = [run.steps for run in comparison.runs if run.env == env]
        if max(steps) > 1.01 * min(steps):
            yield (
                f"{env}: the runs end between {min(steps):,} and {max(steps):,} steps. Training scores are compared at "
                f"{min(steps):,} steps, and each mean curve ends where the first of its runs does."
            )


def _stopped(comparison: Comparison) -> Iterator[str]:
    for env in comparison.envs:
        stops = [run.result.get("stop_at_return") for run in comparison.runs if run.env == env]
        if goals := sorted({float(stop) for stop in stops if stop is not None}):
            told = ", ".join(f"{goal:g}" for goal in goals)
            yield f"{env}: runs were told to end at a return of {told}; compare the steps that they took to it."


def _machines(runs: Sequence[LoadedRun]) -> Iterator[str]:
    kinds = machines(runs)
    if len(kinds) > 1:
        yield f"The runs are of {len(kinds)} kinds of machine: compare steps, not seconds."
    if len(versions(runs)) > 1:
        yield f"The runs are of several versions of Gossamer: {', '.join(versions(runs))}."


def machines(runs: Sequence[LoadedRun]) -> list[str]:
    """The kinds of machine that trained these runs."""
    return sorted({run.machine for run in runs})


def versions(runs: Sequence[LoadedRun]) -> list[str]:
    """The versions of Gossamer that trained them."""
    return sorted({run.version for run in runs})
