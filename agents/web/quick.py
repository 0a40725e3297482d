"""The quick way to what is asked most: keys of tables that this worker has.

A request through the web server costs a busy worker 0.2 ms, ten times what its answer costs, and a service asks a thousand times a second.
So a connection is read here first. A request for keys that can be answered at once is answered here; from the first other one on, the
connection is the web server's, which answers everything.

Promises: the door is the same. What is read here is what the server would read: whatever is unusual (no HTTP/1.1, a body of unknown length,
an encoding, a large head, `Expect`) is left to it, from its first byte. Requests of a connection are answered in their order.
"""

from __future__ import annotations

import asyncio
import re
import socket
from collections import Counter
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple, cast
from urllib.parse import parse_qsl, unquote
from weakref import WeakSet

from aiohttp.web import SockSite

from .door import PageDoor
from .queries import MEANT_FOR, Queries, QueryAnswer

PATH = b"/api/query/"
OURS = (b"GET " + PATH, b"POST " + PATH)
MOST_HEAD, MOST_BODY = 8_192, 1 << 20
REASON = {200: b"OK", 400: b"Bad Request", 404: b"Not Found", 409: b"Conflict", 503: b"Service Unavailable"}
_LINE = rb"GET /api/query/([!-$&-.0->@-~]+)/([!-$&->@-~]+) HTTP/1\.1"
ONE_KEY = re.compile(_LINE).fullmatch
"""The line that asks for one key and nothing more, where no letter stands for another one."""
FOR_ONE_KEY = re.compile(_LINE + rb"\r\n(.*)\r\n\r\n", re.DOTALL).fullmatch
"""A whole request that does."""
LEFT_TO_THE_SERVER = ("transfer-encoding", "content-encoding", "expect", "upgrade")
MEANT = MEANT_FOR.lower()
_NAME = re.compile(r"[a-z0-9!#$%&'*+.^_`|~-]+").fullmatch
ROW = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b"
NOTHING: Mapping[str, str] = MappingProxyType({})
READ = 1 << 16
REMEMBERED = 256
"""How many different headers are remembered, each at most so large as a head may be."""


class QuickHead(NamedTuple):
    """What the headers of a request say, all but its first line."""

    length: int
    """Of the body; -1: the server reads it."""
    meant: str
    closes: bool


LEFT = QuickHead(-1, "", False)


class QuickFront:
    """What the connections of a worker's page share."""

    def __init__(self, door: PageDoor, queries: Queries, served: Counter[int]) -> None:
        """`served`: requests by status, which are counted with those of the server."""
        self.door = door
        self.queries = queries
        self.served = served
        self.connections: WeakSet[QuickConnection] = WeakSet()
        self.buffer = memoryview(bytearray(READ))
        """Where any of them reads to; what was read is taken out at once."""
        self._heads: dict[bytes, QuickHead] = {}

    def head(self, lines: bytes) -> QuickHead:
        """What these headers say. A client sends the same ones again and again, so they are remembered."""
        found = self._heads.get(lines)
        if found is None:
            if len(self._heads) >= REMEMBERED:
                self._heads.clear()
            found = self._heads[lines] = self._read(lines)
        return found

    def at_once(self, data: bytes) -> bytes | None:
        """What answers this, if it is one request for one key with a head that was read before, as nearly all are."""
        if (one := FOR_ONE_KEY(data)) is None:
            return None
        head = self._heads.get(one[3])
        if head is None or head.length or head.meant or head.closes:
            return None
        body = self.queries.quick(one[1].decode(), one[2])
        if body is None:
            return None
        self.served[200] += 1
        return ROW % (len(body), body)

    def _read(self, lines: bytes) -> QuickHead:
        headers: dict[str, str] = {}
        for one in lines.split(b"\r\n"):
            name, colon, value = one.partition(b":")
            field = name.decode("latin-1").lower()
            if not colon or not _NAME(field) or field in headers or b"\n" in value or b"\r" in value:
                return LEFT  # whoever reads this differently from a server in front would read another request
            headers[field] = value.strip().decode("utf-8", "surrogateescape")
        length = headers.get("content-length", "0")
        ours = length.isascii() and length.isdigit() and len(length) <= 7 and int(length) <= MOST_BODY
        if not ours or any(name in headers for name in LEFT_TO_THE_SERVER):
            return LEFT
        if self.door.refused(headers.get("host", ""), "/api/query", headers.get("authorization", "")) is not None:
            return LEFT  # the server says why
        return QuickHead(int(length), headers.get(MEANT, ""), headers.get("connection", "").lower() == "close")

    def answer(self, line: bytes, head: QuickHead, body: bytes) -> QueryAnswer | None:
        """The answer, if there is one at once."""
        if (one := ONE_KEY(line)) is not None:
            return self.queries.at_once(one[1].decode(), one[2].decode(), NOTHING, head.meant)
        method, target, version = line.split(b" ")
        path, _, query = target.partition(b"?")
        if version != b"HTTP/1.1":
            return None
        table, _, key = path[len(PATH) :].decode("latin-1").partition("/")
        if method == b"POST" and not key:
            return self.queries.batch_at_once(unquote(table), body, head.meant)
        if method == b"GET" and key:
            asked = dict(parse_qsl(query.decode("latin-1"))) if query else NOTHING
            return self.queries.at_once(unquote(table), unquote(key), asked, head.meant)
        return None


class QuickConnection(asyncio.BufferedProtocol):
    """One connection, until it is handed to the server."""

    def __init__(self, front: QuickFront, server: Any) -> None:
        self._front = front
        self._server = server
        self._data = b""
        self._transport: asyncio.Transport | None = None
        front.connections.add(self)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The connection is open."""
        self._transport = cast("asyncio.Transport", transport)
        found = self._transport.get_extra_info("socket")
        if found is not None and found.family != socket.AF_UNIX:
            found.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Where to read to."""
        return self._front.buffer

    def buffer_updated(self, nbytes: int) -> None:
        """So much was read."""
        self.data_received(bytes(self._front.buffer[:nbytes]))

    def data_received(self, data: bytes) -> None:
        """Answer what can be answered, in order; hand over before what cannot."""
        if not self._data and self._transport is not None and (answer := self._front.at_once(data)) is not None:
            self._transport.write(answer)
            return
        self._data = data = self._data + data if self._data else data
        while data and self._transport is not None:
            size = self._one(data)
            if not size:
                return
            self._data = data = data[size:]

    def _one(self, data: bytes) -> int:
        """Answer the first request. Returns its length; 0 if it is not complete, or the connection was handed over."""
        end = data.find(b"\r\n\r\n")
        if end < 0:
            if len(data) > MOST_HEAD or not _may_be_ours(data):
                self._hand_over(data)
            return 0
        line, _, lines = data[:end].partition(b"\r\n")
        head = self._front.head(lines) if line.startswith(OURS) and line.count(b" ") == 2 else LEFT
        size = end + 4 + head.length
        if head.length < 0:
            self._hand_over(data)
            return 0
        if len(data) < size:
            return 0
        answer = self._front.answer(line, head, data[end + 4 : size])
        if answer is None:
            self._hand_over(data)
            return 0
        assert self._transport is not None
        self._front.served[answer.status] += 1
        self._transport.write(_response(answer, closes=head.closes))
        if head.closes:
            self._transport.close()
        return size

    def _hand_over(self, data: bytes) -> None:
        """From here on, the connection is the server's."""
        transport, self._transport, self._data = self._transport, None, b""
        assert transport is not None
        protocol = self._server()
        transport.set_protocol(protocol)
        protocol.connection_made(transport)
        protocol.data_received(data)
        self._front.connections.discard(self)

    def pause_writing(self) -> None:
        """Whoever asks does not read the answers: no more requests are read."""
        if self._transport is not None:
            self._transport.pause_reading()

    def resume_writing(self) -> None:
        """The answers are read again."""
        if self._transport is not None:
            self._transport.resume_reading()

    def eof_received(self) -> None:
        """No one asks any more: the connection closes."""

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is gone."""
        self._transport = None

    def close(self) -> None:
        """Close the connection: the worker ends."""
        if self._transport is not None:
            self._transport.close()


class QuickSite(SockSite):
    """The server on a socket that is already bound, behind quick connections."""

    def __init__(self, runner: Any, bound: socket.socket, front: QuickFront) -> None:
        super().__init__(runner, bound, shutdown_timeout=1.0)
        self._bound = bound
        self._front = front

    async def start(self) -> None:
        """Begin to accept connections."""
        await super(SockSite, self).start()
        server = self._runner.server
        self._server = await asyncio.get_running_loop().create_server(
            lambda: QuickConnection(self._front, server), sock=self._bound, backlog=self._backlog
        )

    async def stop(self) -> None:
        """Accept no more, and close the connections that are not the server's."""
        await super().stop()
        for one in list(self._front.connections):
            one.close()


def _may_be_ours(data: bytes) -> bool:
    """Whether a request that begins so may be one for keys."""
    return data.startswith(OURS) or any(begins.startswith(data) for begins in OURS)


def _response(answer: QueryAnswer, *, closes: bool) -> bytes:
    return b"HTTP/1.1 %d %b\r\nContent-Type: application/json\r\nContent-Length: %d\r\n%b\r\n%b" % (
        answer.status,
        REASON[answer.status],
        len(answer.body),
        b"Connection: close\r\n" if closes else b"",
        answer.body,
    )
