"""How the command ends."""

from __future__ import annotations

import errno
import subprocess
import sys

import pytest

from gossamer.commands.exits import guarded
from gossamer.system.errors import UserError


def raising(error: BaseException) -> int:
    def command() -> int:
        raise error

    return guarded(command)


@pytest.mark.parametrize(
    ("error", "code", "told"),
    [
        (UserError("--steps 0:\nmust be  more"), 2, "--steps 0: must be more"),
        (OSError(errno.EROFS, "Read-only file system", "run/.lock"), 2, "cannot write (run/.lock): Read-only file"),
        (OSError(errno.ENAMETOOLONG, "File name too long"), 2, "cannot write: File name too long"),
        (KeyboardInterrupt(), 130, "interrupted"),
        (KeyboardInterrupt("ended at once: there is no checkpoint"), 130, "ended at once: there is no checkpoint"),
    ],
)
def test_one_line_and_a_code(error: BaseException, code: int, told: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert raising(error) == code
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"gossamer: {told}")
    assert err.count("\n") == 1


def test_the_code_of_a_command_is_passed_on() -> None:
    assert guarded(lambda: 3) == 3


def test_errors_that_nobody_foresaw_pass() -> None:
    with pytest.raises(OSError, match="Input/output"):
        raising(OSError(errno.EIO, "Input/output error"))


TALKS = """
from gossamer.commands.exits import guarded, leave
def command():
    for _ in range(100_000):
        print("a line that nobody reads")
    return 0
leave(guarded(command))
"""


def test_output_that_nobody_reads_to_its_end_is_no_error() -> None:
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", TALKS], **pipes) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 141


def test_closed_output_is_no_error() -> None:
    program = "from gossamer.commands.exits import guarded, leave; leave(guarded(lambda: 0))"
    words = ["sh", "-c", '"$@" >&-', "sh", sys.executable, "-c", program]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_pipe_that_breaks_elsewhere_is_an_error() -> None:
    with pytest.raises(BrokenPipeError):
        raising(BrokenPipeError(errno.EPIPE, "Broken pipe"))


BUSY = """
import sys, threading, torch
from gossamer.commands.exits import leave
begun = threading.Event()
def work():
    weight = torch.ones(200, 200, requires_grad=True)
    while True:
        (weight @ weight).sum().backward()
        begun.set()
threading.Thread(target=work, name=sys.argv[2], daemon=True).start()
begun.wait()
print("told")
leave(int(sys.argv[1]))
"""


@pytest.mark.parametrize(("code", "thread"), [(130, "act"), (0, "callback Plays")])
def test_threads_in_torch_do_not_abort_the_end(code: int, thread: str) -> None:
    given = [sys.executable, "-c", BUSY, str(code), thread]
    done = subprocess.run(given, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (code, "told\n", "")
