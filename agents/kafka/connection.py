"""An aiokafka connection that copies as little as possible of the records that it reads and writes.

What it decides: which requests and answers go another way than aiokafka's, to the same effect. Those are fetch answers of some size, which
are decoded where they were received (see `receiving`), and produce requests of some size: aiokafka copies their record batches into the
field, the partition, the topic, the request and the message before it writes them. Here, a batch is given to the transport as it is. And
each task has a client of its own, so a worker with many tasks gets the same metadata many times: equal answers are decoded once.

Promises: the bytes on the wire, the order of requests, and errors are aiokafka's. A batch that has been given to the transport is not
changed; the transport keeps it until it has been sent.
"""

from __future__ import annotations

import struct
import time
import weakref
from collections.abc import Iterable, Iterator
from io import BytesIO
from typing import Any

import aiokafka.conn as conn_module
from aiokafka.errors import KafkaConnectionError
from aiokafka.protocol.types import Array, Bytes, Int32, Schema
from aiokafka.util import wait_for

from ..records.kafka.columns import Raw
from .receiving import Fields

PRODUCE, FETCH = 0, 1
ALIKE = (3, 18)
"""Metadata and the broker's versions: what clients of one process ask for in the same moment, they get the same answer."""
LARGE = 32 << 10
"""Fields below this size are joined with their neighbours: a write of its own costs more than a copy."""


class Connection(conn_module.AIOKafkaConnection):
    """An aiokafka connection that takes whole answers from a `receiving.Protocol`."""

    @staticmethod
    async def _read(self_ref: weakref.ref[Any]) -> None:
        connection = self_ref()
        if connection is None:
            return
        reader, protocol = connection._reader, connection._protocol
        del connection  # a connection that no one uses closes itself
        while True:
            answer = await protocol.answer(reader)
            connection = self_ref()
            if connection is None:
                return
            connection._handle_frame(answer)
            del connection, answer  # while it waits for the next one, nothing keeps this one's memory

    def _handle_frame(self, resp: Raw) -> None:
        requests: Any = self._requests
        correlation, request, waiting = requests[0]
        if isinstance(resp, bytes) or request is None or request.API_KEY != FETCH or request.FLEXIBLE_VERSION:
            if request is None or request.API_KEY not in ALIKE or waiting.done() or not _answers(correlation, resp):
                super()._handle_frame(bytes(resp))
            else:
                self._answered(_decoded(request, bytes(resp)))
        elif waiting.done() or not _answers(correlation, resp):
            super()._handle_frame(bytes(resp[:4]))  # aiokafka looks at nothing else
        else:
            self._answered(request.RESPONSE_TYPE.decode(Fields(resp[4:])))

    def _answered(self, answer: Any) -> None:
        requests: Any = self._requests
        requests[0][2].set_result(answer)
        self._last_action = time.monotonic()
        requests.popleft()

    def send(self, request: Any, expect_response: bool = True) -> Any:
        """See aiokafka's."""
        writer: Any = self._writer
        if writer is None or request.API_KEY != PRODUCE:
            return super().send(request, expect_response)
        prepared, correlation = request.prepare(self._versions), self._next_correlation_id()
        head = prepared.build_request_header(correlation_id=correlation, client_id=self._client_id).encode()
        fields = [head, *encoded(prepared.SCHEMA, [prepared.get_item(name) for name in prepared.SCHEMA.names])]
        try:
            for part in coalesced([struct.pack(">i", sum(map(len, fields))), *fields]):
                writer.write(part)
        except OSError as error:
            self.close(reason=conn_module.CloseReason.CONNECTION_BROKEN)
            raise KafkaConnectionError(f"Connection at {self._host}:{self._port} broken: {error}") from error
        if not expect_response:
            return writer.drain()
        requests: Any = self._requests
        waiting = self._loop.create_future()
        requests.append((correlation, prepared, waiting))
        return wait_for(waiting, self._request_timeout)


def _answers(correlation: int, resp: Raw) -> bool:
    return int.from_bytes(resp[:4], "big", signed=True) == correlation


_alike: dict[Any, tuple[bytes, Any]] = {}
"""By type, the last answer that was decoded, and its bytes behind the number of the request. aiokafka changes no answer."""


def _decoded(request: Any, resp: bytes) -> Any:
    kind, body = request.RESPONSE_TYPE, resp[4:]
    known = _alike.get(kind)
    if known is None or known[0] != body:
        data = BytesIO(resp)
        request.parse_response_header(data)
        known = _alike[kind] = body, kind.decode(data)
    return known[1]


def encoded(kind: Any, value: Any) -> Iterator[Any]:
    """The bytes of a value of one of aiokafka's types, in parts. Record batches are parts of their own, and not copied.

    >>> from aiokafka.protocol.types import Array, Bytes, Int16, Schema
    >>> kind = Schema(("a", Int16), ("b", Array(("c", Int16), ("d", Bytes))))
    >>> b"".join(encoded(kind, (1, [(2, b"xyz")]))) == kind.encode((1, [(2, b"xyz")]))
    True
    """
    if isinstance(kind, Schema):
        for field, item in zip(kind.fields, value, strict=True):
            yield from encoded(field, item)
    elif isinstance(kind, Array) and value is not None:
        yield Int32.encode(len(value))
        for item in value:
            yield from encoded(kind.array_of, item)
    elif kind is Bytes and value is not None:
        yield Int32.encode(len(value))
        yield value
    else:
        yield kind.encode(value)


def coalesced(parts: Iterable[Any]) -> Iterator[Any]:
    """The same bytes in fewer parts: small ones are joined.

    >>> [len(part) for part in coalesced([b"a", b"b", bytes(LARGE), b"c", b"d"])]
    [2, 32768, 2]
    """
    small: list[Any] = []
    for part in parts:
        if len(part) < LARGE:
            small.append(part)
            continue
        if small:
            yield b"".join(small)
            small = []
        yield memoryview(part)
    if small:
        yield b"".join(small)
