"""Values become columns in the same way whether they are looked at a column or a value at a time, and columns become values again."""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, TypedDict

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.agents.records.columns import fitting as fits
from headgate.agents.records.columns.fitting import columns_of_values
from headgate.agents.records.columns.records import Records
from headgate.agents.records.memory.vectors import Vector
from headgate.agents.records.native import chosen
from headgate.agents.records.values.column_types import columns_of_type, maker
from headgate.core.columns.schema import ColumnSchema, ColumnSpec

SCHEMA = ColumnSchema(
    (
        ColumnSpec("s", "text"),
        ColumnSpec("n", "int64", True),
        ColumnSpec("f", "float64"),
        ColumnSpec("b", "bool", True),
    )
)
FITTING = {
    "s": st.text(max_size=3),
    "n": st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1)),
    "f": st.floats(allow_nan=False, allow_infinity=False),
    "b": st.one_of(st.none(), st.booleans()),
}
ANYTHING = st.one_of(
    st.none(), st.text(max_size=2), st.integers(-(2**70), 2**70), st.floats(), st.booleans(), st.binary(max_size=2)
)


def shown(found: Any) -> Any:
    made, bad = found
    return repr(made), [(index, str(error)) for index, error in bad]


@settings(deadline=None, max_examples=100)
@given(
    st.lists(st.fixed_dictionaries(FITTING), max_size=6),
    st.lists(st.dictionaries(st.sampled_from("snfbx"), ANYTHING), max_size=2),
    st.sampled_from([dict, lambda row: SimpleNamespace(**row)]),
)
def test_a_column_at_a_time_and_a_value_at_a_time(fitting: list[Any], odd: list[Any], kind: Any) -> None:
    """Whatever fits, and whatever does not: the same columns, the same errors."""
    values = [kind(row) for row in (*fitting, *odd, *fitting)]
    found = columns_of_values(values, SCHEMA)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fits, "_plainly", lambda *_: None)
        assert shown(found) == shown(columns_of_values(values, SCHEMA))
    assert [len(column) for column in found[0].values()] == [len(values)] * 4


def test_values_that_fit_are_not_looked_at_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """That would cost ten times as much."""
    monkeypatch.setattr(fits, "_one", None)
    rows = [{"s": "a", "n": 1, "f": 0.5, "b": True}, {"s": "b", "n": None, "f": 1.0}]
    made, bad = columns_of_values(rows, SCHEMA)
    assert (made, bad) == ({"s": ["a", "b"], "n": [1, None], "f": [0.5, 1.0], "b": [True, None]}, [])


class Typed(TypedDict):
    s: str
    n: int | None
    f: float
    b: bool | None


class Renamed(msgspec.Struct, rename={"text": "s"}):
    text: str
    n: int | None
    f: float
    b: bool | None = None


class ByName(msgspec.Struct, kw_only=True):
    s: str
    n: int | None = None
    f: float
    b: bool | None = None


@dataclass
class Placed:
    s: str
    n: int | None
    f: float
    b: bool | None
    made: int = field(init=False, default=7)


@dataclass
class Named:
    s: str = field(kw_only=True)
    n: int | None
    f: float
    b: bool | None


@pytest.mark.parametrize("kind", [Typed, Renamed, ByName, Placed, Named])
@pytest.mark.parametrize("plain", [False, True])
def test_rows_are_values_of_their_type(kind: Any, plain: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether its fields may be given by position or not; of the selected rows alone."""
    if plain:
        monkeypatch.setattr(chosen, "part", chosen.PLAIN)
    schema = columns_of_type(kind)
    found = {"s": ["a", "ü", ""], "n": [1, None, -(2**63)], "f": [0.5, 1.0, -0.0], "b": [True, None, False]}
    vectors = {one.name: Vector.of(one.type, found[one.name]) for one in schema.columns}
    chunk = Records([None] * 3, [1, 2, 3]).with_vectors(vectors).kept(array("q", [0, 2]))
    own = {"text" if kind is Renamed and name == "s" else name: column for name, column in found.items()}
    wanted = [kind(**{name: column[row] for name, column in own.items()}) for row in (0, 2)]
    assert chunk.of_columns(schema.names, maker(kind, schema)).values == wanted


def test_a_damaged_vector_makes_no_list() -> None:
    """Its offsets are looked at before its text."""
    for offsets in ([0, 9], [2, 1], [-1, 1]):
        with pytest.raises((ValueError, IndexError, AssertionError)):
            assert Vector("text", 1, b"abc", array("i", offsets)).values() == ["not this"]
    for damaged in (Vector("int64", 2, b"1234567"), Vector("text", 1, b"", array("i", [0])), Vector("bool", 9, b"1")):
        with pytest.raises((ValueError, IndexError)):
            damaged.values()
