"""Schemas of columns."""

from __future__ import annotations

import pytest

from headgate.core.columns.expressions import col
from headgate.core.columns.schema import BOOL, FLOAT, INT, TEXT, ColumnSchema, ColumnSpec, PathPart
from headgate.core.columns.typing import column_of, kind_of
from headgate.core.errors import DeclarationError

ORDERS = ColumnSchema((ColumnSpec("user", TEXT), ColumnSpec("amount", FLOAT), ColumnSpec("ts", INT, optional=True)))


def test_a_schema_prints_as_it_is_declared() -> None:
    """Messages show it."""
    assert str(ORDERS) == "user: text, amount: float64, ts: int64 | null"


def test_an_unknown_column_is_refused_with_the_one_that_was_meant() -> None:
    """A typing mistake is found at the line that has it."""
    with pytest.raises(DeclarationError, match=r"no column 'amuont'.*did you mean 'amount'"):
        ORDERS["amuont"]


def test_two_columns_cannot_have_one_name() -> None:
    """One of them could never be read."""
    with pytest.raises(DeclarationError, match="'a' is declared twice"):
        ColumnSchema((ColumnSpec("a", INT), ColumnSpec("a", TEXT)))


def test_a_name_is_text() -> None:
    """No record has such a field, and the first message with it could not be encoded."""
    with pytest.raises(DeclarationError, match="lone surrogate in its name"):
        ColumnSchema((ColumnSpec("\ud800", INT),))


def test_a_schema_is_cut_and_extended() -> None:
    """A column that is computed anew keeps its place; the others are added at the end."""
    extended = ORDERS.extended([ColumnSpec("amount", INT), ColumnSpec("big", BOOL)])
    assert ORDERS.only(["ts", "user"]).names == ("user", "ts")
    assert str(extended) == "user: text, amount: int64, ts: int64 | null, big: bool"


def inner(*names: str, optional: bool = False) -> tuple[PathPart, ...]:
    return tuple(PathPart(name, optional) for name in names)


NESTED = ColumnSchema(
    (
        ColumnSpec("n", INT),
        ColumnSpec("customer", BOOL, True, inner("customer", optional=True), is_object=True),
        ColumnSpec("customer.country", TEXT, True, inner("customer", "country")),
        ColumnSpec("customer.at.city", TEXT, True, inner("customer", "at", "city")),
    )
)


def test_fields_of_nested_objects_are_columns() -> None:
    """An object that may be null has a column of its own; another one has none."""
    assert (NESTED.nested, ORDERS.nested) == (True, False)
    assert NESTED.inside("customer") == ("customer", "customer.country", "customer.at.city")
    assert NESTED.inside("customer.at") == ("customer.at.city",)
    assert NESTED.inside("n") == NESTED.inside("custom") == ()
    with pytest.raises(DeclarationError, match=r"'customer\.at' is an object.*name one of them: customer\.at\.city"):
        NESTED["customer.at"]


def test_of_an_object_it_is_only_known_whether_it_is_there() -> None:
    """Its own column makes no value."""
    assert NESTED.value("customer.country", "filter()").type == TEXT
    with pytest.raises(DeclarationError, match=r"filter\(\): 'customer' is an object.*customer\.country.*is_null"):
        NESTED.value("customer", "filter()")
    assert kind_of(col("customer").is_null().node, NESTED).type == BOOL
    with pytest.raises(DeclarationError, match="'customer' is an object"):
        kind_of((col("customer") & col("customer")).node, NESTED)


def test_where_nested_fields_have_no_place_they_are_refused() -> None:
    """With a column that could go there."""
    ORDERS.flat("share()")
    with pytest.raises(DeclarationError, match=r"share\(\) takes no fields of nested objects.*select\(country="):
        NESTED.flat("share()")


def test_a_nested_column_keeps_its_place_under_its_own_name_alone() -> None:
    """Under another one it is a field of the record."""
    assert column_of("customer.country", col("customer.country").node, NESTED).path == inner("customer", "country")
    assert column_of("country", col("customer.country").node, NESTED) == ColumnSpec("country", TEXT, True)
    assert column_of("m", col("n").node, NESTED) == ColumnSpec("m", INT)


def test_a_column_as_plain_values_is_the_same_column() -> None:
    """Executors get them."""
    for one in (*NESTED.columns, *ORDERS.columns):
        assert ColumnSpec.of_plain(*one.plain()) == one


def test_flat_and_nested_names_that_meet_are_refused() -> None:
    """One of them could never be read."""
    country = NESTED["customer.country"]
    with pytest.raises(DeclarationError, match=r"'customer\.country' and a nested field have one name"):
        ColumnSchema((ColumnSpec("customer.country", TEXT), country))
    with pytest.raises(DeclarationError, match="'customer' has the name of an object"):
        ColumnSchema((country, ColumnSpec("customer", TEXT)))
