"""Serves the page of a folder of runs: GET and HEAD only, nothing can be written, no path is ever made of a request."""

from __future__ import annotations

import errno
import gzip
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import cached_property
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import cast
from urllib.parse import parse_qs, urlsplit

from gossamer.page.access import Access
from gossamer.page.document import page, policy
from gossamer.page.folder import Folder
from gossamer.page.player import Players
from gossamer.page.stream import Stream
from gossamer.system.errors import UserError

HOST = "127.0.0.1"
TRIES = 32  # ports, one after the other, where the first is taken
STREAMS = 32  # browsers at one time
SHOWN = 24  # runs that one browser may show in detail at one time
GOODBYE_SECONDS = 5.0  # that browsers are given to hear how a training ended
METHODS = ("GET", "HEAD")
OTHER_SITES = ("cross-site", "same-site")  # of a request that a page of another origin makes: it could start a player
NO_TOKEN = b"open the address that was printed: it has a token, a new one after each start\n"
NO_NAME = b"unknown host name: open the address that was printed, or use the IP address of the machine in it\n"
HEADERS = {
    "Content-Security-Policy": policy() + "; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class PageServer(ThreadingHTTPServer):
    """A server with a thread for each browser, and one thread that reads the files while a browser is connected."""

    daemon_threads = True
    block_on_close = False

    def __init__(self, folder: Path, host: str, port: int) -> None:
        """Raises `OSError` where the address cannot be used."""
        self.folder = Folder(folder)
        self.players = Players(self.folder.changed)
        self.streaming = 0  # browsers that events are sent to
        self._count = threading.Lock()
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        super().__init__((host, port), Handler)
        self.access = Access.to(host, self.server_address[1])

    @cached_property
    def html(self) -> bytes:
        return page().encode()

    @cached_property
    def compressed(self) -> bytes:
        return gzip.compress(self.html, 6)

    def server_close(self) -> None:
        """Tell browsers that it ends, and end the processes that play."""
        self.folder.close()
        self.players.close()
        super().server_close()
        until = time.monotonic() + GOODBYE_SECONDS
        while self.streaming and time.monotonic() < until:
            time.sleep(0.01)

    @contextmanager
    def counted(self) -> Iterator[bool]:
        """Yields whether one more browser may be sent events."""
        with self._count:
            allowed = self.streaming < STREAMS
            self.streaming += allowed
        try:
            yield allowed
        finally:
            with self._count:
                self.streaming -= allowed

    def handle_error(self, request: object, client_address: object) -> None:
        """A browser that has gone is no error; others keep their traceback."""
        if not isinstance(sys.exc_info()[1], ConnectionError | TimeoutError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]  # typeshed: a socket


class Handler(BaseHTTPRequestHandler):
    """One request."""

    protocol_version = "HTTP/1.1"
    server_version, sys_version = "gossamer", ""
    timeout = 30  # seconds that a browser may be silent

    @property
    def _page(self) -> PageServer:
        return cast(PageServer, self.server)

    def do_GET(self) -> None:
        self._answer(body=True)

    def do_HEAD(self) -> None:
        self._answer(body=False)

    def parse_request(self) -> bool:
        """Refuse all other methods."""
        if not super().parse_request():
            return False
        if self.command not in METHODS:
            allowed = {"Allow": ", ".join(METHODS), "Connection": "close"}
            self._send(HTTPStatus.METHOD_NOT_ALLOWED, b"only GET and HEAD\n", allowed)
            return False
        return True

    def _answer(self, *, body: bool) -> None:
        try:
            access, url = self._page.access, urlsplit(self.path)
        except ValueError:
            self._send(HTTPStatus.BAD_REQUEST, b"that is no address\n", body=body)
            return
        query = parse_qs(url.query)
        if not access.names(self.headers.get("Host")):
            self._send(HTTPStatus.MISDIRECTED_REQUEST, NO_NAME, body=body)
            return
        known = access.knows(query.get("token", [""])[0], self.headers.get("Cookie", ""))
        if known == "no":
            self._send(HTTPStatus.UNAUTHORIZED, NO_TOKEN, body=body)
        elif known == "query" and url.path == "/":  # the token leaves the address bar, and with it the history
            kept = f"{access.cookie}={access.token}; HttpOnly; SameSite=Strict; Path=/"
            self._send(HTTPStatus.SEE_OTHER, b"", {"Location": "/", "Set-Cookie": kept}, body=body)
        elif url.path == "/":
            self._send_page(body)
        elif url.path == "/events" and self.headers.get("Sec-Fetch-Site", "") in OTHER_SITES:
            self._send(HTTPStatus.FORBIDDEN, b"not for pages of other sites\n", body=body)
        elif url.path == "/events":
            self._send_events(tuple(query.get("run", []))[:SHOWN], query.get("play", [None])[0], body)
        else:
            self._send(HTTPStatus.NOT_FOUND, b"there is nothing here\n", body=body)

    def _send_page(self, body: bool) -> None:
        packed = "gzip" in self.headers.get("Accept-Encoding", "")
        more = {"Content-Encoding": "gzip"} if packed else {}
        content = self._page.compressed if packed else self._page.html
        self._send(HTTPStatus.OK, content, {"Content-Type": "text/html; charset=utf-8", **more}, body=body)

    def _send(
        self, status: HTTPStatus, content: bytes, more: dict[str, str] | None = None, *, body: bool = True
    ) -> None:
        self.send_response(status)
        headers = {"Content-Type": "text/plain; charset=utf-8", "Content-Length": str(len(content)), **HEADERS}
        for name, value in (headers | (more or {})).items():
            self.send_header(name, value)
        self.end_headers()
        if body:
            self.wfile.write(content)

    def _send_events(self, keys: tuple[str, ...], play: str | None, body: bool) -> None:
        server = self._page
        with server.counted() as allowed:
            if not allowed:
                self._send(HTTPStatus.SERVICE_UNAVAILABLE, b"too many browsers watch already\n", body=body)
                return
            self.send_response(HTTPStatus.OK)
            for name, value in {"Content-Type": "text/event-stream", "Connection": "close", **HEADERS}.items():
                self.send_header(name, value)
            self.end_headers()
            if not body:
                return
            last = self.headers.get("Last-Event-ID", "")
            with closing(Stream(server.folder, server.players, keys, play, last).events()) as events:
                for each in events:
                    self.wfile.write(each)

    def log_message(self, format: str, *args: object) -> None:
        """Requests are not logged."""


def bind(folder: Path, host: str, port: int, note: Callable[[str], None]) -> PageServer:
    """A server at this port, or the next one that is free, which is noted. Raises `UserError` where there is none."""
    for each in range(port, min(port + TRIES, 65536)):
        try:
            server = PageServer(folder, host, each)
        except OSError as error:
            if error.errno not in (errno.EADDRINUSE, errno.EACCES):
                raise UserError(f"--host {host}: not an address of this machine ({error.strerror})") from error
            failure = error
            continue
        if each != port:
            note(f"port {port} cannot be used ({failure.strerror}): serving at port {each} instead")
        return server
    raise UserError(f"--port {port}: cannot be used at {host} ({failure.strerror}), nor the {TRIES - 1} after it")


@contextmanager
def serving(folder: Path, port: int | None, note: Callable[[str], None]) -> Iterator[None]:
    """Serve the page of a run, to this machine, while this is entered; not at all where `port` is None."""
    if port is None:
        yield
        return
    server = bind(folder, HOST, port, note)
    note(f"live page: {server.access.address}")
    thread = threading.Thread(target=server.serve_forever, name="page server", daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
