"""Protobuf records as columns: what the programs read is what rows give, which upb reads; both ways, compiled and plain."""

from __future__ import annotations

import datetime as dt
import random
from typing import Any, TypedDict

import msgspec
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from hypothesis import given
from hypothesis import strategies as st

import headgate as hg
from headgate.agents.records.columns.fitting import columns_of_values
from headgate.agents.records.layout import longs
from headgate.agents.records.memory.record_spans import packed, pieces
from headgate.agents.records.native import chosen
from headgate.agents.records.values.column_types import columns_of_type
from headgate.agents.registry import wire
from headgate.agents.registry.memory import MemoryRegistry
from headgate.agents.registry.program_columns import NoProgram, ProgramColumns
from headgate.agents.registry.protobuf import place_of
from headgate.agents.registry.protobuf_program import protobuf_reading

from .decoding import decoded, shown
from .proto_shop import columns_type, message_bytes, mutated, shop, sized, varint

needs_compiler = pytest.mark.skipif(chosen.COMPILED is None, reason="the compiled part is not built here")
SHOP = shop()
ALL = wire.prefix(3) + wire.path(place_of(SHOP.All.DESCRIPTOR))


@pytest.fixture(params=[pytest.param(True, marks=needs_compiler), False], ids=["compiled", "plain"])
def way(request, monkeypatch):
    """Each test runs both ways."""
    if not request.param:
        monkeypatch.setattr(chosen, "part", chosen.PLAIN)


def reader(kind: Any, message: Any = SHOP.All, schemas: Any = None) -> ProgramColumns:
    """What decodes columns of this type, by programs, whichever part is chosen."""
    serde: Any = hg.protobuf(message).at("t", "value")
    serde.connect(MemoryRegistry(schemas or {}))
    made = serde.column_reader(columns_of_type(kind))
    made.by_programs = True
    return made


def has_program(of: ProgramColumns) -> bool:
    return of.programs.reading is not None


# ------------------------------------------------------------------------------------------------------------------ cases


class Deep(TypedDict):
    d: float
    at: dt.datetime | None
    a: int | None
    b: str | None


class Inner(TypedDict):
    n: int
    t: str
    deep: Deep | None
    list: list[int]


class Part(TypedDict):
    n: int
    t: str


class Whole(TypedDict):
    f_double: float
    f_float: float
    f_int64: int
    f_uint64: int
    f_int32: float
    f_bool: bool
    f_string: str
    f_bytes: bytes
    f_sint32: int
    f_sfixed64: int
    kind: int
    maybe: int | None
    inner: Inner | None
    numbers: list[int]
    inners: list[Part]
    counts: dict[str, int]
    by: dict[str, Part]
    at: dt.datetime | None
    boxed: int | None
    named: str | None
    times: list[dt.datetime]


def value(number: int) -> Any:
    at = dt.datetime(2026, 1, 2, 3, 4, 5, 6000 + number, dt.UTC)
    found = SHOP.All(
        f_double=number / 4,
        f_float=0.5,
        f_int64=-number,
        f_uint64=2**63 - 1,
        f_int32=-7,
        f_bool=number % 2 == 1,
        f_string="nö" * number,
        f_bytes=b"abc\xff",
        f_sint32=-(2**31),
        f_sfixed64=-5,
        kind=7 * (number % 2),
        numbers=range(number),
        counts={"b": 2, "a": number},
        far=True,
        tree=SHOP.Tree(n=1, left=SHOP.Tree(right=[SHOP.Tree()])),
    )
    if number % 2:
        found.maybe = 0
        found.inner.t = "x"
        found.inner.list.extend((1, -1))
        found.inner.deep.d = 1.5
        found.inner.deep.at.FromDatetime(at)
        found.inner.deep.b = ""
        found.inners.add(n=4)
        found.by[-3].n = 8
        found.at.FromDatetime(at)
        found.boxed.value = 0
        found.named.SetInParent()
        found.times.add(seconds=1)
    return found


def test_all_types_are_read_as_rows_are(way: None) -> None:
    of = reader(Whole)
    records = [*(ALL + value(number).SerializeToString() for number in range(6)), None]
    found = decoded(of, records)
    assert has_program(of)
    assert not found.bad
    assert found.tombstones == [6]
    assert shown(found) == shown(of.as_rows(packed(records)))
    empty, first = found.columns.rows()[:2]
    assert (empty["maybe"], empty["inner"], empty["inner.n"], empty["inner.list"], empty["numbers"]) == (None,) * 4 + (
        "[]",
    )
    assert (empty["at"], empty["boxed"], empty["named"], empty["f_string"]) == (None, None, None, "")
    assert (first["maybe"], first["inner"], first["inner.n"], first["inner.list"]) == (0, True, 0, "[1,-1]")
    assert (first["inner.deep.b"], first["inner.deep.a"], first["boxed"], first["named"]) == ("", None, 0, "")
    assert (first["counts"], first["by"], first["inners"]) == (
        '{"a":1,"b":2}',
        '{"-3":{"n":8,"t":""}}',
        '[{"n":4,"t":""}]',
    )
    assert (first["times"], first["f_int32"]) == ('["1970-01-01T00:00:01Z"]', -7.0)
    assert first["at"] == first["inner.deep.at"] == 1_767_323_045_006_001


def test_each_cut_of_a_record_is_bad_alone(way: None) -> None:
    """Every record that ends within a field, among good ones; each says why."""
    of, good = reader(Whole), ALL + value(3).SerializeToString()
    records = [good, *(good[:size] for size in range(len(good))), good]
    found, wanted = decoded(of, records), of.as_rows(packed(records))
    assert shown(found) == shown(wanted)
    assert len(found.bad) > len(good) // 2
    assert pieces(found.spans)[-1] == good
    says = [of.why(one, records[one.record]).what for one in found.bad]
    assert "name no schema" in says[0]
    assert "do not say which message" in of.why(found.bad[5], good[:5]).what
    assert all(says)


def test_what_is_missing_is_null_or_its_default_or_bad(way: None) -> None:
    """A field that says whether it is there is null, and bad where the type has no None; others have their defaults."""

    class Strict(TypedDict):
        maybe: int
        f_int64: int

    class Inside(TypedDict):
        inner: Part
        at: dt.datetime | None

    class Timed(TypedDict):
        at: dt.datetime

    class Absent(TypedDict):
        f_int64: int
        none: str | None

    there = ALL + SHOP.All(maybe=0, inner=SHOP.Inner(), at={}).SerializeToString()
    for kind, concerned in ((Strict, "maybe"), (Inside, "inner.n"), (Timed, "at")):
        of = reader(kind)
        found = decoded(of, [ALL, there])
        assert has_program(of)
        assert [(one.record, one.column) for one in found.bad] == [(0, concerned)]
        assert "is null" in of.why(found.bad[0], ALL).what
        assert shown(found) == shown(of.as_rows(packed([ALL, there])))
    assert decoded(reader(Absent), [ALL]).columns.rows() == [{"f_int64": 0, "none": None}]


class Picked(TypedDict):
    pa: int | None
    pb: str | None
    pc: Part | None
    pd: dt.datetime | None
    f_int64: int
    f_uint64: int
    inner: Part | None
    numbers: list[int]


def test_the_last_one_counts_and_messages_are_merged(way: None) -> None:
    """Of one field, and of a `oneof`, also where it is a message; lists grow, packed or not; a number too large does not count if another
    one follows it."""
    of = reader(Picked)
    pc, other = varint(22 << 3 | 2), b"\x12\x01y"
    bodies = [
        b"\x18\x01\x18\x02" + b"\x20" + varint(2**63) + b"\x20\x05",
        varint(30 << 3 | 2) + sized(b"\x08\x05") + varint(30 << 3 | 2) + sized(other),
        b"\xa0\x01\x05" + pc + sized(b"\x08\x07") + pc + sized(other),
        pc + sized(b"\x08\x07") + b"\xaa\x01\x01z" + pc + sized(other),
        pc + sized(b"\x08\x07") + b"\xba\x01\x02\x08\x01",
        b"\xba\x01\x02\x08\x01" + b"\xa0\x01\x00",
        b"\xf8\x01\x01" + b"\xfa\x01\x02\x02\x03" + b"\x18\x09" + b"\xf8\x01\x04",
        b"\x20" + varint(2**63),
        b"\xa2\x01\x01\x05" + b"\x1d\x01\x02\x03\x04",
    ]
    records: list[bytes | None] = [ALL + one for one in bodies]
    found = decoded(of, records)
    assert has_program(of)
    assert shown(found) == shown(of.as_rows(packed(records)))
    assert [(one.record, one.column) for one in found.bad] == [(7, "f_uint64")]
    rows = found.columns.rows()
    assert (rows[0]["f_int64"], rows[0]["f_uint64"]) == (2, 5)
    assert (rows[1]["inner.n"], rows[1]["inner.t"]) == (5, "y")
    assert (rows[2]["pa"], rows[2]["pc.n"], rows[2]["pc.t"]) == (None, 7, "y")
    assert (rows[3]["pb"], rows[3]["pc.n"], rows[3]["pc.t"]) == (None, 0, "y")
    assert (rows[4]["pc"], rows[4]["pc.n"], rows[4]["pd"]) == (None, None, 1_000_000)
    assert (rows[5]["pd"], rows[5]["pa"]) == (None, 0)
    assert rows[6]["numbers"] == "[1,2,3,4]"
    assert (rows[7]["pa"], rows[7]["f_int64"]) == (None, 0)  # of another form: unknown fields


class Lists(TypedDict):
    texts: list[str]
    numbers: list[int]
    kinds: list[int]
    prices: list[float]
    f_bytes: bytes


def test_lists_are_json_and_bytes_are_base64(way: None) -> None:
    """Text with all that JSON escapes; the least number; unknown numbers of an enum; a fraction that is none, and its list."""
    of, texts = reader(Lists), ['a"\\\b\t\n\f\r\0\x0b\x1f\x7f/', "ö€", "", "x" * 300]
    whole = SHOP.All(texts=texts, numbers=[-(2**31), 0, 5], kinds=[0, 7, -9], prices=[1.5, -0.0], f_bytes=b"\0\xff" * 5)
    records: list[bytes | None] = [
        ALL + one.SerializeToString()
        for one in (whole, SHOP.All(), SHOP.All(prices=[float("nan")]), SHOP.All(f_bytes=b"a"), whole)
    ]
    found = decoded(of, records)
    assert has_program(of)
    assert shown(found) == shown(of.as_rows(packed(records)))
    assert [(one.record, one.column) for one in found.bad] == [(2, "prices")]
    first, empty, *_ = found.columns.rows()
    assert first["texts"].encode() == msgspec.json.encode(texts)
    assert (first["numbers"], first["kinds"], first["prices"]) == ("[-2147483648,0,5]", "[0,7,-9]", "[1.5,-0.0]")
    assert (first["f_bytes"], list(empty.values())) == ("AP8A/wD/AP8A/w==", ["[]", "[]", "[]", "[]", ""])


def test_a_length_is_never_believed(way: None) -> None:
    """Lengths beyond the record, of more than 64 bits; groups without end; messages that lie in each other too deep, or just not."""

    class One(TypedDict):
        f_int64: int

    def trees(depth: int) -> bytes:
        made = b""
        for number in range(depth):
            made = varint((39 if number == depth - 1 else 2) << 3 | 2) + sized(made)
        return made

    most, unknown = b"\xff" * 9 + b"\x01", b"\xbb\x0c"
    bodies = [
        b"\x18\x05" + trees(100),
        b"\x18\x05" + trees(101),
        b"\x4a" + most,
        b"\x4a\x05abcd",
        b"\x18" + b"\x80" * 10 + b"\x01",
        b"\x18" + b"\xff" * 9 + b"\x7f",
        unknown,
        unknown * 100 + b"\xbc\x0c" * 100,
        unknown * 101 + b"\xbc\x0c" * 101,
        b"\xbc\x0c",
        b"\x00\x00",
        b"\x1e\x00",
        b"\xfa\x01\x03\x80\x80\x80",
        b"\x4a\x01\xff",
    ]
    of = reader(One)
    records: list[bytes | None] = [ALL + one for one in bodies]
    found = decoded(of, records)
    assert shown(found) == shown(of.as_rows(packed(records)))
    assert longs(found.rows).tolist() == [0, 5, 7]
    assert [row["f_int64"] for row in found.columns.rows()] == [5, -1, 0]


# ---------------------------------------------------------------------------------------------------- which message it is


def test_another_message_is_bad_unless_the_writers_file_has_put_some_in_front(way: None) -> None:
    """As for rows: nothing is asked but what the place alone does not say. Ids by number, by name, and none at all."""

    class One(TypedDict):
        n: int

    of = reader(One, SHOP.Inner, {1: SHOP.All, 2: _moved()})
    own, body = wire.path((1,)), b"\x08\x07"
    records = [
        wire.prefix(9) + own + body,
        b"\x01" + bytes(16) + own + body,
        wire.prefix(1) + wire.path((0,)) + body,
        wire.prefix(2) + wire.path((2,)) + body,
        wire.prefix(1) + b"\x01" + body,
        body,
    ]
    found = decoded(of, [*records, None])
    assert has_program(of)
    assert longs(found.rows).tolist() == [0, 1, 3]
    assert [row["n"] for row in found.columns.rows()] == [7] * 3
    assert [one.record for one in found.bad] == [2, 4, 5]
    assert "the record is the message all.Deep, not all.Inner" in of.why(found.bad[0], records[2]).what
    assert shown(found) == shown(of.as_rows(packed([*records, None])))


def _moved() -> Any:
    """A file in which another message stands in front of `Inner`."""
    newer = descriptor_pb2.FileDescriptorProto(name="all.proto", package="all", syntax="proto3")
    for name in ("Deep", "More", "Inner"):
        newer.message_type.add(name=name)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(newer)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("all.Inner"))


def test_a_declaration_decides_whether_there_is_a_program(way: None) -> None:
    """Columns of another type than their fields: rows say of each record why it is bad. Files of an edition, and extensions: rows, too."""

    class Text(TypedDict):
        f_int64: str

    class Listed(TypedDict):
        numbers: int

    for kind in (Text, Listed):
        of = reader(kind)
        found = decoded(of, [ALL])
        assert not has_program(of)
        assert [one.record for one in found.bad] == [0]
        assert "not" in of.why(found.bad[0], ALL).what

    class One(TypedDict):
        n: int | None

    for more in ({"syntax": "editions", "edition": 1000}, {"syntax": "proto2"}):
        file = descriptor_pb2.FileDescriptorProto(name="odd.proto", package="odd", **more)
        message = file.message_type.add(name="Odd")
        message.field.add(name="n", number=1, type=3, label=1)
        if "edition" not in more:
            message.extension_range.add(start=100, end=200)
        pool = descriptor_pool.DescriptorPool()
        pool.Add(file)
        odd = message_factory.GetMessageClass(pool.FindMessageTypeByName("odd.Odd"))
        with pytest.raises(NoProgram, match=r"edition|extensions"):
            protobuf_reading(odd, columns_of_type(One).columns)
        head = wire.prefix(3) + b"\0"
        assert decoded(reader(One, odd), [head + b"\x08\x07", head]).columns.rows() == [{"n": 7}, {"n": None}]


def test_messages_that_rows_have_made_have_the_same_columns() -> None:
    """Behind a function, say: presence, times, lists, maps, and values that may be missing."""
    messages = [value(number) for number in range(4)]
    columns, bad = columns_of_values(messages, columns_of_type(Whole))
    assert not bad
    found = decoded(reader(Whole), [ALL + one.SerializeToString() for one in messages]).columns.rows()
    assert [one["inner.deep.b"] for one in found] == columns["inner.deep.b"] == [None, "", None, ""]
    assert [one["at"] for one in found] == columns["at"]
    assert columns["times"][1] == b'["1970-01-01T00:00:01Z"]'


# ------------------------------------------------------------------------------------------------------------- by chance


@given(st.integers(0, 2**40), st.sampled_from(["All", "All", "Inner", "Tree", "Old"]))
def test_any_bytes_are_read_as_upb_reads_them(seed: int, name: str) -> None:
    """Some columns of a message, and bytes that are one, or almost."""
    chance, kind = random.Random(seed), getattr(SHOP, name)
    wanted = columns_type(chance, kind.DESCRIPTOR)
    if wanted is None:
        return
    head = wire.prefix(3) + wire.path(place_of(kind.DESCRIPTOR))
    records: list[bytes | None] = [head + mutated(chance, message_bytes(chance, kind.DESCRIPTOR)) for _ in range(6)]
    for part in (chosen.COMPILED, chosen.PLAIN):
        if part is None:
            continue
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(chosen, "part", part)
            of = reader(wanted, kind)
            found = decoded(of, records)
            assert shown(found) == shown(of.as_rows(packed(records)))
            for bad in found.bad:
                assert of.why(bad, records[bad.record] or b"").what


# ------------------------------------------------------------------------------------------------------------ in a job


def test_a_message_does_not_say_what_its_columns_are() -> None:
    """A type does."""
    with pytest.raises(hg.DeclarationError, match="does not know the columns"):
        hg.App("sold").input("sold", serde=hg.protobuf(SHOP.All)).columns()


class Sold(msgspec.Struct):
    f_int64: int
    f_double: float
    inner: Part
    at: dt.datetime
    texts: list[str]


def test_a_job_of_columns_reads_protobuf_and_writes_json(way: None) -> None:
    """Ids in front of values and in headers, bad records to dead letters; the same behind a function of rows."""
    app = hg.App("sold", serde=hg.json())
    sold = app.input("sold", serde=hg.protobuf(SHOP.All), on_bad_data="dead_letter")
    columns = sold.columns(Sold)
    assert columns.step.direct
    big = columns.filter(hg.col("f_double") >= 10).with_columns(twice=hg.col("f_double") * 2)
    big.to("big")
    big.repartition("inner.t").agg(n=hg.count(), total=hg.sum("f_double")).to("totals")
    sold.filter(lambda message: message.f_double >= 10).columns(Sold).to("rows")

    def sale(number: int, amount: float) -> bytes:
        message = SHOP.All(f_int64=number, f_double=amount, inner=SHOP.Inner(t="DE"), texts=["a", "b"])
        message.at.seconds = 1_767_225_600
        return message.SerializeToString()

    with hg.testing.Driver(app) as driver:
        driver.send("sold", ALL + sale(1, 10.0), key=b"a")
        driver.send("sold", sale(2, 20.0), headers=[("__value_schema_id", ALL), ("x", b"y")])
        driver.send("sold", ALL + b"\x0a")
        driver.send("sold", ALL + sale(3, 1.0))
        found = driver.read("big")
        assert [(one.value["f_int64"], one.value["twice"]) for one in found] == [(1, 20.0), (2, 40.0)]
        assert found[0].value["inner"] == {"n": 0, "t": "DE"}
        assert found[0].value["at"] == "2026-01-01T00:00:00Z"
        assert found[0].value["texts"] == ["a", "b"]
        assert [name for name, _ in found[1].headers] == ["x"]
        assert driver.read("totals")[-1].value["total"] == 30.0
        rows = [one.value for one in driver.read("rows")]
        assert rows == [{name: one for name, one in row.value.items() if name != "twice"} for row in found]
