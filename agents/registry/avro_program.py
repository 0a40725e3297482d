"""The programs that read Avro records into columns: one follows from the schema that wrote a record, the reader's, if there is one, and the
columns that are wanted. `native/avro_read.c` runs it, and its twin.

What it decides: which schemas have a program. Promises:

- What a program reads is what fastavro reads, by Avro's rules of evolution (names, aliases, defaults, wider numbers), and then the type of
  the columns: `test_avro_columns` proves the two against each other in its tests.
- Whatever is not surely so raises `NoProgram`: such records are read as rows. Among that are schemas that lie in themselves, elements of
  lists that have no bytes, and a reader's type that differs from the writer's in more than the rules above.
"""

from __future__ import annotations

import json
import struct
from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ...core.columns import logical as of
from ...core.columns.schema import BOOL, FLOAT, INT, ColumnSpec
from ..records.columns.decoder import RecordFlaw
from ..records.layout import KINDS
from ..records.native import chosen
from ..records.native.plain.avro import Op
from ..records.values.nesting import Nesting, nesting
from .program_columns import NoProgram

MOST_INSTRUCTIONS = 20_000
_WHOLE, _FRACTIONS = ("int", "long"), ("float", "double")
_TIMES = {
    "timestamp-millis": (of.TIMESTAMP, 1000),
    "timestamp-micros": (of.TIMESTAMP, 1),
    "local-timestamp-millis": (of.LOCAL, 1000),
    "local-timestamp-micros": (of.LOCAL, 1),
}
_RECORDS = ("record", "error")
_PLAIN = ("int", "long", "float", "double", "string", "bytes", "boolean", "null")


class Unfinished(NamedTuple):
    """A column whose bytes need a reader of their own. `schema`: of the value that stands there; None: bytes, as they are."""

    schema: Any = None
    wants: Any = None


class AvroReading(NamedTuple):
    """What reads the records of one schema into columns."""

    program: Any
    raw: dict[int, Unfinished]
    """By number: the columns that are not finished by it."""


Named = Mapping[str, Any]


@dataclass
class _Code:
    code: list[tuple[int, int, int, int]] = field(default_factory=list[tuple[int, int, int, int]])
    longs: list[int] = field(default_factory=list[int])
    texts: list[bytes] = field(default_factory=list[bytes])
    raw: dict[int, Unfinished] = field(default_factory=dict[int, Unfinished])

    def add(self, op: Op, slot: int = -1, x: int = 0, y: int = 0) -> int:
        """Add an instruction; its place."""
        if len(self.code) >= MOST_INSTRUCTIONS:
            raise NoProgram("too large")
        self.code.append((op, slot, x, y))
        return len(self.code) - 1

    def aim(self, place: int) -> None:
        """Let the jump at a place go to what comes next."""
        op, slot, _, y = self.code[place]
        self.code[place] = op, slot, len(self.code), y

    def text(self, *texts: str) -> int:
        """The place of these constants."""
        self.texts += [one.encode() for one in texts]
        return len(self.texts) - len(texts)


def type_of(node: Any) -> str:
    """The type of a schema, without what is said of it."""
    return "union" if isinstance(node, list) else str(node["type"]) if isinstance(node, dict) else str(node)


def avro_reading(wrote: Any, named: Named, wants: Any, wanted: Named, columns: Sequence[ColumnSpec]) -> AvroReading:
    """What reads records of the schema `wrote` into these columns, resolved to `wants`, if that is not None. `named`, `wanted`: the named
    types of each. Raises `NoProgram`."""
    maker = _Maker(named, wanted, columns)
    try:
        maker.record(wrote, wants, nesting(columns), ())
    except (
        KeyError,
        TypeError,
        AttributeError,
        RecursionError,
    ) as error:  # a schema that is not as the library checks it
        raise NoProgram(f"{type(error).__name__}: {error}") from error
    made = maker.code
    made.add(Op.END)
    numbers = array("i", [one for row in made.code for one in row])
    kinds = bytes(KINDS.index(one.type) for one in columns)
    try:
        program = chosen.part.avro_program(numbers, array("q", made.longs), made.texts, kinds)
    except ValueError as error:
        raise NoProgram(str(error)) from error
    return AvroReading(program, made.raw)


class _Maker:
    def __init__(self, named: Named, wanted: Named, columns: Sequence[ColumnSpec]) -> None:
        self._named, self._wanted, self._columns = named, wanted, columns
        self.code = _Code()

    # ------------------------------------------------------------------------------------------------------------- records

    def record(self, wrote: Any, wants: Any, into: Nesting, outer: tuple[str, ...]) -> None:
        """Read a record into the columns of an object."""
        wrote, wants = self._written(wrote), self._read(wants)
        if type_of(wrote) not in _RECORDS or wrote["name"] in outer:
            raise NoProgram(f"{type_of(wrote)} instead of an object, or one that lies in itself")
        if wants is not None:
            _same_name(wrote, wants)
        outer = (*outer, wrote["name"])
        left = {} if wants is None else {one["name"]: one for one in wants["fields"]}
        aliases = {} if wants is None else {name: one for one in wants["fields"] for name in one.get("aliases", ())}
        filled = set[str]()
        for one in wrote["fields"]:
            name, reader = one["name"], None
            if wants is not None:
                other = left.get(name) or aliases.get(name)
                if other is None:
                    self.skip(one["type"], outer)
                    continue
                if left.pop(other["name"], None) is None:
                    raise NoProgram("two fields have one name for the reader")
                name, reader = other["name"], other["type"]
            target = into.members.get(name)
            filled.add(name)
            if target is None:
                if reader is not None:
                    self._resolvable(one["type"], reader)
                self.skip(one["type"], outer)
            else:
                self.value(one["type"], reader, target, outer)
        for one in left.values():
            if "default" not in one:
                raise NoProgram(f"the reader's field {one['name']} is missing")
            if (target := into.members.get(one["name"])) is not None:
                self._default(target, one["default"], one["type"])
                filled.add(one["name"])
        for name, target in into.members.items():
            if name not in filled:
                self._nothing(target, RecordFlaw.MISSING)

    def _nothing(self, target: int | Nesting, flaw: RecordFlaw) -> None:
        """A field that is null, or missing."""
        if isinstance(target, Nesting):
            if not target.optional:
                self.code.add(Op.FLAW, -1, flaw)
            for number in _columns_of(target):
                self.code.add(Op.NO_VALUE, number)
            return
        spec = self._columns[target]
        if spec.path[-1].optional if spec.path else spec.optional:
            self.code.add(Op.NO_VALUE, target)
        else:
            self.code.add(Op.FLAW, target, flaw)

    def _default(self, target: int | Nesting, value: Any, kind: Any) -> None:
        """The reader's default, which stands in its schema as JSON has it; the library gives it as it stands there."""
        if value is None:
            self._nothing(target, RecordFlaw.NULL)
            return
        if isinstance(target, Nesting) or self._columns[target].logical is not None:
            raise NoProgram("a default that is no plain value")
        wanted = self._columns[target].type
        code = self.code
        if wanted == BOOL and type(value) is bool:
            code.add(Op.SAME_BOOL, target, int(value))
        elif wanted == INT and type(value) is int and -(2**63) <= value < 2**63:
            code.longs.append(value)
            code.add(Op.SAME_LONG, target, len(code.longs) - 1)
        elif wanted == FLOAT and type(value) in (int, float) and abs(value) < 1e300:
            code.longs.append(struct.unpack("<q", struct.pack("<d", float(value)))[0])
            code.add(Op.SAME_DOUBLE, target, len(code.longs) - 1)
        elif wanted not in (BOOL, INT, FLOAT) and type(value) is str:
            code.add(Op.SAME_TEXT, target, code.text(value))
        else:
            raise NoProgram("a default of another type")

    # -------------------------------------------------------------------------------------------------------------- values

    def value(self, wrote: Any, wants: Any, target: int | Nesting, outer: tuple[str, ...]) -> None:
        """Read a value into a column, or into those of an object."""
        wrote = self._written(wrote)
        if isinstance(wrote, list):
            self._branches(wrote, wants, lambda branch, reader: self.value(branch, reader, target, outer))
            return
        if wants is not None:
            wants = self._matching(wrote, wants)
            if wants is None:
                raise NoProgram("the reader has another type")
        if type_of(wrote) == "null":
            self._nothing(target, RecordFlaw.NULL)
        elif isinstance(target, Nesting):
            for number in _there(target):
                self.code.add(Op.THERE, number)
            self.record(wrote, wants, target, outer)
        elif (kind := self._columns[target].logical) is None:
            self._plain(wrote, wants, target)
        else:
            self._logical(wrote, wants, target, kind, outer)

    def _branches(self, union: list[Any], wants: Any, each: Callable[[Any, Any], None]) -> None:
        """A union: the branch that stands there."""
        first = self.code.add(Op.UNION, -1, len(union)) + 1
        for _ in union:
            self.code.add(Op.JUMP)
        ends = list[int]()
        for number, branch in enumerate(union):
            self.code.aim(first + number)
            branch = self._written(branch)
            reader = None if wants is None else self._matching(branch, wants)
            if wants is not None and reader is None:
                self.code.add(Op.FLAW, -1, RecordFlaw.WRONG_TYPE)
            else:
                each(branch, reader)
            ends.append(self.code.add(Op.JUMP))
        for one in ends:
            self.code.aim(one)

    def _plain(self, wrote: Any, wants: Any, target: int) -> None:
        kind, wanted = type_of(wrote), self._columns[target].type
        if isinstance(wrote, dict) and "logicalType" in wrote:
            raise NoProgram(f"{wrote['logicalType']} instead of {wanted}")
        wider = None if wants is None else type_of(wants)
        if wanted == FLOAT and kind in _WHOLE and wider in (None, "int", "long", *_FRACTIONS):
            self.code.add(Op.LONG_DOUBLE, target)
        elif wanted == FLOAT and kind in _FRACTIONS:
            self.code.add(Op.FLOAT if kind == "float" else Op.DOUBLE, target)
        elif wanted == INT and kind in _WHOLE and wider in (None, *_WHOLE):
            self.code.add(Op.LONG, target)
        elif wanted == BOOL and kind == "boolean":
            self.code.add(Op.BOOLEAN, target)
        elif wanted not in (BOOL, INT, FLOAT) and kind == "string" and wider in (None, "string"):
            self.code.add(Op.STRING, target)
        elif wanted not in (BOOL, INT, FLOAT) and kind == "enum":
            self.code.add(Op.ENUM, target, self.code.text(*_symbols(wrote, wants)), len(wrote["symbols"]))
        else:
            raise NoProgram(f"{kind} instead of {wanted}")

    def _logical(self, wrote: Any, wants: Any, target: int, wanted: of.Logical, outer: tuple[str, ...]) -> None:
        kind = type_of(wrote)
        said = wrote.get("logicalType") if isinstance(wrote, dict) else None
        size = wrote["size"] if kind == "fixed" else -1
        bare = kind in ("bytes", "fixed")
        if kind == "long" and said in _TIMES and _TIMES[said][0] == wanted.name:
            self.code.add(Op.TIME, target, _TIMES[said][1])
        elif kind == "int" and said == "date" == wanted.name:
            self.code.add(Op.DATE, target)
        elif bare and said == "decimal" == wanted.name and wrote.get("scale", 0) == wanted.scale:
            # the library rounds what has more digits than its schema says: bad data here
            self.code.add(Op.DECIMAL, target, size, min(wanted.digits, wrote["precision"]))
        elif bare and said is None and wanted.name == of.BYTES and (wants is None or type_of(wants) == kind):
            self.code.add(Op.BYTES, target, size)
            self._rest(target, Unfinished())
        elif wanted.name in of.JSON and kind in ("array", "map"):
            self.code.add(Op.RAW, target)
            self.skip(wrote, outer)
            self.code.add(Op.RAW_END, target)
            reader = None if wants is None else standalone(wants, self._wanted)
            self._rest(target, Unfinished(standalone(wrote, self._named), reader))
        else:
            raise NoProgram(f"{said or kind} instead of {wanted}")

    def _rest(self, target: int, raw: Unfinished) -> None:
        if self.code.raw.setdefault(target, raw) != raw:
            raise NoProgram("a union of lists")

    # -------------------------------------------------------------------------------------------------------------- no column

    def skip(self, wrote: Any, outer: tuple[str, ...]) -> None:
        """Read a value that is not wanted."""
        wrote, code = self._written(wrote), self.code
        match type_of(wrote):
            case "null":
                pass
            case "int" | "long":
                code.add(Op.SKIP_LONG)
            case "string":
                code.add(Op.SKIP_TEXT)
            case "bytes":
                code.add(Op.SKIP_BYTES)
            case "boolean" | "float" | "double" | "fixed" as kind:
                code.add(Op.SKIP_FIXED, -1, {"boolean": 1, "float": 4, "double": 8}.get(kind) or wrote["size"])
            case "enum":
                code.add(Op.SKIP_ENUM, -1, len(wrote["symbols"]))
            case "union":
                self._branches(wrote, None, lambda branch, _: self.skip(branch, outer))
            case "array" | "map" as kind:
                begin = code.add(Op.BLOCK)
                if kind == "map":
                    code.add(Op.SKIP_TEXT)
                inner = wrote["values" if kind == "map" else "items"]
                if kind == "array" and not self._has_bytes(inner, ()):
                    raise NoProgram("a list of what has no bytes")
                self.skip(inner, outer)
                code.add(Op.AGAIN, -1, begin)
                code.aim(begin)
            case "record" | "error":
                if wrote["name"] in outer:
                    raise NoProgram("a record that lies in itself")
                for one in wrote["fields"]:
                    self.skip(one["type"], (*outer, wrote["name"]))
            case kind:
                raise NoProgram(kind)

    def _has_bytes(self, wrote: Any, outer: tuple[str, ...]) -> bool:
        """Whether a value has a byte at least, whatever it is."""
        wrote = self._written(wrote)
        match type_of(wrote):
            case "null":
                return False
            case "fixed":
                return wrote["size"] > 0
            case "record" | "error":
                inner = (*outer, wrote["name"])
                return wrote["name"] not in outer and any(
                    self._has_bytes(one["type"], inner) for one in wrote["fields"]
                )
            case _:
                return True

    # ------------------------------------------------------------------------------------------------------- two schemas

    def _written(self, node: Any) -> Any:
        return self._named.get(node, node) if isinstance(node, str) else node

    def _read(self, node: Any) -> Any:
        return self._wanted.get(node, node) if isinstance(node, str) else node

    def _matching(self, wrote: Any, wants: Any) -> Any:
        """What of the reader's type a writer's, which is no union, is resolved to; None if to nothing of it."""
        wants = self._read(wants)
        if isinstance(wants, list):
            return next((one for one in map(self._read, wants) if self._matching(wrote, one) is not None), None)
        one, other = type_of(wrote), type_of(wants)
        if one == other and one in ("array", "map"):
            what = "items" if one == "array" else "values"
            if standalone(wrote[what], self._named) != standalone(wants[what], self._wanted):
                raise NoProgram("lists of two types")
            return wants
        if one == other and one in ("enum", "fixed", *_RECORDS):
            _same_name(wrote, wants)
            return wants
        if one == other:
            return wants
        wider = {"int": ("long", *_FRACTIONS), "long": _FRACTIONS, "float": ("double",)}.get(one, ())
        if other in wider:
            return wants
        if {one, other} == {"string", "bytes"} or {one, other} <= {"enum", "fixed", *_RECORDS}:
            raise NoProgram(f"{one} read as {other}")
        return None

    def _resolvable(self, wrote: Any, wants: Any) -> None:
        """Make sure that a field that is not wanted can be resolved, as it must be."""
        plain = isinstance(wrote, str) and wrote in _PLAIN and self._matching(wrote, wants) is not None
        if not plain and standalone(wrote, self._named) != standalone(wants, self._wanted):
            raise NoProgram("fields of two types")


def _columns_of(target: Nesting) -> list[int]:
    """All columns of an object, also those that say whether it and those in it are there."""
    inner = [_columns_of(one) if isinstance(one, Nesting) else [one] for one in target.members.values()]
    return [*_there(target), *(number for of in inner for number in of)]


def _there(target: Nesting) -> list[int]:
    return [] if target.there is None else [target.there]


def _same_name(wrote: Any, wants: Any) -> None:
    """Two types are one for the reader by their last names alone, or by an alias."""
    name = wrote["name"].rpartition(".")[2]
    if type_of(wrote) != type_of(wants) or wrote.get("size") != wants.get("size"):
        raise NoProgram("two types of one name")
    if name != wants["name"].rpartition(".")[2] and {name, wrote["name"]}.isdisjoint(wants.get("aliases", ())):
        raise NoProgram("types of two names")


def _symbols(wrote: Any, wants: Any) -> list[str]:
    """The symbols of an enum as they are for the reader."""
    if wants is None:
        return wrote["symbols"]
    if not set(wrote["symbols"]) <= set(wants["symbols"]) and not wants.get("default"):
        raise NoProgram("symbols that the reader does not have")
    return [one if one in wants["symbols"] else wants["default"] for one in wrote["symbols"]]


def standalone(node: Any, named: Named) -> Any:
    """A schema with all that it names in it. Raises `NoProgram` if it lies in itself.

    >>> standalone(["null", "F"], {"F": {"type": "fixed", "name": "F", "size": 2}})
    ['null', {'type': 'fixed', 'name': 'F', 'size': 2}]
    """
    return _whole(node, named, set(), ())


def _whole(node: Any, named: Named, seen: set[str], outer: tuple[str, ...]) -> Any:
    if isinstance(node, list):
        return [_whole(one, named, seen, outer) for one in node]
    if isinstance(node, str):
        if node not in named:
            return node
        if node in outer:
            raise NoProgram("a type that lies in itself")
        if node in seen:
            return node
        node = named[node]
    if "name" in node:
        if node["name"] in seen:
            return node["name"]
        seen.add(node["name"])
        outer = (*outer, node["name"])
    made = {key: value for key, value in node.items() if key not in ("doc", "aliases") and not key.startswith("__")}
    for key in ("items", "values"):
        if key in made:
            made[key] = _whole(made[key], named, seen, outer)
    if "fields" in made:
        made["fields"] = [
            {key: value for key, value in one.items() if key in ("name", "default")}
            | {"type": _whole(one["type"], named, seen, outer)}
            for one in made["fields"]
        ]
    return json.loads(json.dumps(made))
