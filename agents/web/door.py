"""Who may read the pages of a worker.

- Pages on loopback answer only requests to a name of this machine. A page of the internet whose name was made to lead to 127.0.0.1 would
  otherwise read them through the user's browser.
- With `web.token`, a reader must give it, as a bearer token or as the password of any user (browsers then ask for it). Liveness and
  readiness stay open, because supervisors ask for them and they show nothing.

Promise: a request that is refused learns nothing but why.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import ipaddress
import socket
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

OPEN = ("/livez", "/readyz")
ASKS = {"WWW-Authenticate": 'Basic realm="headgate", charset="UTF-8"'}


@dataclass(frozen=True, slots=True)
class PageDoor:
    """The rules of one worker's pages."""

    host: str = "127.0.0.1"
    """The address at which they are served."""
    token: str = ""

    def refused(self, host: str, path: str, given: str) -> tuple[int, str] | None:
        """Status and reason if a request is refused; None if it may pass. `host` and `given`: its headers `Host` and `Authorization`.

        >>> door = PageDoor("127.0.0.1", "t")
        >>> door.refused("evil.example:80", "/", ""), door.refused("localhost:80", "/", "Bearer t"), door.refused("[::1]:80", "/livez", "")
        ((421, 'evil.example is no name of this machine'), None, None)
        """
        name = _name(host)
        if _is_loopback(self.host) and not _is_here(name):
            return 421, f"{name or 'no name'} is no name of this machine"
        if self.token and path not in OPEN and not self._knows(given):
            return 401, "these pages need the token of web.token"
        return None

    def _knows(self, given: str) -> bool:
        kind, _, said = given.partition(" ")
        if kind.lower() == "basic":
            try:
                said = base64.b64decode(said, validate=True).decode().partition(":")[2]
            except (binascii.Error, UnicodeDecodeError):
                return False
        elif kind.lower() != "bearer":
            return False
        return hmac.compare_digest(said.encode(), self.token.encode())


def keeper(door: PageDoor, answer: Callable[[int, str], Any]) -> Any:
    """The middleware of a server of aiohttp. `answer` makes the response of a status and a text."""
    from aiohttp.web import middleware

    @middleware
    async def keep(request: Any, handler: Callable[[Any], Awaitable[Any]]) -> Any:
        headers = request.headers
        refused = door.refused(headers.get("Host", ""), request.path, headers.get("Authorization", ""))
        if refused is None:
            return await handler(request)
        response = answer(*refused)
        if refused[0] == 401:
            response.headers.update(ASKS)
        return response

    return keep


def _name(host: str) -> str:
    """The name in a `Host` header, without its port."""
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.rpartition(":")[0] if host.count(":") == 1 else host


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _is_here(name: str) -> bool:
    return _is_loopback(name) or name.lower() in ("localhost", socket.gethostname().lower())
