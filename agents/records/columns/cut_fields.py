"""Cuts fields out of JSON records and leaves every other byte of their other fields as it is.

What it decides: nothing. The records have been decoded before, so they are JSON objects in UTF-8.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterable, Iterator

import orjson

from ..layout import longs
from ..memory.record_spans import RecordSpans

_TEXT = rb'"[^"\\]*(?:\\.[^"\\]*)*"'
_KEY = re.compile(rb"[\s,{]*(" + _TEXT + rb")\s*:\s*", re.DOTALL)
_PLAIN = re.compile(_TEXT + rb'|[^\s,{}\[\]"]+', re.DOTALL)
_NESTING = re.compile(_TEXT + rb"|[\[\]{}]", re.DOTALL)


def without_fields(spans: RecordSpans, rows: Iterable[int], names: frozenset[str]) -> RecordSpans:
    """The same records, but these rows without their fields of these names.

    >>> spans = RecordSpans(b'{"a":1,"b":[2]}', array("q", [0]), array("q", [15]))
    >>> cut = without_fields(spans, [0], frozenset("a"))
    >>> bytes(cut.buffer[cut.offsets[0] : cut.offsets[0] + cut.lengths[0]])
    b'{"b":[2]}'
    """
    view = memoryview(spans.buffer).cast("B")
    offsets, lengths = array("q", longs(spans.offsets)), array("q", longs(spans.lengths))
    parts: list[bytes] = [bytes(view)]
    end = len(view)
    for row in rows:
        data = bytes(view[offsets[row] : offsets[row] + lengths[row]])
        parts.append(b"{" + b",".join(part for name, part in _fields(data) if name not in names) + b"}")
        offsets[row], lengths[row] = end, len(parts[-1])
        end += lengths[row]
    return RecordSpans(b"".join(parts), offsets, lengths)


def _fields(data: bytes) -> Iterator[tuple[str, bytes]]:
    """The fields of an object: the name, and the bytes of name and value."""
    at = 0
    while (key := _KEY.match(data, at)) is not None:
        at = _behind(data, key.end())
        yield orjson.loads(key[1]), data[key.start(1) : at]


def _behind(data: bytes, at: int) -> int:
    """Where the value that begins here ends."""
    if (plain := _PLAIN.match(data, at)) is not None:
        return plain.end()
    depth = 0
    for found in _NESTING.finditer(data, at):
        depth += (found[0] in b"[{") - (found[0] in b"]}")
        if not depth:
            return found.end()
    raise ValueError("a record that was decoded is an object")
