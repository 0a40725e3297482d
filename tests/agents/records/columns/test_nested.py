"""Nested objects as columns: both decoders and both encoders do what a few lines of Python do."""

from __future__ import annotations

import random
from typing import Any

import msgspec
import orjson
import pyarrow
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.agents.records.columns.decoder import HAS_OTHER, Decoder
from headgate.agents.records.columns.encoder import NestedEncoder
from headgate.agents.records.columns.fitting import columns_of_values
from headgate.agents.records.columns.object_columns import ObjectColumns
from headgate.agents.records.layout import longs
from headgate.agents.records.memory.record_spans import pieces
from headgate.agents.records.native import chosen
from headgate.agents.records.values.column_types import columns_of_type, maker
from headgate.agents.records.values.nesting import nesting

from ..mutations import outcome, spans
from ..nested_records import SCHEMA, Customer, Order, Place, some

needs_compiler = pytest.mark.skipif(chosen.COMPILED is None, reason="the compiled part is not built here")


KINDS: dict[str, Any] = {"Place": Place, "Customer": Customer}
NAMES = ("id", "customer", "to", "price", "name", "place", "home", "vip", "city", "zip", "x.y", "ü")


@pytest.fixture(params=[pytest.param(True, marks=needs_compiler), False], ids=["compiled", "plain"])
def way(request: Any, monkeypatch: Any) -> None:
    """Each test runs with both parts."""
    if not request.param:
        monkeypatch.setattr(chosen, "part", chosen.PLAIN)


def plainly() -> Decoder:
    """A decoder without the compiled part."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chosen, "part", chosen.PLAIN)
        return Decoder(SCHEMA.columns, nested=True)


def expected(value: Any, kind: Any = Order) -> Any:
    """An object as its type has it; raises for one that does not fit. A few lines of Python."""
    assert type(value) is dict
    made: dict[str, Any] = {}
    for name, hint in kind.__annotations__.items():
        optional, plain = hint.__forward_arg__.endswith(" | None"), hint.__forward_arg__.removesuffix(" | None")
        one: Any = value.get(name)
        if one is None:
            assert optional
        elif plain in KINDS:
            one = expected(one, KINDS[plain])
        elif plain == "float":
            assert type(one) in (int, float)
            one = float(one)
        else:
            assert type(one).__name__ == plain
            assert plain != "int" or -(2**63) <= one < 2**63
        made[name] = one
    return made


LEAVES = st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.text(max_size=3) | st.just(0.5)


def objects(kind: Any) -> st.SearchStrategy[Any]:
    """Objects of a type, with all that may be wrong with them."""
    fields: dict[str, st.SearchStrategy[Any]] = {}
    for name, hint in kind.__annotations__.items():
        plain = hint.__forward_arg__.removesuffix(" | None")
        inner = objects(KINDS[plain]) if plain in KINDS else None
        of = {"int": st.integers(-9, 2**63 - 1), "str": st.text(max_size=20), "bool": st.booleans()}
        right = inner if inner is not None else of.get(plain, st.floats(allow_nan=False, allow_infinity=False))
        fields[name] = st.one_of(*[right] * 6, st.none(), LEAVES) if "None" in hint.__forward_arg__ else right
    return st.fixed_dictionaries({}, optional={**fields, "x.y": LEAVES}) | st.fixed_dictionaries(fields)


@pytest.mark.usefixtures("way")
@given(st.lists(objects(Order) | st.dictionaries(st.sampled_from(NAMES), LEAVES, max_size=4), max_size=12))
def test_objects_come_and_go_as_python_has_them(values: list[Any]) -> None:
    """Decoded, made rows of, and written again."""
    wanted, bad = list[Any](), list[int]()
    for index, value in enumerate(values):
        try:
            wanted.append(expected(value))
        except AssertionError:
            bad.append(index)
    found = Decoder(SCHEMA.columns, nested=True).decode(*spans([orjson.dumps(value) for value in values]))
    assert [one.record for one in found.bad] == bad
    make = maker(Order, SCHEMA)
    assert make is not None
    assert make([one.values() for one in found.columns.vectors]) == wanted
    written = NestedEncoder(SCHEMA.columns).encode(found.columns)
    assert [orjson.loads(one or b"") for one in pieces(written)] == wanted
    assert [one or b"" for one in pieces(written)] == [orjson.dumps(one) for one in wanted]
    columns, refused = columns_of_values(values, SCHEMA)
    assert [index for index, _ in refused] == bad
    assert [one.values() for one in found.columns.vectors] == [
        [one for index, one in enumerate(columns[name]) if index not in bad] for name in SCHEMA.names
    ]


@needs_compiler
def test_both_agree_on_mutated_records() -> None:
    """Verdict, value and place, and what other fields they have."""
    chance, compiled, plain = random.Random(5), Decoder(SCHEMA.columns, nested=True), plainly()
    for _ in range(20):
        records = some(chance, 1000)
        assert outcome(compiled, records) == outcome(plain, records)


@pytest.mark.usefixtures("way")
def test_an_object_that_comes_twice_is_the_last_one() -> None:
    """Nothing of the first one is left: no value, and no field that is not declared."""
    first = b'{"id":1,"customer":{"vip":true,"home":{"city":"a"},"odd":1},"to":{"city":"b","odd":1},'
    found = Decoder(SCHEMA.columns, nested=True).decode(
        *spans([first + b'"to":{"city":"c"},"customer":null}', first + b'"customer":{"home":{"city":"z"}}}'])
    )
    (row,) = found.columns.rows()
    assert (row["to.city"], row["customer"], row["customer.home.city"]) == ("c", None, None)
    assert found.others is None
    assert [one[1:] for one in found.bad] == [(3, "customer.vip")]


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize(
    ("record", "wanted"),
    [
        (b'{"id":1}', "to"),
        (b'{"id":1,"to":7}', "to"),
        (b'{"id":1,"to":{"city":7}}', "to.city"),
        (b'{"id":1,"to":{"city":"a"},"customer":[]}', "customer"),
        (b'{"id":1,"to":{"city":"a"},"customer":{"vip":true}}', "customer.home"),
        (b'{"id":1,"to":{"city":"a"},"customer":{"vip":true,"home":{}}}', "customer.home.city"),
        (b'{"id":1,"to":{"city":"a","zip":1.5}}', "to.zip"),
        (b'{"id":1,"to":{"city":"a"', None),
    ],
)
def test_a_record_is_bad_by_what_it_lacks(record: bytes, wanted: str | None) -> None:
    """The whole path is named, down to the outermost object that is not there."""
    assert [one.column for one in Decoder(SCHEMA.columns, nested=True).decode(*spans([record])).bad] == [wanted]


@pytest.mark.usefixtures("way")
def test_only_columns_that_are_read_are_judged() -> None:
    """A field that no step reads is skipped like one that is not declared."""
    wanted = SCHEMA.only({"customer.place.city"})
    records = [b'{"customer":{"place":{"city":"a","zip":"no"},"home":5}}', b'{"customer":{}}', b"{}"]
    found = Decoder(wanted.columns, nested=True).decode(*spans(records))
    assert (found.columns.rows(), found.bad) == ([{"customer.place.city": one} for one in ("a", None, None)], [])


@pytest.mark.usefixtures("way")
def test_original_bytes_are_kept_unless_a_nested_field_is_not_declared() -> None:
    """A record with such a field is written in full."""
    records = [b'{"to" :{"zip":null,"city":"a"},"id":1}', b'{"id":2,"to":{"city":"b","odd":1}}']
    found = Decoder(SCHEMA.columns, nested=True).decode(*spans(records))
    assert list(found.others or b"") == [0, HAS_OTHER]
    made = NestedEncoder(SCHEMA.columns).encode(found.columns, None, found.spans, found.others)
    assert pieces(made) == [records[0], b'{"id":2,"customer":null,"to":{"city":"b","zip":null},"price":null}']
    some_rows = NestedEncoder(SCHEMA.columns).encode(found.columns, longs(bytes([1] + [0] * 7)), aligned=True)
    assert longs(some_rows.lengths)[0] == 0


@pytest.mark.usefixtures("way")
def test_without_its_own_column_an_object_is_null_if_all_its_columns_are() -> None:
    """As after `select("customer.place.city")`."""
    wanted = SCHEMA.only({"customer.place.city", "customer.name"})
    records = [b'{"customer":{"place":{"city":"a"}}}', b'{"customer":{"name":"n"}}', b'{"customer":{}}']
    found = Decoder(wanted.columns, nested=True).decode(*spans(records))
    made = NestedEncoder(wanted.columns).encode(found.columns)
    assert [orjson.loads(one or b"") for one in pieces(made)] == [
        {"customer": {"name": None, "place": {"city": "a"}}},
        {"customer": {"name": "n", "place": None}},
        {"customer": None},
    ]
    make = maker(None, wanted)
    assert make is not None
    assert make([one.values() for one in found.columns.vectors])[1] == {"customer": {"name": "n", "place": None}}


class Point(msgspec.Struct, rename="upper"):
    x: int


class Line(msgspec.Struct):
    b: Point | None
    a: Point


def test_structs_are_made_with_their_own_names() -> None:
    """A Struct may rename its fields, and a nested one may be None."""
    schema = columns_of_type(Line)
    assert schema.names == ("b", "b.X", "a.X")
    make = maker(Line, schema)
    assert make is not None
    assert make([[True, None], [1, None], [2, 3]]) == [Line(Point(1), Point(2)), Line(None, Point(3))]


@pytest.mark.usefixtures("way")
def test_json_outside_of_its_buffer_is_refused() -> None:
    """What is handed over is checked before it is read."""
    vectors = [(8, b"{}", longs(bytes([1] + [0] * 7)), longs(bytes([2] + [0] * 7)))]
    with pytest.raises(ValueError, match="outside"):
        chosen.part.encode(vectors, 1, [(0, b'{"a":')], [], False, None, None, None, None, None, 0, False)


@needs_compiler
def test_json_of_too_few_rows_is_refused() -> None:
    """As any other column."""
    with pytest.raises(ValueError, match="shorter"):
        chosen.COMPILED.encode(
            [(8, b"{}", b"", b"")], 1, [(0, b'{"a":')], [], False, None, None, None, None, None, 0, False
        )


@needs_compiler
@pytest.mark.parametrize(
    "fields",
    [
        [(b"a", 0, False, 1, 0)],  # no such object
        [(b"a", 0, False, -1, 0)],
        [(b"a", 0, False, 0, 0), (b"o", 7, False, 1, 1)],  # in itself
        [(b"a", 0, False, 0, 0), (b"o", 7, False, 0, 2)],  # another number
        [(b"a", 0, False, 1, 1), (b"o", 7, False, 0, 1)],  # an integer that says whether it is there
        [(b"", 2, True, 1, 1), (b"", 2, True, 1, 1), (b"o", 7, False, 0, 1)],
        [(b"a", 0, False, 0, 0), (b"k", 4, True), (b"o", 7, False, 0, 1)],  # behind what makes no column
        [(b"a", 0, False, 1, 0), (b"o", 7, False, 0, 1), (b"k", 4, True, 1, 0)],
    ],
)
def test_objects_that_do_not_hang_together_are_refused(fields: Any) -> None:
    """The compiled part believes nothing."""
    with pytest.raises(ValueError, match="no such columns"):
        chosen.COMPILED.decoder(fields)


@pytest.mark.usefixtures("way")
def test_arrow_gets_objects_as_structs() -> None:
    """Null where the object is; of the same types whatever they hold."""
    place = {"city": "a", "zip": None}
    values: list[Any] = [
        {"id": 1, "customer": None, "to": place, "price": 0.5},
        {"id": 2, "customer": {"name": None, "place": None, "home": place, "vip": True}, "to": place, "price": None},
    ]
    found = Decoder(SCHEMA.columns, nested=True).decode(*spans([orjson.dumps(one) for one in values]))
    made = pyarrow.record_batch(ObjectColumns(found.columns, nesting(SCHEMA.columns)))
    assert made.to_pylist() == values
    part = SCHEMA.only({"customer.name"})
    few = Decoder(part.columns, nested=True).decode(*spans([b'{"customer":{"name":"x"}}', b'{"customer":{}}']))
    assert pyarrow.record_batch(ObjectColumns(few.columns, nesting(part.columns))).to_pylist() == [
        {"customer": {"name": "x"}},
        {"customer": None},
    ]
