"""Columns of logical types: both decoders and all encoders do what a few lines of Python around msgspec do, and Arrow gets the same."""

from __future__ import annotations

import random
from typing import Any

import msgspec
import pyarrow
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.agents.records.columns.arrow_take import FrameRefused, columns_of_frame
from headgate.agents.records.columns.decoder import BadSpan, Decoder, RecordFlaw
from headgate.agents.records.columns.encoder import Encoder, LogicalEncoder, NestedEncoder
from headgate.agents.records.columns.fitting import columns_of_values, why_bad
from headgate.agents.records.columns.logical_arrow import LogicalVector, arrow_batch, logical_in, stored_frame
from headgate.agents.records.columns.object_columns import ObjectColumns
from headgate.agents.records.layout import longs
from headgate.agents.records.logical.logical_columns import shown_maker
from headgate.agents.records.memory.record_spans import pieces
from headgate.agents.records.memory.vectors import Vector, VectorBatch
from headgate.agents.records.native import chosen
from headgate.agents.records.values.column_types import columns_of_type
from headgate.agents.records.values.nesting import nesting
from headgate.core.columns.logical import Logical
from headgate.core.columns.schema import ColumnSpec

from ..logical_records import SCHEMA, TYPES, WHOLE, Event, expected, some
from ..mutations import outcome, spans

needs_compiler = pytest.mark.skipif(chosen.COMPILED is None, reason="the compiled part is not built here")
FLAT = SCHEMA.only({one.name for one in SCHEMA.columns if not one.path})


@pytest.fixture(params=[pytest.param(True, marks=needs_compiler), False], ids=["compiled", "plain"])
def way(request: Any, monkeypatch: Any) -> None:
    """Each test runs with both parts."""
    if not request.param:
        monkeypatch.setattr(chosen, "part", chosen.PLAIN)


def decoded(records: list[bytes]) -> tuple[list[dict[str, Any]], list[int], Any]:
    """The rows by the names of columns, the records that they are of, and all that was found."""
    found = Decoder(SCHEMA.columns, nested=True).decode(*spans(records))
    columns = [
        one.values() if of.logical is None else LogicalVector(one, of.logical).values()
        for of, one in zip(SCHEMA.columns, found.columns.vectors, strict=True)
    ]
    rows = [dict(zip(SCHEMA.names, row, strict=True)) for row in zip(*columns, strict=True)]
    return rows, list(range(len(records))) if found.rows is None else longs(found.rows).tolist(), found


def typed(name: str, value: Any) -> Any:
    """A list or a map as its field was declared: objects in it are no dicts."""
    return msgspec.json.decode(msgspec.json.encode(value), type=TYPES[name])


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("seed", range(6))
def test_records_are_what_msgspec_reads(seed: int) -> None:
    """Each verdict, each value; good records are not lost with bad ones."""
    records = some(random.Random(seed), 150)
    rows, places, found = decoded(records)
    wanted = [expected(one) for one in records]
    assert places == [index for index, one in enumerate(wanted) if one is not None]
    assert [one.record for one in found.bad] == [index for index, one in enumerate(wanted) if one is None]
    assert len(rows) > 20
    for row, place in zip(rows, places, strict=True):
        one = wanted[place]
        assert one is not None
        for name, value in one.items():
            own = typed(name, row[name]) if name == "items" else row[name]
            assert own == value, (records[place], name)
    assert pieces(found.spans) == [records[place] for place in places]


@needs_compiler
@pytest.mark.parametrize("seed", range(6, 9))
def test_both_decoders_are_alike(seed: int, monkeypatch: Any) -> None:
    records = some(random.Random(seed), 300)
    compiled = outcome(Decoder(SCHEMA.columns, nested=True), records)
    monkeypatch.setattr(chosen, "part", chosen.PLAIN)
    assert outcome(Decoder(SCHEMA.columns, nested=True), records) == compiled


@given(st.data())
def test_whatever_a_record_is_it_gets_a_verdict(data: Any) -> None:
    """Values drawn for each field, beside the oracle."""
    leaves = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
    times = st.datetimes(timezones=st.none() | st.timezones()).map(lambda one: one.isoformat())
    values = (
        leaves
        | times
        | st.decimals().map(str)
        | st.dates().map(str)
        | st.binary().map(msgspec.json.encode).map(msgspec.json.decode)
    )
    some_field = st.sampled_from(list(WHOLE))
    event = {
        **WHOLE,
        **data.draw(
            st.dictionaries(
                some_field, st.recursive(values, lambda of: st.lists(of) | st.dictionaries(st.text(), of), max_leaves=5)
            )
        ),
    }
    try:
        record = msgspec.json.encode(event)
    except UnicodeEncodeError:
        return
    rows, _, found = decoded([record])
    assert (not rows) == (expected(record) is None)
    assert len(rows) + len(found.bad) == 1


@pytest.mark.usefixtures("way")
def test_records_are_written_as_msgspec_writes_them() -> None:
    """In full, in some rows, and around original bytes."""
    _, _, found = decoded([one for one in some(random.Random(9), 200) if expected(one)])
    rows = shown_maker(Event, SCHEMA)
    assert rows is not None
    values = rows([one.values() for one in found.columns.vectors])
    encoder = LogicalEncoder(SCHEMA.columns, NestedEncoder(SCHEMA.columns))
    written = pieces(encoder.encode(found.columns))
    for one, value in zip(written, values, strict=True):
        assert msgspec.json.decode(one or b"", type=Event) == value
        parts, wanted = (
            msgspec.json.decode(text, type=dict[str, msgspec.Raw]) for text in (one, msgspec.json.encode(value))
        )
        for name in ("at", "local", "day", "price", "n", "blob"):
            assert bytes(parts[name]) == bytes(wanted[name])
    few = longs(memoryview(bytes(8 * 2)).cast("q"))
    assert pieces(encoder.encode(found.columns, few)) == pieces(encoder.encode(found.columns))[:1] * 2
    assert pieces(encoder.encode(found.columns, None, found.spans)) == pieces(found.spans)


@pytest.mark.usefixtures("way")
def test_what_the_job_has_written_itself_stands_as_it_is_stored() -> None:
    """As in a frame of few rows."""
    _, _, found = decoded([one for one in some(random.Random(10), 100) if expected(one)])
    spans_of = Encoder(SCHEMA.names).encode(found.columns)
    again = Decoder(SCHEMA.columns, stored=True).decode(*spans_of)
    assert again.columns.rows() == found.columns.rows()
    assert again.bad == []


@pytest.mark.usefixtures("way")
def test_values_of_rows_are_stored_alike() -> None:
    """Objects of the declared types become the same columns as their JSON."""
    _, _, found = decoded([one for one in some(random.Random(11), 100) if expected(one)])
    make = shown_maker(Event, SCHEMA)
    assert make is not None
    columns, bad = columns_of_values(make([one.values() for one in found.columns.vectors]), SCHEMA)
    assert bad == []
    again = make([Vector.of(one.type, columns[one.name]).values() for one in SCHEMA.columns])
    assert again == make([one.values() for one in found.columns.vectors])
    _, bad = columns_of_values([{**WHOLE, "price": 1.5}, {"at": "2026"}, {**WHOLE, "at": None}], FLAT)
    whys = [error.what for _, error in bad]
    assert "the field 'at' is '2026-01-31T12:00:00.25+01:00', which is not a datetime: no timestamp" in whys[0]
    assert "'2026'" in whys[1]
    assert "null" in whys[2]


def test_why_a_record_is_bad_says_the_type() -> None:
    bad, kinds = BadSpan(0, RecordFlaw.WRONG_TYPE, "price"), Decoder(SCHEMA.columns).kinds
    assert "the field 'price' is no decimal(12, 2)" in why_bad(bad, b'{"price":"1.234"}', kinds).what


@pytest.mark.usefixtures("way")
def test_arrow_gets_its_own_types_and_gives_them_back() -> None:
    """The types follow from the declaration, also where all is null; what comes back is what was stored."""
    _, _, found = decoded([one for one in some(random.Random(12), 100) if expected(one)])
    logical = logical_in(SCHEMA.columns)
    whole = pyarrow.record_batch(ObjectColumns(found.columns, nesting(SCHEMA.columns), logical))
    assert [f"{one.name}: {one.type}" for one in whole.schema] == [
        "at: timestamp[us, tz=UTC]",
        "local: timestamp[us]",
        "day: date32[day]",
        "price: decimal128(12, 2)",
        "n: int64",
        "blob: binary",
        "tags: list<item: string>",
        "items: list<item: struct<sku: string not null, count: int64 not null, price: decimal128(6, 2)> not null>",
        "counts: map<string, list<item: double not null>>",
        "inner: struct<at: timestamp[us, tz=UTC], blob: binary>",
    ]
    whole.validate(full=True)
    assert whole.column("at").to_pylist() == LogicalVector(found.columns["at"], logical["at"]).values()
    batch = VectorBatch(FLAT.names, tuple(found.columns[name] for name in FLAT.names), found.columns.length)
    given = arrow_batch(batch, logical_in(FLAT.columns))
    back = columns_of_frame(stored_frame(given, FLAT.columns), FLAT.columns)
    make = shown_maker(None, FLAT)
    assert make is not None
    rows = [make([one.values() for one in made.vectors]) for made in (back, batch)]
    for row in rows[0] + rows[1]:  # a field that was missing is null in Arrow
        row["items"] = typed("items", row["items"])
    assert rows[0] == rows[1]
    none = pyarrow.record_batch(
        ObjectColumns(
            VectorBatch(("a",), (Vector.of("int64", [None]),), 1),
            nesting([ColumnSpec("a", "int64")]),
            {"a": Logical("timestamp")},
        )
    )
    assert str(none.schema.field("a").type) == "timestamp[us, tz=UTC]"


@pytest.mark.parametrize(
    ("column", "name", "why"),
    [
        (pyarrow.array([1]), "at", "is int64, not timestamp"),
        (pyarrow.array([1], pyarrow.timestamp("us")), "at", "not timestamp"),
        (pyarrow.array([1], pyarrow.timestamp("ns", "UTC")), "at", "lose data"),
        (pyarrow.array([1], pyarrow.timestamp("us", "UTC")), "local", "not local timestamp"),
        (pyarrow.array(["1.234"]).cast(pyarrow.decimal128(10, 3)), "price", "not decimal"),
        (pyarrow.array([1.5]), "price", "is double, not decimal"),
        (pyarrow.array([1]), "tags", "not list"),
        (pyarrow.array([5]), "day", "not date"),
    ],
)
def test_frames_of_other_types_are_refused(column: Any, name: str, why: str) -> None:
    """With what to cast them to; nothing is rounded."""
    with pytest.raises(FrameRefused, match=why):
        stored_frame(pyarrow.table({name: column}), [SCHEMA[name]])


def test_frames_of_other_units_and_widths_are_taken() -> None:
    """As long as nothing is lost, in several chunks, too."""
    ms = pyarrow.chunked_array([[1], [None, 2]], pyarrow.timestamp("ms", "Europe/Berlin"))
    narrow = pyarrow.array(["1.5", None, "2"]).cast(pyarrow.decimal128(3, 1))
    days = pyarrow.array([86_400_000, None, 0], pyarrow.date64())
    items = pyarrow.array([["a"], None, []], pyarrow.large_list(pyarrow.large_string()))
    columns = columns_of_type(Event).only({"at", "price", "day", "tags"}).columns
    found = stored_frame(pyarrow.table({"at": ms, "price": narrow, "day": days, "tags": items}), columns)
    assert found.to_pydict() == {
        "at": [1000, None, 2000],
        "price": [150, None, 200],
        "day": [1, None, 0],
        "tags": ['["a"]', None, "[]"],
    }
