"""A report as its files, its page and the command."""

from __future__ import annotations

import csv
import json
import re
import shutil
from collections.abc import Callable, Mapping
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path

import pytest
from matplotlib.text import Text
from some_results import episodes, rising, write_run

import gossamer
from gossamer import cli
from gossamer.reporting import lines, measures
from gossamer.reporting import report as reports
from gossamer.reporting.captions import Drawn, intervals, seeds
from gossamer.reporting.comparison import Comparison, compare
from gossamer.reporting.figures import draw
from gossamer.reporting.profiles import profiles as profiles_of
from gossamer.reporting.report import FIGURES
from gossamer.reporting.runs import load, sources
from gossamer.reporting.style import Palette, spread
from gossamer.reporting.summary import summary
from gossamer.reporting.tables import number
from gossamer.storage import studies
from gossamer.storage.studies import PlannedRun
from gossamer.system.errors import UserError

Command = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two methods with three seeds each."""
    folder = tmp_path_factory.mktemp("runs")
    for seed in (1, 2, 3):
        write_run(folder / f"paac-{seed}", rising(0.5 + 0.1 * seed), seed=seed, steps=3_000)
        write_run(folder / f"gala-{seed}", rising(0.2), architecture="gala", learners=2, seed=seed, steps=3_000)
    return folder


@pytest.fixture(scope="module")
def made(runs: Path, tmp_path_factory: pytest.TempPathFactory) -> gossamer.Report:
    return gossamer.report(runs, out=tmp_path_factory.mktemp("out") / "report", threshold=0.4)


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path) -> Command:
    monkeypatch.chdir(tmp_path)

    def run(*words: object) -> tuple[int, str, str]:
        monkeypatch.setattr("sys.argv", ["gossamer", *map(str, words)])
        return cli.main(), *capfd.readouterr()

    return run


class Loads(HTMLParser):
    """Collects what a page would load, and its text."""

    def __init__(self) -> None:
        super().__init__()
        self.sources, self.text, self.open = list[str](), "", list[str]()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.sources += [value or "" for name, value in attrs if name in ("src", "href")]
        if tag not in ("meta", "img"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def test_the_page_loads_nothing_and_says_all(made: gossamer.Report) -> None:
    page = Loads()
    page.feed(made.page.read_text())
    assert page.open == []
    assert page.sources
    assert all(source.startswith("data:image/svg+xml;base64,") for source in page.sources)
    assert "url(" not in made.page.read_text()
    for text in ("3 seeds each", "stratified bootstrap", "Some CPU, 2 cores", "Settings that differ", "Gossamer 0.1.0"):
        assert text in page.text


def test_every_caption_has_the_seeds_and_the_interval(made: gossamer.Report) -> None:
    captions = re.findall(r"<figcaption>(.*?)</figcaption>", made.page.read_text())
    assert len(captions) == len(made.figures) / 2 == 6
    assert all("3 seeds each" in caption for caption in captions)
    assert all("intervals" in caption for caption in captions)


def test_the_files_are_all_there(made: gossamer.Report) -> None:
    names = {path.name for path in made.folder.iterdir()}
    figures = ("curves", "scores", "profiles", "improvement", "thresholds", "speed")
    tables = [f"{name}.csv" for name in reports.TABLES if name != "aggregates"]  # there is one environment
    assert names == {"report.html", "report.md", *tables, *(f"{f}.{k}" for f in figures for k in ("png", "pdf"))}
    assert {path.name for path in (made.page, made.markdown, *made.figures, *made.tables)} == names
    assert all(path.read_bytes()[:4] in (b"\x89PNG", b"%PDF") for path in made.figures)
    assert "| catch | gala a2c | 3 |" in made.markdown.read_text()


def rows_of(made: gossamer.Report, name: str) -> list[dict[str, str]]:
    with open(made.folder / f"{name}.csv") as file:
        return list(csv.DictReader(file))


def test_the_data_are_those_of_the_summary(made: gossamer.Report) -> None:
    rows = rows_of(made, "scores")
    assert [float(row["iqm"]) for row in rows] == [entry["iqm"] for entry in made.summary["scores"]]
    curves = rows_of(made, "curves")
    assert {(row["method"], row["along"]) for row in curves} == {
        (method, along) for method in ("gala a2c", "paac a2c") for along in ("steps", "frames", "seconds")
    }
    last = [row for row in curves if row["method"] == "paac a2c" and row["along"] == "steps"][-1]
    assert float(last["at"]) == 3_000
    assert float(last["iqm"]) == pytest.approx(made.summary["scores"][1]["iqm"])


def test_throughput_settings_and_machines_are_data_too(made: gossamer.Report) -> None:
    for row, entry in zip(rows_of(made, "speed"), made.summary["speed"], strict=True):
        assert row["method"] == entry["method"]
        assert float(row["steps_per_second"]) == entry["steps_per_second"]
        assert {part: float(row[f"share_{part}"]) for part in entry["shares"]} == entry["shares"]
    settings = {(row["option"], row["method"]): row["value"] for row in rows_of(made, "settings")}
    assert settings["architecture", "gala a2c"] == "gala"
    assert settings["learners", "gala a2c"] == "2"
    assert ("learners", "paac a2c") not in settings  # it has no such option
    assert {row["machine"] for row in rows_of(made, "runs")} == set(made.summary["machines"])
    assert {row["version"] for row in rows_of(made, "runs")} == {"0.1.0"}


def test_profiles_are_data_too(made: gossamer.Report) -> None:
    rows = rows_of(made, "profiles")
    assert {(row["env"], row["method"], row["runs"]) for row in rows} == {
        ("catch", "gala a2c", "3"),
        ("catch", "paac a2c", "3"),
    }
    paac = {float(row["score_above"]): row for row in rows if row["method"] == "paac a2c"}
    _, middle, best = sorted(run["score"] for run in made.summary["runs"] if run["method"] == "paac a2c")
    between = [row for score, row in paac.items() if middle < score < best]  # one run of three is above
    assert [float(row["fraction"]) for row in between] == pytest.approx([1 / 3] * len(between))
    assert {(row["fraction_low"], row["fraction_high"]) for row in between} == {("0.0", "1.0")}
    assert len(between) > 10


def test_the_same_runs_give_the_same_files(runs: Path, made: gossamer.Report, tmp_path: Path) -> None:
    again = gossamer.report(runs, out=tmp_path, threshold={"catch": 0.4})
    for name in ("report.html", "curves.csv", "scores.csv", "curves.png", "curves.pdf"):
        assert (again.folder / name).read_bytes() == (made.folder / name).read_bytes()


def test_a_report_replaces_its_own_files_and_leaves_others(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", episodes([0.0] * 5))  # a return that never changes can be drawn
    for name in ("mine.txt", "report.html", "thresholds.png", "improvement.csv"):
        (tmp_path / name).write_text("earlier")
    made = gossamer.report(run, out=tmp_path, threshold=1)
    names = {path.name for path in tmp_path.iterdir()}
    assert {"mine.txt", "report.html", "curves.png"} <= names
    assert names.isdisjoint({"thresholds.png", "improvement.csv"})  # one run that did not get there has neither
    assert "<h1>paac a2c on catch</h1>" in made.page.read_text()
    assert "No intervals: fewer than 3 seeds" in made.markdown.read_text()
    assert "| catch | paac a2c | 1 | 0 of 1 | not reached | not reached |" in made.markdown.read_text()


def test_files_that_are_not_of_a_report_are_in_the_way(runs: Path, tmp_path: Path) -> None:
    (tmp_path / "scores.csv").write_text("mine")
    with pytest.raises(UserError, match=r"--out .*has scores\.csv and no report\.html"):
        gossamer.report(runs, out=tmp_path)
    with pytest.raises(UserError, match=r"--out .*is a run directory"):
        gossamer.report(runs, out=runs / "paac-1")
    with pytest.raises(UserError, match=r"--out .*is a file"):
        gossamer.report(runs, out=tmp_path / "scores.csv")
    assert (tmp_path / "scores.csv").read_text() == "mine"


def test_a_study_has_its_report_in_its_folder(tmp_path: Path, command: Command) -> None:
    write_run(tmp_path / "1", rising(1.0))
    studies.write(tmp_path, [PlannedRun("1", "a <b>", "catch", 1, "paac")])
    code, out, _ = command("report", tmp_path, "--json")
    assert (code, json.loads(out)["methods"]) == (0, {"a <b>": {"catch": 1}})
    assert "a &lt;b&gt; on catch" in (tmp_path / "report" / "report.html").read_text()


def test_several_environments_have_panels_and_aggregates(tmp_path: Path) -> None:
    pytest.importorskip("ale_py", reason="ale-py is not installed (the extra `atari`)")
    for env, frames in (("pong", 4), ("breakout", 4), ("catch", 1)):
        for seed in (1, 2, 3):
            write_run(tmp_path / f"{env}-{seed}", rising(10.0), env=env, seed=seed, frames_per_step=frames)
    write_run(tmp_path / "pong-4", rising(10.0), env="pong", seed=4, frames_per_step=2)  # frames have axes of their own
    made = gossamer.report(tmp_path, out=tmp_path / "out")
    assert {"aggregates.png", "aggregated-curves.pdf", "aggregates.csv"} <= {
        path.name for path in made.folder.iterdir()
    }
    assert "Seeds: paac a2c: 3 on breakout, 3 on catch, 4 on pong" in made.markdown.read_text()


def test_the_command_tells_what_was_left_out_and_where_the_page_is(runs: Path, command: Command) -> None:
    Path("bad").mkdir()
    (Path("bad") / "metrics.jsonl").write_text("")
    code, out, error = command(
        "report", runs / "paac-1", "bad", "--threshold", "0.1", "--label", f"x={runs / 'gala-1'}"
    )
    assert (code, error) == (0, "")
    assert "left out: bad: not a run directory (no config.json)" in out
    assert "Too few seeds for an interval (fewer than 3): paac a2c on catch (1), x on catch (1)." in out
    assert out.endswith("2 runs of 2 methods; open report/report.html\n")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "no runs; give run directories"),
        (("nowhere",), "nowhere: does not exist"),
        (("RUNS", "--threshold", "high"), "--threshold high: must be a return"),
        (("RUNS", "--label", "x"), "--label x: must be LABEL=FOLDER"),
        (("RUNS", "--label", "x=nowhere"), "nowhere: does not exist"),
        (("--label", "x=here", "--label", "x=there"), "--label x=there: the label x names here already"),
        (("--label", "x=here", "--label", "y=./here"), "--label y=here: this folder has the label x already"),
    ],
)
def test_bad_input_is_one_line(runs: Path, command: Command, words: tuple[str, ...], message: str) -> None:
    code, out, error = command("report", *(str(runs) if word == "RUNS" else word for word in words))
    assert (code, out) == (2, "")
    assert error.startswith(f"gossamer: {message}")
    assert error.count("\n") == 1


def test_a_report_without_a_finished_run_is_one_line(runs: Path, tmp_path: Path, command: Command) -> None:
    shutil.copytree(runs / "paac-1", tmp_path / "begun")
    (tmp_path / "begun" / "result.json").unlink()
    code, out, error = command("report", "begun")
    assert (code, out) == (2, "")
    assert error.startswith(
        "gossamer: no run can be used (begun: crashed at 3,000 of 3,000 steps; gossamer resume begun "
    )
    assert error.endswith("); train or resume one first\n")
    assert not Path("report").exists()


def test_no_thresholds_are_those_of_the_runs(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", rising(1.0), result={"stop_at_return": 0.25})
    none, left_out = (gossamer.report(run, out=tmp_path / str(given), threshold=given) for given in ({}, None))
    assert none.summary["thresholds"] == left_out.summary["thresholds"]
    assert [entry["threshold"] for entry in none.summary["thresholds"]] == [0.25]


def test_a_threshold_that_no_run_reached_is_told(runs: Path, command: Command) -> None:
    code, out, _ = command("report", runs, "--threshold", "50")
    assert code == 0
    assert "catch: no run reached a mean return of 50 over 100 training episodes.\n" in out
    _, out, _ = command("report", runs, "--threshold", "0.4")
    assert "no run reached" not in out


@pytest.mark.parametrize(("goal", "dotted"), [(50.0, 0), (0.7, 2), (1.0, 2), (-9.0, 0)])
def test_a_threshold_far_away_does_not_flatten_the_curves(runs: Path, goal: float, dotted: int) -> None:
    found = compare(*load(sources([runs], {})))
    content = summary(found, measures.scores(found), {"catch": goal})
    drawn = lines.curves(found, content, reports.curves(found), Palette(list(content["methods"])))
    panels = [axes for axes in drawn.figure.axes if axes.lines]
    assert sum(line.get_linestyle() == ":" for axes in panels for line in axes.lines) == dotted
    assert all(-0.5 < low < high < 1.5 for low, high in (axes.get_ylim() for axes in panels))


def test_a_folder_that_cannot_be_written_is_one_line(runs: Path, tmp_path: Path, command: Command) -> None:
    (tmp_path / "file").touch()
    code, out, error = command("report", runs, "--out", "file/report")
    assert (code, out) == (2, "")
    assert error == "gossamer: --out file/report: cannot be written (Not a directory); give another folder\n"


def drawn_of(found: Comparison, goals: Mapping[str, float] | None = None) -> list[Drawn]:
    scores = measures.scores(found)
    entries, profiles = summary(found, scores, goals or {}), profiles_of(found, scores)
    return draw(found, scores, entries, means=reports.curves(found), profiles=profiles)


@pytest.mark.filterwarnings("error")
def test_long_labels_stay_inside_the_figures_and_apart(tmp_path: Path) -> None:
    for method, rate in enumerate((3e-4, 1e-3)):
        for env in ("pong", "breakout"):
            for seed in (1, 2, 3):
                given = {"env": env, "seed": seed, "learning_rate": rate, "entropy_coef": rate, "algorithm": "a2c"}
                write_run(tmp_path / f"{method}-{env}-{seed}", rising(1.0 + method), **given)
    found = compare(*load(sources([tmp_path], {})))
    assert max(len(method.label) for method in found.methods) > 45
    drawn = drawn_of(found, {"pong": 0.5, "breakout": 0.5})
    assert [each.name for each in drawn] == list(FIGURES)
    for each in drawn:
        width, height = each.figure.get_size_inches() * each.figure.dpi
        for axes in each.figure.axes:
            low, high = sorted(axes.get_ylim())
            shown = [tick.label1 for tick in axes.yaxis.get_major_ticks() if low <= tick.get_loc() <= high]
            for text in filter(Text.get_text, [*shown, axes.xaxis.label, axes.yaxis.label, *axes.texts]):
                box = text.get_window_extent()
                assert -1 <= box.x0 <= box.x1 <= width + 1, (each.name, text.get_text())
                assert -1 <= box.y0 <= box.y1 <= height + 1, (each.name, text.get_text())
            ticks = [tick.get_window_extent() for tick in axes.get_xticklabels() if tick.get_text()]
            ticks.sort(key=lambda box: float(box.x0))
            assert all(one.x1 < other.x0 for one, other in pairwise(ticks)), each.name


def test_captions_over_environments_have_the_seeds_that_are_used(tmp_path: Path) -> None:
    for env, number_of_seeds in (("pong", 5), ("breakout", 3)):
        for seed in range(number_of_seeds):
            write_run(tmp_path / f"{env}-{seed}", rising(1.0), env=env, seed=seed)
    found = compare(*load(sources([tmp_path], {})))
    drawn = drawn_of(found)
    captions = {each.name: each.caption for each in drawn}
    for name in ("aggregates", "aggregated-curves", "profiles"):
        assert captions[name].endswith(" 3 seeds."), captions[name]
    assert captions["scores"].endswith(" Seeds: paac a2c: 3 on breakout, 5 on pong."), captions["scores"]


def test_the_caption_of_improvement_has_the_seeds_that_pairs_use(tmp_path: Path) -> None:
    for architecture in ("paac", "gala"):
        for env, number_of_seeds in (("pong", 5), ("breakout", 3)):
            for seed in range(number_of_seeds):
                write_run(
                    tmp_path / f"{architecture}-{env}-{seed}",
                    rising(1.0),
                    architecture=architecture,
                    env=env,
                    seed=seed,
                )
    found = compare(*load(sources([tmp_path], {})))
    drawn = drawn_of(found)
    (caption,) = [each.caption for each in drawn if each.name == "improvement"]
    assert caption.endswith(" 3 seeds each."), caption


def test_captions_say_where_a_method_has_no_runs(tmp_path: Path) -> None:
    for seed in (1, 2, 3):
        write_run(tmp_path / f"paac-{seed}", rising(1.0), env="catch", seed=seed)
        write_run(tmp_path / f"gala-{seed}", rising(1.0), architecture="gala", env="catch", seed=seed)
        write_run(tmp_path / f"only-{seed}", rising(1.0), env="identity", seed=seed)
    found = compare(*load(sources([tmp_path], {})))
    entries = summary(found, measures.scores(found), {})
    assert seeds(entries) == "Seeds: gala a2c: 3 on catch, none on identity; paac a2c: 3"
    assert intervals(entries, "bars").startswith("bars: 95 %")


def test_labels_that_would_overlap_are_moved_apart_around_their_mean() -> None:
    assert spread([0.5, 0.1, 0.9], 0.1) == [0.5, 0.1, 0.9]
    assert spread([0.50, 0.52], 0.1) == pytest.approx([0.46, 0.56])
    assert spread([0.3, 0.1, 0.2], 0.2) == pytest.approx([0.4, 0.0, 0.2])
    assert spread([0.45, 0.5, 0.25], 0.2) == pytest.approx([0.4, 0.6, 0.2])  # the pair moves onto the third


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "–"),
        (0.0, "0"),
        (20.0, "20.0"),
        (-0.6, "-0.600"),
        (128.0, "128"),
        (7, "7"),
        (0.0123456, "0.0123"),
        (-20.654, "-20.7"),
        (1234567.8, "1,234,568"),
        (404_000, "404,000"),
        (999.6, "1,000"),
        (-999.4, "-999"),
        (99.96, "100"),
    ],
)
def test_numbers_have_three_digits_or_all_before_the_point(value: float | None, text: str) -> None:
    assert number(value) == text


def test_the_function_is_there_after_its_module_is_loaded() -> None:
    assert gossamer.report is reports.report


def test_another_metric_and_a_title(tmp_path: Path, command: Command) -> None:
    # Pong has scores of humans and papers, which say nothing of a success rate: 0.25 in the first row, 0.5 + seed / 10
    for seed in (1, 2, 3):
        run = write_run(tmp_path / f"runs/{seed}", rising(-3.0), env="pong", seed=seed, steps=3_000)
        rows = [
            {"steps": steps, "seconds": steps / 20, "episodes": steps // 10, "mean_return": -3.0, "episode/win": win}
            for steps, win in ((10, None), (1_500, 0.25), (3_000, 0.5 + seed / 10))
        ]
        (run / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    write_run(tmp_path / "runs/4", rising(0.1), env="pong", seed=4, steps=3_000)
    code, _, told = command("report", "runs", "--metric", "episode/wins")
    assert (code, told.count("\n")) == (2, 1)
    assert "--metric episode/wins: no run has it; near: episode/win, episodes; there are episode/win, ep" in told
    words = ("runs", "--metric", "episode/win", "--threshold", "0.7", "--title", "Wins & losses")
    code, out, _ = command("report", *words)
    assert code == 0
    assert "left out: runs/4: no row has episode/win" in out
    assert "3 runs of 1 method; open report/report.html" in out
    page = (tmp_path / "report" / "report.html").read_text()
    assert "<h1>Wins &amp; losses</h1>" in page
    assert "episode/win at the end of the shortest run" in page
    assert "human" not in page
    assert "mean return" not in page.lower()
    found = json.loads(command("report", *words, "--json")[1])
    (scores,) = found["scores"]
    assert (scores["mean"], scores["min"], scores["max"]) == (pytest.approx(0.7), 0.6, 0.8)
    (goal,) = found["thresholds"]
    assert (goal["reached"], goal["steps_of_runs"]) == (2, [None, 3_000, 3_000])  # 0.6, 0.7 and 0.8 at the end
    assert (found["published"], found["aggregates"], found["human_source"]) == (None, [], None)
