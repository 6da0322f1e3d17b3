"""Finds and loads the runs of a report. A run that cannot be used is left out and named."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from gossamer.config.file import flat
from gossamer.evaluation.members import AVERAGE
from gossamer.reporting.curves import RETURN, Curve, begins_late, of_episodes, of_rows, of_run
from gossamer.storage.contents import EPISODES, EVALUATIONS, GOSSIP, METRICS, MOST_FOLDERS, RESULT, search
from gossamer.storage.runs import RunRecord
from gossamer.storage.studies import is_study, read
from gossamer.system.errors import UserError, near
from gossamer.system.kwargs import titled

# Options that do not change what is learned
ASIDE = frozenset(
    {"seed", "env", "env_kwargs", "preset", "keep", "checkpoint_every", "log"}
    | {"eval_every", "eval_exact", "eval_episodes", "eval_protocol"}
)
OF_GAME = "return/"  # before the names of several games in `result.json`
PROTOCOLS = ("noop", "sticky", "plain")  # of `evaluation-PROTOCOL.json`


@dataclass(frozen=True)
class RunFolder:
    """A run directory, which may not exist, and the label that a study or the user gave it."""

    directory: Path
    label: str | None = None


@dataclass(frozen=True)
class Games:
    """Whole games that a checkpoint of a run has played."""

    protocol: str
    episodes: int
    greedy: bool
    mean_return: float
    steps: int  # of the run when the checkpoint was written
    member: str  # `average` also where there is only one
    max_steps: int | None  # after which a game was cut off; None: the environment's default
    epsilon: float | None = None  # probability of a random action; None: policies that do not act by values
    cut_off: int = 0  # games that had not ended at the limit; their returns include only the steps before
    of: Mapping[str, Games] = field(default_factory=dict)  # each of several games, by name


Key: TypeAlias = tuple[Path, str]  # run directory and game


@dataclass(frozen=True)
class LoadedRun:
    """A run that has ended; of several games, one of them. Its steps are then those of all games together."""

    record: RunRecord
    env: str
    seed: int
    settings: dict[str, Any]  # options by name, without those of `ASIDE`
    curve: Curve
    label: str | None  # None: to be named after its settings
    evaluations: Mapping[str, Games]  # by protocol, of `gossamer evaluate`
    beside: Games | None  # the last evaluation beside training (`--eval-every`)
    staleness: Counter[int]  # iterations that the sender was behind (< 0: ahead) -> averaged messages; of gossip
    lag: tuple[float, float] | None  # policy lag in optimiser steps, mean and maximum; None: not known
    shares: Mapping[str, float]  # part -> share of the members' time
    frames_per_step: int  # emulator frames
    machine: str  # the kinds of machine that trained it
    version: str  # of Gossamer
    several: bool = False  # it is one of several games

    @property
    def key(self) -> Key:
        """What no other run of a report has."""
        return self.record.directory, self.env

    @property
    def result(self) -> dict[str, Any]:
        """The content of `result.json`; of one of several games without the return at which the run was told to end,
        which is a mean over games."""
        found = self.record.result or {}
        return {**found, "stop_at_return": None, "solved_steps": None} if self.several else found

    @property
    def last_mean_return(self) -> float | None:
        """Of the last 100 episodes."""
        return self.result.get(f"return/{self.env}") if self.several else self.record.mean_return

    @property
    def steps(self) -> int:
        """Environment steps of the whole run."""
        return self.record.steps


@dataclass(frozen=True)
class LeftOut:
    """A run that the report does not include."""

    directory: Path
    reason: str


def sources(
    paths: Sequence[Path], labels: Mapping[str, Path], tell: Callable[[str], None] = lambda text: None
) -> list[RunFolder]:
    """The runs in these folders, each once: those of a study, or all below a folder. `labels` names those below its
    folders, and adds them; of two labels, that of the folder inside the other one counts. `tell`: called with a
    line while a search takes long. Raises `UserError` for a path where there is no run, or that holds very many
    folders, and for a folder with two labels."""
    _check_labels(labels)
    by_place: dict[Path, RunFolder] = {}
    for path in (*paths, *labels.values()):
        for source in _in_folder(path, tell):
            by_place.setdefault(source.directory.resolve(), source)
    deepest_last = sorted(labels.items(), key=lambda each: len(each[1].resolve().parts))
    for label, path in deepest_last:
        for place, source in by_place.items():
            if place.is_relative_to(path.resolve()):
                by_place[place] = RunFolder(source.directory, label)
    return list(by_place.values())


def _check_labels(labels: Mapping[str, Path]) -> None:
    named = dict[Path, str]()
    for label, path in labels.items():
        if (other := named.setdefault(path.resolve(), label)) != label:
            raise UserError(f"--label {label}={path}: this folder has the label {other} already; give it one label")


def _in_folder(path: Path, tell: Callable[[str], None]) -> list[RunFolder]:
    if is_study(path):
        if not (planned := read(path)):
            raise UserError(f"{path}: the study has no runs")
        return [RunFolder(path / run.directory, run.label) for run in planned]
    if directories := search(path, most=MOST_FOLDERS, tell=tell):
        return list(map(RunFolder, directories))
    what = "no run directory is in it" if path.is_dir() else "is a file" if path.exists() else "does not exist"
    raise UserError(f"{path}: {what}; give run directories, folders with runs, or a study's folder")


class NoMetric(UserError):
    """A run without this metric; `known`: those that it has."""

    def __init__(self, metric: str, known: set[str]) -> None:
        super().__init__(f"no row has {metric}{near(metric, sorted(known))}")
        self.known = known


def load(sources: Sequence[RunFolder], metric: str = RETURN) -> tuple[list[LoadedRun], list[LeftOut]]:
    """The runs that have ended and have the metric, and the others with the reason. Raises `UserError` if there is no
    such run."""
    runs, left_out, known = list[LoadedRun](), list[LeftOut](), set[str]()
    for source in sources:
        try:
            reason = _unusable(source.directory)
            loaded = [] if reason else _load(source, metric)
        except (OSError, ValueError, TypeError, KeyError, OverflowError) as error:  # damage does not cost the others
            told = str(error).removeprefix(f"{source.directory}/").removeprefix(f"{source.directory}: ")
            reason, loaded = told if isinstance(error, UserError) else f"damaged ({error!r})", []
            known |= error.known if isinstance(error, NoMetric) else set()
        runs += loaded
        if not loaded:
            left_out.append(LeftOut(source.directory, reason))
    if not runs and known:
        raise UserError(f"--metric {metric}: no run has it{near(metric, sorted(known))}; there are {_listed(known)}")
    if not runs:
        told = "; ".join(f"{each.directory}: {each.reason}" for each in left_out[:3])
        more = f"; and {len(left_out) - 3} more" if len(left_out) > 3 else ""
        raise UserError(f"no run can be used ({told}{more}); train or resume one first")
    return runs, left_out


def _unusable(directory: Path) -> str:
    """Why a run cannot be part of a report; empty if it can."""
    record = RunRecord(directory)
    if not directory.is_dir():
        return "missing: it has not been started"
    where = f"at {record.steps:,} of {record.config.run.steps:,} steps"
    match record.state:
        case "running":
            return f"still running, {where}"
        case "interrupted" | "crashed" | "short":
            return f"{record.state} {where}; gossamer resume {directory} continues it"
        case _:
            return "" if record.mean_return is not None else "no episode has ended, or not in every game"


def _load(source: RunFolder, metric: str) -> list[LoadedRun]:
    """Read all that a report uses: one run, or for returns of several games one for each. Raises `UserError` where a
    file is damaged."""
    record = RunRecord(source.directory)
    whole = _of(source, record, metric)
    games = [name.removeprefix(OF_GAME) for name in record.result or {} if name.startswith(OF_GAME)]
    return [_of_game(whole, game) for game in games] if games and metric == RETURN else [whole]


def _of_game(run: LoadedRun, game: str) -> LoadedRun:
    """A run as that of one of its games."""
    made = of_episodes([episode for episode in run.record.episodes if episode.environment == game])
    played = {protocol: each.of[game] for protocol, each in run.evaluations.items() if game in each.of}
    beside = None if run.beside is None else run.beside.of.get(game)
    settings = {**run.settings, "games": run.env}
    return replace(run, env=game, settings=settings, curve=made, evaluations=played, beside=beside, several=True)


def _of(source: RunFolder, record: RunRecord, metric: str) -> LoadedRun:
    """The run as a whole."""
    options = flat(record.config)
    if options["anneal_steps"] == options["steps"]:
        options["anneal_steps"] = "steps"  # follows from another option
    return LoadedRun(
        record,
        env=titled(options["env"], options.get("env_kwargs")),
        seed=options["seed"],
        settings={**{name: value for name, value in options.items() if name not in ASIDE}, "games": "one"},
        curve=_curve(record) if metric == RETURN else _curve_of(record, metric),
        label=source.label,
        evaluations=_evaluations(source.directory),
        beside=_beside(record),
        staleness=_staleness(source.directory / GOSSIP),
        shares=_shares(record),
        lag=_lag(record),
        **_origin(record),
    )


def _origin(record: RunRecord) -> dict[str, Any]:
    """The machine and the version that trained a run, and the frames of its steps."""
    with _reading(record.directory / RESULT):
        result = record.result or {}
        hosts: Mapping[str, Mapping[str, Any]] = result.get("hosts") or {"": result.get("machine") or {}}
        return {
            "machine": "; with ".join(sorted({_machine(host) for host in hosts.values()})),
            "version": str(result.get("version", "unknown")),
            "frames_per_step": max(1, round((result.get("frames") or record.steps) / max(1, record.steps))),
        }


def _machine(host: Mapping[str, Any]) -> str:
    """`host`: a `HostInfo`, or the machine that the run was started on: older runs know no more."""
    gpu = f", {host['gpu']}" if host.get("gpu") else ""
    parts = f"{host.get('processor', 'unknown processor')}, {host.get('cores', '?')} cores{gpu}"
    computed = f", {host['precision']} on {host['device']}" if {"precision", "device"} <= host.keys() else ""
    return f"{parts}, torch {host.get('torch', 'unknown')}{computed}"


@contextmanager
def _reading(file: Path) -> Iterator[None]:
    """Have errors name the file."""
    try:
        yield
    except UserError:
        raise
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise UserError(f"{file}: damaged ({error!r})") from error


def _curve(record: RunRecord) -> Curve:
    made = of_run(record)
    if not len(made.steps):
        raise UserError(f"{EPISODES} and {METRICS}: missing or empty")
    if not np.isfinite([made.seconds, made.returns]).all():
        raise UserError(f"{EPISODES if record.episodes else METRICS}: damaged (a number is not finite)")
    ended, logged = (record.result or {}).get("episodes"), len(record.episodes)
    if (record.directory / EPISODES).exists() and logged != ended is not None and not begins_late(record):
        raise UserError(f"{EPISODES}: damaged ({logged:,} of {ended:,} episodes)")
    return made


def _curve_of(record: RunRecord, metric: str) -> Curve:
    with _reading(record.directory / METRICS):
        made = of_rows(record.rows, metric)
    if not len(made.steps):
        raise NoMetric(metric, {n for row in record.rows for n, value in row.items() if isinstance(value, int | float)})
    return made


def _listed(metrics: Collection[str]) -> str:
    """Names of metrics; of the many that say what takes time, and of the machine, only how they begin."""
    return ", ".join(sorted({re.sub("^(time|machine)/.*", r"\1/...", name) for name in metrics}))


def _evaluations(directory: Path) -> dict[str, Games]:
    files = {protocol: directory / f"evaluation-{protocol}.json" for protocol in PROTOCOLS}
    return {protocol: _games(file) for protocol, file in files.items() if file.is_file()}


def _games(file: Path) -> Games:
    with _reading(file):
        return _played(json.loads(file.read_text()), file.stem.removeprefix("evaluation-"))


def _beside(record: RunRecord) -> Games | None:
    with _reading(record.directory / EVALUATIONS):
        return _played({"greedy": False, **record.evaluations[-1]}) if record.evaluations else None


def _played(games: Mapping[str, Any], protocol: str | None = None) -> Games:
    whole = {name: value for name, value in games.items() if name != "games"}
    of = {name: _played({**whole, **_one_of(own)}, protocol) for name, own in (games.get("games") or {}).items()}
    return Games(
        protocol=protocol or str(games["protocol"]),
        episodes=int(games["episodes"]),
        greedy=bool(games["greedy"]),
        mean_return=float(games["mean_return"]),
        steps=int(games["steps"]),
        member=str(games.get("member") or AVERAGE),
        max_steps=None if games.get("max_steps") is None else int(games["max_steps"]),
        epsilon=None if games.get("epsilon") is None else float(games["epsilon"]),
        cut_off=int(games.get("cut_off") or 0),
        of=of,
    )


def _one_of(own: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of an evaluation that differ between games, of one of several games."""
    return {"mean_return": own["mean_return"], "episodes": len(own["returns"]), "cut_off": own.get("cut_off")}


def _staleness(file: Path) -> Counter[int]:
    counts = Counter[int]()
    with _reading(file):
        by_staleness = json.loads(file.read_text())["traffic"]["staleness"] if file.exists() else {}
        for behind, messages in by_staleness.items():
            counts[int(behind)] += int(messages)
    return counts


def _lag(record: RunRecord) -> tuple[float, float] | None:
    with _reading(record.directory / RESULT):
        lag = (record.result or {}).get("policy_lag")
        return (float(lag["mean"]), float(lag["max"])) if lag and "mean" in lag else None


def _shares(record: RunRecord) -> dict[str, float]:
    with _reading(record.directory / METRICS):
        row = record.last_row
        return {name.removeprefix("time/"): float(row[name]) for name in row if name.startswith("time/")}
