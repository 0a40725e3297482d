"""A reader of FlatBuffers for untrusted bytes: it checks each offset before following it, and each length before using it.

It knows tables, texts, vectors and scalars, but no schema; the caller says which field has which type. Promises:

- Whatever the bytes are, a read returns a value or raises `Flaw`.
- All texts and vectors that are read have together at most the length of the bytes; one that is referenced twice counts twice.
- What passes here also passes the verifier of the FlatBuffers library, which requires alignment and a zero byte after each text.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator


class Flaw(Exception):
    """The bytes are invalid; the argument says why."""


class _Source:
    """The bytes, and how many bytes of texts and vectors may still be read."""

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
        """Where the offset stored at this place points."""
        offset = self.number(at, "<I")
        if not 0 < offset < 2**31:
            raise Flaw("has an offset that leads out of it")
        return at + offset


class FlatTable:
    """One table: its fields by number. An absent scalar has its default."""

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
        """Whether the field is present."""
        return self._place(field) is not None

    def number(self, field: int, form: str, default: int = 0) -> int:
        """A scalar; `form` as in `struct`."""
        at = self._place(field)
        return default if at is None else self._source.number(at, form)

    def table(self, field: int) -> FlatTable:
        """A table; it must be present."""
        return FlatTable(self._source, self._target(field))

    def text(self, field: int) -> str:
        """A text; it must be present."""
        start, size = self._vector(field, 1)
        data = self._source.data
        if start + size >= len(data) or data[start + size]:
            raise Flaw("has a string without an end")
        try:
            return data[start : start + size].decode()
        except UnicodeDecodeError:
            raise Flaw("has text that is not UTF-8") from None

    def tables(self, field: int) -> Iterator[FlatTable]:
        """A vector of tables; it must be present."""
        start, count = self._vector(field, 4)
        return (FlatTable(self._source, self._source.target(at)) for at in range(start, start + 4 * count, 4))

    def pairs(self, field: int) -> Iterator[tuple[int, int]]:
        """A vector of structs of two 64-bit integers; it must be present."""
        start, count = self._vector(field, 16)
        return struct.iter_unpack("<qq", self._source.data[start : start + 16 * count])

    def _vector(self, field: int, size: int) -> tuple[int, int]:
        """Where the elements of a vector begin, and how many there are; `size`: bytes per element."""
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
    """The root table: the first offset points to it."""
    source = _Source(data)
    return FlatTable(source, source.target(0))
