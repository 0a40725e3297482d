"""Expressions: what can be written, of which type it is, and what is refused at the line that is wrong."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from headgate.core.columns.expressions import Expression, col, columns_in
from headgate.core.columns.schema import BOOL, FLOAT, INT, TEXT, ColumnSchema, ColumnSpec
from headgate.core.columns.typing import column_of, kind_of
from headgate.core.errors import DeclarationError

SCHEMA = ColumnSchema(
    (
        ColumnSpec("n", INT),
        ColumnSpec("amount", FLOAT),
        ColumnSpec("user", TEXT),
        ColumnSpec("paid", BOOL),
        ColumnSpec("m", INT, optional=True),
    )
)


def test_an_expression_is_data() -> None:
    """Two that are written alike are equal nodes, and print as what was written."""
    one = (col("amount") * 1.2 >= 10) & ~col("paid")
    assert one.node == ((col("amount") * 1.2 >= 10) & ~col("paid")).node
    assert repr(one) == "<Expression (((amount * 1.2) >= 10) & ~(paid))>"
    assert str((-col("n").floor("1s")).node) == "-(n.floor(1000))"
    assert sorted(columns_in(one.node)) == ["amount", "paid"]


@pytest.mark.parametrize(
    ("expression", "type_", "optional"),
    [
        (col("n") + 1, INT, False),
        (1 + col("m"), INT, True),
        (2 - col("n"), INT, False),
        (2.0 * col("n"), FLOAT, False),
        (col("n") / 2, FLOAT, False),
        (1 / col("n"), FLOAT, False),
        (7 // col("n") % 3, INT, False),
        (7 % col("n") - col("n") // 2, INT, False),
        (-col("amount"), FLOAT, False),
        (col("n") == 1.5, BOOL, False),
        (col("user") != "a", BOOL, False),
        (col("user") < "b", BOOL, False),
        (col("m") <= 3, BOOL, True),
        (col("m") > 3, BOOL, True),
        (col("m").is_null(), BOOL, False),
        (col("m").is_in([1, 2.5]), BOOL, True),
        (col("paid") & True | (False | (True & col("paid"))), BOOL, False),
        (col("paid") == True, BOOL, False),  # noqa: E712 - an expression, not a test
        (col("user").starts_with("a") | col("user").contains("b"), BOOL, False),
        (col("n").cast(float), FLOAT, False),
        (col("amount").cast(int), INT, False),
        (col("paid").cast(str), TEXT, False),
        (col("user").cast(bool), BOOL, False),
        (col("n").floor("1m"), INT, False),
    ],
)
def test_an_expression_has_a_type(expression: Expression, type_: str, optional: bool) -> None:
    """It follows from the types of the columns."""
    assert column_of("x", expression.node, SCHEMA) == ColumnSpec("x", type_, optional)


@pytest.mark.parametrize(
    ("write", "told"),
    [
        (lambda: col("amonut") > 1, "no column 'amonut'.*did you mean 'amount'"),
        (lambda: col("user") * 2, r"\(user \* 2\): \* takes numbers, and user is text"),
        (lambda: -col("user"), "- takes numbers, and user is text"),
        (lambda: col("amount") // 2, "// takes whole numbers, and amount is float64.*cast"),
        (lambda: col("n") & col("paid"), "& takes booleans, and n is int64.*parentheses"),
        (lambda: col("user") == 1, "text and int64 cannot be compared"),
        (lambda: col("n").is_in([1, "a"]), "int64 and text cannot be compared"),
        (lambda: col("paid") < True, "booleans have no order"),
        (lambda: col("n").contains("1"), "contains takes text, and n is int64"),
        (lambda: col("amount").floor("1m"), "floor takes a time in milliseconds.*amount is float64"),
        (lambda: col("n").cast(bool), "n is int64, and no cast makes a boolean of a number.*n != 0"),
    ],
)
def test_a_wrong_type_is_refused(write: Callable[[], Expression], told: str) -> None:
    """The message names the part of the expression that is wrong."""
    with pytest.raises(DeclarationError, match=told):
        kind_of(write().node, SCHEMA)


@pytest.mark.parametrize(
    ("write", "told"),
    [
        (lambda: col(""), "does not name a column"),
        (lambda: bool(col("a") > 1), "no truth value.*use & for and"),
        (lambda: 1 < col("a") < 3, "no truth value"),
        (lambda: col("a") == None, "is always null.*is_null"),  # noqa: E711 - what users write
        (lambda: col("a") > 2**63, "more than 64 bits"),
        (lambda: col("a") > float("nan"), "no column contains"),
        (lambda: col("a") == [1], "neither an expression nor a value"),
        (lambda: col("a").is_in([]), "is never true"),
        (lambda: col("a").is_in("ab"), r"is_in\(\['ab'\]\)"),
        (lambda: col("a").is_in([None]), "is always null"),
        (lambda: col("a").cast(list), "int, float, bool or str"),  # type: ignore[arg-type]
        (lambda: col("a").starts_with(1), "give it text"),  # type: ignore[arg-type]
        (lambda: col("a").floor("1 fortnight"), "is not a duration"),
        (lambda: col("a").floor(0), "less than a millisecond"),
    ],
)
def test_what_cannot_be_meant_is_refused(write: Callable[[], Any], told: str) -> None:
    """Also without a schema."""
    with pytest.raises(DeclarationError, match=told):
        write()
