"""Schemas of columns."""

from __future__ import annotations

import pytest

from headgate.core.columns.schema import BOOL, FLOAT, INT, TEXT, ColumnSchema, ColumnSpec
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
