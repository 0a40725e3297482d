"""The programs that write columns as Avro records: one follows from the schema to write with and the columns that are there.
`native/avro_write.c` runs it, and its twin.

What it decides: which schemas have a program. Promises:

- What a program writes is what fastavro writes of the dict of the row: `tests/agents/registry/test_avro_writer.py` proves the two against
  each other. A value that the schema cannot hold makes the program refuse the row; then the library has the last word.
- Whatever is not surely so raises `NoProgram`: such columns are written as rows. Among that are unions of more than null and one type,
  where the library chooses by the value, a field of the schema that has neither a column nor a default, and logical types of the user's
  own.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from ...core.columns import logical as of
from ...core.columns.logical import Logical
from ...core.columns.schema import BOOL, FLOAT, INT, TEXT
from ..records.layout import Kind, number_of
from ..records.native import chosen
from ..records.native.plain.avro_write import WriteOp as Op
from ..records.native.plain.avro_write import long_of
from ..records.values.nesting import Nesting
from .avro_program import standalone, type_of
from .program_columns import NoProgram

_RECORDS = ("record", "error")
_TIMES = {
    "timestamp-millis": 1000,
    "timestamp-micros": 1,
    "local-timestamp-millis": 1000,
    "local-timestamp-micros": 1,
}
_KNOWN = {*_TIMES, "date", "time-millis", "time-micros", "uuid", "decimal"}
"""Logical types that the library has: a plain value passes them as it is."""
_NUMBERS = (INT, FLOAT, "number")
_MOST = 20_000
MOST_DIGITS = 18


class WrittenColumn(NamedTuple):
    """A column that is there. `kind`: `json` if bytes are written, of which a logical type says what they are."""

    kind: Kind
    logical: Logical | None = None


class AvroWriting(NamedTuple):
    """What writes columns with one schema."""

    program: Any
    raw: dict[int, Any]
    """By number: the schema of a column that is written as the bytes that the library makes of its values."""


def missing_field(record: Any, names: Sequence[str]) -> str | None:
    """A field that values of a record must have, and that is none of these; None if there is none.

    >>> missing_field({"fields": [{"name": "a", "type": "int"}, {"name": "b", "type": ["null", "int"]}]}, ["c"])
    'a'
    """
    for one in record["fields"]:
        may_be_null = isinstance(one["type"], list) and "null" in one["type"]
        if one["name"] not in names and "default" not in one and not may_be_null:
            return one["name"]
    return None


def avro_writing(
    wrote: Any,
    named: Mapping[str, Any],
    columns: Sequence[WrittenColumn],
    into: Nesting,
    constant: Callable[[Any, Any], bytes],
) -> AvroWriting:
    """What writes these columns with the schema `wrote`, whose named types are `named`. `constant(schema, value)`: a value as the library
    writes it. Raises `NoProgram`."""
    maker = _Maker(named, columns, constant)
    try:
        maker.value(wrote, into)
    except (KeyError, TypeError, AttributeError, RecursionError) as error:  # not as the library checks it
        raise NoProgram(f"{type(error).__name__}: {error}") from error
    maker.add(Op.END)
    numbers = array("i", [one for row in maker.code for one in row])
    try:
        program = chosen.part.avro_writer(numbers, maker.texts, bytes(number_of(one.kind) for one in columns))
    except ValueError as error:
        raise NoProgram(str(error)) from error
    return AvroWriting(program, maker.raw)


class _Maker:
    def __init__(
        self, named: Mapping[str, Any], columns: Sequence[WrittenColumn], constant: Callable[[Any, Any], bytes]
    ) -> None:
        self._named, self._columns, self._constant = named, columns, constant
        self.code: list[tuple[int, int, int, int]] = []
        self.texts: list[bytes] = []
        self.raw: dict[int, Any] = {}

    def add(self, op: Op, slot: int = -1, x: int = 0, y: int = 0) -> int:
        """Add an instruction; its place."""
        if len(self.code) >= _MOST:
            raise NoProgram("too large")
        self.code.append((op, slot, x, y))
        return len(self.code) - 1

    def _aim(self, *places: int) -> None:
        """Let these jumps go to what comes next."""
        for place in places:
            op, slot, _, y = self.code[place]
            self.code[place] = op, slot, len(self.code), y

    def _bytes(self, data: bytes) -> None:
        self.texts.append(data)
        self.add(Op.CONST, -1, len(self.texts) - 1)

    def _written(self, node: Any) -> Any:
        return self._named.get(node, node) if isinstance(node, str) else node

    # -------------------------------------------------------------------------------------------------------------- values

    def value(self, wrote: Any, target: int | Nesting) -> None:
        """Write a column, or those of an object."""
        wrote = self._written(wrote)
        if isinstance(wrote, list):
            self._union([self._written(one) for one in wrote], target)
        elif isinstance(target, int):
            self._leaf(wrote, target, self._columns[target])
        else:
            if there := self._there(target):
                self.add(Op.REFUSE)
                self._aim(*there)
            self._record(wrote, target)

    def _there(self, target: int | Nesting) -> list[int]:
        """Jumps that are made if the value is not null; none if it never is."""
        if isinstance(target, int):
            return [self.add(Op.IF_VALID, target)]
        if not target.optional:
            return []
        numbers = target.numbers() if target.there is None else [target.there]
        return [self.add(Op.IF_VALID, number) for number in numbers]

    def _union(self, union: list[Any], target: int | Nesting) -> None:
        nulls = [number for number, one in enumerate(union) if type_of(one) == "null"]
        others = [number for number in range(len(union)) if number not in nulls]
        if len(others) != 1 or len(nulls) > 1:
            raise NoProgram("a union of more than null and a type")
        end = -1
        if nulls and (there := self._there(target)):
            self._bytes(long_of(nulls[0]))
            end = self.add(Op.JUMP)
            self._aim(*there)
        self._bytes(long_of(others[0]))
        one = union[others[0]]
        if nulls and isinstance(target, Nesting):
            self._record(one, target)
        else:
            self.value(one, target)
        if end >= 0:
            self._aim(end)

    def _record(self, wrote: Any, target: Nesting) -> None:
        if type_of(wrote) not in _RECORDS or "-type" in target.members or "logicalType" in wrote:
            raise NoProgram(f"an object as {type_of(wrote)}")
        if (name := missing_field(wrote, list(target.members))) is not None:
            raise NoProgram(f"no column for {name}")
        for one in wrote["fields"]:
            inner = target.members.get(one["name"])
            if inner is not None:
                self.value(one["type"], inner)
            elif "default" in one:
                self._bytes(self._constant(standalone(one["type"], self._named), one["default"]))
            else:
                self._bytes(long_of(one["type"].index("null")))

    def _leaf(self, wrote: Any, target: int, column: WrittenColumn) -> None:
        kind, said = type_of(wrote), wrote.get("logicalType") if isinstance(wrote, dict) else None
        if said is not None and said not in _KNOWN:
            raise NoProgram(f"the logical type {said}")
        if column.logical is not None:
            self._logical(wrote, kind, said, target, column.logical)
        elif kind in ("int", "long") and column.kind in (INT, "number"):
            self.add(Op.LONG, target, int(kind == "int"))
        elif kind in ("float", "double") and column.kind in _NUMBERS:
            self.add(Op.FLOAT if kind == "float" else Op.DOUBLE, target)
        elif kind == "boolean" and column.kind == BOOL:
            self.add(Op.BOOLEAN, target)
        elif kind == "string" and column.kind == TEXT:
            self.add(Op.STRING, target)
        elif kind == "enum" and column.kind == TEXT:
            first = len(self.texts)
            self.texts += [one.encode() for one in wrote["symbols"]]
            self.add(Op.SYMBOL, target, first, len(wrote["symbols"]))
        else:
            raise NoProgram(f"{column.kind} as {said or kind}")

    def _logical(self, wrote: Any, kind: str, said: str | None, target: int, stored: Logical) -> None:
        bare = kind in ("bytes", "fixed")
        size = wrote["size"] if kind == "fixed" else -1
        times = kind == "long" and said in _TIMES
        if times and (stored.name == of.TIMESTAMP or (stored.name == of.LOCAL and str(said).startswith("local"))):
            self.add(Op.TIME, target, _TIMES[str(said)])
        elif kind == "int" and said == "date" == stored.name:
            self.add(Op.LONG, target, 1)
        elif bare and said == "decimal" == stored.name and wrote.get("scale", 0) == stored.scale:
            self.add(Op.DECIMAL, target, size, min(MOST_DIGITS, wrote["precision"]))
        elif bare and said is None and stored.name == of.BYTES:
            self.add(Op.BYTES, target, size)
        elif stored.name in of.JSON and kind in ("array", "map"):
            self.raw[target] = standalone(wrote, self._named)
            self.add(Op.RAW, target)
        else:
            raise NoProgram(f"{stored.name} as {said or kind}")
