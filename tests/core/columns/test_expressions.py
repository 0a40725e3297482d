"""Expressions: what can be written, of which type it is, and what is refused at the line that is wrong."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from enum import IntEnum, StrEnum
from functools import reduce
from operator import or_
from typing import Any

import pytest

from headgate.core.columns.expressions import (
    Expression,
    coalesce,
    col,
    columns_in,
    concat,
    greatest,
    least,
    substituted,
    when,
)
from headgate.core.columns.schema import BOOL, FLOAT, INT, TEXT, ColumnSchema, ColumnSpec
from headgate.core.columns.typing import column_of, kind_of, may_fail, typed
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
    case = when(col("n") > 0).then(1).when(col("paid")).then(coalesce(col("m"), 2))
    assert str(case.node) == "when((n > 0)).then(1).when(paid).then(coalesce(m, 2))"
    assert str(case.otherwise(3).node) == str(case.node) + ".otherwise(3)"
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
        (when(col("m") > 0).then(1), INT, True),
        (when(col("m") > 0).then(1).when(col("paid")).then(2.5).otherwise(col("n")), FLOAT, False),
        (when(col("paid")).then(col("m")).otherwise(0), INT, True),
        (coalesce(col("m"), col("n")), INT, False),
        (col("user").strip().lower().upper().replace("a", "b").slice(1), TEXT, False),
        (col("user").split("/", -1), TEXT, True),
        (col("user").length() + 1, INT, False),
        (col("user").matches("^a"), BOOL, False),
        (col("n").abs().round(), INT, False),
        (col("user").strptime("%Y-%m-%d").year(), INT, False),
        (col("m").strftime("%Y-%m-%d"), TEXT, True),
        (-col("amount").abs().round(2), FLOAT, False),
        (least(col("n"), 2.5, col("m")), FLOAT, True),
        (greatest(col("user"), "a"), TEXT, False),
        (col("paid").hash(), INT, False),
        (concat(col("user"), "-", col("m").cast(str)), TEXT, True),
        (coalesce(col("m"), col("m") + 0.5), FLOAT, True),
    ],
)
def test_an_expression_has_a_type(expression: Expression, type_: str, optional: bool) -> None:
    """It follows from the types of the columns."""
    assert column_of("x", expression.node, SCHEMA) == ColumnSpec("x", type_, optional)


@pytest.mark.parametrize(
    ("expression", "fails"),
    [
        (col("user").lower() == "a", False),
        (col("n").cast(float), False),
        (col("n").cast(str), False),
        (col("paid").cast(int), False),
        (col("amount").cast(int), True),
        (when(col("paid")).then(col("n") // 2).is_null(), True),
    ],
)
def test_which_expressions_may_fail(expression: Expression, fails: bool) -> None:
    """What may not is computed without asking for which records it is needed."""
    assert may_fail(typed(expression.node, SCHEMA)) is fails


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
        (lambda: when(col("n")).then(1).otherwise(2), "when takes a boolean, and n is int64.*compare it"),
        (
            lambda: when(col("paid")).then(1).otherwise("a"),
            "int64 and text have no common type for one column.*cast one",
        ),
        (lambda: col("user").hour(), "hour takes a time in milliseconds.*user is text.*strptime"),
        (lambda: col("n").strptime("%Y%m%d"), "strptime takes text, and n is int64"),
        (lambda: col("user").abs(), "abs takes numbers, and user is text"),
        (lambda: least(col("paid"), True), "booleans have no order"),
        (lambda: greatest(col("n"), "a"), "int64 and text cannot be compared"),
        (lambda: col("n").lower(), "lower takes text, and n is int64.*cast it"),
        (lambda: concat(col("user"), col("amount")), "concat takes text, and amount is float64.*cast it"),
        (lambda: coalesce(col("m"), col("user"), 1), r"coalesce\(m, user, 1\): int64 and text have no common type"),
        (lambda: col("n").cast(bool), "n is int64, and a number cannot be cast to a boolean.*n != 0"),
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
        (lambda: col("a") == None, "None, which is null for every record.*is_null"),  # noqa: E711 - what users write
        (lambda: col("a") > 2**63, "more than 64 bits"),
        (lambda: col("a") > float("nan"), "a column cannot hold"),
        (lambda: col("a") == [1], "neither an expression nor a value"),
        (lambda: col("a").is_in([]), "is never true"),
        (lambda: col("a").is_in("ab"), r"is_in\(\['ab'\]\)"),
        (lambda: col("a").is_in([None]), "has None, which is null for every record"),
        (lambda: col("a").is_in(None), r"is_in\(None\)"),  # type: ignore[arg-type]
        (lambda: col("a").is_in(5), r"is_in\(\[5\]\)"),  # type: ignore[arg-type]
        (lambda: col("a").is_in(col("b")), r"is_in\(<Expression b>\)"),  # type: ignore[arg-type]
        (lambda: 5 in col("a"), r"5 in a has no answer.*is_in"),  # type: ignore[operator]
        (lambda: col("a").isin([1]), r"an expression has no 'isin'.*\.is_in"),  # type: ignore[attr-defined]
        (lambda: col("a").sum(), r"no 'sum'.*'cast'.*; .*\.frame\(…\)"),  # type: ignore[attr-defined]
        (lambda: col("a") == "\ud800", "lone surrogate"),
        (lambda: col("a").contains("\ud800"), "lone surrogate"),
        (lambda: reduce(or_, [col("a") == n for n in range(300)]), r"nested more than 200 deep.*is_in"),
        (lambda: reduce(lambda one, _: one + one, range(20), col("a")), r"more than 10,000 parts.*with_columns"),
        (lambda: col("a").cast([]), "int, float, bool, str or"),  # type: ignore[arg-type]
        (lambda: col("a").cast(list), "int, float, bool, str or"),  # type: ignore[arg-type]
        (lambda: col("a").starts_with(1), "give it text"),  # type: ignore[arg-type]
        (lambda: col("a").floor("1 fortnight"), "is not a duration"),
        (lambda: col("a").floor(0), "less than a millisecond"),
        (lambda: when(col("a")).then(None), r"then\(None\): null has no type.*leave .otherwise"),  # type: ignore[arg-type]
        (lambda: when(col("a")).then(1).otherwise(None), "leave .otherwise"),  # type: ignore[arg-type]
        (lambda: col("a") + when(col("a")), "when.a., which lacks its .then"),  # type: ignore[operator]
        (lambda: coalesce(col("a")), "of one value is that value"),
        (lambda: col("a").strptime("%Y-%b"), "%b is not supported in a format.*there are %Y %m"),
        (lambda: col("a").strftime("%"), "% is not supported in a format"),
        (lambda: col("a").strftime("x" * 101), "longer than 100 bytes"),
        (lambda: col("a").strptime("%H:%M"), "does not make a complete date.*%Y, %m and %d"),
        (lambda: col("a").strptime("%Y%m%d%d"), "has a part twice"),
        (lambda: col("a").round(16), "0 to 15 digits"),
        (lambda: concat("a"), "of one value is that value"),
        (lambda: col("a").split("", 1), "non-empty text.*one character"),
        (lambda: col("a").replace("", "b"), "non-empty text"),
        (lambda: col("a").strip(""), "non-empty text"),
        (lambda: col("a").split("/", 1.5), "split.. at 1.5.*whole number"),  # type: ignore[arg-type]
        (lambda: col("a").slice(2**70), "whole number"),
        (lambda: col("a").matches("(a"), r"matches\('\(a'\): missing \).*regular expression"),
        (lambda: col("a").matches("(?u)a"), "cannot use UNICODE flag|incompatible"),
        (
            lambda: reduce(lambda one, n: one.when(col("a") == n).then(n), range(200), when(col("b")).then(1)),
            "nested more than 200 deep",
        ),
    ],
)
def test_what_cannot_be_meant_is_refused(write: Callable[[], Any], told: str) -> None:
    """Also without a schema."""
    with pytest.raises(DeclarationError, match=told):
        write()


class Country(StrEnum):
    DE = "DE"


class Level(IntEnum):
    LOW = 1


class Ratio(float):
    """As numpy has them: a kind of float, whose repr is another."""

    def __repr__(self) -> str:
        return f"ratio({float(self)})"


def test_what_stands_for_a_plain_value_is_that_value() -> None:
    """So are the texts of an enumeration what records contain."""
    one = (col("user") == Country.DE) & (col("n") > Level.LOW) & (col("amount") < Ratio(1.5))
    assert str(one.node) == "(((user == 'DE') & (n > 1)) & (amount < 1.5))"
    assert [type(value) for value in (Country.DE, Level.LOW)] != [str, int]


def test_what_a_column_is_made_of_takes_its_place() -> None:
    """So a key is known by the decoded columns that it comes from."""
    made = {"b": (col("a") * 2).node}
    assert str(substituted((col("b") + col("c") > 1).node, made)) == "(((a * 2) + c) > 1)"


def test_an_expression_of_a_set_is_the_same_in_each_process() -> None:
    """It may make a key, and is then part of the job's fingerprint; the order of a set differs between processes."""
    program = "from headgate.core.columns.expressions import col; print(col('a').is_in({'DE', 'FR', 'NL', 'BE', 'IT'}))"
    printed = {
        subprocess.run([sys.executable, "-c", program], env={"PYTHONHASHSEED": seed}, check=True, stdout=-1).stdout
        for seed in "123"
    }
    assert printed == {b"<Expression a.is_in(['BE', 'DE', 'FR', 'IT', 'NL'])>\n"}


def test_as_many_conditions_as_may_be_nested_are_judged_once_each() -> None:
    """Judging each part for each part above it took seconds for a hundred."""
    found = list(columns_in(reduce(or_, [col("n") == n for n in range(200)]).node))
    assert found == ["n"] * 200
    assert kind_of(reduce(or_, [col("n") == n for n in range(200)]).node, SCHEMA).type == BOOL
