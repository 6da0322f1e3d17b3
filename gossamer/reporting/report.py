"""Writes a report: one HTML page, figures as PNG and PDF, data as CSV, and a Markdown page."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from gossamer.reporting import measures
from gossamer.reporting.comparison import Comparison, compare
from gossamer.reporting.curves import RETURN
from gossamer.reporting.measures import MeanCurve
from gossamer.reporting.profiles import profiles as profiles_of
from gossamer.reporting.rows import data, to_csv
from gossamer.reporting.runs import load, sources
from gossamer.reporting.summary import summary
from gossamer.storage.contents import is_run, listed
from gossamer.storage.files import Content, atomic_write
from gossamer.storage.studies import is_study
from gossamer.system.errors import UserError

PAGE, MARKDOWN = "report.html", "report.md"
FIGURES = ("curves", "aggregated-curves", "scores", "aggregates", "profiles", "improvement", "thresholds", "speed")
TABLES = ("scores", "aggregates", "improvement", "thresholds", "runs", "speed", "settings", "curves", "profiles")
FILES = (
    PAGE,
    MARKDOWN,
    *(f"{name}.csv" for name in TABLES),
    *(f"{name}.{k}" for name in FIGURES for k in ("png", "pdf")),
)


@dataclass(frozen=True)
class Report:
    """A written report."""

    folder: Path
    page: Path  # HTML
    markdown: Path
    figures: list[Path]  # .png and .pdf
    tables: list[Path]  # .csv
    summary: dict[str, Any] = field(repr=False)  # what `--json` prints


def report(
    *runs: str | Path,
    out: str | Path | None = None,
    threshold: float | Mapping[str, float] | None = None,
    labels: Mapping[str, str | Path] | None = None,
    title: str | None = None,
    metric: str = RETURN,
) -> Report:
    """Compare runs and write a report.

    `runs`: run directories, folders with runs, or the folder of a study. Only runs that have ended are part of it; the
    others are named in it. Runs whose options differ in nothing but seed and environment form one method.

    `out`: the folder of the report. The default is `STUDY/report` for one study, else `report`. The files of an earlier
    report are replaced; other files are left. `threshold`: a return, or one for each environment, for steps and seconds
    to it; default: the return at which runs were told to end. `labels`: label -> folder, for the runs in it.

    `title`: heading of the page. `metric`: a key of `metrics.jsonl`, such as `episode/is_success`, which curves, scores
    and thresholds show in place of the mean return.

    Raises `UserError` if no run can be used, or for an invalid option."""
    if isinstance(threshold, Mapping):
        given = [f"{env}={goal}" for env, goal in threshold.items()]
    else:
        given = [] if threshold is None else [str(threshold)]
    named = {label: Path(path) for label, path in (labels or {}).items()}
    where = None if out is None else Path(out)
    return write(list(map(Path, runs)), out=where, thresholds=given, labels=named, title=title, metric=metric)


def write(
    paths: Sequence[Path],
    *,
    out: Path | None,
    thresholds: Sequence[str],
    labels: Mapping[str, Path],
    title: str | None = None,
    metric: str = RETURN,
    tell: Callable[[str], None] = lambda text: None,
) -> Report:
    """The same, with thresholds as on the command line. `tell`: called with a line while a search is slow."""
    if not paths and not labels:
        raise UserError("no runs; give run directories, folders with runs, or a study's folder")
    folder = _folder(paths, out)
    comparison = compare(*load(sources(paths, labels, tell), metric), metric)
    goals = measures.thresholds(comparison, thresholds)
    scores = measures.scores(comparison)
    numbers = summary(comparison, scores, goals, title)
    means, profiles = curves(comparison), profiles_of(comparison, scores)
    from gossamer.reporting import figures, style  # matplotlib takes a second
    from gossamer.reporting.documents import markdown, page
    from gossamer.reporting.tables import tables

    drawn = figures.draw(comparison, scores, numbers, means=means, profiles=profiles)
    texts = tables(numbers)
    contents: dict[str, Content] = {PAGE: page(numbers, texts, drawn), MARKDOWN: markdown(numbers, texts, drawn)}
    contents |= {f"{name}.csv": to_csv(rows) for name, rows in data(numbers, means, profiles).items()}
    contents |= {f"{each.name}.{k}": partial(style.save, each.figure) for each in drawn for k in ("png", "pdf")}
    return _written(folder, contents, numbers)


def curves(comparison: Comparison) -> list[MeanCurve]:
    """The mean curves of all methods, of each environment and over environments."""
    means = list[MeanCurve]()
    for env in comparison.envs:
        for method, _ in comparison.groups(env):
            by_steps = measures.mean_curve(env, method, "steps")
            by_seconds = measures.mean_curve(env, method, "seconds")
            means += [by_steps, measures.in_frames(by_steps, method), by_seconds]
    over = measures.aggregated_envs(comparison)
    return means + [measures.aggregated_curve(comparison, method, over) for method in comparison.methods if over]


def _folder(paths: Sequence[Path], out: Path | None) -> Path:
    """The folder to write to. Raises `UserError` where files are in the way that are not a report's."""
    if out is None:
        out = paths[0] / "report" if len(paths) == 1 and is_study(paths[0]) else Path("report")
    if out.exists() and not out.is_dir():
        raise UserError(f"--out {out}: is a file; give a folder")
    there = [name for name in FILES if (out / name).exists()]
    if is_run(out) or (there and PAGE not in there):
        what = "is a run directory" if is_run(out) else f"has {listed(there)} and no {PAGE}"
        raise UserError(f"--out {out}: {what}; give another folder")
    return out


def _written(folder: Path, contents: Mapping[str, Content], summary: dict[str, Any]) -> Report:
    """Write the files, and remove those of an earlier report that this one does not have. Raises `UserError` where the
    folder cannot be written."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in contents.items():
            atomic_write(folder / name, content)
        for name in set(FILES) - contents.keys():
            (folder / name).unlink(missing_ok=True)
    except OSError as error:
        raise UserError(f"--out {folder}: cannot be written ({error.strerror}); give another folder") from error
    paths = [folder / name for name in contents]
    figures = [path for path in paths if path.suffix in (".png", ".pdf")]
    tables = [path for path in paths if path.suffix == ".csv"]
    return Report(folder, folder / PAGE, folder / MARKDOWN, figures, tables, summary)
