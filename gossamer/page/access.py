"""Which requests are answered: those that name this server and, if other machines can reach it, have its token."""

from __future__ import annotations

import hmac
import ipaddress
import secrets
import socket
from dataclasses import dataclass
from typing import Literal

LOCAL = ("localhost", "127.0.0.1", "::1")


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


@dataclass(frozen=True)
class Access:
    """The rules of one server.

    A page of another site could make a browser send requests here, under a name that it lets point to this machine (DNS
    rebinding). Such a request names that site in `Host`, and is refused."""

    host: str  # that the server is bound to
    port: int
    token: str = ""  # empty: none is needed

    @staticmethod
    def to(host: str, port: int) -> Access:
        """With a new token where other machines can reach the address."""
        return Access(host, port, "" if is_loopback(host) else secrets.token_urlsafe(24))

    @property
    def address(self) -> str:
        """Where a browser finds the page."""
        wildcard = self.host in ("", "0.0.0.0", "::")
        name = socket.gethostname() if wildcard else f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{name}:{self.port}/" + (f"?token={self.token}" if self.token else "")

    @property
    def cookie(self) -> str:
        """Name of the cookie that keeps the token: cookies do not tell ports apart."""
        return f"gossamer-{self.port}"

    def names(self, host: str | None) -> bool:
        """Whether the header `Host` names this server. Without a wildcard address no other name will do; an address in
        numbers is always fine, as only names can be made to point elsewhere."""
        name = _name(host or "")
        if name in (*LOCAL, self.host.lower()):
            return True
        if is_loopback(self.host):
            return False
        return _is_number(name) or name in (socket.gethostname().lower(), socket.getfqdn().lower())

    def knows(self, given: str, cookies: str) -> Literal["no", "cookie", "query"]:
        """Whether the token is in the request: in a cookie, or in the query (`given`)."""
        if not self.token or self._is_token(_cookie(cookies, self.cookie)):
            return "cookie"
        return "query" if self._is_token(given) else "no"

    def _is_token(self, given: str) -> bool:
        return hmac.compare_digest(given.encode(), self.token.encode())


def _name(host: str) -> str:
    """The header without its port and brackets, in small letters."""
    name = host.strip().lower()
    if name.startswith("["):
        return name[1:].split("]")[0]
    return name.rsplit(":", 1)[0] if name.count(":") == 1 else name


def _is_number(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _cookie(cookies: str, name: str) -> str:
    """Its value; "" if there is none. A browser sends the cookies of all ports of a host, and `SimpleCookie` gives up
    at the first that it cannot read."""
    pairs = (pair.partition("=") for pair in cookies.split(";"))
    return next((value.strip() for key, _, value in pairs if key.strip() == name), "")
