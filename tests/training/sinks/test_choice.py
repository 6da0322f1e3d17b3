"""Names of sinks, their keys, and runs beside sinks that fail."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from some_runs import result, rows, trained
from some_sinks import info

import gossamer
from gossamer.storage import studies
from gossamer.storage.contents import survey
from gossamer.system.errors import UserError
from gossamer.system.installation import install
from gossamer.training.sinks import choice
from gossamer.training.sinks.base import RunInfo
from gossamer.training.sinks.choice import Keys, chosen


@pytest.mark.parametrize(
    ("log", "names"),
    [
        ("tensorboard", ["tensorboard"]),
        ("none", []),
        (" tensorboard, some_sinks:Kept,tensorboard", ["tensorboard", "some_sinks:Kept"]),
    ],
)
def test_names_are_separated_by_commas(log: str, names: list[str]) -> None:
    assert chosen(log) == names


@pytest.mark.parametrize(
    ("log", "message"),
    [
        ("tensorbord", "--log tensorbord: no such log; near: tensorboard; available: tensorboard, wandb, "),
        ("", "--log : no such log; available: "),
        ("none,tensorboard", "--log none,tensorboard: none stands alone"),
        ("some_sinks:Nobody", "--log some_sinks:Nobody: cannot be imported"),
    ],
)
def test_unknown_names_are_refused(log: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        chosen(log)


@pytest.mark.parametrize("folder", [False, True])
def test_a_missing_package_is_named_with_its_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: bool
) -> None:
    """A folder of that name, such as the one that wandb makes for its runs, is no package."""
    if folder:
        (tmp_path / "lacking").mkdir()
        monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(choice.KNOWN, "lacking", "lacking:Sink")
    with pytest.raises(UserError, match=f"--log lacking: not installed; run {re.escape(install('lacking'))}"):
        chosen("lacking")


def test_nothing_is_written_where_a_sink_cannot_be_used(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="--log mine"):
        trained(tmp_path / "run", log="mine")
    assert not (tmp_path / "run").exists()
    run = trained(tmp_path / "run", log="none")
    before = (run.directory / "config.json").read_text()
    with pytest.raises(UserError, match="--log mine"):
        gossamer.resume(run.directory, steps=160, log="mine")
    assert (run.directory / "config.json").read_text() == before


def test_runs_that_differ_in_their_seed_are_one_group(tmp_path: Path) -> None:
    def group(**given: object) -> str:
        return info(tmp_path, anneal_steps=1000, **given).group

    assert group().startswith("paac-a2c-catch-")
    assert group(seed=1) == group(seed=2) == group(log="none", eval_every=10, steps=50)
    assert group(learning_rate=0.1) != group()


def test_a_run_of_a_study_is_named_after_its_path_in_there(tmp_path: Path) -> None:
    place = tmp_path / "paac" / "catch" / "seed-1"
    assert info(place).name == "seed-1"
    studies.write(tmp_path, [])
    assert info(place).name == "paac/catch/seed-1"


def test_a_run_without_sinks_has_its_own_files_alone(tmp_path: Path) -> None:
    run = trained(tmp_path / "run", log="none")
    assert rows(run.directory)
    assert not (run.directory / "tensorboard").exists()
    assert result(run.directory)["log_failures"] == {}


def test_training_goes_on_without_a_sink_that_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = trained(tmp_path / "run", log="some_sinks:Refuses,tensorboard,some_sinks:Loses,some_sinks:Unfinished")
    assert run.result["ended"] == "all steps done"
    assert run.result["log_failures"] == {"some_sinks:Refuses": 1, "some_sinks:Loses": 1, "some_sinks:Unfinished": 1}
    told = "--log some_sinks:Refuses: no such server; training goes on, metrics may be missing there"
    assert told in (run.directory / "run.log").read_text()
    assert told in capsys.readouterr().err
    events = [event for event in result(run.directory)["events"] if event["kind"] == "log_failed"]
    assert {(event["sink"], event["error"]) for event in events} == {
        ("some_sinks:Refuses", "no such server"),
        ("some_sinks:Loses", "too late"),
        ("some_sinks:Unfinished", "no key"),
    }


class Told:
    """Writes what it is told into the run directory."""

    def start(self, run: RunInfo, key: str | None) -> str:
        self.file = run.directory.parent / "told"
        self._tell(f"start {key}")
        return key or "made"

    def write(self, scalars: object, steps: int) -> None:
        self._tell(str(steps))

    def close(self, outcome: str) -> None:
        self._tell(outcome)

    def _tell(self, text: str) -> None:
        with open(self.file, "a") as file:
            file.write(f"{text}\n")


def test_a_resumed_run_continues_in_the_same_sinks_with_their_keys(tmp_path: Path) -> None:
    run = trained(tmp_path / "run", log="test_choice:Told")
    assert json.loads((run.directory / "sinks.json").read_text()) == {"test_choice:Told": "made"}
    gossamer.resume(run.directory, steps=160)
    told = (tmp_path / "told").read_text().split("\n")
    assert [line for line in told if not line.isdigit()] == ["start None", "finished", "start made", "finished", ""]
    assert told[-3] == "160"
    assert survey(run.directory).others == []
    gossamer.resume(run.directory, steps=240, log="none")
    assert len((tmp_path / "told").read_text().split("\n")) == len(told)


def test_sinks_are_told_of_a_run_that_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*given: object) -> None:
        raise RuntimeError("a launcher's")

    monkeypatch.setattr("gossamer.training.experiment.threads", fails)
    with pytest.raises(RuntimeError, match="a launcher's"):
        trained(tmp_path / "run", log="test_choice:Told")
    assert (tmp_path / "told").read_text().split() == ["start", "None", "failed"]


def test_a_damaged_file_of_keys_is_made_anew(tmp_path: Path) -> None:
    (tmp_path / "keys").write_text('{"a": ')
    keys = Keys(tmp_path / "keys")
    assert keys.get("a") is None
    keys.keep("a", "1")
    keys.keep("b", "2")
    again = Keys(tmp_path / "keys")
    assert (again.get("a"), again.get("b")) == ("1", "2")
