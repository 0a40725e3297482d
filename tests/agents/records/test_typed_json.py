"""Typed rows: which records are bad is the same for rows and for columns of a type."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any, NotRequired, TypedDict

import msgspec
import pyarrow as pa
import pytest

from headgate.agents.records.column_chunk import decoded
from headgate.agents.records.column_types import columns_of_type
from headgate.agents.records.decoder import Decoder
from headgate.agents.records.serdes import json

from .mutations import some


class Row(TypedDict):
    user: str
    amount: float | None
    ts: int
    ok: bool | None
    note: str | None
    u: int | None


class Struct(msgspec.Struct, gc=False):
    user: str
    amount: float | None
    ts: int
    ok: bool | None
    note: str | None
    u: int | None


@dataclass
class Data:
    user: str
    amount: float | None
    ts: int
    ok: bool | None
    note: str | None
    u: int | None


GOOD = b'{"user":"a","amount":1.5,"ts":1,"ok":true,"note":"x","u":2}'


@pytest.mark.parametrize("kind", [Row, Struct, Data])
@pytest.mark.parametrize(
    ("record", "is_good"),
    [
        (GOOD, True),
        (GOOD.replace(b"1.5", b"1"), True),
        (b'{"user":"a","ts":1}', True),
        (b'{"user":"a","ts":1,"amount":null}', True),
        (b'{"user":"x","ts":0,"user":"a","ts":1,"other":[1,{"a":2}]}', True),
        (b'{"user":"a"}', False),
        (b'{"user":null,"ts":1}', False),
        (b'{"user":"a","ts":"1"}', False),
        (b'{"user":"a","ts":1.5}', False),
        (b'{"user":"a","ts":1.0}', False),
        (b'{"user":"a","ts":true}', False),
        (b'{"user":"a","ts":9223372036854775808}', False),
        (b'{"user":"a","ts":-9223372036854775808}', True),
        (b'{"user":"a","ts":1,"u":-9223372036854775809}', False),
        (b'{"user":"a","ts":1,"other":"\xff"}', False),
        (b'{"user":"a","ts":1,"other":"\xc3\xbc"}', True),
        (b'{"user":"a","ts":1', False),
        (b"", False),
        (GOOD + GOOD, False),
        (b"[1]", False),
        (b"null", False),
    ],
)
def test_a_record_fits_the_type_or_not(kind: Any, record: bytes, is_good: bool) -> None:
    """Alone, and among others."""
    serde = json(kind)
    found = serde.loads_many([GOOD, record, GOOD])
    assert [index for index, _ in found.bad] == ([] if is_good else [1])
    assert found.values[0] == found.values[2] == serde.loads(GOOD)
    columns = decoded(Decoder(columns_of_type(kind).columns), [GOOD, record, GOOD])
    assert [one.record for one in columns.bad] == ([] if is_good else [1])


def test_columns_judge_mutated_records_as_typed_rows_do() -> None:
    """Same verdict and same values, but for the two differences that are known: a number beyond a double in a field that the type does not
    have, and a field of the wrong type whose second occurrence is right. msgspec refuses neither, or both."""
    serde, decoder = json(Row), Decoder(columns_of_type(Row).columns)
    for record in some(random.Random(7), 4000):
        row = serde.loads_many([record])
        found = decoded(decoder, [record])
        if bool(row.bad) == bool(found.bad):
            assert row.bad or found.columns.rows() == [{**dict.fromkeys(Row.__annotations__), **row.values[0]}], record
        else:
            assert b"e" in record.lower() or twice(record), record


def twice(record: bytes) -> bool:
    return any(record.count(b'"%b"' % name.encode()) > 1 for name in Row.__annotations__)


def test_what_is_missing_is_none() -> None:
    """Whether its class has a default or not; a key of a TypedDict that may be missing stays missing."""

    class Some(TypedDict):
        a: int
        b: int | None
        c: NotRequired[int]

    assert json(Some).loads(b'{"a":1}') == {"a": 1, "b": None}
    assert json(pa.schema([pa.field("a", pa.int64(), nullable=False), ("b", pa.string())])).loads(b'{"a":1}') == {
        "a": 1,
        "b": None,
    }


def test_nested_types_are_read_as_before() -> None:
    """Rows can be of any type; only columns cannot."""

    class Deep(msgspec.Struct):
        items: list[int]
        big: int = 0

    assert json(Deep).loads(b'{"items":[1]}') == Deep([1])
    assert json(int).loads_many([b"1", b"x"]).values == [1, None]
    assert [i for i, _ in json(Deep).loads_many([b'{"items":[]}', b'{"items":[],"big":18446744073709551616}']).bad] == [
        1
    ]
