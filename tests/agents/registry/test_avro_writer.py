"""Columns as Avro records: what the programs write is what fastavro writes of the dicts of the rows; both ways, compiled and plain."""

from __future__ import annotations

import datetime as dt
from array import array
from decimal import Decimal
from typing import Annotated, Any, TypedDict

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import headgate as hg
from headgate.agents.learning import MustLearn
from headgate.agents.records.columns.fitting import columns_of_values
from headgate.agents.records.layout import Kind
from headgate.agents.records.logical.logical_columns import shown_maker
from headgate.agents.records.memory.record_spans import pieces
from headgate.agents.records.memory.vectors import Vector, VectorBatch, dicts_of
from headgate.agents.records.native import chosen
from headgate.agents.records.values.column_types import columns_of_type
from headgate.agents.registry.avro_writer import AvroWriter
from headgate.agents.registry.memory import MemoryRegistry, taught
from headgate.agents.registry.serde import RegistrySerde
from headgate.core.errors import DeclarationError

needs_compiler = pytest.mark.skipif(chosen.COMPILED is None, reason="the compiled part is not built here")


@pytest.fixture(params=[pytest.param(True, marks=needs_compiler), False], ids=["compiled", "plain"])
def way(request, monkeypatch):
    """Each test runs both ways."""
    if not request.param:
        monkeypatch.setattr(chosen, "part", chosen.PLAIN)


def bound(schema: Any) -> Any:
    """A serde that writes with this schema, and knows it."""
    serde: Any = hg.avro(schema=schema, register=True).at("t", "value")
    serde.connect(MemoryRegistry({}))
    with pytest.raises(MustLearn):
        serde.column_writer().encode(VectorBatch((), (), 0), None, None)
    taught(lambda _: serde.writing(), [])
    return serde


def writer(serde: Any) -> AvroWriter:
    """It writes by programs, whichever part is chosen."""
    made = serde.column_writer()
    made.by_programs = True
    return made


def batch_of(kind: Any, values: list[Any]) -> tuple[Any, VectorBatch]:
    """The columns of values of a type."""
    schema = columns_of_type(kind)
    columns, bad = columns_of_values(values, schema)
    assert not bad
    vectors = tuple(Vector.of(one.type, columns[one.name]) for one in schema.columns)
    return schema, VectorBatch(schema.names, vectors, len(values))


def by_rows(serde: Any, schema: Any, batch: VectorBatch) -> Any:
    """What the serde writes of the rows, and which of them fail."""
    lists = [one.values() for one in batch.vectors]
    make = None if schema is None else shown_maker(None, schema)
    found = serde.dumps_many(make(lists) if make else dicts_of(batch.names, len(batch), lists))
    return [one or b"" for one in found.values], [(index, error.what) for index, error in found.bad]


def by_columns(of: AvroWriter, schema: Any, batch: VectorBatch) -> Any:
    """What a program writes; None if there is none."""
    found = of.encode(batch, schema, None)
    return None if found is None else (pieces(found.spans), [(index, error.what) for index, error in found.bad])


# ------------------------------------------------------------------------------------------------------------------ cases


class Customer(TypedDict):
    country: str
    zip: int | None


class Whole(TypedDict):
    id: int
    amount: float
    paid: bool
    kind: str
    note: str | None
    at: dt.datetime
    local: Annotated[dt.datetime, msgspec.Meta(tz=False)]
    day: dt.date
    price: Annotated[Decimal, hg.Digits(8, 2)]
    fixed: Annotated[Decimal, hg.Digits(8, 2)]
    raw: bytes
    four: bytes | None
    tags: list[str]
    counts: dict[str, int] | None
    customer: Customer
    second: Customer | None
    unused: int


CUSTOMER = {
    "type": "record",
    "name": "Customer",
    "fields": [{"name": "zip", "type": ["null", "int"]}, {"name": "country", "type": "string"}],
}
DECIMAL = {"logicalType": "decimal", "precision": 8, "scale": 2}
FIELDS: list[dict[str, Any]] = [
    {"name": "id", "type": "int"},
    {"name": "amount", "type": "float"},
    {"name": "paid", "type": ["boolean"]},
    {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["PAID", "OPEN"]}},
    {"name": "note", "type": ["string", "null"]},
    {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    {"name": "local", "type": {"type": "long", "logicalType": "local-timestamp-micros"}},
    {"name": "day", "type": ["null", {"type": "int", "logicalType": "date"}]},
    {"name": "price", "type": {"type": "bytes", **DECIMAL}},
    {"name": "fixed", "type": {"type": "fixed", "name": "Fixed", "size": 3, **DECIMAL, "precision": 6}},
    {"name": "raw", "type": "bytes"},
    {"name": "four", "type": ["null", {"type": "fixed", "name": "Four", "size": 4}]},
    {"name": "tags", "type": {"type": "array", "items": "string"}},
    {"name": "counts", "type": ["null", {"type": "map", "values": "int"}]},
    {"name": "customer", "type": CUSTOMER},
    {"name": "second", "type": ["null", "Customer"]},
    {"name": "more", "type": "double", "default": 1},
    {"name": "none", "type": ["long", "null"]},
    {"name": "inner", "type": {"type": "array", "items": "long"}, "default": [1, 2]},
]
WHOLE = {"type": "record", "name": "shop.Whole", "fields": FIELDS}


def value(**other: Any) -> Any:
    """A row that fits."""
    return {
        "id": 7,
        "amount": 1.25,
        "paid": True,
        "kind": "OPEN",
        "note": "ö",
        "at": dt.datetime(1969, 12, 31, 23, 59, 59, 999_500, dt.UTC),
        "local": dt.datetime(2024, 2, 29, 1, 2, 3, 4),
        "day": dt.date(1969, 12, 31),
        "price": Decimal("-1.28"),
        "fixed": Decimal("-327.68"),
        "raw": b"\0\xff",
        "four": b"abcd",
        "tags": ["a", ""],
        "counts": {"a": 1},
        "customer": {"country": "DE", "zip": None},
        "second": {"country": "FR", "zip": 3},
        "unused": 1,
        **other,
    }


def test_columns_are_written_as_the_library_writes_their_rows(way):
    """Every type of columns, unions with null both ways, defaults, fields that are no columns, and columns that are no fields."""
    serde = bound(WHOLE)
    rows = [value(), value(note=None, four=None, counts=None, second=None, day=dt.date(9999, 12, 31)), value(tags=[])]
    schema, batch = batch_of(Whole, rows)
    found = by_columns(writer(serde), schema, batch)
    assert found is not None
    assert found == by_rows(serde, schema, batch)
    assert found[1] == []


@pytest.mark.parametrize(
    "other",
    [
        {"id": 2**31},
        {"kind": "GONE"},
        {"price": Decimal("999999.99"), "fixed": Decimal("83886.08")},
        {"four": b"abc"},
        {"amount": 1e300},
        {"amount": 3.4028235e38},
        {"counts": {"a": 2**40}},
    ],
    ids=str,
)
def test_a_row_that_does_not_fit_is_left_to_the_library_and_to_no_other(way, other):
    """It fails alone, with what the library says; or it is written, if the library takes it."""
    serde = bound(WHOLE)
    schema, batch = batch_of(Whole, [value(), value(**other), value(id=9)])
    found = by_columns(writer(serde), schema, batch)
    assert found == by_rows(serde, schema, batch)
    assert {index for index, _ in found[1]} <= {1}


def test_some_rows_are_written_in_their_places(way):
    """The places of bad rows are those among the rows that were asked for."""
    serde = bound(WHOLE)
    schema, batch = batch_of(Whole, [value(), value(kind="GONE"), value(), value(kind="GONE")])
    found = writer(serde).encode(batch, schema, array("q", [0, 3]))
    assert found is not None
    first = by_rows(serde, schema, batch)[0][0]
    assert pieces(found.spans) == [first, b"", b"", b""]
    assert [index for index, _ in found.bad] == [1]


def test_results_are_written_by_their_kinds(way):
    """A column of whole numbers and fractions, of which a long takes the first alone."""
    serde = bound(
        {
            "type": "record",
            "name": "R",
            "fields": [{"name": "n", "type": "long"}, {"name": "mean", "type": ["null", "double"]}],
        }
    )
    kinds: tuple[Kind, Kind] = "number", "number"
    values = [[1, 2.5, 3], [None, 7, 0.5]]
    vectors = tuple(Vector.of(kind, column) for kind, column in zip(kinds, values, strict=True))
    batch = VectorBatch(("n", "mean"), vectors, 3)
    found = by_columns(writer(serde), None, batch)
    assert found == by_rows(serde, None, batch)


class Inner(TypedDict):
    n: int


class Outer(TypedDict):
    n: int
    next: Inner | None


class Plain(TypedDict):
    a: int
    t: str


@pytest.mark.parametrize(
    "field",
    [
        {"name": "a", "type": ["int", "string"]},
        {"name": "b", "type": "int"},
        {"name": "a", "type": "string"},
        {"name": "a", "type": {"type": "int", "logicalType": "of-the-user"}},
        {"name": "t", "type": "bytes"},
        {"name": "a", "type": "null"},
        {"name": "b", "type": "bytes", "default": "ÿ"},
    ],
    ids=str,
)
def test_what_a_program_does_not_surely_write_goes_by_rows(way, field):
    """Then the caller writes rows."""
    schema, batch = batch_of(Plain, [{"a": 1, "t": "x"}])
    of = writer(bound({"type": "record", "name": "P", "fields": [field]}))
    assert of.encode(batch, schema, None) is None


def test_a_schema_that_lies_in_itself_is_written_as_far_as_there_are_columns(way):
    """A list of a list of … has columns of its first two."""
    link = {
        "type": "record",
        "name": "Link",
        "fields": [{"name": "n", "type": "long"}, {"name": "next", "type": ["null", "Link"]}],
    }
    serde = bound(link)
    schema, batch = batch_of(Outer, [{"n": 1, "next": {"n": 2}}, {"n": 3, "next": None}])
    found = by_columns(writer(serde), schema, batch)
    assert found is not None
    assert found == by_rows(serde, schema, batch)


def test_without_the_compiled_part_rows_are_written():
    """They are faster there."""
    serde = bound(WHOLE)
    schema, batch = batch_of(Whole, [value()])
    of = writer(serde)
    of.by_programs = False
    assert of.encode(batch, schema, None) is None


def test_what_does_not_fit_together_is_refused(way):
    """Rows outside of the columns, columns of other types, and programs that are none."""
    part = chosen.part
    code = array("i", [4, 0, 0, 0, 0, -1, 0, 0])
    program = part.avro_writer(code, [], b"\0")
    longs = (0, array("q", [1, 300]), None, None)
    assert part.avro_encode(program, [longs], 2, b"\0", None)[0] == b"\0\x02\0\xd8\x04"
    with pytest.raises(ValueError, match="lies outside"):
        part.avro_encode(program, [longs], 2, b"\0", array("q", [2]))
    with pytest.raises(ValueError, match="other columns"):
        part.avro_encode(program, [(1, array("d", [1, 2]), None, None)], 2, b"\0", None)
    with pytest.raises(ValueError, match="no such program"):
        part.avro_writer(array("i", [4, 0, 0, 0]), [], b"\0")


def test_a_field_that_no_column_has_is_refused_when_it_is_declared():
    """It would fail at every record."""
    app = hg.App("declared")
    rows = app.input("in", serde=hg.json(Plain)).columns()
    fields = [{"name": "a", "type": "long"}, {"name": "b", "type": "long"}]
    with pytest.raises(DeclarationError, match="field 'b' without a default") as refused:
        rows.to("out", serde=hg.avro(schema={"type": "record", "name": "P", "fields": fields}))
    assert "with_columns(b=…)" in str(refused.value)
    fields[1]["default"] = 0  # type: ignore[assignment]
    rows.to("out", serde=hg.avro(schema={"type": "record", "name": "P", "fields": fields}))


# ------------------------------------------------------------------------------------------------------------------ chance

PLAIN: dict[str, tuple[Any, Any]] = {
    "long": (int, st.integers(-(2**63), 2**63 - 1)),
    "int": (int, st.integers(-(2**31) - 2, 2**31 + 1) | st.integers(-3, 3)),
    "double": (float, st.floats(allow_nan=False, allow_infinity=False)),
    "float": (float, st.floats(-100, 100) | st.floats(allow_nan=False, allow_infinity=False)),
    "boolean": (bool, st.booleans()),
    "string": (str, st.text(max_size=4)),
    "bytes": (bytes, st.binary(max_size=4)),
}
TIMES = st.datetimes(min_value=dt.datetime(1, 1, 2), max_value=dt.datetime(9999, 12, 30))


@st.composite
def _field(draw: Any, depth: int, names: list[str]) -> tuple[Any, Any, Any]:
    """A schema, the type of its column, and values."""
    kind = draw(st.sampled_from([*PLAIN, "widened", "enum", "fixed", "at", "day", "decimal", "list", "map", "record"]))
    names.append(f"N{len(names)}")
    own: Any = {"name": names[-1]}
    match kind:
        case "widened":
            made: tuple[Any, Any, Any] = "double", int, st.integers(-(2**63), 2**63 - 1)
        case "enum":
            made = {**own, "type": "enum", "symbols": ["A", "BB"]}, str, st.sampled_from(["A", "BB", "BB", "C"])
        case "fixed":
            made = {**own, "type": "fixed", "size": 2}, bytes, st.binary(min_size=2, max_size=3)
        case "at":
            unit = draw(st.sampled_from(["timestamp-millis", "timestamp-micros", "local-timestamp-millis"]))
            made = {"type": "long", "logicalType": unit}, dt.datetime, TIMES.map(lambda one: one.replace(tzinfo=dt.UTC))
        case "day":
            made = {"type": "int", "logicalType": "date"}, dt.date, st.dates()
        case "decimal":
            places = Annotated[Decimal, hg.Digits(5, 2)]
            base = draw(st.sampled_from([{"type": "bytes"}, {**own, "type": "fixed", "size": 3}]))
            shape = {**base, "logicalType": "decimal", "precision": draw(st.integers(3, 6)), "scale": 2}
            made = shape, places, st.integers(-99_999, 99_999).map(lambda one: Decimal(one).scaleb(-2))
        case "list":
            items = draw(st.sampled_from(["int", "double", "string"]))
            hint, inner = PLAIN[items]
            made = {"type": "array", "items": items}, list[hint], st.lists(inner, max_size=2)
        case "map":
            made = (
                {"type": "map", "values": "int"},
                dict[str, int],
                st.dictionaries(st.text(max_size=2), PLAIN["int"][1], max_size=2),
            )
        case "record" if depth < 2:
            made = draw(_record(depth + 1, names))
        case "record":
            made = "string", str, st.text(max_size=2)
        case _:
            made = kind, *PLAIN[kind]
    schema, hint, values = made
    if draw(st.booleans()):
        pair = ["null", schema] if draw(st.booleans()) else [schema, "null"]
        return pair, hint | None, values | st.none()
    return schema, hint, values


@st.composite
def _record(draw: Any, depth: int, names: list[str]) -> tuple[Any, Any, Any]:
    names.append(f"N{len(names)}")
    own = names[-1]
    fields, hints, values = list[Any](), dict[str, Any](), dict[str, Any]()
    for number in range(draw(st.integers(1, 4))):
        schema, hint, value = draw(_field(depth, names))
        fields.append({"name": f"f{number}", "type": schema})
        hints[f"f{number}"], values[f"f{number}"] = hint, value
    if draw(st.booleans()):
        fields.append({"name": "missing", "type": draw(st.sampled_from([["null", "int"], ["string", "null"]]))})
    if draw(st.booleans()):
        fields.append({"name": "default", "type": ["double", "null"], "default": 2.5})
    made: Any = TypedDict("Made", hints)  # type: ignore[operator]
    return {"type": "record", "name": own, "fields": fields}, made, st.fixed_dictionaries(values)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], deadline=None)
@given(st.data())
def test_what_a_program_writes_is_what_the_library_writes(way, data):
    """Any schema, and rows of which some do not fit."""
    schema, kind, values = data.draw(_record(0, []))
    serde = bound(schema)
    columns, batch = batch_of(kind, data.draw(st.lists(values, max_size=4)))
    found = by_columns(writer(serde), columns, batch)
    assert found is not None
    assert found == by_rows(serde, columns, batch)


# --------------------------------------------------------------------------------------------------------------------- a job


class Order(TypedDict):
    id: int
    amount: float
    customer: Customer
    note: str | None


ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "int"},
        {"name": "customer", "type": CUSTOMER},
        {"name": "note", "type": ["null", "string"]},
        {"name": "total", "type": "double"},
    ],
}
COUNTS = {
    "type": "record",
    "name": "Counts",
    "fields": [{"name": "n", "type": "long"}, {"name": "total", "type": "double"}],
}


def test_a_job_writes_columns_and_results_in_avro_and_one_row_that_does_not_fit_fails_alone(way, monkeypatch):
    """Keys are those of a column, headers pass, no object stands for a record; a number that its union cannot hold is a dead letter."""
    asked = list[int]()

    def counted(serde: Any, values: Any) -> Any:
        if serde.topic == "out" and serde.part == "value":
            asked.append(len(values))
        return dumps(serde, values)

    app = hg.App("orders", serde=hg.json())
    orders = app.input("in", serde=hg.json(Order)).columns()
    made = orders.with_columns(total=hg.col("amount") * 2)
    made.to("out", key="customer.country", serde=hg.avro(schema=ORDER, register=True), on_error="dead_letter")
    sums = orders.repartition("customer.country").agg(n=hg.count(), total=hg.sum("amount"))
    sums.to("sums", serde=hg.avro(schema=COUNTS, register=True))
    with hg.testing.Driver(app) as d:
        dumps = RegistrySerde.dumps_many
        if chosen.part.FAST:
            monkeypatch.setattr(RegistrySerde, "dumps_many", counted)
        for number, place in ((1, None), (2, 2**40), (3, None)):
            customer = {"country": "DE", "zip": place}
            d.send("in", {"id": number, "amount": 1.5, "customer": customer, "note": None}, headers=[("x", b"y")])
        found = d.read("out")
        assert [(one.key, one.value) for one in found] == [
            ("DE", {"id": number, "customer": {"country": "DE", "zip": None}, "note": None, "total": 3.0})
            for number in (1, 3)
        ]
        assert [list(one.headers) for one in found] == [[("x", b"y")]] * 2
        assert d.read("sums")[-1].value == {"n": 2, "total": 3.0}
        assert len(d.read("orders-1-dead-letters")) == 1
    assert set(asked) <= {1}


def test_what_is_held_back_for_a_commit_is_written_with_a_schema_that_is_known_before(capfd):
    """At the commit no one can ask: it failed, the task started again, and held nothing back from then on."""
    app = hg.App("orders", serde=hg.json())
    orders = app.input("in", serde=hg.json(Order)).columns()
    sums = orders.repartition("id").agg(n=hg.count(), total=hg.sum("amount"))
    sums.to("sums", serde=hg.avro(schema=COUNTS, register=True), key_serde=hg.avro(schema='"long"', register=True))
    with hg.testing.Driver(app) as d:
        for _ in range(2):
            d.send("in", {"id": 1, "amount": 1.5, "customer": {"country": "DE", "zip": None}, "note": None})
        assert d.read("sums")[-1].value == {"n": 2, "total": 3.0}
    assert "failed" not in "".join(capfd.readouterr())
