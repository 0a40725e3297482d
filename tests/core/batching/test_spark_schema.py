"""The schema of a Spark stage's result: what is wrong with it is said where it is declared."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from headgate.core.batching.spark_schema import check_column, result_columns, result_types, without_json
from headgate.core.errors import DeclarationError


class StructType:
    """PySpark's, as far as it is asked."""

    def __init__(self, *names: str) -> None:
        self.names = names

    def fieldNames(self) -> list[str]:
        return list(self.names)

    @property
    def fields(self) -> list[Any]:
        return [SimpleNamespace(name=name, dataType=Kind(TEXTS[name])) for name in self.names]


class Kind(str):
    """One of PySpark's types."""

    def simpleString(self) -> str:
        return str(self)


TEXTS = {
    "n": "int",
    "much": "decimal(10,2)",
    "in": "array<struct<n:int,raw:binary>>",
    "odd": "struct<binary:int,decimal:string>",
}


@pytest.mark.parametrize(
    ("schema", "columns"),
    [
        ("country string, revenue double", ("country", "revenue")),
        ("n Int,m BIGINT", ("n", "m")),
        ("a: int, b: string", ("a", "b")),
        ("struct<a: int, b: struct<>>", ("a", "b")),
        ("date date, map map<string, array<struct<n: int, at: timestamp>>>", ("date", "map")),
        ("`a, b` string, `a``b` int", ("a, b", "a`b")),
        ("a decimal(10, 2) NOT NULL, b decimal(38), c decimal, d varchar(5)", ("a", "b", "c", "d")),
        ("a string not null comment 'x, y int', b interval day to second", ("a", "b")),
        ("d date default date '2020-01-01', e int default (1 + greatest(2, 3))", ("d", "e")),
        ("a string collate UTF8_LCASE, größe double, at timestamp without time zone", ("a", "größe", "at")),
        (StructType("x", "y"), ("x", "y")),
    ],
)
def test_columns_of_a_schema(schema: Any, columns: tuple[str, ...]) -> None:
    """In each form that Spark reads."""
    assert result_columns(schema) == columns


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        (None, "without a schema"),
        ("", "without a schema"),
        (" ", "no columns"),
        (StructType(), "no columns"),
        (StructType("a", "a"), "'a' appears twice"),
        (5, "neither a string nor a StructType"),
        (["country"], "neither a string nor a StructType"),
        (b"a int", "neither a string nor a StructType"),
        (dict, "neither a string nor a StructType"),
        ("country", "column 'country' has no type"),
        ("a, b int", "column 'a' has no type"),
        ("int", "'int' is a type without a column name.*values int"),
        ("array<int>", "'array' is a type without a column name"),
        ("a int, a string", "'a' appears twice"),
        ("a int,", "after the last comma"),
        ("a int,, b int", "missing before this ','"),
        ("country strin", "no type 'strin'.* 'string'"),
        ("a int64", "did you mean 'long'"),
        ("a xyzzyx", "Spark has array, bigint"),
        ("country string revenue double", "a comma is missing before 'revenue'"),
        ("a int; b int", "a comma is missing before ';'"),
        ("a struct<b int c string>", "a comma is missing before 'c'"),
        ("struct<a: int", "a '>' is missing"),
        ("a array<int", "the '>' of 'array' is missing"),
        ("a array<int>>", "nothing opens this '>'"),
        ("a array", "needs the types"),
        ("a map<string>", "a map needs two types"),
        ("a varchar(5", r"the '\)' of 'varchar' is missing"),
        ("a decimal(50, 2)", "at most 38 digits"),
        ("a decimal(5, 7)", "at most 38 digits"),
    ],
)
def test_what_spark_would_refuse_is_refused_without_it(schema: Any, words: str) -> None:
    """A worker that says it minutes later, when the first batch has run, costs somebody an afternoon."""
    with pytest.raises(DeclarationError, match=words):
        result_columns(schema)


def test_a_column_is_named_as_the_schema_has_it() -> None:
    """A function of a row names nothing."""
    check_column("n", ("country", "n"), "to('out', key='n')")
    check_column(len, ("country", "n"), "to('out', key=…)")
    with pytest.raises(
        DeclarationError, match=r"to\('out'\): .* no column 'contry'; it has 'country', 'n'.* 'country'"
    ):
        check_column("contry", ("country", "n"), "to('out')")
    with pytest.raises(DeclarationError, match="add it to the schema="):
        check_column("xyzzy", ("country", "n"), "to('out')")


def test_types_without_a_form_in_json() -> None:
    """Wherever they are in a column; a field that is called like one is none."""
    text = "n int, much DECIMAL(10, 2), raw array<struct<a: binary>>, of map<string, int>, odd struct<binary: int>, at date"
    assert without_json(text) == {"much": "decimal", "raw": "binary"}
    assert without_json(StructType(*TEXTS)) == {"much": "decimal", "in": "binary"}


def test_the_type_of_each_column_is_its_outermost_word() -> None:
    """In any case, with what it holds left out."""
    found = result_types("country STRING NOT NULL, parts array<struct<n: int>>, at timestamp, share decimal(9, 2)")
    assert found == {"country": "string", "parts": "array", "at": "timestamp", "share": "decimal"}
