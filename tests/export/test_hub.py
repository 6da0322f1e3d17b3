"""Exports are pushed to a stand-in of the Hugging Face Hub, over HTTP and with its own client."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from some_runs import trained

from gossamer.export import hub
from gossamer.system.errors import UserError

pytest.importorskip("huggingface_hub", reason="needs the extra [hub]")
TOKEN = "hf_" + "x" * 34


class StandIn(ThreadingHTTPServer):
    """The calls of the Hub's API that make a repository and a commit."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self.server_port}"
        self.calls: list[tuple[str, str | None]] = []  # path and token
        self.files: dict[str, bytes] = {}

    def answer(self, path: str, body: bytes) -> tuple[int, dict[str, Any]]:
        if self.calls[-1][1] != f"Bearer {TOKEN}":
            return 401, {"error": "Invalid username or password."}
        if path == "/api/repos/create":
            asked = json.loads(body)
            return 200, {"url": f"{self.address}/{asked['organization']}/{asked['name']}"}
        if "/preupload/" in path:
            asked = json.loads(body)["files"]
            return 200, {"files": [{"path": f["path"], "uploadMode": "regular", "shouldIgnore": False} for f in asked]}
        if "/commit/" in path:
            for line in map(json.loads, body.splitlines()):
                if line["key"] == "file":
                    self.files[line["value"]["path"]] = base64.b64decode(line["value"]["content"])
                elif line["key"] == "deletedFile":
                    del self.files[line["value"]["path"]]
            return 200, {"commitUrl": f"{self.address}/ada/walker/commit/{'0' * 40}", "commitOid": "0" * 40}
        return 200, {"errors": [], "warnings": []}  # of the card's metadata


class Handler(BaseHTTPRequestHandler):
    server: StandIn

    def do_POST(self) -> None:
        self.server.calls.append((self.path, self.headers.get("Authorization")))
        if self.headers.get("Transfer-Encoding") == "chunked":
            body = b""
            while size := int(self.rfile.readline(), 16):
                body += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
        else:
            body = self.rfile.read(int(self.headers["Content-Length"]))
        self._answer(*self.server.answer(self.path.partition("?")[0], body))

    def do_GET(self) -> None:
        """What is in the repository."""
        there = [{"type": "file", "path": path, "size": 1, "oid": "0" * 40} for path in self.server.files]
        self._answer(200, there if "/tree/" in self.path else {"id": "ada/walker", "sha": "0" * 40, "siblings": []})

    def _answer(self, status: int, content: Any) -> None:
        answer = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, format: str, *args: Any) -> None:
        pass


@contextmanager
def standing_in() -> Iterator[StandIn]:
    server = StandIn()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()


def export(run: Path, out: Path, address: str, token: str) -> subprocess.CompletedProcess[str]:
    words = ["export", str(run), "--out", str(out), "--push", "ada/walker"]
    env = {
        **os.environ,
        "HF_ENDPOINT": address,
        "HF_TOKEN": token,
        "HF_HOME": str(out.parent),
        "HF_HUB_DISABLE_XET": "1",
    }
    return subprocess.run(
        [sys.executable, "-m", "gossamer.cli", *words], env=env, capture_output=True, text=True, check=False
    )


def test_an_export_is_pushed_and_what_the_hub_refuses_is_one_line(tmp_path: Path) -> None:
    run = trained(tmp_path / "run").directory
    with standing_in() as server:
        server.files["model.onnx"] = b"of an earlier export"
        done = export(run, tmp_path / "out", server.address, TOKEN)
        assert done.returncode == 0, done.stderr
        assert done.stdout.splitlines()[-1] == f"pushed to {server.address}/ada/walker"
        written = {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()}
        assert server.files == written
        assert {"README.md", "config.json", "model.safetensors"} <= written.keys()
        refused = export(run, tmp_path / "again", server.address, "hf_another")
    assert refused.returncode == 2
    (line,) = refused.stderr.splitlines()
    assert line.startswith("gossamer: --push ada/walker: ")
    assert "401" in line
    assert line.endswith(f"the export is in {tmp_path / 'again'} (log in with `hf auth login`?)")


@pytest.mark.parametrize("name", ["a/b/c", "ada/walk er", "-x"])
def test_a_name_that_cannot_be_is_refused_before_anything_is_written(name: str) -> None:
    with pytest.raises(UserError, match=f"^--push {name}: give USER/NAME"):
        hub.check_push(name)


def test_the_package_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub, "find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"--push ada/walker: needs huggingface_hub; run .*\[hub\]"):
        hub.check_push("ada/walker")
