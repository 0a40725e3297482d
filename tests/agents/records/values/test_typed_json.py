"""Typed rows: which records are bad is the same for rows and for columns of a type."""

from __future__ import annotations

import gc
from dataclasses import InitVar, dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Annotated, Any, NotRequired, TypedDict

import msgspec
import pyarrow as pa
import pytest

import headgate as hg
from headgate.agents.records.columns.decoder import Decoder
from headgate.agents.records.memory.record_spans import packed
from headgate.agents.records.native import chosen
from headgate.agents.records.values.column_types import columns_of_type
from headgate.agents.records.values.logical_types import Digits
from headgate.agents.records.values.serdes import json, msgpack, named_only
from headgate.agents.records.values.typed_json import beyond
from headgate.agents.testing.driver import Driver
from headgate.core.errors import DeclarationError

from ..kafka.test_spans import needs_compiler


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
        (b'{"user":"a","ts":1,"else":' + b"[" * 1020 + b"]" * 1020 + b"}", True),
        (b'{"user":"a","ts":1,"else":' + b"[" * 1025 + b"]" * 1025 + b"}", False),
        (b'{"user":"a","ts":1,"amount":null}', True),
        (b'{"user":"x","ts":0,"user":"a","ts":1,"other":[1,{"a":2}]}', True),
        (b'{"user":1,"ts":"","user":"a","ts":1}', True),
        (b'{"user":"a","ts":1,"ts":""}', False),
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
        (b'{"user":"a","ts":1,"other":1e400}', False),
        (b'{"user":"a","ts":1,"other":[{"a":-1E+0309}]}', False),
        (b'{"user":"a","ts":1,"other":1e308}', True),
        (b'{"user":"a","ts":1,"other":0e999}', True),
        (b'{"user":"a","ts":1,"other":"1e400 \\" 1e400"}', True),
        (b'{"user":"a","ts":1,"other":' + b"9" * 308 + b"}", True),
        (b'{"user":"a","ts":1,"other":' + b"9" * 309 + b"}", False),
        (b'{"user":"a","ts":1,"other":' + b"9" * 210 + b"e99}", False),
        (b'{"user":"a","ts":1,"other":1e400,"other":1}', False),
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
    decoded = Decoder(columns_of_type(kind).columns).decode(*packed([GOOD, record, GOOD]))
    assert [one.record for one in decoded.bad] == ([] if is_good else [1])


@pytest.mark.parametrize("built", [pytest.param(True, marks=needs_compiler), False])
@pytest.mark.parametrize(
    ("record", "may_be"),
    [
        (b'{"a":1e400}', True),
        (b'{"a":1e-7,"b":2E+10,"c":-1.5e99}', False),
        (b'{"id":"0e4003e1","a":"\\"1e400"}', False),
        (b'{"a":' + b"1" * 199 + b"}", False),
        (b'{"a":0.' + b"1" * 200 + b"}", True),
        (b'{"filler":"' + b"x" * 100 + b'","a":1E+400}', True),
        (b'{"filled":"12","a":1' + b"\n" * 20 + b"}", False),
        (b"1e400", True),
        (b"", False),
    ],
)
def test_numbers_that_may_be_beyond_a_double_are_looked_at_again(
    record: bytes, may_be: bool, built: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """msgspec skips them where a type does not have the field. Without the compiled part strings are looked at, too."""
    if not built:
        monkeypatch.setattr(chosen, "part", chosen.PLAIN)
    for before in range(20):
        found = beyond([b"{}", b" " * before + record, b"{}"])
        assert found == ([1] if may_be or (not built and b'"0e4003e1"' in record) else [])


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


NOBODY = {"amount": None, "ok": None, "note": None, "u": None}


@pytest.mark.parametrize("kind", [Row, Struct, Data])
@pytest.mark.parametrize(
    ("fields", "is_good"),
    [
        ({"user": "a", "ts": 1}, True),
        ({"user": "a", "ts": 1, "u": 7, "else": [1, {"a": b"x"}]}, True),
        ({"user": "a", "ts": 1, **NOBODY}, True),
        ({"user": "a"}, False),
        ({"user": None, "ts": 1}, False),
        ({"user": "a", "ts": "1"}, False),
        ({"user": "a", "ts": 1, "amount": "x"}, False),
        ({"user": b"a", "ts": 1}, False),
        ([1], False),
        (None, False),
    ],
)
def test_what_is_missing_in_msgpack_is_what_is_missing_in_json(kind: Any, fields: Any, is_good: bool) -> None:
    """A field that may be None may be missing in both, alone and among others."""
    serde = msgpack(kind)
    record, good = (msgspec.msgpack.encode(one) for one in (fields, {"user": "a", "ts": 1, **NOBODY}))
    found = serde.loads_many([good, record, good])
    assert [index for index, _ in found.bad] == ([] if is_good else [1])
    assert found.values[0] == found.values[2] == json(kind).loads(b'{"user":"a","ts":1}')
    if is_good:
        assert found.values[1] == serde.loads(record) == msgspec.convert({**NOBODY, **fields}, kind)


def test_msgpack_keeps_its_own_rules_where_a_field_is_missing() -> None:
    """What JSON cannot have: bytes and times. The last of two equal keys counts, and renamed fields have the names of the record."""

    class Blob(msgspec.Struct, rename={"of": "from"}):
        data: bytes
        at: datetime
        of: str | None

    at = datetime(2024, 5, 1, tzinfo=UTC)
    serde = msgpack(Blob)
    good = msgspec.msgpack.encode({"data": b"\xff", "at": at})
    assert serde.loads(good) == Blob(b"\xff", at, None)
    assert serde.loads_many([msgspec.msgpack.encode({"data": "AAAA", "at": at})]).bad
    twice = b"\x82\xa4user\x01\xa4user\xa1a"

    class User(TypedDict):
        user: str

    assert msgpack(User).loads(twice) == json(User).loads(b'{"user":1,"user":"a"}') == {"user": "a"}
    assert msgpack(User).loads_many([twice]).values == [{"user": "a"}]


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


class Orders(msgspec.Struct, gc=False, rename={"of": "from"}):
    user: str
    of: str | None
    n: int = 3
    tags: list[str] | None = None


def test_fields_can_be_decoded_alone() -> None:
    """Into values that the cycle collector does not see; other fields are skipped, whatever they hold."""
    found = named_only(json(Orders), frozenset({"of", "n"}))
    assert found is not None
    value = found.loads(b'{"user":1,"from":"x","tags":7}')
    assert (value.of, value.n) == ("x", 3)
    assert value.__struct_fields__ == ("of", "n")
    assert not gc.is_tracked(value)
    assert found.loads(b"{}").of is None
    assert [i for i, _ in found.loads_many([b'{"n":9223372036854775808}', b"[]", b"{", b"{}"]).bad] == [0, 1, 2]
    assert (
        found.dumps(Orders("a", "b"))
        == json(Orders).dumps(Orders("a", "b"))
        == b'{"user":"a","from":"b","n":3,"tags":null}'
    )
    assert found.name == json(Orders).name
    nothing = named_only(json(Row), frozenset())
    assert nothing is not None
    assert [i for i, _ in nothing.loads_many([b"{}", b"1", GOOD]).bad] == [1]


class Strict(msgspec.Struct, forbid_unknown_fields=True):
    user: str


class Less(TypedDict):
    user: str
    seldom: NotRequired[int]


ODD = [(json(Strict), "user"), (json(Less), "seldom"), (json(Data), "nobody"), (json(), "a"), (json(int), "real")]


@pytest.mark.parametrize(("serde", "name"), ODD)
def test_where_fields_cannot_be_decoded_alone(serde: Any, name: str) -> None:
    """The type has rules for the whole record, a field may be missing, or it is no field."""
    assert named_only(serde, frozenset({name})) is None


@dataclass
class Priced:
    user: str
    currency: str = "EUR"


@pytest.mark.parametrize("serde", [json(), json(Priced)])
def test_a_dataclass_is_written_in_full(serde: Any) -> None:
    """Also where a field was missing in the record that it was read of, and its default is that of the class."""
    values = json(Priced).loads_many([b'{"user":"a"}', b'{"user":"b","currency":"USD"}']).values
    wanted = [b'{"user":"a","currency":"EUR"}', b'{"user":"b","currency":"USD"}']
    assert serde.dumps_many(values).values == wanted
    assert [serde.dumps(one) for one in values] == wanted


def test_structs_are_written_wherever_they_stand() -> None:
    """By the serde without a type, too: it is the default of outputs."""
    one = Strict("ü")
    written = b'{"user":"\xc3\xbc"}'
    assert json().dumps_many([one, one, None]).values == [written, written, None]
    assert json().dumps_many([one, {"a": 1}]).values == [written, b'{"a":1}']
    assert json().dumps_many([{"of": one}, [one]]).values == [b'{"of":%b}' % written, b"[%b]" % written]
    assert [i for i, _ in json().dumps_many([one, object(), Strict("\ud83d")]).bad] == [1, 2]


@dataclass
class WithInit:
    user: str
    scale: InitVar[int]


class Unknown(TypedDict):
    user: "Nobody"  # type: ignore[name-defined]  # noqa: F821, UP037 - what a type of a function's own looks like


class TwoStructs(msgspec.Struct):
    user: Struct | Else


class Else(msgspec.Struct):
    user: str


@pytest.mark.parametrize("form", [json, msgpack])
@pytest.mark.parametrize(
    ("kind", "told"),
    [
        (WithInit, "values of type WithInit cannot be read: .*InitVar"),
        (Unknown, "the fields of Unknown cannot be read: .*'Nobody'.*at the top of a module"),
        (TwoStructs, "values of type TwoStructs cannot be read: .*must be tagged"),
    ],
)
def test_a_type_that_cannot_be_read_is_refused_at_its_line(form: Any, kind: Any, told: str) -> None:
    """With its name, which errors of msgspec do not have."""
    with pytest.raises(DeclarationError, match=told):
        form(kind)


def test_times_decimals_and_lists_that_may_be_none_may_be_missing() -> None:
    """As other fields of rows, and as in columns."""

    class Odd(TypedDict):
        n: int
        at: datetime | None
        price: Annotated[Decimal, Digits(6, 2)] | None
        tags: list[str] | None

    found = json(Odd).loads_many([b'{"n":1}', b'{"n":2,"at":"2026-01-31T12:00:00Z","price":"1.5","tags":[]}'])
    assert found.bad == []
    assert found.values == [
        {"n": 1, "at": None, "price": None, "tags": None},
        {"n": 2, "at": datetime(2026, 1, 31, 12, tzinfo=UTC), "price": Decimal("1.5"), "tags": []},
    ]


def test_decimals_and_bytes_of_rows_are_written() -> None:
    assert json().dumps({"price": Decimal("1.50"), "blob": b"abc"}) == b'{"price":"1.50","blob":"YWJj"}'


class Part(TypedDict):
    name: str
    size: int | None


@dataclass
class Box:
    parts: list[Part]
    price: Decimal | None
    inner: Box | None


class Shelf(TypedDict):
    id: int
    boxes: list[Box]
    by_name: dict[str, Part] | None
    first: Part | None


LACKING = {"id": 1, "boxes": [{"parts": [{"name": "a"}], "inner": {"parts": []}}], "by_name": {"b": {"name": "b"}}}
FULL = {
    "id": 1,
    "boxes": [Box([{"name": "a", "size": None}], None, Box([], None, None))],
    "by_name": {"b": {"name": "b", "size": None}},
    "first": None,
}


def test_what_is_missing_in_objects_and_lists_of_objects_is_none_in_both() -> None:
    """Also in a type that lies in itself."""
    assert json(Shelf).loads(json().dumps(LACKING)) == FULL
    assert msgpack(Shelf).loads(msgpack().dumps(LACKING)) == FULL
    found = json(Shelf).loads_many([json().dumps(one) for one in (LACKING, {**LACKING, "boxes": [{}]})])
    assert (found.values[0], [at for at, _ in found.bad]) == (FULL, [1])


def test_where_something_is_missing_numbers_are_exact() -> None:
    """A decimal with more digits than a double has, and zeros at its end."""
    text = b'{"id":1,"boxes":[{"parts":[],"price":0.12345678901234567890}],"by_name":null}'
    assert json(Shelf).loads(text)["boxes"] == [Box([], Decimal("0.12345678901234567890"), None)]
    assert str(json(Shelf).loads(text)["boxes"][0].price) == "0.12345678901234567890"
    tiny = b'{"user":"a","ts":1,"amount":2.5e-3023372036854775807}'  # the exponent is too long for a decimal
    assert json(Row).loads(tiny)["amount"] == 0.0


def test_rows_of_columns_have_none_where_rows_have_it() -> None:
    """Columns take what rows take, and the rows that are made of them are equal."""

    class Order(TypedDict):
        id: int
        parts: list[Part]
        by_name: dict[str, Part] | None
        first: Part | None

    lacking = {"id": 1, "parts": [{"name": "a"}, {"name": "b", "size": 2}], "by_name": {"b": {"name": "b"}}}
    shown: list[list[Any]] = []
    for columns in (False, True):
        app = hg.App("orders")
        stream: Any = app.input("in", serde=hg.json(Order))
        seen: list[Any] = []
        (stream.columns().rows() if columns else stream).peek(seen.append).to("out")
        with Driver(app) as d:
            d.send_all("in", [lacking, {**lacking, "first": {"name": "c"}}])
        shown.append(seen)
    assert shown[0] == shown[1]
    assert shown[0][1] == {
        "id": 1,
        "parts": [{"name": "a", "size": None}, {"name": "b", "size": 2}],
        "by_name": {"b": {"name": "b", "size": None}},
        "first": {"name": "c", "size": None},
    }
