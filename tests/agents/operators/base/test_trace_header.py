"""The header `traceparent` of records of outputs, of rows and of records in buffers."""

from __future__ import annotations

from array import array

from headgate.agents.operators.base.trace_header import named_rows, named_spans
from headgate.agents.records.kafka.spans import SpannedRecords, packed_headers
from headgate.agents.records.memory.record_spans import packed

OWN = ("traceparent", b"this")


def of(headers: list[list[tuple[str, bytes]]] | None) -> SpannedRecords:
    values = packed([b"a", b"b"])
    return SpannedRecords(
        values, array("q", [1, 2]), 0, None, None, None if headers is None else packed_headers(headers)
    )


def test_each_record_has_it_once_behind_all_others():
    """A record that has come with one was written in another span, to which this one links."""
    brought = [[("traceparent", b"before"), ("x", b"1")], []]
    wanted = [[("x", b"1"), OWN], [OWN]]
    assert named_rows(brought, 2, b"this") == wanted
    assert named_spans(of(brought), b"this").columns().headers == wanted


def test_records_without_headers_get_it():
    """Without an object for each."""
    assert named_rows(None, 2, b"this") == [[OWN], [OWN]]
    assert named_spans(of(None), b"this").columns().headers == [[OWN], [OWN]]
    assert named_spans(of(None), b"this").columns().values == [b"a", b"b"]
