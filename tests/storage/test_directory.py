"""Run directories: new ones never collide, runs are recognised, and only what a run wrote is ever removed."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path
from typing import Any

import pytest
from some_runs import QUICK, has_begun, rows, start, trained, wait_until

import gossamer
from gossamer.config.config import Config
from gossamer.config.resolve import configure
from gossamer.storage import directory as module
from gossamer.storage.contents import clear, is_run, survey
from gossamer.storage.directory import prepared
from gossamer.system.errors import DirectoryInUse, UserError

FORMAT_1 = Path(__file__).parents[1] / "data" / "format_1"


def settings(**given: Any) -> Config:
    return configure("paac", **{**QUICK, **given})


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def some_run(folder: Path) -> Path:
    """What looks like a finished run."""
    folder.mkdir()
    (folder / "config.json").write_bytes((FORMAT_1 / "paac" / "config.json").read_bytes())
    (folder / "metrics.jsonl").write_text('{"steps": 80}\n')
    checkpoint = folder / "checkpoints" / "step_000000000080"
    checkpoint.mkdir(parents=True)
    (checkpoint / "manifest.json").write_text("{}")
    return folder


def test_four_runs_of_one_second_have_four_directories(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(module.time, "strftime", lambda _: "20250101-120000")
    together, found = threading.Barrier(4), set[str]()

    def make(seed: int) -> None:
        together.wait()
        with prepared(settings(seed=seed), None, overwrite=False) as lock:
            found.add(str(lock.directory))
            assert json.loads((lock.directory / "config.json").read_text())["run"]["seed"] == seed

    threads = [threading.Thread(target=make, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    name = str(Path("runs/paac-catch-20250101-120000").absolute())
    assert found == {name, f"{name}-2", f"{name}-3", f"{name}-4"}


def test_an_environment_s_name_makes_one_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(module.time, "strftime", lambda _: "1")
    given = settings()
    object.__setattr__(given.env, "name", "ALE/Pong-v5:x")
    with prepared(given, None, overwrite=False) as lock:
        assert lock.directory == Path("runs/paac-ALE-Pong-v5-x-1").absolute()


def test_all_that_a_run_wrote_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    many = {"learners": 2, "run_dir": tmp_path / "run", **QUICK}
    gossamer.train("gala", **many)
    (tmp_path / "run" / "gossip.png").write_bytes(b"")
    gossamer.evaluate(tmp_path / "run", episodes=1)
    gossamer.evaluate(tmp_path / "run", episodes=1, member="1")
    gossamer.record(tmp_path / "run", max_steps=2)
    # left by processes that were killed: today's and those of 0.1.0
    (tmp_path / "run" / ".video.01ab34cd.part.mp4").write_text("")
    (tmp_path / "run" / ".result.json.4711").write_text("")
    for name in (".step_000000000500.01ab34cd.part", ".step_000000000600.4711"):
        (tmp_path / "run" / "checkpoints" / name).mkdir()
        (tmp_path / "run" / "checkpoints" / name / "tensors.safetensors").write_text("")
    found = survey(tmp_path / "run")
    assert found.others == []
    assert {path.name for path in found.files} >= {"gossip.png", "evaluation-plain-1.json", "video.mp4", "run.log"}
    clear(tmp_path / "run")
    assert os.listdir(tmp_path / "run") == ["config.json"]  # the mark of a run, until it is replaced


@pytest.mark.parametrize("name", ["paac", "gala", "pala"])
def test_runs_of_format_1_are_recognised(name: str) -> None:
    assert is_run(FORMAT_1 / name)


def test_what_is_recognised(tmp_path: Path) -> None:
    with prepared(settings(), tmp_path / "run", overwrite=False):
        assert is_run(tmp_path / "run")
    file = tmp_path / "config.json"
    for ours in ('{"gossamer": "0.2.0", "format": 2, "run": {}}', '{"gossamer": "9", "format": 9}'):
        file.write_text(ours)
        assert is_run(tmp_path)
    for other in (
        "",
        "[]",
        "[" * 100_000,  # deeper than Python's parser goes
        "\xff",
        '{"format": 2}',
        '{"gossamer": 1, "format": 2}',
        '{"gossamer": "0.1.0"}',
        '{"architecture": "LlamaForCausalLM", "env": "prod", "steps": 3}',
    ):
        file.write_bytes(other.encode("latin-1"))
        assert not is_run(tmp_path)


def test_another_program_s_config_is_no_run(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text('{"architectures": ["BertModel"]}')
    (tmp_path / "model" / "weights.bin").write_bytes(b"years of work")
    before = files(tmp_path)
    with pytest.raises(
        UserError, match=r"--overwrite: .*model has files and is not a run \(config\.json is missing or"
    ):
        trained(tmp_path / "model", overwrite=True)
    assert files(tmp_path) == before


def test_what_no_run_writes_is_left_and_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = some_run(tmp_path / "run")
    (run / "notes.txt").write_text("mine")
    (run / "checkpoints" / "step_notes").mkdir()
    (run / "checkpoints" / "step_notes" / "a").write_text("mine")
    some_run(run / "another")  # a run within a run
    mine = {name: content for name, content in files(run).items() if content == b"mine" or name.startswith("another")}
    trained(run, overwrite=True)
    assert mine.items() <= files(run).items()
    assert "left in " in (told := capsys.readouterr().err)
    assert ": another, notes.txt, checkpoints/step_notes\n" in told
    assert not (run / "checkpoints" / "step_000000000080" / "a").exists()
    assert len(rows(run)) == 1


@pytest.mark.parametrize("way", ["link to checkpoints", "folder as file", "file in a checkpoint"])
def test_what_is_in_the_way_of_a_new_run_is_refused(tmp_path: Path, way: str) -> None:
    run = some_run(tmp_path / "run")
    if way == "link to checkpoints":
        (run / "checkpoints").rename(tmp_path / "elsewhere")
        (run / "checkpoints").symlink_to(tmp_path / "elsewhere")
    elif way == "folder as file":
        (run / "result.json").mkdir()
    else:
        (run / "checkpoints" / "step_000000000080" / "mine").write_text("mine")
    before = files(tmp_path)
    with pytest.raises(UserError, match=r"--overwrite: .*run has .* where a run has its own files; move it away"):
        trained(run, overwrite=True)
    assert files(tmp_path) == before


def test_the_working_directory_may_be_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    trained(Path("."))
    trained(Path("."), overwrite=True, seed=2)
    assert json.loads((tmp_path / "config.json").read_text())["run"]["seed"] == 2
    assert len(rows(tmp_path)) == 1


def test_a_link_to_a_run_leads_to_the_run(tmp_path: Path) -> None:
    trained(tmp_path / "run")
    (tmp_path / "link").symlink_to("run")
    trained(tmp_path / "link", overwrite=True, seed=2)
    assert (tmp_path / "link").is_symlink()
    assert json.loads((tmp_path / "run" / "config.json").read_text())["run"]["seed"] == 2


def test_a_link_to_nothing_is_refused(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("nowhere")
    with pytest.raises(UserError, match=r"--run-dir .*link: is a link to nowhere, which does not exist"):
        trained(tmp_path / "link")


def test_folders_above_are_made_and_removed_again_where_the_run_cannot_begin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with prepared(settings(), tmp_path / "a" / "b" / "run", overwrite=False):
        pass
    assert (tmp_path / "a" / "b" / "run" / "config.json").is_file()

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(module, "write_json", full)
    with pytest.raises(OSError, match="No space"), prepared(settings(), tmp_path / "c" / "d", overwrite=False):
        pass
    assert sorted(os.listdir(tmp_path)) == ["a"]


def test_a_directory_that_waits_for_its_config_is_still_free(tmp_path: Path) -> None:
    # of a process that was killed after it had locked the directory
    (tmp_path / ".lock").write_text("process 1 on nowhere")
    (tmp_path / ".config.01ab34cd.part.json").write_text("{")
    trained(tmp_path)
    assert is_run(tmp_path)


def test_a_run_that_goes_on_is_neither_overwritten_nor_resumed(tmp_path: Path) -> None:
    run = tmp_path / "run"
    process = start("train", "paac", "--env", "catch", "--threads", "1", "--steps", "10000000", "--run-dir", run)
    try:
        wait_until(lambda: has_begun(run), process)
        before = (run / "config.json").read_bytes()
        for begin in (lambda: trained(run, overwrite=True), lambda: gossamer.resume(run, steps=10**8)):
            with pytest.raises(DirectoryInUse, match=f"process {process.pid} on .* is training this run"):
                begin()
        assert (run / "config.json").read_bytes() == before
        with pytest.raises(UserError, match="before its first one"):  # it looks, without the lock
            gossamer.evaluate(run, episodes=1)
    finally:
        process.kill()
        process.communicate()
    trained(run, overwrite=True)
