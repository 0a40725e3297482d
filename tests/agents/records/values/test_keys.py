"""Keys as bytes: golden bytes, and properties of every key."""

from __future__ import annotations

import doctest
import json
from enum import IntEnum, StrEnum
from typing import Any, NamedTuple
from uuid import UUID

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headgate.agents.records.values import keys

ID = UUID("12345678-1234-5678-1234-567812345678")
GOLDEN = [
    ("", ""),
    ("DE", "44 45"),
    ("Zürich", "5a c3 bc 72 69 63 68"),
    ("a\0b", "61 00 62"),
    (0, "ff 14"),
    (1, "ff 15 01"),
    (255, "ff 15 ff"),
    (256, "ff 16 01 00"),
    (-1, "ff 13 fe"),
    (-255, "ff 13 00"),
    (-256, "ff 12 fe ff"),
    (2**63 - 1, "ff 1c 7f ff ff ff ff ff ff ff"),
    (2**64 - 1, "ff 1c ff ff ff ff ff ff ff ff"),
    (-(2**63), "ff 0c 7f ff ff ff ff ff ff ff"),
    (b"", "ff 01 00"),
    (b"DE", "ff 01 44 45 00"),
    (b"a\0b\xff", "ff 01 61 00 ff 62 ff 00"),
    (False, "ff 26"),
    (True, "ff 27"),
    (ID, "ff 30 12 34 56 78 12 34 56 78 12 34 56 78 12 34 56 78"),
    ((), "ff 05 00"),
    ((1,), "ff 05 15 01 00"),
    ((1, "a"), "ff 05 15 01 02 61 00 00"),
    (("a\0", b"\0"), "ff 05 02 61 00 ff 00 01 00 ff 00 00"),
    ((("DE", True), ID), "ff 05 05 02 44 45 00 27 00 30 12 34 56 78 12 34 56 78 12 34 56 78 12 34 56 78 00"),
]

numbers = st.integers(keys.LEAST, keys.MOST) | st.integers(-300, 300)
texts = st.text(st.characters(exclude_categories=["Cs"]))
single = st.one_of(texts, numbers, st.binary(), st.booleans(), st.uuids())
any_key = st.recursive(single, lambda parts: st.lists(parts, max_size=4).map(tuple), max_leaves=8)
of_one_type = st.one_of(
    *(st.tuples(one, one) for one in (texts, numbers, st.binary(), st.booleans(), st.uuids())),
    st.tuples(st.tuples(texts, numbers), st.tuples(texts, numbers)),
    st.tuples(st.lists(st.binary()).map(tuple), st.lists(st.binary()).map(tuple)),
)


def typed(key: Any) -> Any:
    """A key that is equal to another only if that has the same types."""
    return (tuple, [typed(part) for part in key]) if isinstance(key, tuple) else (type(key), key)


@pytest.mark.parametrize(("key", "data"), GOLDEN, ids=lambda one: repr(one)[:30])
def test_golden_bytes(key, data):
    """Stored in topics and stores: these bytes never change."""
    assert keys.encode(key).hex(" ") == data
    assert typed(keys.decode(bytes.fromhex(data))) == typed(key)


@given(any_key)
def test_a_key_comes_back_with_its_types(key):
    """A key is what it was, in every process."""
    assert typed(keys.decode(keys.encode(key))) == typed(key)


@given(st.lists(any_key | st.sampled_from(["1", 1, True, b"1", (1,), "", 0, False, b"", ()]), max_size=10))
@example(["1", 1, True, b"1", (1,), 1.0 and 1])
def test_distinct_keys_have_distinct_bytes(some):
    """Records are grouped by these bytes: 1 and True are two keys, though Python finds them equal."""
    distinct = {repr(typed(key)) for key in some}
    assert len({keys.encode(key) for key in some}) == len(distinct)


@given(of_one_type)
def test_the_order_of_keys_is_that_of_their_bytes(pair):
    """Ranges of a table are ranges of bytes."""
    one, other = pair
    assert (keys.encode(one) < keys.encode(other)) == (one < other)


@given(st.one_of(st.binary(), st.binary().map(lambda data: keys.MARK + data)))
@example(b"\xff\x02a\x00")
@example(b"\xff\x15\x00")
@example(b"\xff\x16\x00\x01")
@example(b"\xff\x13\xff")
@example(b"\xff\x0c" + bytes(8))
@example(b"\xff\x1d" + bytes(range(1, 10)))
@example(b"\xff" + b"\x05" * 10_000)
@example(b"\xff\x05\x00\xff\x00")
def test_any_bytes_are_one_key_or_none(data):
    """No bytes raise anything else, and no key has two encodings."""
    try:
        key = keys.decode(data)
    except keys.KeyUnreadable:
        return
    assert keys.encode(key) == data


@given(st.lists(any_key))
@example([1, True])
@example([3, -1])
@example([2**64, 1][1:])
def test_a_column_has_the_bytes_of_its_keys(column):
    """The quick ways of columns of text and of numbers give what one by one does."""
    data = [keys.encode(key) for key in column]
    assert keys.encode_column(column, set(map(type, column))) == data
    assert [typed(key) for key in keys.decode_column(data)] == [typed(key) for key in column]


class Size(IntEnum):
    LARGE = 3


class Country(StrEnum):
    DE = "DE"


class Place(NamedTuple):
    country: str
    city: int


@pytest.mark.parametrize(
    ("key", "plain"), [(Size.LARGE, 3), (Country.DE, "DE"), (Place("DE", 1), ("DE", 1)), ((Country.DE,), ("DE",))]
)
def test_derived_types_are_their_plain_value(key, plain):
    """What is equal to a key and a kind of it, is that key."""
    assert keys.encode(key) == keys.encode(plain)
    assert keys.encode_column([key, key], {type(key)}) == [keys.encode(plain)] * 2


def nested(depth: int) -> Any:
    """Tuples in tuples."""
    return (nested(depth - 1),) if depth else 1


@pytest.mark.parametrize(
    ("key", "why"),
    [
        (None, "is None"),
        (1.0, r"is float, which cannot be a key \(1.0\)"),
        ((1, None), "contains None"),
        ([1], "is list"),
        (bytearray(b"a"), "is bytearray"),
        (2**64, "more than 64 bits"),
        (-(2**63) - 1, "more than 64 bits"),
        ("\ud800", "no UTF-8"),
        (("\ud800",), "no UTF-8"),
        (nested(17), "more than 16 tuples"),
    ],
)
def test_what_is_no_key_is_refused(key, why):
    """It says what it is, and what a key may be."""
    with pytest.raises(keys.KeyRefused, match=why) as refused:
        keys.encode(key)
    assert refused.value.remedy
    assert keys.decode(keys.encode(nested(16))) == nested(16)


@pytest.mark.parametrize(
    ("key", "people"), [("DE", "DE"), (7, "7"), (True, "true"), (ID, str(ID)), (b"\x01", "0x01"), (("DE", ID), None)]
)
def test_what_is_shown_can_be_typed(key, people):
    """A key that a command prints is one that the command takes."""
    said = people if people is not None else json.dumps(keys.shown(key))
    assert typed(key) in [typed(one) for one in keys.named(said)]


def test_the_examples_of_the_module():
    """They are what they say."""
    assert doctest.testmod(keys).failed == 0
