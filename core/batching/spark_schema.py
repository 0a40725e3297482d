"""The schema of a Spark stage's result, as the user writes it: what is surely wrong with it is said where it is declared, without Spark.

    country string, revenue double NOT NULL, parts array<struct<n: int, at: timestamp>>

Decides: which texts are refused, and what columns a schema has. It knows Spark's types by name, and no more: whatever may follow a type
(`COMMENT`, `DEFAULT`, `COLLATE` …) is left to Spark, which reads the text when the first batch runs.

Promise: a schema that is refused here is one that Spark would refuse, or one without a name for a column, which no result can have.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple, NoReturn

from ..errors import DeclarationError
from ..settings import nearest

TYPES = frozenset({
    "array", "bigint", "binary", "boolean", "byte", "char", "character", "date", "dec", "decimal", "double", "float", "geography",
    "geometry", "int", "integer", "interval", "long", "map", "numeric", "real", "short", "smallint", "string", "struct", "time",
    "timestamp", "timestamp_ltz", "timestamp_ntz", "tinyint", "varchar", "variant", "void",
})  # fmt: skip
ELSEWHERE = {
    "bool": "boolean",
    "bytes": "binary",
    "datetime": "timestamp",
    "dict": "map<string, …>",
    "float32": "float",
    "float64": "double",
    "int16": "short",
    "int32": "int",
    "int64": "long",
    "int8": "byte",
    "json": "string",
    "list": "array<…>",
    "number": "double",
    "object": "struct<…>",
    "str": "string",
    "text": "string",
    "utf8": "string",
    "uuid": "string",
}
"""What other languages call these types → what Spark calls them."""
NO_JSON = frozenset({"binary", "dec", "decimal", "interval", "numeric", "variant"})
BEHIND = frozenset({"collate", "comment", "default", "generated", "not", "with", "without"})
"""What may follow a type, and is not the name of the next column."""
MOST_DIGITS = 38
LIKE = 'schema="country string, revenue double"'
_TOKEN = re.compile(r"\s*(?:(`(?:[^`]|``)+`)|([\w-]+)|('(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\")|(\S))")


class Whose(NamedTuple):
    """What has columns, in messages."""

    has: str
    its: str
    said: str
    """How a column is added."""


RESULT = Whose("the result of .spark() has", "it has", "add it to the schema= of .spark()")
ROWS = Whose("the rows have", "they have", "declare it: rows=, or the type of the input")


def result_columns(schema: Any) -> tuple[str, ...]:
    """The names of the columns of a schema, which is a text or PySpark's `StructType`; raises `DeclarationError` for anything else.

    >>> result_columns("country string, revenue double")
    ('country', 'revenue')
    """
    if schema is None or schema == "":
        raise DeclarationError(
            "spark() without a schema", remedy='declare the output columns: schema="country string, n long"'
        )
    if isinstance(schema, str):
        names = _Text(schema).columns()
    elif type(schema).__name__ == "StructType":
        names = tuple(schema.fieldNames())
    else:
        raise DeclarationError(
            f"spark(schema={schema!r:.80}) is neither a string nor a StructType of PySpark",
            remedy=f"{LIKE}; schema types of other libraries are not accepted",
        )
    twice = [name for at, name in enumerate(names) if name in names[:at]]
    if twice or not names:
        _refuse(schema, f"the column '{twice[0]}' appears twice" if twice else "it has no columns", LIKE)
    return names


def without_json(schema: Any) -> dict[str, str]:
    """The columns of a valid schema that JSON has no form for, each with its type.

    >>> without_json("country string, revenue decimal(18, 2), parts array<struct<raw: binary>>")
    {'revenue': 'decimal', 'parts': 'binary'}
    """
    return {
        name: next(word for word in words if word in NO_JSON)
        for name, words in _words_of(schema).items()
        if not NO_JSON.isdisjoint(words)
    }


def result_types(schema: Any) -> dict[str, str]:
    """The columns of a valid schema, each with the name of its type, without what that holds.

    >>> result_types("country string, n int, parts array<int>")
    {'country': 'string', 'n': 'int', 'parts': 'array'}
    """
    return {name: words[0] for name, words in _words_of(schema).items()}


def _words_of(schema: Any) -> dict[str, list[str]]:
    """By column of a valid schema, the words of its type, the outermost first."""
    if isinstance(schema, str):
        read = _Text(schema)
        read.columns()
        return read.types
    kinds = {one.name: re.sub(r"[^<,>]*:", "", one.dataType.simpleString()) for one in schema.fields}
    return {name: re.findall(r"[a-z_]+", kind) for name, kind in kinds.items()}


def check_column(name: Any, columns: tuple[str, ...], where: str, whose: Whose = RESULT) -> None:
    """Refuse a name that no column has. What is no name, such as a function, passes. `whose`: `RESULT` or `ROWS`."""
    if isinstance(name, str) and name not in columns:
        near = nearest(name, columns)
        raise DeclarationError(
            f"{where}: {whose.has} no column '{name}'; {whose.its} {', '.join(map(repr, columns))}",
            remedy=f"did you mean '{near}'?" if near else f"name one of them, or {whose.said}",
        )


class _Text:
    """Reads a schema from its text."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens = [match[match.lastindex or 0] for match in _TOKEN.finditer(text)]
        self.at = 0
        self.types: dict[str, list[str]] = {}
        """By column, the words of its type."""
        self._words: list[str] = []

    def columns(self) -> tuple[str, ...]:
        """All columns, up to the end of the text."""
        if len(self.tokens) > 1 and self.tokens[0].lower() == "struct" and self.tokens[1] == "<":
            self.at = 2
            names = self._fields(">")
            self._take(">", "a '>' is missing")
        else:
            names = self._fields("")
        if self.at < len(self.tokens):
            self._refuse(f"nothing opens this '{self.tokens[self.at]}'")
        return names

    def _peek(self) -> str:
        return self.tokens[self.at] if self.at < len(self.tokens) else ""

    def _take(self, wanted: str, otherwise: str) -> None:
        if self._peek() != wanted:
            self._refuse(otherwise)
        self.at += 1

    def _fields(self, closing: str) -> tuple[str, ...]:
        """The names of fields, up to this token, which is not taken."""
        names: list[str] = []
        while self._peek() != closing or names:
            before = len(self._words)
            names.append(self._field(closing))
            self.types[names[-1]] = self._words[before:]
            if self._peek() != ",":
                break
            self.at += 1
        return tuple(names)

    def _field(self, closing: str) -> str:
        name = self._peek()
        if not name or name in ",:;<>()":
            self._refuse(f"a column is missing {f'before this {name!r}' if name else 'after the last comma'}")
        self.at += 1
        if name.lower() in TYPES and self._peek() in ("", ",", "<", "("):
            self._refuse(f"'{name}' is a type without a column name", f'schema="values {self.text.strip()}"')
        if self._peek() == ":":
            self.at += 1
        if self._peek() in ("", ",", closing):
            self._refuse(f"the column '{name}' has no type")
        self._type()
        self._rest()
        return name[1:-1].replace("``", "`") if name[0] == "`" else name

    def _type(self) -> None:
        word = self._peek().lower()
        if word not in TYPES:
            self._unknown(word)
        self._words.append(word)
        self.at += 1
        if word in ("array", "map", "struct"):
            self._take("<", f"'{word}' needs the types of what it holds: array<int>, map<string, int>, struct<n: int>")
            if word == "struct":
                outer, self.types = self.types, {}
                self._fields(">")
                self.types = outer
            else:
                self._type()
            if word == "map":
                self._take(",", "a map needs two types: map<string, int>")
                self._type()
            self._take(">", f"the '>' of '{word}' is missing")
        elif self._peek() == "(":
            first = self.at + 1
            while self._peek() not in ("", ")"):
                self.at += 1
            self._take(")", f"the ')' of '{word}' is missing")
            self._digits(word, [int(one) for one in self.tokens[first : self.at] if one.isdecimal()])

    def _digits(self, word: str, given: list[int]) -> None:
        if word in ("dec", "decimal", "numeric") and (
            max(given, default=0) > MOST_DIGITS or given != sorted(given)[::-1]
        ):
            self._refuse(
                f"a decimal has at most {MOST_DIGITS} digits, and its scale is at most its precision", "decimal(18, 2)"
            )

    def _unknown(self, word: str) -> NoReturn:
        meant = ELSEWHERE.get(word) or nearest(word, TYPES)
        remedy = f"did you mean '{meant}'?" if meant else f"Spark has {', '.join(sorted(TYPES))}"
        self._refuse(f"Spark has no type '{self._peek()}'", remedy)

    def _rest(self) -> None:
        """Pass over what follows a type. A name with another type is a column before which a comma is missing."""
        rest: list[str] = []
        depth = 0
        while self._peek() and (depth or self._peek() not in (",", ">", ")")):
            depth += (self._peek() == "(") - (self._peek() == ")")
            rest.append(self._peek())
            self.at += 1
        words = [one.lower() for one in rest]
        named = len(words) > 1 and words[0].isidentifier() and words[0] not in BEHIND and words[1] in TYPES
        if words and (words[0] in (";", "|") or named):
            self._refuse(f"a comma is missing before '{rest[0]}'")

    def _refuse(self, why: str, remedy: str = LIKE) -> NoReturn:
        _refuse(self.text, why, remedy)


def _refuse(schema: Any, why: str, remedy: str) -> NoReturn:
    raise DeclarationError(f"spark(schema={schema!r:.200}): {why}", remedy=remedy)
