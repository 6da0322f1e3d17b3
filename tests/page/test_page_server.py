"""What the server tells a browser, and what it refuses."""

from __future__ import annotations

import gzip
import json
import re
import socket
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from some_pages import Listener, add_rows, ask, bind, served, write_run, write_status

from gossamer.page import server as server_module
from gossamer.page.document import page
from gossamer.page.server import PageServer, serving
from gossamer.storage import searches
from gossamer.storage.searches import TrialRecord
from gossamer.system.errors import UserError

LARGEST = 150_000  # bytes of the page


def test_the_page_is_one_small_file_that_loads_nothing(tmp_path: Path) -> None:
    with served(tmp_path) as server:
        status, headers, body = ask(server, "/")
        packed = ask(server, "/", Accept_Encoding="gzip")
    html = body.decode()
    assert (status, headers["Content-Type"]) == (200, "text/html; charset=utf-8")
    assert len(body) <= LARGEST
    assert gzip.decompress(packed[2]) == body
    assert len(packed[2]) < len(body) / 2
    assert "The MIT License (MIT)" in html
    assert "Copyright (c) 2022 Leon Sorokin" in html
    assert not re.findall(r"""(?:src|href)=["'](?:https?:)?//""", html)
    assert not re.search(r"@\w+@", html)  # every part is in its place


def test_the_policy_allows_this_script_and_style_alone(tmp_path: Path) -> None:
    with served(tmp_path) as server:
        _, headers, _ = ask(server, "/")
    policy = headers["Content-Security-Policy"]
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy
    assert headers["X-Content-Type-Options"] == "nosniff"


def test_events_begin_with_all_runs_and_go_on_with_what_is_new(tmp_path: Path) -> None:
    one, _ = write_run(tmp_path / "one", activity="", members=[]), write_run(tmp_path / "two")
    with served(tmp_path) as server:
        browser = Listener(server, "run=one")
        _, runs = browser.next("runs")
        assert runs["reset"]
        assert [(run["key"], run["steps"]) for run in runs["changed"]] == [("one", 30), ("two", 30)]
        _, first = browser.next("run")
        assert (first["key"], first["reset"], first["rows"]["columns"]["steps"]) == ("one", True, [10, 20, 30])
        add_rows(one, 40, 50)
        write_status(one, members=[{"name": "m", "up": False}])
        rows, status = list[int](), dict[str, Any]()
        while rows != [40, 50] or not status.get("members"):
            _, more = browser.next("run")
            assert not more["reset"]
            rows += more["rows"]["columns"].get("steps", [])
            status = more.get("status", status)
        assert status["members"] == [{"name": "m", "up": False}]
        browser.close()


def test_a_browser_that_comes_back_is_told_only_what_it_missed(tmp_path: Path) -> None:
    directory = write_run(tmp_path / "one")
    with served(tmp_path) as server:
        browser = Listener(server, "run=one")
        browser.next("run")
        browser.close()
        add_rows(directory, 40, 40)
        again = Listener(server, "run=one", Last_Event_ID=browser.id)
        _, news = again.next("run")
        assert (news["reset"], news["rows"]["from"], news["rows"]["columns"]["steps"]) == (False, 3, [40])
        again.close()
    with served(tmp_path) as server:  # it has restarted: what it told before is not known any more
        again = Listener(server, "run=one", Last_Event_ID=browser.id)
        assert again.next("run")[1]["reset"]
        again.close()


def test_a_run_that_comes_and_one_that_goes_are_told(tmp_path: Path) -> None:
    write_run(tmp_path / "one")
    with served(tmp_path) as server:
        browser = Listener(server)
        browser.next("runs")
        write_run(tmp_path / "two")
        _, news = browser.next("runs")
        assert ([run["key"] for run in news["changed"]], news["gone"]) == (["two"], [])
        (tmp_path / "one").rename(tmp_path.parent / f"{tmp_path.name}-moved")
        assert browser.next("runs")[1]["gone"] == ["one"]
        browser.close()


def test_searches_are_told_when_they_change(tmp_path: Path) -> None:
    write_run(tmp_path / "s" / "trial-0" / "catch" / "seed-1")
    definition = {"composition": "paac", "env": "catch", "seeds": [1]}
    trial = TrialRecord(0, "running", {"gamma": 0.9}, None, "trial-0/catch", "gossamer train paac")
    searches.write(tmp_path / "s", definition, [trial])
    with served(tmp_path) as server:
        browser = Listener(server)
        _, news = browser.next("searches")
        assert news["s"]["trials"][0]["options"] == {"gamma": 0.9}
        (tmp_path / "s" / "search.json").write_text('{"format": 1, "definition": {}, "trials": [{"number": 0}]}')
        assert browser.next("searches")[1] == {}  # damaged
        searches.write(tmp_path / "s", definition, [replace(trial, state="finished", value=1.5)])
        assert browser.next("searches")[1]["s"]["trials"][0]["value"] == 1.5
        browser.close()


def test_the_end_of_the_server_is_told_with_what_came_last(tmp_path: Path) -> None:
    directory = write_run(tmp_path / "one")
    with served(tmp_path) as server:
        browser = Listener(server, "run=one")
        browser.next("run")
        (directory / "result.json").write_text(json.dumps({"ended": "all steps done", "steps": 30, "short": 0}))
        server.shutdown()
        server.server_close()
        assert browser.next("run")[1]["result"]["ended"] == "all steps done"
        assert browser.next("end") == ("end", {})
        browser.close()


@pytest.mark.parametrize("host", ["evil.example", "evil.example:6006", "127.0.0.1.evil.example", "", "localhost.evil"])
@pytest.mark.parametrize("path", ["/", "/events"])
def test_another_name_is_refused(tmp_path: Path, host: str, path: str) -> None:
    """DNS rebinding: a browser that was made to send the requests of another site here."""
    with served(tmp_path) as server:
        status, _, body = ask(server, path, Host=host)
    assert status == 421
    assert b"<html" not in body
    assert b"open the address that was printed, or use the IP address of the machine" in body


@pytest.mark.parametrize(("site", "status"), [("cross-site", 403), ("same-site", 403), ("same-origin", 200)])
def test_a_page_of_another_site_gets_no_events_and_starts_no_player(tmp_path: Path, site: str, status: int) -> None:
    with served(tmp_path) as server:
        assert ask(server, "/events?play=.", "HEAD", Sec_Fetch_Site=site)[0] == status
        assert ask(server, "/", Sec_Fetch_Site=site)[0] == 200  # a link to this page


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:1", "127.0.0.1:9999", "[::1]:6006"])
def test_names_of_this_machine_are_fine(tmp_path: Path, host: str) -> None:
    with served(tmp_path) as server:
        assert ask(server, "/", Host=host)[0] == 200


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT", "PROPFIND"])
def test_nothing_can_be_written(tmp_path: Path, method: str) -> None:
    with served(tmp_path) as server:
        status, headers, _ = ask(server, "/", method)
    assert (status, headers["Allow"]) == (405, "GET, HEAD")


def test_head_has_no_body(tmp_path: Path) -> None:
    with served(tmp_path) as server:
        status, headers, body = ask(server, "/", "HEAD")
        assert (status, body) == (200, b"")
        assert int(headers["Content-Length"]) > 1000
        assert ask(server, "/events", "HEAD")[0] == 200


PATHS = [
    "/../secret/config.json", "/one/config.json", "/%2e%2e/secret/run.log", "//etc/passwd", "/events/../../etc/passwd",
    "/assets/page.js", "/one/../../secret/run.log", "/.", "/favicon.ico", "/index.html",
]  # fmt: skip


@pytest.mark.parametrize("path", PATHS)
def test_no_path_of_a_request_is_opened(tmp_path: Path, path: str) -> None:
    write_run(tmp_path / "runs" / "one")
    write_run(tmp_path / "secret")
    with served(tmp_path / "runs") as server:
        assert ask(server, path)[0] == 404


@pytest.mark.parametrize("key", ["../secret", "..", "/etc", "link", "one/../../secret", "one%00", "%2e%2e%2fsecret"])
def test_no_run_outside_of_the_folder_is_told_or_played(tmp_path: Path, key: str) -> None:
    write_run(tmp_path / "secret", 77)
    write_run(tmp_path / "runs" / "one")
    (tmp_path / "runs" / "link").symlink_to(tmp_path / "secret")
    with served(tmp_path / "runs") as server:
        browser = Listener(server, f"run={key}&play={key}&run=one")
        assert [run["key"] for run in browser.next("runs")[1]["changed"]] == ["one"]
        assert browser.next("run", "play")[1]["key"] == "one"
        assert not server.players._players
        browser.close()


def test_links_inside_of_a_run_are_not_followed(tmp_path: Path) -> None:
    secret = write_run(tmp_path / "secret", 77, members=["secret"])
    run = write_run(tmp_path / "runs" / "one")
    for name in ("metrics.jsonl", "run.log", "episodes.csv"):
        (run / name).unlink()
    for name in ("metrics.jsonl", "run.log", "episodes.csv", "status.json"):
        (run / name).symlink_to(secret / name)
    with served(tmp_path / "runs") as server:
        browser = Listener(server, "run=one")
        _, told = browser.next("run")
        assert (told["rows"]["columns"], told["log"], told["status"]) == ({}, [], {})
        browser.close()


def test_other_machines_need_the_token(tmp_path: Path) -> None:
    with served(tmp_path, "0.0.0.0") as server:
        token = server.access.token
        assert len(token) >= 32
        assert server.access.address.endswith(f":{server.access.port}/?token={token}")
        for path in ("/", "/events", "/?token=", f"/?token={token[:-1]}", f"/?token={token}x", "/?token=%ff"):
            assert ask(server, path)[0] == 401
        assert b"a new one after each start" in ask(server, "/")[2]
        status, headers, _ = ask(server, f"/?token={token}")
        assert (status, headers["Location"]) == (303, "/")
        cookie = headers["Set-Cookie"]
        assert "HttpOnly" in cookie
        assert "SameSite=Strict" in cookie
        assert ask(server, "/", Cookie=cookie.split(";")[0])[0] == 200
        assert ask(server, "/", Cookie=f"gossamer-{server.access.port}=wrong")[0] == 401
        mine = cookie.split(";")[0]
        assert ask(server, "/", Cookie=f'a b=1; other={{"x": 1}}; {mine}; na[me]=2')[0] == 200  # others on this host
        assert ask(server, "/", Cookie="gossamer-1=" + token)[0] == 401  # the cookie of another server
        assert ask(server, "/", Host="evil.example", Cookie=cookie.split(";")[0])[0] == 421
        assert ask(server, "/", Host=socket.gethostname(), Cookie=cookie.split(";")[0])[0] == 200


def test_the_loopback_address_needs_no_token(tmp_path: Path) -> None:
    with served(tmp_path) as server:
        assert server.access.token == ""
        assert server.access.address == f"http://127.0.0.1:{server.access.port}/"


def test_browsers_are_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "STREAMS", 2)
    with served(tmp_path) as server:
        browsers = [Listener(server) for _ in range(2)]
        assert [browser.status for browser in browsers] == [200, 200]
        assert ask(server, "/events")[0] == 503
        assert ask(server, "/")[0] == 200
        for browser in browsers:
            browser.close()


def test_a_port_that_is_taken_is_passed_over(tmp_path: Path) -> None:
    notes = list[str]()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        server = bind(tmp_path, "127.0.0.1", port, notes.append)
        server.server_close()
    assert server.access.port > port
    assert notes == [
        f"port {port} cannot be used (Address already in use): serving at port {server.access.port} instead"
    ]


def test_an_address_of_another_machine_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"--host 192\.0\.2\.1: not an address of this machine"):
        bind(tmp_path, "192.0.2.1", 6006, print)


def test_without_a_port_nothing_is_served(tmp_path: Path) -> None:
    notes = list[str]()
    with serving(tmp_path, None, notes.append):
        pass
    assert notes == []


def test_data_cannot_end_the_script_that_holds_them() -> None:
    html = page({"log": "</script><script>alert(1)</script>", "number": float("nan")})
    held = html.split('id="data">')[1].split("</script>")[0]
    assert json.loads(held) == {"log": "</script><script>alert(1)</script>", "number": None}


def test_an_error_of_a_request_is_shown_but_not_a_browser_that_left(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server = PageServer(tmp_path, "127.0.0.1", 0)
    for error, shown in ((BrokenPipeError(), False), (RuntimeError("a mistake"), True)):
        try:
            raise error
        except type(error):
            server.handle_error(None, ("127.0.0.1", 1))
        assert ("a mistake" in capsys.readouterr().err) == shown
    server.server_close()
