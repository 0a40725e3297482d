"""The headers that say how the records of an output are read: those in which its serdes name their schemas.

What it decides: which headers a record of an output has. Promises:

- A key and a value whose serde names its schema in a header have that header, once, behind all others. What is null has none.
- Headers of these names that a row has brought along are left out: they are true of other bytes, and readers would believe them.
- All other headers stay, in their order.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from itertools import repeat
from typing import Any

from ...records.kafka.columns import Bytes
from ...records.kafka.spans import headers_of, packed_headers
from ...records.layout import longs
from ...records.memory.record_spans import RecordSpans, packed, pieces
from ...records.values.record import Headers
from ...records.values.serdes import Serde

NO_HEADERS = b"\0"
MANY = 0x80
"""From so many on, twice the number of headers is more than one byte."""


class SchemaHeaders:
    """The headers of one output; see the top of this file. Each call raises `MustLearn` as long as a schema is not known."""

    def __init__(self, serde: Serde[Any], key_serde: Serde[Any]) -> None:
        self._value, self._key = serde, key_serde
        self.names = frozenset((serde.header_name, key_serde.header_name)) - {""}

    def of_rows(
        self, keys: Sequence[Bytes] | None, values: Sequence[Bytes], headers: list[Headers] | None
    ) -> list[Headers] | None:
        """The headers of rows; None if no record has any. `keys`, `values`: as they are written."""
        if not self.names:
            return headers
        ends = self._ends(keys is not None)
        if headers is None and not any(ends.values()):
            return None
        there = repeat(False) if keys is None else [one is not None for one in keys]
        own: list[Headers] = [ends[key, value is not None] for key, value in zip(there, values, strict=False)]
        if headers is None:
            return own
        names = self.names
        return [[*(one for one in of if one[0] not in names), *end] for of, end in zip(headers, own, strict=True)]

    def of_spans(self, keys: RecordSpans | None, headers: RecordSpans | None, count: int) -> RecordSpans | None:
        """The same of records in buffers, whose values are all there."""
        if not self.names:
            return headers
        ends = self._ends(keys is not None)
        written = any(ends.values())
        if headers is None and not written:
            return None
        if headers is None and (keys is None or not ends[True, False] or min(longs(keys.lengths), default=0) >= 0):
            one = packed_headers([ends[keys is not None, True]])
            return RecordSpans(one.buffer, bytes(8 * count), array("q", longs(one.lengths)) * count)
        brought = [None] * count if headers is None else pieces(headers)
        if self._named(brought):
            listed: list[Headers] = list(map(headers_of, brought))
            found = self.of_rows(None if keys is None else pieces(keys), [b""] * count, listed)
            return None if found is None else packed_headers(found)
        if not written:
            return headers
        behind = {key: _Behind(ends[key, True]) for key in (False, True)}
        there = repeat(False, count) if keys is None else [size >= 0 for size in longs(keys.lengths)]
        return packed([behind[key].of(one) for key, one in zip(there, brought, strict=True)])

    def _ends(self, keyed: bool) -> dict[tuple[bool, bool], list[tuple[str, bytes]]]:
        """What stands behind the other headers, by whether there is a key and whether there is a value."""
        key, value = self._key.header() if keyed else None, self._value.header()
        of_key = [] if key is None else [(self._key.header_name, key)]
        of_value = [] if value is None else [(self._value.header_name, value)]
        return {
            (False, False): [],
            (True, False): of_key,
            (False, True): of_value,
            (True, True): [*of_key, *of_value],
        }

    def _named(self, headers: Sequence[Bytes]) -> bool:
        """Whether one of these records may have a header of these names."""
        found = b"".join([one for one in headers if one is not None])
        return any(name.encode() in found for name in self.names)


class _Behind:
    """Adds headers behind those of records, as bytes: their number, which is the first byte of all but very many, then themselves."""

    def __init__(self, end: list[tuple[str, bytes]]) -> None:
        self._end = end
        [alone] = pieces(packed_headers([end]))
        self._alone = alone or NO_HEADERS
        self._more, self._added = self._alone[0], self._alone[1:]

    def of(self, headers: Bytes) -> bytes:
        if headers is None:
            return self._alone
        number = headers[0] + self._more
        if number < MANY:
            return number.to_bytes(1, "big") + headers[1:] + self._added
        [found] = pieces(packed_headers([[*headers_of(headers), *self._end]]))
        return found or NO_HEADERS
