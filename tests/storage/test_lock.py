"""A run directory has one writer, and a process that is dead is none."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from gossamer.storage.lock import LOCK, held
from gossamer.system.errors import DirectoryGone, DirectoryInUse

HOLDER = """
import os, sys, time
from pathlib import Path
from gossamer.storage.lock import held
with held(Path(sys.argv[1])):
    if os.fork() == 0:  # a child, as environments have them: it outlives its parent
        print("held", flush=True)
        time.sleep(60)
        os._exit(0)
    sys.stdin.read()
"""


def holder(directory: Path) -> subprocess.Popen[str]:
    """A process that holds the lock until its stdin is closed, with a child that it forked meanwhile."""
    command = [sys.executable, "-c", HOLDER, str(directory)]
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def test_the_second_is_told_which_process_has_it(tmp_path: Path) -> None:
    where = f"process {os.getpid()} on {socket.gethostname()}"
    with held(tmp_path), pytest.raises(DirectoryInUse, match=f"{where} is training this run"), held(tmp_path):
        pass
    with held(tmp_path):  # free again
        pass
    assert os.listdir(tmp_path) == []


def test_a_dead_process_does_not_keep_it_nor_do_its_children(tmp_path: Path) -> None:
    process = holder(tmp_path)
    try:
        with pytest.raises(DirectoryInUse, match=f"process {process.pid} on "), held(tmp_path):
            pass
        process.kill()
        process.wait()
        assert os.listdir(tmp_path) == [LOCK]
        with held(tmp_path):
            assert (tmp_path / LOCK).read_text().startswith(f"process {os.getpid()} on ")
    finally:
        os.killpg(process.pid, 9)  # the child that sleeps on
        process.communicate()


def test_the_holder_is_unknown_where_it_could_not_sign(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "pwrite", full)
    with held(tmp_path), pytest.raises(DirectoryInUse, match="another process is training this run"), held(tmp_path):
        pass


@pytest.mark.parametrize("replaced", [False, True])
def test_a_directory_that_goes_away_is_noticed(tmp_path: Path, replaced: bool) -> None:
    directory = tmp_path / "run"
    directory.mkdir()
    with held(directory) as lock:
        lock.check()
        shutil.rmtree(directory)
        if replaced:
            directory.mkdir()
            (directory / LOCK).write_text("of another run")
        with pytest.raises(DirectoryGone, match=r"run/\.lock is gone: the directory was removed or replaced"):
            lock.check()
    assert not replaced or (directory / LOCK).read_text() == "of another run"


def test_an_error_in_a_directory_that_is_gone_says_so(tmp_path: Path) -> None:
    directory = tmp_path / "run"
    directory.mkdir()
    lock = held(directory)
    lock.__enter__()
    shutil.rmtree(directory)
    missing = FileNotFoundError()
    with pytest.raises(DirectoryGone):
        lock.__exit__(type(missing), missing, None)
    directory.mkdir()
    with pytest.raises(FileNotFoundError), held(directory):
        (directory / "nowhere" / "file").write_text("")


def test_a_lock_that_its_holder_removed_meanwhile_is_not_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real, calls = fcntl.flock, 0

    def late(handle: int, how: int) -> None:
        nonlocal calls
        calls += 1
        if calls == 1:  # between opening and locking, the holder leaves and the next one comes
            (tmp_path / LOCK).unlink()
            (tmp_path / LOCK).write_text("")
        real(handle, how)

    monkeypatch.setattr(fcntl, "flock", late)
    with held(tmp_path) as lock:
        lock.check()
    assert calls == 2


def test_a_file_system_without_locks_is_used_with_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def none(handle: int, how: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", none)
    with held(tmp_path):
        pass
    assert "no locks here (No locks available); start no second run in it" in capsys.readouterr().err
