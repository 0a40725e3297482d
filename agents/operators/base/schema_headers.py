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
from ...records.memory.record_spans import RecordSpans, pieces
from ...records.values.record import Headers
from ...records.values.serdes import Serde


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
        if headers is None:
            if not any(ends.values()):
                return None
            if keys is None or not ends[True, False] or min(longs(keys.lengths), default=0) >= 0:
                one = packed_headers([ends[keys is not None, True]])
                return RecordSpans(one.buffer, bytes(8 * count), array("q", longs(one.lengths)) * count)
        elif not any(ends.values()) and not self._named(headers):
            return headers
        listed: list[Headers] | None = None if headers is None else [headers_of(one) for one in pieces(headers)]
        found = self.of_rows(None if keys is None else pieces(keys), [b""] * count, listed)
        return None if found is None else packed_headers(found)

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

    def _named(self, headers: RecordSpans) -> bool:
        """Whether one of these records may have a header of these names."""
        names = [one.encode() for one in self.names]
        return any(name in (one or b"") for one in pieces(headers) for name in names)
