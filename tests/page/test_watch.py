"""The command `watch`, and training with `--page`."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
from some_pages import write_run
from some_runs import has_begun, start, wait_until

from gossamer import commands
from gossamer.config.command_line import settled
from gossamer.system.errors import UserError


def test_a_run_is_saved_as_one_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_run(tmp_path / "runs" / "one", 5, result=True)
    commands.run("watch", [str(tmp_path / "runs"), "--save", str(tmp_path / "page.html")])
    assert re.fullmatch(r".*page\.html: 1 run, \d+ kB\n", capsys.readouterr().out)
    html = (tmp_path / "page.html").read_text()
    data = json.loads(html.split('id="data">')[1].split("</script>")[0])
    assert data["runs"]["changed"][0]["state"] == "ended"
    assert data["run"][0]["rows"]["columns"]["steps"] == [10, 20, 30, 40, 50]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nowhere"], "nowhere: no such directory"),
        ([".", "--port", "0"], "--port 0: must be at least 1 and at most 65,535"),
        ([".", "--host", "no such host"], "--host no such host: not an address of this machine"),
        ([".", "--save", "page.txt"], r"--save page\.txt: must end in \.html"),
        ([".", "--save", "nowhere/page.html"], "--save nowhere/page.html: there is no directory nowhere"),
        ([".", "--save", "page.html"], r"\.: no run directory in it"),
        ([".", "--save", "page.html", "--port", "7000"], "--port: has no effect with --save"),
        ([".", "--save", "page.html", "--open"], "--open: has no effect with --save"),
    ],
)
def test_what_cannot_be_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=message):
        commands.run("watch", words)


def test_a_file_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    write_run(tmp_path / "runs" / "one", 5)
    (tmp_path / "taken.html").mkdir()
    with pytest.raises(UserError, match=r"--save .*taken\.html: cannot be written \(Is a directory\)"):
        commands.run("watch", [str(tmp_path / "runs"), "--save", str(tmp_path / "taken.html")])


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["Ctrl-C", "SIGTERM"])
def test_it_serves_until_a_signal(tmp_path: Path, number: signal.Signals) -> None:
    write_run(tmp_path / "one")
    process = start("watch", tmp_path, "--port", "6300")
    assert process.stdout is not None
    lines = iter(process.stdout.readline, "")
    address = next(found[0] for line in lines if (found := re.search(r"http://127\.0\.0\.1:\d+/", line)))
    with urllib.request.urlopen(address, timeout=60) as answer:
        assert b"<title>Gossamer</title>" in answer.read()
    process.send_signal(number)
    _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (0, "")


def test_watching_loads_no_torch() -> None:
    """So that the page is there at once."""
    program = "import sys, gossamer.page.server; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", program], check=True, env={**os.environ})


def test_a_training_serves_its_page_until_it_ends(tmp_path: Path) -> None:
    run = tmp_path / "run"
    process = start("train", "paac", "--env", "catch", "--steps", 10_000_000, "--run-dir", run, "--page", 6320)
    assert process.stderr is not None
    lines = iter(process.stderr.readline, "")
    address = next(
        found[1] for line in lines if (found := re.search(r"live page: (http://127\.0\.0\.1:63\d\d/)", line))
    )
    with urllib.request.urlopen(address, timeout=60) as answer:
        assert b"<title>Gossamer</title>" in answer.read()
    with urllib.request.urlopen(f"{address}events?run=.", timeout=60) as events:
        wait_until(lambda: has_begun(run), process)
        process.send_signal(signal.SIGINT)
        content = events.read().decode()
    process.communicate(timeout=60)
    assert '"state":"interrupted"' in content
    assert content.rstrip().splitlines()[-2] == "event: end"
    assert "'page': 6320" in (run / "run.log").read_text()


def test_a_page_without_a_port_has_the_default_one() -> None:
    assert settled(["paac", "--page"]) == ["paac", "--page", "6006"]
    assert settled(["--page", "--env", "pong"]) == ["--page", "6006", "--env", "pong"]
    assert settled(["--page", "7000", "--env", "pong"]) == ["--page", "7000", "--env", "pong"]
    assert settled([]) == []


@pytest.mark.parametrize("port", ["0", "65536"])
def test_a_port_that_cannot_be_is_refused_before_anything_is_written(tmp_path: Path, port: str) -> None:
    words = ["paac", "--env", "catch", "--run-dir", str(tmp_path / "run"), "--page", port]
    with pytest.raises(UserError, match=f"--page {port}: must be at"):
        commands.run("train", words)
    assert not (tmp_path / "run").exists()
