"""Fields are cut out of records as their producers wrote them; all other bytes stay."""

from __future__ import annotations

import json
from array import array
from itertools import accumulate
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.agents.records.columns.cut_fields import without_fields
from headgate.agents.records.memory.record_spans import RecordSpans, pieces

NAMES = ["a", "b", "ü", 'q"', "n\\n", "total", ""]
VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text("{}[]\",:\\ aü\n", max_size=8)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.sampled_from(NAMES), inner, max_size=3)),
    max_leaves=8,
)  # fmt: skip
STYLES = st.sampled_from(
    [
        {"separators": (",", ":")},
        {"separators": (" ,\r\n ", "\t: ")},
        {"indent": 2, "ensure_ascii": False},
        {"ensure_ascii": True},
    ]
)


def spans_of(records: list[bytes]) -> RecordSpans:
    ends = list(accumulate(map(len, records), initial=0))
    return RecordSpans(b"".join(records), array("q", ends[:-1]), array("q", map(len, records)))


@settings(deadline=None, max_examples=50)
@given(st.lists(st.dictionaries(st.sampled_from(NAMES), VALUES), max_size=4), STYLES, st.sets(st.sampled_from(NAMES)))
def test_the_other_fields_stay(records: list[Any], style: Any, names: set[str]) -> None:
    """Whatever they hold, and however they are written."""
    written = [b" " + json.dumps(record, **style).encode() + b"\n" for record in records]
    found = pieces(without_fields(spans_of(written), range(len(records)), frozenset(names)))
    assert [json.loads(one or b"") for one in found] == [
        {name: value for name, value in record.items() if name not in names} for record in records
    ]


def test_the_bytes_of_the_other_fields() -> None:
    """Numbers that no double holds, escapes, a field twice; the rows that are not named stay as they are."""
    big = rb'{ "a" : 1e400 ,"n":123456789012345678901234567890, "t" :"\u00fc\"}", "n":1.0, "x":{"n":[{}]} }'
    found = pieces(without_fields(spans_of([big, big, b"{}", b'{"n":1}']), [1, 2, 3], frozenset("n")))
    assert found == [big, rb'{"a" : 1e400,"t" :"\u00fc\"}","x":{"n":[{}]}}', b"{}", b"{}"]
