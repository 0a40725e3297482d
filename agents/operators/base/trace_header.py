"""The header that names the span in which the records of an output are written.

What it decides: a record has one such header, behind all others. One that its row has brought along names work before this one: it is left
out, since this work links to that.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from ....core.progress.frames import TRACE_HEADER
from ...records.kafka.spans import SpannedRecords, headers_of, packed_headers
from ...records.layout import longs
from ...records.memory.record_spans import RecordSpans, pieces
from ...records.values.record import Headers


def named_rows(headers: Sequence[Headers] | None, count: int, trace: bytes) -> list[Headers]:
    """The headers of so many records that are written in this span."""
    own = (TRACE_HEADER, trace)
    if headers is None:
        return [[own]] * count
    return [[*(one for one in of if one[0] != TRACE_HEADER), own] for of in headers]


def named_spans(records: SpannedRecords, trace: bytes) -> SpannedRecords:
    """The same of records that lie in buffers. Where they have no headers yet, no object is made of a record."""
    count = len(records)
    if records.headers is None:
        one = packed_headers([[(TRACE_HEADER, trace)]])
        found = RecordSpans(one.buffer, bytes(8 * count), array("q", longs(one.lengths)) * count)
    else:
        found = packed_headers(named_rows(list(map(headers_of, pieces(records.headers))), count, trace))
    return SpannedRecords(records.values, records.timestamps, records.base, records.keys, records.offsets, found)
