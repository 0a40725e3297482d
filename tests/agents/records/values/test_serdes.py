"""Serdes: a chunk at a time, and bad records by their index."""

from __future__ import annotations

import tracemalloc
from dataclasses import dataclass
from typing import TypedDict

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.agents.records.values import serdes as serde
from headgate.core.errors import DataError, DeclarationError


@dataclass
class Order:
    id: int
    amount: float = 1.0


class Rate(TypedDict):
    currency: str
    rate: float


def test_bad_records_are_reported_and_the_others_go_on():
    """One broken record in a chunk must not take the other 1,999 with it."""
    decoded = serde.json().loads_many([b'{"a":1}', b"{", None, b"2"])
    assert decoded.values == [{"a": 1}, None, None, 2]
    assert [index for index, _ in decoded.bad] == [1]
    assert isinstance(decoded.bad[0][1], DataError)
    assert "not json" in str(decoded.bad[0][1])
    encoded = serde.json().dumps_many([1, object(), None])
    assert encoded.values == [b"1", None, None]
    assert [index for index, _ in encoded.bad] == [1]


@pytest.mark.parametrize("made", [serde.json(Order), serde.msgpack(Order)])
def test_dataclasses_are_made_and_checked(made):
    """What does not fit the type is bad data."""
    assert made.loads(made.dumps(Order(1, 2.5))) == Order(1, 2.5)
    with pytest.raises(DataError):
        serde.json(Order).loads(b'{"id":"no number"}')
    assert made.type is Order


def test_typed_dicts_and_structs():
    """All three kinds of types that the documentation names."""
    msgspec = pytest.importorskip("msgspec")

    class Point(msgspec.Struct):
        x: int

    assert serde.json(Rate).loads(b'{"currency":"EUR","rate":1.5}') == {"currency": "EUR", "rate": 1.5}
    with pytest.raises(DataError):
        serde.json(Rate).loads(b'{"currency":1}')
    assert serde.json(Point).loads(serde.json(Point).dumps(Point(1))) == Point(1)
    assert serde.msgpack(Point).loads(serde.msgpack(Point).dumps(Point(1))) == Point(1)
    with pytest.raises(DeclarationError):
        serde.json(7)


def test_text_and_bytes_take_only_their_own():
    """A number is no text: silently writing its repr would be found months later."""
    assert serde.text().loads("ä".encode()) == "ä"
    with pytest.raises(DataError):
        serde.text().dumps(1)
    with pytest.raises(DataError):
        serde.text().loads(b"\xff")
    assert serde.text("latin-1").loads(b"\xff") == "ÿ"
    assert serde.text("latin-1").dumps("ÿ") == b"\xff"
    assert serde.raw().loads(b"x") == b"x"
    with pytest.raises(DataError):
        serde.raw().dumps("x")


def test_arrow_tables():
    """A table in a record."""
    import pyarrow as pa

    table = pa.table({"a": [1, 2]})
    assert serde.arrow().loads(serde.arrow().dumps(table)).equals(table)


def test_a_serde_of_your_own_and_its_name():
    """The name goes into the fingerprint, and equality follows it."""
    made = serde.custom(int, lambda n: b"%d" % n, name="decimal")
    assert made.loads_many([b"1", b"x"]).values == [1, None]
    assert made.name == repr(made) == "decimal"
    assert made == serde.custom(int, str.encode, name="decimal")
    assert made != serde.json()
    assert len({serde.json(), serde.json(), serde.json(Order)}) == 2


@settings(deadline=None, max_examples=60)
@given(st.lists(st.one_of(st.none(), st.binary(max_size=12))))
def test_any_bytes_give_values_or_reports(data):
    """Never an exception, and one place for each record."""
    for made in (serde.json(), serde.msgpack(), serde.text(), serde.json(Order)):
        decoded = made.loads_many(data)
        assert len(decoded.values) == len(data)
        bad = {index for index, _ in decoded.bad}
        assert all(data[i] is not None and decoded.values[i] is None for i in bad)


def test_values_that_are_no_value_alone_are_found_though_a_chunk_is_parsed_at_once():
    """Two values in one record, and halves of one in two: joined they would be as many as there are records."""
    data = [b'{"a":1},{"b":2}', b"[1", b"2]", b'{"c":3}', b" 7 ", b""]
    found = serde.json().loads_many(data)
    assert [index for index, _ in found.bad] == [0, 1, 2, 5]
    assert found.values == [None, None, None, {"c": 3}, 7, None]
    assert serde.json().loads_many([b"1,2", b"[3", b"4]"]).bad
    assert serde.json().loads_many([b"[1]", b"2", b"null"]).values == [[1], 2, None]
    assert serde.json().loads_many([]).values == []


def test_keys_of_a_type_are_checked_both_ways():
    """The bytes are those of any key."""
    assert serde.key(int).dumps(7) == serde.key().dumps(7)
    assert serde.key(tuple[str, int]).loads(serde.key().dumps(("DE", 7))) == ("DE", 7)
    with pytest.raises(DataError, match="is bool and not int"):
        serde.key(int).dumps(True)
    with pytest.raises(DataError, match="is str and not int"):
        serde.key(int).loads(b"7")
    with pytest.raises(DeclarationError, match="no type of key"):
        serde.key(float)


@pytest.mark.parametrize("with_none", [False, True])
def test_encoded_values_take_no_more_memory_than_their_bytes(with_none: bool) -> None:
    values = [{"id": number, "pad": "x" * 40} for number in range(1000)] + [None] * with_none
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        encoded = serde.json().dumps_many(values)
        taken = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert taken < 2 * sum(len(one or b"") + 33 for one in encoded.values)


def test_a_fragment_may_contain_line_breaks() -> None:
    values = [{"a": orjson.Fragment(b"[1,\n2]")}, {"b": 1}]
    assert serde.json().dumps_many(values).values == [b'{"a":[1,\n2]}', b'{"b":1}']
    assert serde.json().dumps_many([]).values == []
