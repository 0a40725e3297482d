"""Receives brokers' answers without copying them: the record batches of a fetch answer are views of the memory that the socket filled.

asyncio's own reader gives each piece that it reads memory of its own. The pieces are then joined, and aiokafka copies the records out of
the whole. Copies and pages of new memory together cost more than all that is done with a record of some hundred bytes.

What it decides: where the bytes of an answer go. Promises:

- An answer that arrives at once and is small becomes `bytes`. Of a larger one, only what came together with its length is copied; the rest
  is received where it stays. aiokafka decodes every answer but those of fetches from `bytes`, as it expects.
- Memory that someone can see is never written again: each large answer has its own, which lives as long as a view of it. Views that are
  given away are read-only. See `records.memory`.
- Records that are not nearly all of their answer are copied, so what is buffered of one partition never keeps the records of others.
- Any division into pieces gives the same answers. A negative length ends the connection; then the requests that have no answer fail, as
  they do when a connection is lost.
- Between answers, a connection holds no memory of its own.
"""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections import deque
from typing import Any

import aiokafka.conn as conn_module

from ..records.kafka.columns import Raw
from ..records.memory.memory import fresh

LANDING = 64 << 10
"""How much is received at once while the next answer's length is not known."""
LONGEST_TEXT = 0x7FFF
"""The longest string of Kafka's protocol. What is longer in a fetch answer are records."""
_LENGTH = 4


class _Landing(threading.local):
    """Where bytes land while no answer is arriving. They are taken out of it at once, so all connections of a thread share it."""

    def __init__(self) -> None:
        self.view = memoryview(bytearray(LANDING))


_landing = _Landing()


class Protocol(conn_module.AIOKafkaProtocol, asyncio.BufferedProtocol):
    """An aiokafka connection's protocol that divides what comes into answers."""

    def __init__(self, closed: Any, reader: asyncio.StreamReader, **options: Any) -> None:
        super().__init__(closed, reader, **options)
        self._reader = weakref.ref(reader)
        self._landing = _landing.view
        self._length = bytearray()
        """The bytes of a length that have come, while they are too few."""
        self._target: memoryview | None = None
        """The memory of the answer that is arriving."""
        self._filled = 0
        self._answers: deque[Raw] = deque()

    def get_buffer(self, sizehint: int) -> memoryview:
        """See `asyncio.BufferedProtocol`."""
        return self._landing if self._target is None else self._target[self._filled :]

    def buffer_updated(self, nbytes: int) -> None:
        """See `asyncio.BufferedProtocol`."""
        if self._target is None:
            self._divide(self._landing[:nbytes])
            return
        self._filled += nbytes
        if self._filled == len(self._target):
            whole, self._target = self._target, None
            self._arrived(bytes(whole) if len(whole) <= LANDING else whole.toreadonly())

    def _divide(self, came: memoryview) -> None:
        while came:
            missing = _LENGTH - len(self._length)
            self._length += came[:missing]
            came = came[missing:]
            if len(self._length) < _LENGTH:
                return
            size = int.from_bytes(self._length, "big", signed=True)
            self._length.clear()
            if size < 0:
                raise ConnectionError(f"an answer of {size} bytes was announced")
            if size <= len(came):
                self._arrived(bytes(came[:size]))
                came = came[size:]
            else:
                self._target, self._filled = fresh(size), len(came)
                self._target[: len(came)] = came
                return

    def _arrived(self, answer: Raw) -> None:
        self._answers.append(answer)
        reader: Any = self._reader()
        if reader is not None:
            reader._wakeup_waiter()

    async def answer(self, reader: Any) -> Raw:
        """The next answer, without its length. Raises the connection's error, or `IncompleteReadError` when it has ended."""
        while not self._answers:
            if (error := reader.exception()) is not None:
                raise error
            if reader.at_eof():
                raise asyncio.IncompleteReadError(b"", None)
            await reader._wait_for_data("answer")
        return self._answers.popleft()


class Fields:
    """The bytes of a fetch answer, for aiokafka's decoder, which reads one field after the other."""

    __slots__ = ("_at", "_view")

    def __init__(self, view: memoryview) -> None:
        self._view, self._at = view, 0

    def read(self, size: int) -> Raw:
        """The next bytes; fewer at the end. Records are not copied if they are nearly the whole answer."""
        found = self._view[self._at : self._at + size]
        self._at += len(found)
        if len(found) <= LONGEST_TEXT:
            return bytes(found)
        if len(found) >= len(self._view) // 8 * 7:
            return found
        own = fresh(len(found))
        own[:] = found
        return own.toreadonly()
