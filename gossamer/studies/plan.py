"""The plan of a study: every composition on every environment with every seed."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from gossamer.config.composing import Composed, compose
from gossamer.config.config import Control
from gossamer.config.resolve import resolve
from gossamer.storage import studies
from gossamer.storage.lock import held
from gossamer.storage.studies import STUDY, PlannedRun
from gossamer.system.errors import UserError
from gossamer.system.options import declared, in_words
from gossamer.training.callbacks import by_names
from gossamer.training.dry_run import check_goal, dry_run

PROG = "gossamer study"
LONGEST = 200  # characters of the name of a directory
CLUSTER = "--cluster"
LEAST_SECONDS = 1e-3  # time limit of a run whose time is over: it ends at once
OWN = ("--env", "--seed", "--run-dir", "--overwrite")  # a study gives each run its own


@dataclass(frozen=True)
class Design:
    """A study as it is asked for."""

    compositions: tuple[str, ...]  # the words after `gossamer train`; `LABEL: words` gives a composition a name
    envs: tuple[str, ...]
    seeds: tuple[int, ...]
    directory: Path
    steps: int | None = None  # of each run; None: the composition's default
    options: tuple[str, ...] = ()  # words that every run has besides
    jobs: int = 1  # runs at once
    cluster: str | None = None  # of every run, as in `train`
    labels: dict[str, str] = field(init=False)  # label -> words

    def __post_init__(self) -> None:
        if not self.compositions:
            raise UserError('no composition; give one or more in quotes, as in "paac --algorithm ppo"')
        if not self.envs:
            raise UserError("--env: required; it may be given several times")
        if not self.seeds:
            raise UserError("--seeds: at least one is needed")
        if self.jobs < 1:
            raise UserError(f"--jobs {self.jobs}: must be at least 1")
        pairs = [_labelled(text) for text in self.compositions]
        _refuse_repeated("composition", [label for label, _ in pairs])
        _refuse_repeated("--env", self.envs)
        _refuse_repeated("--seeds", self.seeds)
        object.__setattr__(self, "labels", dict(pairs))

    def runs(self) -> list[PlannedRun]:
        """Seed by seed, so that a study that is not finished yet has all combinations; each with its own directory.
        Raises `UserError` where two labels or environments would share one."""
        runs = [
            PlannedRun(
                directory=f"{slug(label)}/{slug(env)}/seed-{seed}",
                label=label,
                env=env,
                seed=seed,
                command=shlex.join(self._words(words, env, seed)),
            )
            for seed in self.seeds
            for env in self.envs
            for label, words in self.labels.items()
        ]
        repeated = _repeated([run.directory for run in runs])
        if repeated:
            one, other = [run for run in runs if run.directory == repeated[0]][:2]
            raise UserError(
                f"{one.label!r} on {one.env} and {other.label!r} on {other.env} would share the directory "
                f'{repeated[0]}; give a composition another name, as in "name: paac --algorithm ppo"'
            )
        return runs

    def _words(self, composition: str, env: str, seed: int) -> list[str]:
        steps = [] if self.steps is None else ["--steps", str(self.steps)]
        cluster = [] if self.cluster is None else [CLUSTER, self.cluster]
        given = [*_split(composition), *self.options]
        for name, *value in filter(None, (steps, cluster)):
            if any(word.split("=")[0] == name for word in given):
                raise UserError(
                    f"{name} {value[0]}: {composition!r} or the options of all runs have {name}, too; give one"
                )
        return [*_split(composition), "--env", env, "--seed", str(seed), *steps, *cluster, *self.options]


def slug(text: str) -> str:
    """The text as the name of a directory. Raises `UserError` if it is too long for one."""
    name = re.sub(r"[^A-Za-z0-9._]+", "-", text).strip("-.") or "run"
    if len(name) > LONGEST:
        raise UserError(f'{text!r}: too long for the name of a directory; give it a name, as in "name: paac"')
    return name


def _labelled(text: str) -> tuple[str, str]:
    """Label and words of `LABEL: words`; the words are the label where there is none."""
    label, colon, words = text.partition(": ")
    parts = (label.strip(), words.strip()) if colon else (text.strip(), text.strip())
    if not all(parts):
        raise UserError(f"the composition {text!r} has no words")
    return parts


def _split(words: str) -> list[str]:
    try:
        return shlex.split(words)
    except ValueError as error:
        raise UserError(f"the composition {words!r} cannot be read ({str(error).lower()})") from error


def _repeated(values: Sequence[object]) -> list[object]:
    return [value for value, count in Counter(values).items() if count > 1]


def _refuse_repeated(name: str, values: Sequence[object]) -> None:
    if repeated := _repeated(values):
        raise UserError(f"{name} {repeated[0]}: given twice")


def words(run: PlannedRun) -> list[str]:
    """The words after `gossamer train`, without the directory."""
    return _split(run.command)


def composed(run: PlannedRun) -> Composed:
    """The parts and options of a run. Raises `UserError` for a word that its composition does not have."""
    words = _split(run.command)
    if asked := [word for word in words if word in ("-h", "--help")]:
        raise UserError(
            f"{run.label}: {asked[0]} is not for a composition; gossamer train {words[0]} --help lists options"
        )
    if own := [word for word in words if word.split("=")[0] in OWN]:
        given = Counter(word.split("=")[0] for word in own)
        if given != Counter(["--env", "--seed"]):
            raise UserError(f"{run.label}: {', '.join(OWN)} are set by the study; leave them out of the composition")
    try:
        return compose(words, prog=PROG, description="", command=(Control,))
    except UserError as error:
        raise UserError(f"{run.label}: {error}") from error


def check(runs: Sequence[PlannedRun]) -> None:
    """Make the program, one environment and the network of each combination, so that errors show before anything is
    written. Raises `UserError` that names the composition."""
    for run in {(run.label, run.env): run for run in runs}.values():
        made = composed(run)
        try:
            config, control = resolve(made.choices), Control(**made.command)
            check_goal(config, control)
            by_names(control.callback)
            dry_run(config, control.cluster)
        except UserError as error:
            raise UserError(f"{run.label} on {run.env}: {error}") from error


def resuming(run: PlannedRun, seconds: float) -> list[str]:
    """The words after `gossamer resume DIRECTORY` of a run that has trained for so many seconds: the options of a call,
    which a run does not store. `--max-seconds` is for the whole run."""
    given = dict(composed(run).command)
    if given["max_seconds"] is not None:
        given["max_seconds"] = max(LEAST_SECONDS, given["max_seconds"] - seconds)
    plain = {name: given[name] for name, each in declared(Control).items() if given[name] != each.default}
    return [word for name, value in plain.items() for word in in_words(name, value)]


@contextmanager
def settled(folder: Path, runs: Sequence[PlannedRun]) -> Iterator[None]:
    """Hold the folder of a study, with its `study.json` written. A study may grow: more compositions, environments or
    seeds. Its runs may go on at another cluster. Raises `UserError` where the folder has a study with a run that this
    one has not, or has with other words, and where another process holds it."""
    _refuse_another(folder, runs)
    with usable(folder):
        folder.mkdir(parents=True, exist_ok=True)
    with held(folder, "running this study"):
        with usable(folder):
            studies.write(folder, runs)
        yield


def _refuse_another(folder: Path, runs: Sequence[PlannedRun]) -> None:
    if studies.is_study(folder):
        wanted = {run.directory: run.command for run in runs}
        for run in studies.read(folder):
            if run.directory not in wanted:
                raise UserError(f"--dir {folder}: has another study, with {run.directory}; give another directory")
            if _lasting(wanted[run.directory]) != _lasting(run.command):
                raise UserError(
                    f"--dir {folder}: has another study: {run.directory} is `{run.command}` there, and would be "
                    f"`{wanted[run.directory]}`; give another directory"
                )
    elif folder.is_dir() and any(folder.iterdir()):
        raise UserError(f"--dir {folder}: has files and no {STUDY}; give another directory")


def _lasting(command: str) -> list[str]:
    """The words of a run without the cluster, which each call may choose."""
    kept, given = list[str](), iter(_split(command))
    for word in given:
        if word == CLUSTER:
            next(given, None)
        elif not word.startswith(f"{CLUSTER}="):
            kept.append(word)
    return kept


@contextmanager
def usable(folder: Path) -> Iterator[None]:
    """Have an error of the file system name the option."""
    try:
        yield
    except OSError as error:
        raise UserError(f"--dir {folder}: cannot be used ({error.strerror}); give another directory") from error
