"""Who may read the pages of a worker.

- Pages on loopback answer only requests to a name of this machine. A page of the internet whose name was made to lead to 127.0.0.1 would
  otherwise read them through the user's browser.
- With `web.token`, a reader must give it, as a bearer token or as the password of any user (browsers then ask for it). Liveness and
  readiness stay open, because supervisors ask for them. What they show beyond their state needs the token, too (`knows`).

Promises: a request that is refused learns nothing but why. The same rule holds for the server and for the thread that answers while the
main loop is blocked (`stuck`), which reads its requests with `Asked.of`.
"""

from __future__ import annotations

import base64
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
        ((421, 'evil.example is not a name of this machine'), None, None)
        """
        name = _name(host)
        if _is_loopback(self.host) and not _is_here(name):
            return 421, f"{name or 'no name'} is not a name of this machine"
        if path not in OPEN and not self.knows(given):
            return 401, "these pages need the token of web.token"
        return None

    @property
    def open(self) -> bool:
        """Whether anyone in the network may read the pages: they are not on loopback, and there is no token."""
        return not self.token and not _is_loopback(self.host)

    def knows(self, given: str) -> bool:
        """Whether a reader with this header `Authorization` may see everything: there is no token, or this is it."""
        if not self.token:
            return True
        kind, _, said = given.partition(" ")
        if kind.lower() == "basic":
            try:
                said = base64.b64decode(said, validate=True).decode().partition(":")[2]
            except ValueError:  # not base64, or not text
                return False
        elif kind.lower() != "bearer":
            return False
        return hmac.compare_digest(_bytes(said), _bytes(self.token))


@dataclass(frozen=True, slots=True)
class Asked:
    """What the door must know of a request."""

    path: str = ""
    host: str = ""
    given: str = ""
    """Its header `Authorization`."""

    @classmethod
    def of(cls, head: bytes) -> Asked:
        """From the first lines of a request, as they came. What cannot be read is empty, which opens nothing.

        >>> Asked.of(b"GET /livez?now HTTP/1.1\\r\\nhost: w1:80\\r\\nAuthorization: Bearer t\\r\\n\\r\\n")
        Asked(path='/livez', host='w1:80', given='Bearer t')
        """
        first, *lines = head.partition(b"\r\n\r\n")[0].decode("utf-8", "surrogateescape").split("\r\n")
        words = first.split(" ")
        headers: dict[str, str] = {}
        for line in lines:
            name, _, value = line.partition(":")
            headers.setdefault(name.lower(), value.strip())
        path = words[1].partition("?")[0] if len(words) == 3 else ""
        return cls(path, headers.get("host", ""), headers.get("authorization", ""))


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


def _bytes(text: str) -> bytes:
    """A header's bytes. Those that are no text were decoded in this way."""
    return text.encode("utf-8", "surrogateescape")


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
