"""The plan of a search: what varies, how many trials, and the runs of a trial."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gossamer.config.composing import CHOICES
from gossamer.config.resolve import Composition, resolve
from gossamer.searches.ranges import Value, Varied, first_value, option_of, parsed
from gossamer.storage import searches, studies
from gossamer.storage.lock import held, is_held
from gossamer.storage.searches import SEARCH, TrialRecord
from gossamer.storage.studies import PlannedRun
from gossamer.studies.plan import Design, check, composed, usable
from gossamer.studies.plan import words as words_of
from gossamer.system.errors import UserError
from gossamer.system.options import declared, flag, in_words, plain, types


@dataclass(frozen=True)
class SearchDesign:
    """A search as it is asked for."""

    composition: str  # the words after `gossamer train`, without those that vary
    env: str
    vary: tuple[str, ...]  # `learning-rate=1e-4..1e-2:log`; see `ranges`
    trials: int
    seeds: tuple[int, ...]  # of each trial, trained one after the other
    directory: Path
    steps: int | None = None  # of each run; None: the composition's default
    options: tuple[str, ...] = ()  # words that every run has besides
    jobs: int = 1  # trials at once
    prune: bool = True
    ranges: tuple[Varied, ...] = field(init=False)

    def __post_init__(self) -> None:
        if not self.vary:
            raise UserError("--vary: required; name an option and its range, as in learning-rate=1e-4..1e-2:log")
        if self.trials < 1:
            raise UserError(f"--trials {self.trials}: must be at least 1")
        names = [option_of(text) for text in self.vary]
        if repeated := [name for name in names if names.count(name) > 1]:
            raise UserError(f"--vary: {flag(repeated[0])} is given twice")
        first = [flag(name) + "=" + first_value(text) for name, text in zip(names, self.vary, strict=True)]
        object.__setattr__(self, "ranges", self._ranges(dict(zip(names, first, strict=True))))

    def _ranges(self, first: Mapping[str, str]) -> tuple[Varied, ...]:
        """What varies, read with the types that the options have in the composition."""
        given = {word.split("=")[0] for word in words_of(self._run("the composition", []))}
        if twice := [flag(name) for name in first if flag(name) in given or flag(f"no_{name}") in given]:
            raise UserError(
                f"--vary: the composition or the options of all runs have {twice[0]}, too; leave it out there"
            )
        typed = [_switched(name, word) for name, word in first.items()]
        kinds = Composition(composed(self._run("--vary", typed)).choices).kinds.values()
        known = {name: plain(types(kind)[each.name]) for kind in kinds for name, each in declared(kind).items()}
        known |= dict.fromkeys(CHOICES, str)
        if own := [name for name in first if name not in known]:
            raise UserError(f"--vary: {flag(own[0])} cannot vary: it is an option of the call; give it after --")
        return tuple(parsed(text, known[name]) for name, text in zip(first, self.vary, strict=True))

    def runs(self, number: int, values: Mapping[str, Value]) -> list[PlannedRun]:
        """The runs of a trial, seed by seed."""
        extra = [word for option, value in values.items() for word in in_words(option, value)]
        return self._design(f"trial {number}", extra).runs()

    def _run(self, label: str, extra: Sequence[str]) -> PlannedRun:
        return self._design(label, extra).runs()[0]

    def _design(self, label: str, extra: Sequence[str]) -> Design:
        composition = f"{label}: {self.composition} {shlex.join(extra)}"
        return Design((composition,), (self.env,), self.seeds, self.directory, self.steps, self.options, self.jobs)

    def check(self) -> int:
        """The steps of each run. Raises `UserError` where a bound or a value of a range cannot be trained, with the
        other options at their first values."""
        first = {each.option: each.extremes[0] for each in self.ranges}
        for each in self.ranges:
            for value in each.extremes:
                tried = {**first, each.option: value}
                extra = [word for option, one in tried.items() for word in in_words(option, one)]
                check([self._run(f"--vary {each.option.replace('_', '-')}={value}", extra)])
        return resolve(composed(self.runs(0, first)[0]).choices).run.steps

    @property
    def definition(self) -> dict[str, Any]:
        """What a later call has to repeat. More trials may be added, and more trained at once."""
        return {
            "composition": self.composition,
            "env": self.env,
            "vary": list(self.vary),
            "seeds": list(self.seeds),
            "steps": self.steps,
            "options": list(self.options),
        }


@contextmanager
def settled(design: SearchDesign) -> Iterator[None]:
    """Hold the folder of a search, with its `search.json` written. Raises `UserError` where the folder has another
    search or other files, and where a process trains one of its runs."""
    folder = design.directory
    trials = _earlier(design)
    for run in studies.read(folder) if studies.is_study(folder) else []:
        if is_held(folder / run.directory):
            raise UserError(
                f"{folder / run.directory}: another process is training it; end it, or wait until it has ended"
            )
    with usable(folder):
        folder.mkdir(parents=True, exist_ok=True)
    with held(folder, "running this search"):
        with usable(folder):
            searches.write(folder, design.definition, trials)
        yield


def _earlier(design: SearchDesign) -> list[TrialRecord]:
    """The trials of the search that is there."""
    folder = design.directory
    if not searches.is_search(folder):
        if folder.is_dir() and any(folder.iterdir()):
            raise UserError(f"--dir {folder}: has files and no {SEARCH}; give another directory")
        return []
    there, trials = searches.read(folder)
    for name, wanted in design.definition.items():
        if there.get(name) != wanted:
            raise UserError(
                f"--dir {folder}: has another search, with {name} {_shown(there.get(name))}, not {_shown(wanted)}; "
                "give another directory"
            )
    return trials


def _switched(name: str, word: str) -> str:
    """`--option=true` and `--option=false` as the command line has them."""
    match word.partition("=")[2]:
        case "true":
            return flag(name)
        case "false":
            return flag(f"no_{name}")
    return word


def _shown(value: Any) -> str:
    if isinstance(value, list):
        return " ".join(map(str, value)) or "none"
    return "by default" if value is None else str(value)
