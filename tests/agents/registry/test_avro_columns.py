"""Avro records as columns: what the programs read is what rows give, which fastavro reads; both ways, compiled and plain."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal
from io import BytesIO
from typing import Annotated, Any, TypedDict

import fastavro
import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import headgate as hg
from headgate.agents.learning import MustLearn
from headgate.agents.records.layout import longs
from headgate.agents.records.memory.record_spans import packed, pieces
from headgate.agents.records.native import chosen
from headgate.agents.records.values.column_types import columns_of_type
from headgate.agents.registry import wire
from headgate.agents.registry.avro_program import avro_reading
from headgate.agents.registry.memory import MemoryRegistry
from headgate.agents.registry.program_columns import NoProgram, ProgramColumns
from headgate.core.errors import DeclarationError

from .decoding import decoded, shown

needs_compiler = pytest.mark.skipif(chosen.COMPILED is None, reason="the compiled part is not built here")
LONG = 2**63


@pytest.fixture(params=[pytest.param(True, marks=needs_compiler), False], ids=["compiled", "plain"])
def way(request, monkeypatch):
    """Each test runs both ways."""
    if not request.param:
        monkeypatch.setattr(chosen, "part", chosen.PLAIN)


def body(schema: Any, value: Any) -> bytes:
    """A value in Avro, without a prefix."""
    out = BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    return out.getvalue()


def reader(kind: Any, schemas: Any, schema: Any = None) -> ProgramColumns:
    """What decodes columns of this type, by programs, whichever part is chosen."""
    try:
        serde: Any = hg.avro(kind, schema=schema)
    except DeclarationError:  # it has a decimal, of which no schema follows: .columns(Kind) behind hg.avro()
        serde = hg.avro(schema=schema)
    bound: Any = serde.at("t", "value")
    bound.connect(MemoryRegistry(schemas))
    made = bound.column_reader(columns_of_type(kind))
    made.by_programs = True
    return made


def has_program(of: ProgramColumns) -> bool:
    return all(reading is not None for _, reading in of.programs.read.values())


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
    raw: bytes
    tags: list[str]
    counts: dict[str, int]
    customer: Customer
    second: Customer | None


CUSTOMER = {
    "type": "record",
    "name": "Customer",
    "fields": [{"name": "country", "type": "string"}, {"name": "zip", "type": ["null", "int"]}],
}
WHOLE = {
    "type": "record",
    "name": "shop.Whole",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "amount", "type": "float"},
        {
            "name": "skipped",
            "type": {"type": "array", "items": {"type": "map", "values": ["null", "double", "string"]}},
        },
        {"name": "paid", "type": "boolean"},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["PAID", "OPEN"]}},
        {"name": "note", "type": ["string", "null"]},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "local", "type": {"type": "long", "logicalType": "local-timestamp-micros"}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 8, "scale": 2}},
        {"name": "raw", "type": {"type": "fixed", "name": "Four", "size": 4}},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "counts", "type": {"type": "map", "values": "long"}},
        {"name": "customer", "type": CUSTOMER},
        {"name": "other", "type": "Kind"},
        {"name": "second", "type": ["null", "Customer"]},
    ],
}


def value(number: int) -> dict[str, Any]:
    return {
        "id": number - 2,
        "amount": number / 4,
        "skipped": [{"a": None, "ö": 1.5}, {}] * number,
        "paid": bool(number % 2),
        "kind": ("PAID", "OPEN")[number % 2],
        "note": None if number % 3 else "nö",
        "at": dt.datetime(2026, 1, 2, 3, 4, 5, 6000, dt.UTC),
        "local": dt.datetime(1969, 1, 2, 3, 4, 5, 6),
        "day": dt.date(1960, 1, number + 1),
        "price": Decimal(number - 2) / 4,
        "raw": b"abc\xff",
        "tags": ["a"] * number,
        "counts": {"x": number},
        "customer": {"country": "DE", "zip": number},
        "other": "OPEN",
        "second": None if number % 2 else {"country": "FR", "zip": None},
    }


def test_all_types_are_read_as_rows_are(way: None) -> None:
    of = reader(Whole, {1: WHOLE})
    records = [wire.prefix(1) + body(WHOLE, value(number)) for number in range(6)]
    found = decoded(of, [*records, None])
    assert has_program(of)
    assert found.tombstones == [6]
    assert not found.bad
    assert shown(found) == shown(of.as_rows(packed([*records, None])))
    first = found.columns.rows()[0]
    assert (first["customer.country"], first["second"], first["price"], first["tags"]) == ("DE", True, -50, "[]")


def test_each_cut_of_a_record_is_bad_alone(way: None) -> None:
    """Every record that ends too early, and one with a byte too many, among good ones; each says why."""
    of, good = reader(Whole, {1: WHOLE}), wire.prefix(1) + body(WHOLE, value(2))
    records = [good, *(good[:size] for size in range(len(good))), good + b"\0", good]
    found = decoded(of, records)
    assert longs(found.rows).tolist() == [0, len(records) - 1]
    assert [one.record for one in found.bad] == list(range(1, len(records) - 1))
    assert [pieces(found.spans)] == [[good, good]]
    says = [of.why(one, records[one.record]).what for one in found.bad]
    assert "name no schema" in says[0]
    assert "bytes follow" in says[-1]
    assert all(says)


def test_values_that_no_column_holds_are_bad_and_said(way: None) -> None:
    class Small(TypedDict):
        at: dt.datetime
        amount: float
        price: Annotated[Decimal, hg.Digits(4, 2)]

    schema = {
        "type": "record",
        "name": "S",
        "fields": [
            {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
            {"name": "amount", "type": "double"},
            {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        ],
    }
    plain = {
        **schema,
        "fields": [
            {"name": "at", "type": "long"},
            {"name": "amount", "type": "double"},
            {"name": "price", "type": "bytes"},
        ],
    }
    of = reader(Small, {1: schema})

    def record(at: int, amount: float, price: bytes) -> bytes:
        return wire.prefix(1) + body(plain, {"at": at, "amount": amount, "price": price})

    records = [
        record(0, 1.0, b"\x27\x0f"),
        record(LONG - 1, 1.0, b""),
        record(0, float("nan"), b""),
        record(0, float("-inf"), b""),
        record(0, 1.0, b"\x27\x10"),
        record(0, 1.0, b"\xff" * 20 + b"\xd8\xf1"),
        record(0, 1.0, b"\x01" + bytes(8)),
    ]
    found = decoded(of, records)
    assert has_program(of)
    assert [row["price"] for row in found.columns.rows()] == [9999, -9999]
    assert [(one.record, one.column) for one in found.bad] == [
        (1, "at"),
        (2, "amount"),
        (3, "amount"),
        (4, "price"),
        (6, "price"),
    ]
    assert "no finite number" in of.why(found.bad[1], records[2]).what
    assert shown(of.as_rows(packed(records)))[2] == {1, 2, 3, 4, 6}


def test_a_length_is_never_believed(way: None) -> None:
    """Counts and lengths beyond the record, below zero, of more than 64 bits; blocks without end."""

    class One(TypedDict):
        n: int

    schema = {
        "type": "record",
        "name": "R",
        "fields": [{"name": "list", "type": {"type": "array", "items": "bytes"}}, {"name": "n", "type": "long"}],
    }
    of, most = reader(One, {1: schema}), b"\xfe" + b"\xff" * 8 + b"\x01"
    bodies = [
        b"\x00\x02",
        b"\x01\x04\x02a\x00\x02",  # a block of one, with its size
        most + b"\x02a\x00\x02",
        b"\xff" * 9 + b"\x01" + b"\x00\x00\x02",
        b"\x02" + most + b"a\x00\x02",
        b"\x02\x01a\x00\x02",
        b"\x80" * 12,
        b"\x00" + b"\xff" * 9 + b"\x02",
        b"\x02\x00" * 50,
    ]
    found = decoded(of, [wire.prefix(1) + one for one in bodies])
    assert has_program(of)
    assert [row["n"] for row in found.columns.rows()] == [1, 1]
    assert [one.record for one in found.bad] == [2, 3, 4, 5, 6, 7, 8]


# ------------------------------------------------------------------------------------------------------- several schemas


class Order(TypedDict):
    id: int
    land: str
    amount: float | None


OLD = {
    "type": "record",
    "name": "com.shop.Order",
    "fields": [{"name": "country", "type": "string"}, {"name": "id", "type": "int"}, {"name": "gone", "type": "bytes"}],
}
NEW = {
    "type": "record",
    "name": "com.shop.Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "land", "type": "string", "aliases": ["country"]},
        {"name": "amount", "type": ["null", "double"], "default": None},
        {"name": "unit", "type": "string", "default": "EUR"},
    ],
}


def test_records_of_several_schemas_are_read_each_with_its_own(way: None) -> None:
    """Names by alias, other orders, defaults, wider numbers, fields that nobody wants; an id that is unknown, bytes without one."""
    of = reader(Order, {1: OLD, 2: NEW}, NEW)
    old = wire.prefix(1) + body(OLD, {"country": "DE", "id": 1, "gone": b"x"})
    new = wire.prefix(2) + body(NEW, {"id": 2, "land": "FR", "amount": 1.5, "unit": "USD"})
    records = [new, old, b"{}", None, wire.prefix(9) + old[5:], new, old, b""]
    found = decoded(of, records)
    assert has_program(of)
    two, one = {"id": 2, "land": "FR", "amount": 1.5}, {"id": 1, "land": "DE", "amount": None}
    assert found.columns.rows() == [two, one, two, one]
    assert longs(found.rows).tolist() == [0, 1, 5, 6]
    assert [bad.record for bad in found.bad] == [2, 4, 7]
    assert found.tombstones == [3]
    assert "9" in of.why(found.bad[1], records[4] or b"").what


def test_all_unknown_schemas_of_a_chunk_are_asked_for_together(way: None) -> None:
    of = reader(Order, {1: OLD, 2: NEW}, NEW)
    data = packed([wire.prefix(number) + b"x" for number in (1, 2, 1, 3)])
    with pytest.raises(MustLearn) as asked:
        of.decode(*data)
    assert "1, 2, 3" in asked.value.what


def test_without_a_readers_schema_a_missing_field_is_null_or_bad(way: None) -> None:
    of = reader(Order, {1: OLD, 2: {**NEW, "fields": NEW["fields"][:2]}})
    found = decoded(
        of, [wire.prefix(1) + body(OLD, {"country": "DE", "id": 1, "gone": b""}), wire.prefix(2) + b"\x04\x04FR"]
    )
    assert found.columns.rows() == [{"id": 2, "land": "FR", "amount": None}]
    assert [(bad.record, bad.column) for bad in found.bad] == [(0, "land")]


def test_too_many_schemas_and_odd_ones_are_read_as_rows(way: None) -> None:
    """More ids than anybody has, a type that lies in itself: the same columns, more slowly."""

    class Tree(TypedDict):
        n: int

    tree = {
        "type": "record",
        "name": "T",
        "fields": [{"name": "n", "type": "long"}, {"name": "next", "type": ["null", "T"]}],
    }
    many = reader(Tree, dict.fromkeys(range(1, 101), tree))
    record = body(tree, {"n": 7, "next": {"n": 8, "next": None}})
    found = decoded(many, [wire.prefix(number) + record for number in range(1, 101)])
    assert [row["n"] for row in found.columns.rows()] == [7] * 100
    one = reader(Tree, {1: tree})
    assert decoded(one, [wire.prefix(1) + record]).columns.rows() == [{"n": 7}]
    assert not has_program(one)
    nulls = {"type": "array", "items": "null"}
    fields = [{"name": "x", "type": nulls}, {"name": "n", "type": "long"}]
    parsed = fastavro.parse_schema({"type": "record", "name": "N", "fields": fields})
    with pytest.raises(NoProgram, match="no bytes"):
        avro_reading(parsed, {}, None, {}, columns_of_type(Tree).columns)


# ------------------------------------------------------------------------------------------------------------- by chance

TEXTS = st.text(st.characters(codec="utf-8"), max_size=12)
LONGS = st.integers(-LONG, LONG - 1) | st.integers(-3, 3)
FLOATS = st.floats(allow_nan=False, allow_infinity=False)
TIMES = st.datetimes(dt.datetime(2, 1, 1), dt.datetime(9998, 1, 1)).map(
    lambda t: t.replace(microsecond=t.microsecond // 1000 * 1000)
)
TYPES: list[tuple[Any, Any, st.SearchStrategy[Any]]] = [
    ("long", int, LONGS),
    ("int", int, st.integers(-(2**31), 2**31 - 1)),
    ("long", float, LONGS),
    ("double", float, FLOATS),
    ("float", float, st.floats(width=32, allow_nan=False, allow_infinity=False)),
    ("boolean", bool, st.booleans()),
    ("string", str, TEXTS),
    ({"type": "long", "logicalType": "timestamp-millis"}, dt.datetime, TIMES.map(lambda t: t.replace(tzinfo=dt.UTC))),
    ({"type": "long", "logicalType": "timestamp-micros"}, dt.datetime, TIMES.map(lambda t: t.replace(tzinfo=dt.UTC))),
    ({"type": "int", "logicalType": "date"}, dt.date, st.dates()),
    (
        {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2},
        Annotated[Decimal, hg.Digits(8, 2)],
        st.integers(-999_999, 999_999).map(lambda n: Decimal(n) / 100),
    ),
    ("bytes", bytes, st.binary(max_size=9)),
    ({"type": "array", "items": "long"}, list[int], st.lists(LONGS, max_size=3)),
    ({"type": "array", "items": ["null", "string"]}, list[str | None], st.lists(st.none() | TEXTS, max_size=3)),
    ({"type": "map", "values": "double"}, dict[str, float], st.dictionaries(TEXTS, FLOATS, max_size=2)),
]  # fmt: skip


@st.composite
def jobs(draw: st.DrawFn) -> tuple[Any, Any, Any, list[bytes]]:
    """A type, the schema of a writer and perhaps a reader's, and bodies of records, some of them mutated."""
    fields, hints, makers = list[Any](), dict[str, Any](), dict[str, st.SearchStrategy[Any]]()

    def add(name: str, depth: int) -> tuple[Any, Any, st.SearchStrategy[Any]]:
        kind = draw(st.integers(0, len(TYPES) + 1))
        if kind == len(TYPES):
            symbols = draw(st.lists(st.sampled_from(["A", "B", "C"]), min_size=1, unique=True))
            found: Any = {"type": "enum", "name": f"E{name}", "symbols": symbols}, str, st.sampled_from(symbols)
        elif kind > len(TYPES) and depth < 2:
            inner = {f"{name}{one}": add(f"{name}{one}", depth + 1) for one in "ab"}
            schema = {
                "type": "record",
                "name": f"R{name}",
                "fields": [{"name": one, "type": of[0]} for one, of in inner.items()],
            }
            hint = TypedDict(f"R{name}", {one: of[1] for one, of in inner.items()})  # type: ignore[operator, misc]
            found = schema, hint, st.fixed_dictionaries({one: of[2] for one, of in inner.items()})
        else:
            found = TYPES[kind % len(TYPES)]
        if draw(st.booleans()):
            union = draw(st.permutations([found[0], "null"]))
            return list(union), found[1] | None, st.none() | found[2]
        return found

    for number in range(draw(st.integers(1, 4))):
        name = f"f{number}"
        schema, hint, makers[name] = add(name, 0)
        fields.append({"name": name, "type": schema})
        if draw(st.integers(0, 3)):
            hints[name] = hint
    if not hints:
        hints["other"] = str | None
    wrote = {"type": "record", "name": "Top", "fields": fields}
    wants = None
    if draw(st.booleans()):
        added = {"name": "more", "type": ["long", "null"], "default": 7}
        wants = {
            **wrote,
            "fields": [
                *draw(st.permutations(fields)),
                added,
                {"name": "other", "type": ["null", "string"], "default": None},
            ],
        }
        hints["more"] = int | None
    bodies = list[bytes]()
    for _ in range(draw(st.integers(1, 4))):
        one = bytearray(body(wrote, {name: draw(of) for name, of in makers.items()}))
        way = draw(st.integers(0, 3))
        if way == 1 and one:
            one[draw(st.integers(0, len(one) - 1))] = draw(st.integers(0, 255))
        elif way == 2:
            del one[draw(st.integers(0, len(one))) :]
        bodies.append(bytes(one))
    return TypedDict("Top", hints), wrote, wants, bodies  # type: ignore[operator, return-value]


def canonical(of: ProgramColumns, wrote: Any, data: bytes) -> bool:
    """Whether the library would write the value that it reads in these bytes in just these bytes, apart from the blocks of lists."""
    parsed = fastavro.parse_schema(json.loads(json.dumps(wrote)))
    return body(wrote, fastavro.schemaless_reader(BytesIO(data), parsed, None)) == data


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
)
@given(job=jobs())
def test_programs_and_rows_agree(way: None, job: tuple[Any, Any, Any, list[bytes]]) -> None:
    """On any types, schemas and bytes: the same values, and the same bad records, but for what `avro_columns` says."""
    kind, wrote, wants, bodies = job
    of = reader(kind, {1: wrote}, wants)
    records: list[bytes | None] = [wire.prefix(1) + one for one in bodies]
    found = decoded(of, records)
    assert has_program(of)
    rows = of.as_rows(packed(records))
    places = range(len(records)) if rows.rows is None else longs(rows.rows).tolist()
    wanted = dict(zip(places, rows.columns.rows(), strict=True))
    own = range(len(records)) if found.rows is None else longs(found.rows).tolist()
    for place, row in zip(own, found.columns.rows(), strict=True):
        if place in wanted:
            assert repr(row) == repr(wanted[place])
        else:  # only what a field means that nobody wants is not seen
            assert {one["name"] for one in wrote["fields"]} - kind.__annotations__.keys()
    for place in wanted.keys() - set(own):
        # a decimal with too many digits that end with 0 is rounded to itself
        assert "decimal" in json.dumps(wrote) or not canonical(of, wrote, bodies[place])
    for bad in found.bad:
        assert of.why(bad, records[bad.record] or b"").what


# ------------------------------------------------------------------------------------------------------------ in a job


class Sold(msgspec.Struct):
    id: int
    amount: float
    customer: Customer
    at: dt.datetime


SOLD = {
    "type": "record",
    "name": "Sold",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "customer", "type": CUSTOMER},
        {"name": "amount", "type": "double"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
    ],
}


def test_a_job_of_columns_reads_avro_and_writes_json(way: None) -> None:
    """Ids in front of values and in headers, keys of the registry, bad records to dead letters; what is written is JSON in full."""
    app = hg.App("sold", serde=hg.json())
    sold = app.input("sold", serde=hg.avro(Sold), key_serde=hg.avro(str), on_bad_data="dead_letter")
    big = sold.columns().filter(hg.col("amount") >= 10).with_columns(twice=hg.col("amount") * 2)
    big.to("big", key_serde=hg.text())
    big.repartition("customer.country").agg(n=hg.count(), total=hg.sum("amount")).to("totals")
    at = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)

    def sale(number: int, amount: float) -> bytes:
        return body(SOLD, {"id": number, "amount": amount, "customer": {"country": "DE", "zip": 1}, "at": at})

    with hg.testing.Driver(app, schemas={1: SOLD, 2: '"string"'}) as driver:
        driver.send("sold", wire.prefix(1) + sale(1, 10.0), key=wire.prefix(2) + b"\x02a")
        driver.send(
            "sold",
            sale(2, 20.0),
            key=b"\x02b",
            headers=[("__value_schema_id", wire.prefix(1)), ("__key_schema_id", wire.prefix(2)), ("x", b"y")],
        )
        driver.send("sold", wire.prefix(1) + b"\x02", key=wire.prefix(2) + b"\x02c")
        driver.send("sold", wire.prefix(1) + sale(3, 1.0), key=wire.prefix(2) + b"\x02d")
        found = driver.read("big")
        assert [(one.key, one.value["id"], one.value["twice"]) for one in found] == [("a", 1, 20.0), ("b", 2, 40.0)]
        assert found[0].value["customer"] == {"country": "DE", "zip": 1}
        assert found[0].value["at"] == "2026-01-01T00:00:00Z"
        assert [name for name, _ in found[1].headers] == ["x"]
        assert driver.read("totals")[-1].value["total"] == 30.0
