"""Which types declare columns, and what is said about one that does not."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Annotated, Any, NotRequired, Required, TypedDict

import msgspec
import pyarrow as pa
import pytest

from headgate.agents.records.values.column_types import columns_of_type, maker, type_of_arrow
from headgate.agents.records.values.serdes import json
from headgate.core.errors import DeclarationError

COLUMNS = "user: text, amount: float64, ts: int64 | null, paid: bool"


class AsDict(TypedDict):
    user: str
    amount: float
    ts: int | None
    paid: bool


class WithKeys(TypedDict, total=False):
    user: Required[str]
    amount: Required[float]
    ts: NotRequired[int | None]
    paid: Required[bool]


@dataclass
class AsData:
    user: str
    amount: float
    ts: int | None
    paid: bool
    derived: int = field(init=False, default=0)


class AsStruct(msgspec.Struct):
    user: str
    amount: float
    ts: int | None
    paid: bool


class Renamed(msgspec.Struct, rename="camel"):
    user_name: str
    at_ms: int | None = None


AS_ARROW = pa.schema(
    [
        pa.field("user", pa.string(), nullable=False),
        pa.field("amount", pa.float64(), nullable=False),
        pa.field("ts", pa.int64()),
        pa.field("paid", pa.bool_(), nullable=False),
    ]
)


@pytest.mark.parametrize("kind", [AsDict, WithKeys, AsData, AsStruct, type_of_arrow(AS_ARROW)])
def test_all_kinds_of_types_declare_the_same_columns(kind: Any) -> None:
    """A user writes the type that the rest of his code uses."""
    assert str(columns_of_type(kind)) == COLUMNS


def test_a_column_has_the_name_that_the_record_has() -> None:
    """A Struct may rename its fields; rows are made of its own names."""
    assert columns_of_type(Renamed).names == ("userName", "atMs")
    make = maker(Renamed, columns_of_type(Renamed))
    assert make is not None
    assert make([["a"], [1]]) == [Renamed("a", 1)]


def test_rows_are_values_of_the_type() -> None:
    """A dict stays a dict."""
    row = {"user": "a", "amount": 1.0, "ts": None, "paid": True}
    assert maker(AsDict, columns_of_type(AsDict)) is None
    assert maker(None, columns_of_type(AsDict)) is None
    for kind in (AsData, AsStruct):
        make = maker(kind, columns_of_type(kind))
        assert make is not None
        assert make([[value] for value in row.values()]) == [kind("a", 1.0, None, True)]


def typed(name: str, hint: Any, **more: Any) -> Any:
    return dataclasses.make_dataclass("Order", [("user", str), (name, hint, dataclasses.field(**more))])


class Late(TypedDict, total=False):
    country: str


class Tagged(msgspec.Struct, tag="order"):
    user: str


class Strict(msgspec.Struct, forbid_unknown_fields=True):
    user: str


class ByPlace(msgspec.Struct, array_like=True):
    user: str


class Checked(msgspec.Struct):
    amount: Annotated[float, msgspec.Meta(ge=0)]


@dataclass
class After:
    user: str

    def __post_init__(self) -> None:
        self.user = self.user.upper()


class Empty(TypedDict):
    pass


@pytest.mark.parametrize(
    ("kind", "told"),
    [
        (typed("items", set[str]), r"field 'items' of Order is set\[str\], which no column can hold.*leave it out"),
        (typed("any", int | str), r"field 'any' of Order is int \| str, which no column"),
        (typed("nothing", None), "field 'nothing' of Order is None"),
        (typed("country", str, default="DE"), r"field 'country' of Order has a default.*str \| None = None"),
        (typed("tags", str, default_factory=str), "field 'tags' of Order has a default"),
        (Late, r"field 'country' of Late may be missing.*declare it str \| None"),
        (Checked, "field 'amount' of Checked has rules of its own.*filter"),
        (Tagged, "Tagged cannot be read as columns: it has a tag"),
        (Strict, "it forbids fields"),
        (ByPlace, "identified by position"),
        (After, "it has a __post_init__"),
        (Empty, "Empty has no fields"),
        (int, "has no columns.*TypedDict, dataclass"),
        (typed("other", "Nowhere"), "fields of Order cannot be read.*Nowhere"),
    ],
)
def test_a_type_that_no_columns_have_is_refused(kind: Any, told: str) -> None:
    """By the field that is wrong, with what to do."""
    with pytest.raises(DeclarationError, match=told):
        columns_of_type(kind)


def test_a_schema_of_arrow_that_no_columns_have_is_refused() -> None:
    """Already where the input is declared: its rows could not be read either."""
    with pytest.raises(DeclarationError, match=r"field 'at' of the pyarrow.Schema is time32.*int64, double"):
        json(pa.schema([("at", pa.time32("ms"))]))
    with pytest.raises(DeclarationError, match="two fields 'a'"):
        json(pa.schema([("a", pa.int64()), ("a", pa.string())]))
