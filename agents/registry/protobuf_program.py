"""The programs that read Protobuf messages into columns: one follows from the class of the messages and the columns that are wanted.
`native/proto_read.c` runs it, and its twin.

What it decides: which declarations have a program. Promises:

- What a program reads is what upb reads, and then `message_values` and the type of the columns: `test_protobuf_columns` proves the two
  against each other. A field that comes again counts as the last one, a message that comes again is merged, of a `oneof` the last one
  counts.
- Whatever is not surely so raises `NoProgram`: such records are read as rows. Among that are columns of another type than their fields,
  messages with extensions, and files of an edition, of which older libraries do not say how they check text.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple

from ...core.columns import logical as of
from ...core.columns.logical import Logical
from ...core.columns.schema import BOOL, FLOAT, INT, TEXT, ColumnSpec
from ..records.layout import KINDS
from ..records.logical.logical_columns import stored_value
from ..records.native import chosen
from ..records.native.plain.protobuf import (
    BLOB,
    BOOLEAN,
    DOUBLE,
    ENUM,
    GROUP,
    MESSAGE,
    STRING,
    Action,
    Flag,
    ProtoField,
    Rest,
)
from ..records.native.plain.protobuf import (
    FLOAT as SINGLE,
)
from ..records.values.messages import TIMESTAMP, WRAPPERS, field_reader, is_map, is_repeated
from ..records.values.nesting import Nesting, nesting
from .avro import library_of
from .program_columns import FinishValue, NoProgram

MOST_FIELDS = 20_000
_WHOLE = (3, 4, 5, 6, 7, 13, ENUM, 15, 16, 17, 18)
_ELEMENTS = {STRING: TEXT, BOOLEAN: BOOL, **dict.fromkeys(_WHOLE, INT)}
"""By the type of a repeated field: the elements of the list that a program makes of it; others it leaves as bytes."""


class ProtobufReading(NamedTuple):
    """What reads the messages of one class into columns."""

    program: Any
    raw: dict[int, FinishValue]
    """By number: what finishes the columns that the program leaves as bytes."""


@dataclass
class _Choice:
    """A `oneof` of which a column wants something. By field: the states to be cleared when another one is set."""

    number: int
    members: dict[int, list[int]] = field(default_factory=dict[int, list[int]])


@dataclass
class _Row:
    """A field of a table. `oneof`: the choice that it belongs to."""

    of: ProtoField
    oneof: _Choice | None = None


def protobuf_reading(kind: Any, columns: Sequence[ColumnSpec]) -> ProtobufReading:
    """What reads messages of this class into these columns. Raises `NoProgram`."""
    maker = _Maker(columns)
    maker.message(kind.DESCRIPTOR, nesting(columns), -1, ())
    maker.skipped_messages()
    return ProtobufReading(maker.made(), maker.raw)


class _Maker:
    def __init__(self, columns: Sequence[ColumnSpec]) -> None:
        self._columns = columns
        self._tables: list[list[_Row]] = []
        self._skipped: dict[str, int] = {}
        """By message: the table that reads it where no column wants anything of it."""
        self._waiting: list[tuple[int, Any]] = []
        """Tables of these that are still empty."""
        self._rules: list[tuple[int, int, int]] = [(-1, Rest.NOTHING, 0) for _ in columns]
        self._objects: list[tuple[int, int]] = []
        self._choices: list[_Choice] = []
        self._longs: list[int] = []
        self._parts = self._fields = 0
        self.raw: dict[int, FinishValue] = {}

    # ---------------------------------------------------------------------------------------------------- what is wanted

    def message(self, message: Any, into: Nesting, inside: int, outer: tuple[str, ...]) -> tuple[int, list[int]]:
        """The table that reads a message into the columns of an object, which is the object `inside`; and all states that it sets."""
        if message.full_name in outer:
            raise NoProgram("a message that lies in itself")
        _check(message)
        table, rows, states = len(self._tables), list[_Row](), list[int]()
        self._tables.append(rows)
        choices = dict[str, _Choice]()
        for name, target in into.members.items():
            if name not in message.fields_by_name:
                states += self._missing(target, inside)
        for one in sorted(message.fields, key=lambda one: one.number):
            target = into.members.get(one.name)
            if target is None:
                row, own = self._passed(one), list[int]()
            elif isinstance(target, Nesting):
                row, own = self._object(one, target, inside, (*outer, message.full_name))
            else:
                row, own = self._column(one, target, inside)
            states += own
            oneof = None if one.containing_oneof is None else one.containing_oneof.name
            if oneof is not None:
                made = choices.setdefault(oneof, _Choice(-1))
                made.members[one.number] = own
                row.oneof = made
            rows.append(row)
        for made in choices.values():
            if any(made.members.values()) and len(made.members) > 1:
                made.number = len(self._choices)
                self._choices.append(made)
        return table, states

    def _missing(self, target: int | Nesting, inside: int) -> list[int]:
        """A field that the message does not have: what columns there are, have no value."""
        if isinstance(target, int):
            self._rules[target] = inside, Rest.NOTHING if self._optional(target) else Rest.FLAWED, 0
            return [target]
        number = self._new_object(inside, target.optional)
        if target.there is not None:
            self._rules[target.there] = inside, Rest.NOTHING, 0
        return [state for one in target.members.values() for state in self._missing(one, number)]

    def _optional(self, target: int) -> bool:
        spec = self._columns[target]
        return spec.path[-1].optional if spec.path else spec.optional

    def _new_object(self, inside: int, optional: bool) -> int:
        self._objects.append((inside, optional))
        return len(self._objects) - 1

    def _object(self, one: Any, target: Nesting, inside: int, outer: tuple[str, ...]) -> tuple[_Row, list[int]]:
        """A message whose fields are columns."""
        if one.type not in (MESSAGE, GROUP) or is_repeated(one):
            raise NoProgram(f"{one.name} is no object")
        number = self._new_object(inside, target.optional)
        table, states = self.message(one.message_type, target, number, outer)
        there = -1 if target.there is None else target.there
        if there >= 0:
            self._rules[there] = inside, Rest.NOTHING, 0
            states.append(there)
        row = _row(one, Action.INTO, slot=there, table=table, object=number)
        return row, [*states, self._state(number)]

    def _state(self, number: int) -> int:
        """The state of an object, among all."""
        return len(self._columns) + number

    def _column(self, one: Any, target: int, inside: int) -> tuple[_Row, list[int]]:
        """A field that is a column."""
        kind = self._columns[target].logical
        if is_repeated(one):
            if kind is None or kind.name != (of.MAP if is_map(one) else of.LIST):
                raise NoProgram(f"{one.name} is a list or a map")
            if kind.name == of.LIST and kind.of[0].name == _ELEMENTS.get(one.type):
                self._rules[target] = inside, Rest.BRACKETS, 0
                return self._known(one, _row(one, Action.LIST, slot=target)), [target]
            self._rules[target] = inside, Rest.EMPTY, 0
            self.raw[target] = _listed(one, kind)
            row = self._passed(one)
            row.of = row.of._replace(action=Action.KEEP, slot=target)
            return row, [target]
        if one.type in (MESSAGE, GROUP):
            return self._value_message(one, target, kind, inside)
        self._rules[target] = inside, self._without(one, target), 0
        return self._scalar(one, target, kind), [target]

    def _without(self, one: Any, target: int) -> Rest:
        """What a column has where its field is not there."""
        return Rest.EMPTY if not one.has_presence else Rest.NOTHING if self._optional(target) else Rest.FLAWED

    def _scalar(self, one: Any, target: int, kind: Logical | None) -> _Row:
        wanted = self._columns[target].type
        if kind is not None:
            if one.type != BLOB or kind.name != of.BYTES:
                raise NoProgram(f"{one.name} is no {kind}")
        else:
            fits = {STRING: (TEXT,), BOOLEAN: (BOOL,), DOUBLE: (FLOAT,), SINGLE: (FLOAT,)}.get(one.type, (INT, FLOAT))
            if one.type == BLOB or wanted not in fits:
                raise NoProgram(f"{one.name} is no {wanted}")
        return self._known(one, _row(one, Action.FILL, slot=target))

    def _known(self, one: Any, row: _Row) -> _Row:
        """A field with what makes a value of it none."""
        if one.type == ENUM and one.enum_type.is_closed:
            numbers = sorted({value.number for value in one.enum_type.values})
            row.of = row.of._replace(flags=row.of.flags | Flag.CLOSED, x=len(self._longs), y=len(numbers))
            self._longs += numbers
        return row

    def _value_message(self, one: Any, target: int, kind: Logical | None, inside: int) -> tuple[_Row, list[int]]:
        """A message that is the value of a column: a point in time, or a value that may be missing."""
        name, fields, rows = one.message_type.full_name, one.message_type.fields_by_name, list[_Row]()
        number, table = self._new_object(inside, self._optional(target)), len(self._tables)
        own = [
            target,
            self._state(number),
        ]  # parts stand behind the objects, whose number is not known yet
        if name == TIMESTAMP and kind is not None and kind.name == of.TIMESTAMP:
            self._rules[target] = number, Rest.TIME, self._parts
            for title in ("seconds", "nanos"):
                rows.append(_row(fields[title], Action.PART, slot=self._parts))
                own.append(-1 - self._parts)
                self._parts += 1
        elif name in WRAPPERS:
            self._rules[target] = number, Rest.EMPTY, 0
            rows.append(self._scalar(fields["value"], target, kind))
        else:
            raise NoProgram(f"{one.name} is the message {name}")
        self._tables.append(rows)
        return _row(one, Action.INTO, table=table, object=number), own

    # ------------------------------------------------------------------------------------------------- what is not wanted

    def _passed(self, one: Any) -> _Row:
        """A field that is read, and forgotten."""
        row = self._known(one, _row(one, Action.SKIP)) if one.containing_oneof is not None else _row(one, Action.SKIP)
        if one.type in (MESSAGE, GROUP):
            row.of = row.of._replace(table=self._passed_message(one.message_type))
        return row

    def _passed_message(self, message: Any) -> int:
        if (found := self._skipped.get(message.full_name)) is None:
            _check(message)
            found = self._skipped[message.full_name] = len(self._tables)
            self._tables.append([])
            self._waiting.append((found, message))
        return found

    def skipped_messages(self) -> None:
        """Fill the tables of messages of which nothing is wanted, one after the other: they may lie in each other."""
        while self._waiting:
            table, message = self._waiting.pop()
            for one in sorted(message.fields, key=lambda one: one.number):
                row = _row(one, Action.SKIP)
                if one.type in (MESSAGE, GROUP):
                    row.of = row.of._replace(table=self._passed_message(one.message_type))
                self._tables[table].append(row)
            self._fields += len(self._tables[table])
            if self._fields > MOST_FIELDS:
                raise NoProgram("too large")

    # ------------------------------------------------------------------------------------------------------------- all of it

    def made(self) -> Any:
        """The program."""
        cleared, places = [0], dict[tuple[int, int], int]()
        behind = len(self._columns) + len(self._objects)
        for choice in self._choices:
            for number, states in choice.members.items():
                if states:
                    places[choice.number, number] = len(cleared)
                    cleared += [len(states), *(one if one >= 0 else behind - 1 - one for one in states)]
        fields, tables = array("i"), array("i")
        for rows in self._tables:
            tables.extend((len(fields) // len(ProtoField._fields), len(rows)))
            for row in rows:
                choice, one = row.oneof, row.of
                if choice is not None and choice.number >= 0:
                    one = one._replace(oneof=choice.number, member=places.get((choice.number, one.number), 0))
                fields.extend(map(int, one))
        try:
            return chosen.part.proto_program(
                fields,
                tables,
                array("i", [int(one) for rule in self._rules for one in rule]),
                array("i", [int(one) for pair in self._objects for one in pair]),
                array("i", cleared),
                array("q", self._longs),
                bytes(KINDS.index(one.type) for one in self._columns),
                self._parts,
                len(self._choices),
            )
        except ValueError as error:
            raise NoProgram(str(error)) from error


def _check(message: Any) -> None:
    if message.is_extendable:
        raise NoProgram(f"{message.full_name} may have extensions")
    if _syntax(message.file) == "editions":
        raise NoProgram(f"{message.file.name} is of an edition")


def _syntax(file: Any) -> str:
    return _syntax_of(file.serialized_pb)


@lru_cache(maxsize=100)
def _syntax_of(file: bytes) -> str:
    library = library_of("google.protobuf.descriptor_pb2", "protobuf")
    return library.FileDescriptorProto.FromString(file).syntax or "proto2"


def _row(one: Any, action: Action, *, slot: int = -1, table: int = -1, object: int = -1) -> _Row:
    flags = Flag(0)
    if is_repeated(one):
        flags |= Flag.REPEATED
    if one.type == STRING and _syntax(one.file) == "proto3":
        flags |= Flag.CHECKED
    return _Row(ProtoField(one.number, one.type, flags, action, slot, table, object, -1, 0, 0, 0))


def _listed(one: Any, kind: Logical) -> FinishValue:
    """Makes a list or a map of its fields as they stand in the message that it lies in."""
    library = library_of("google.protobuf.message_factory", "protobuf")
    parse = library.GetMessageClass(one.containing_type).FromString
    read = field_reader(one.containing_type, one.name, kind)
    return lambda part: stored_value(read(parse(part)), kind)
