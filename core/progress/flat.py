"""A reader of FlatBuffers that trusts nothing: each offset is looked at before it is followed, and each length before it is used.

It knows tables, text, vectors and scalars, and no schema; who reads says what stands where. Promises:

- Whatever the bytes are, a read gives a value or raises `Flaw`.
- All texts and vectors that are read are together no longer than the bytes: what is named twice is paid for twice.
- What passes here passes the verifier of the FlatBuffers library, too, which asks for alignment and for the zero byte behind a text.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator


class Flaw(Exception):
    """These bytes are not what they should be; the argument says why."""


class _Source:
    """The bytes, and how many of them texts and vectors may still take."""

    __slots__ = ("data", "left")

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.left = len(data)

    def number(self, at: int, form: str) -> int:
        size = struct.calcsize(form)
        if at < 0 or at + size > len(self.data) or at % size:
            raise Flaw("has an offset that leads out of it")
        return struct.unpack_from(form, self.data, at)[0]

    def target(self, at: int) -> int:
        """Where the offset that stands here leads."""
        offset = self.number(at, "<I")
        if not 0 < offset < 2**31:
            raise Flaw("has an offset that leads out of it")
        return at + offset


class FlatTable:
    """One table: its fields by their numbers. A scalar that is absent has its default."""

    __slots__ = ("_at", "_source", "_vtable", "_vtable_size")

    def __init__(self, source: _Source, at: int) -> None:
        self._source = source
        self._at = at
        self._vtable = at - source.number(at, "<i")
        self._vtable_size = source.number(self._vtable, "<H")
        if self._vtable_size < 4 or self._vtable_size % 2 or self._vtable + self._vtable_size > len(source.data):
            raise Flaw("has a damaged table")

    def _place(self, field: int) -> int | None:
        entry = 4 + 2 * field
        if entry + 2 > self._vtable_size:
            return None
        offset = self._source.number(self._vtable + entry, "<H")
        return self._at + offset if offset else None

    def has(self, field: int) -> bool:
        """Whether the field is there."""
        return self._place(field) is not None

    def number(self, field: int, form: str, default: int = 0) -> int:
        """A scalar; `form` as in `struct`."""
        at = self._place(field)
        return default if at is None else self._source.number(at, form)

    def table(self, field: int) -> FlatTable:
        """A table that must be there."""
        return FlatTable(self._source, self._target(field))

    def text(self, field: int) -> str:
        """A text that must be there."""
        start, size = self._vector(field, 1)
        data = self._source.data
        if start + size >= len(data) or data[start + size]:
            raise Flaw("has a text without an end")
        try:
            return data[start : start + size].decode()
        except UnicodeDecodeError:
            raise Flaw("has a text that is not UTF-8") from None

    def tables(self, field: int) -> Iterator[FlatTable]:
        """A vector of tables that must be there."""
        start, count = self._vector(field, 4)
        return (FlatTable(self._source, self._source.target(at)) for at in range(start, start + 4 * count, 4))

    def pairs(self, field: int) -> Iterator[tuple[int, int]]:
        """A vector of structs of two 64 bit numbers that must be there."""
        start, count = self._vector(field, 16)
        return struct.iter_unpack("<qq", self._source.data[start : start + 16 * count])

    def _vector(self, field: int, size: int) -> tuple[int, int]:
        """Where the elements begin, of so many bytes each, and how many there are."""
        at = self._target(field)
        count = self._source.number(at, "<I")
        start = at + 4
        if start + size * count > len(self._source.data) or start % min(size, 8):
            raise Flaw("has a vector that leads out of it")
        self._source.left -= size * count
        if self._source.left < 0:
            raise Flaw("has more parts than bytes")
        return start, count

    def _target(self, field: int) -> int:
        at = self._place(field)
        if at is None:
            raise Flaw("lacks a field")
        return self._source.target(at)


def root(data: bytes) -> FlatTable:
    """The table that the bytes begin with."""
    source = _Source(data)
    return FlatTable(source, source.target(0))
