"""JSON records as columns and back, and packed states: as `json_read.c`, `json_write.c` and `unpack.c`, by orjson and msgpack."""

from __future__ import annotations

import importlib
import re
import struct
from array import array
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import msgpack
import orjson

from ...layout import JSON, KINDS, OBJECT, Buffer, Kind, Made, Parts, column_made, kind_of, longs, numbers_of_column
from ...limits import MOST_TEXT
from .spans import pieces
from .vectors import values

NOT_JSON, NOT_OBJECT, MISSING, NULL, WRONG_TYPE, OUT_OF_RANGE = range(1, 7)
"""Why a record is bad."""
HAS_OTHER, HAS_WATCHED = 1, 2
_BEYOND = re.compile(rb"[0-9][eE][+-]?[0-9]{3}|[0-9]{200}")
"""With fewer digits, an exponent of two digits makes no number beyond a double."""
_SHAPES = bytes(
    48 if one in b"0123456789" else 101 if one in b"eE" else 43 if one in b"+-" else 32 for one in range(256)
)
"""What is left of bytes when one is asked whether `_BEYOND` is among them: 0, e, + and blanks."""
_BLANKS = b" \t\n\r"
_OUTSIDE = "a row lies outside of its column, or its original bytes are no object"


def beyond(data: Sequence[bytes]) -> list[int]:
    """Which JSON may have a number beyond every double."""
    shapes = b" ".join(data).translate(_SHAPES)
    if not any(shape in shapes for shape in (b"0e000", b"0e+000", b"0" * 200)):
        return []
    return [index for index, one in enumerate(data) if _BEYOND.search(one)]


# ------------------------------------------------------------------------------------------------------------- decoding


class WantedFields(NamedTuple):
    """What `decode` needs to know of declared columns."""

    columns: list[tuple[str, Kind, bool, int, int]]
    """Name, type, whether it may be null, the number of the object that it lies in (0: the record), and not 0 if it says whether that
    object is there."""
    objects: list[tuple[str, bool, int]]
    """Of nested objects, the outer ones first: name, whether it may be null, and the number of the object that it lies in."""
    known: list[frozenset[str]]
    """The fields of the record, and of each object."""
    watched: frozenset[str]


def decoder(fields: Sequence[tuple[Any, ...]]) -> WantedFields:
    """What `decode` needs to know of declared columns: the name of each, the number of its type, whether it may be null, the number of the
    object that it lies in, and of an object its own. A boolean that has such a number, too, says whether that object is there. The numbers
    behind those of the types are fields that are known, and that are watched."""
    named = [(one[0].decode(), one[1], bool(one[2]), *(one[3:] or (0, 0))) for one in fields]
    own: list[tuple[str, Kind, bool, int, int]] = [
        (name, kind_of(kind), optional, level, number)
        for name, kind, optional, level, number in named
        if kind < len(KINDS) or kind == JSON
    ]
    objects = [(name, optional, level) for name, kind, optional, level, _ in named if kind == OBJECT]
    known = [
        frozenset(
            name
            for name, kind, _, level, number in named
            if level == at and (kind in (OBJECT, JSON) or (kind <= len(KINDS) and not number))
        )
        for at in range(len(objects) + 1)
    ]
    return WantedFields(own, objects, known, frozenset(name for name, kind, *_ in named if kind == len(KINDS) + 1))


def decode(wanted: WantedFields, buffer: Buffer, offsets: Buffer, lengths: Buffer) -> tuple[Any, ...]:
    """JSON records as columns: how many rows, the columns, bad records (index, flaw, column), those without a value, the record of each row
    (None: all), where its bytes lie, and which other fields it has."""
    starts, sizes, view = longs(offsets), longs(lengths), memoryview(buffer).cast("B")
    if len(starts) != len(sizes):
        raise ValueError(f"{len(starts)} offsets and {len(sizes)} lengths")
    rows, others = list[int](), bytearray()
    bad: list[tuple[int, int, int]] = []
    tombstones: list[int] = []
    found: list[list[Any]] = []
    for index, (start, size) in enumerate(zip(starts, sizes, strict=True)):
        if size == -1:
            tombstones.append(index)
            continue
        if start < 0 or size < 0 or start + size > len(view):
            raise ValueError(f"record {index} lies outside of the buffer")
        row = _row(wanted, view[start : start + size], others)
        if isinstance(row, list):
            rows.append(index)
            found.append(row)
        else:
            bad.append((index, *row))
    by_column: list[Any] = list(map(list, zip(*found, strict=True))) if found else [[] for _ in wanted.columns]
    kinds: list[Kind] = ["text" if of[1] == "json" else of[1] for of in wanted.columns]
    made = [column_made(kind, one) for kind, one in zip(kinds, by_column, strict=True)]
    if any(kind == "text" and len(one[0]) > MOST_TEXT for kind, one in zip(kinds, made, strict=True)):
        raise ValueError("more than 2 GiB of text in one column")
    marks = bytes(others) if any(others) else None
    if len(rows) == len(starts):
        return len(rows), made, bad, tombstones, None, None, None, marks
    own = array("q", [starts[row] for row in rows]), array("q", [sizes[row] for row in rows])
    return len(rows), made, bad, tombstones, array("q", rows), *own, marks


def _row(wanted: WantedFields, data: memoryview, others: bytearray) -> list[Any] | tuple[int, int]:
    try:
        value: Any = orjson.loads(data)
    except orjson.JSONDecodeError:
        return NOT_JSON, -1
    if type(value) is not dict:
        return NOT_OBJECT, -1
    row: list[Any] = []
    holders, lost = _objects(wanted, value)
    pieces_of = _Pieces(wanted, data)
    for at, (name, kind, optional, level, number) in enumerate(wanted.columns):
        if level in lost:
            if lost[level] is not None:
                return lost[level]
            row.append(None)
            continue
        holder = holders[level]
        one = True if number else holder.get(name)
        if one is None:
            if not optional:
                return NULL if name in holder else MISSING, at
        elif kind == "json":
            one = pieces_of.field(level, name)
        elif kind == "float64":
            if type(one) not in (float, int):
                return WRONG_TYPE, at
            one = float(one)
        elif kind == "int64":
            if type(one) not in (float, int):
                return WRONG_TYPE, at
            if type(one) is float:
                return WRONG_TYPE if abs(one) < 2**63 else OUT_OF_RANGE, at
            if not -(2**63) <= one < 2**63:
                return OUT_OF_RANGE, at
        elif type(one) is not (str if kind == "text" else bool):
            return WRONG_TYPE, at
        row.append(one)
    fields = value.keys() - wanted.known[0]
    inner = any(not wanted.known[level].issuperset(holder) for level, holder in holders.items() if level)
    watched = HAS_WATCHED if fields & wanted.watched else 0
    others.append(watched | (HAS_OTHER if inner or fields - wanted.watched else 0))
    return row


class _Pieces:
    """The fields of a record and of its nested objects as the bytes that stand there."""

    def __init__(self, wanted: WantedFields, data: memoryview) -> None:
        self._wanted = wanted
        self._data = data
        self._found: dict[int, dict[str, Any]] = {}

    def field(self, level: int, name: str) -> bytes:
        """A field that the object with this number has."""
        return bytes(self._object(level)[name])

    def _object(self, level: int) -> dict[str, Any]:
        found = self._found.get(level)
        if found is None:
            name, _, outer = self._wanted.objects[level - 1] if level else ("", False, 0)
            own = memoryview(self._object(outer)[name]) if level else self._data
            library: Any = importlib.import_module(
                "msgspec"
            )  # commands that steer import this module, and read no records
            found = self._found[level] = library.json.decode(own, type=dict[str, library.Raw])
        return found


def _objects(wanted: WantedFields, record: dict[str, Any]) -> tuple[dict[int, dict[str, Any]], dict[int, Any]]:
    """The record and the nested objects that it has, by number, and those that it lacks: with None if it may, else with the flaw."""
    found, lost = {0: record}, dict[int, Any]()
    for at, (name, optional, level) in enumerate(wanted.objects):
        if level in lost:
            lost[at + 1] = lost[level]
            continue
        one: Any = found[level].get(name)
        if type(one) is dict:
            found[at + 1] = one
        elif one is None:
            lost[at + 1] = None if optional else (NULL if name in found[level] else MISSING, len(wanted.columns) + at)
        else:
            lost[at + 1] = WRONG_TYPE, len(wanted.columns) + at
    return found, lost


# ------------------------------------------------------------------------------------------------------------- encoding


def encode(
    columns: Sequence[Parts],
    length: int,
    full: Sequence[tuple[int, bytes]],
    more: Sequence[tuple[int, bytes]],
    signs: bool,
    rows: Buffer | None,
    buffer: Buffer | None,
    offsets: Buffer | None,
    lengths: Buffer | None,
    others: Buffer | None,
    mask: int,
    packed: bool,
    aligned: bool = False,
) -> tuple[bytes, Buffer, Buffer]:
    """Columns as JSON objects, or packed: the bytes of these rows, and where each lies. `full`: the columns of a record, each with what
    stands before it; `more`: those that are added to original bytes, unless a mark of `others` is in `mask`. `aligned`: with an empty
    place for each row that is not among `rows`. `signs` is orjson's own affair."""
    wanted = range(length) if rows is None else longs(rows).tolist()
    if any(not 0 <= row < length for row in wanted):
        raise ValueError(_OUTSIDE)
    listed = [_listed(one, length) for one in columns]
    dumps: Callable[[Any], bytes] = getattr(msgpack, "packb") if packed else orjson.dumps  # noqa: B009 - it has no types

    def fields(of: Sequence[tuple[int, bytes]], row: int) -> bytes:
        return b"".join([before + dumps(listed[place][row]) for place, before in of])

    parts: list[bytes] = []
    for row in wanted:
        if packed:
            parts.append(fields(full, row))
        elif buffer is None or (others is not None and memoryview(others).cast("B")[row] & mask):
            parts.append((fields(full, row) or b"{") + b"}")
        else:
            original = _original(buffer, offsets, lengths, row)
            parts.append(_extended(original, fields(more, row)) if more else original)
    starts, sizes, end = array("q"), array("q", map(len, parts)), 0
    for size in sizes:
        starts.append(end)
        end += size
    if aligned and rows is not None:
        places, held = array("q", bytes(8 * length)), array("q", bytes(8 * length))
        for row, start, size in zip(wanted, starts, sizes, strict=True):
            places[row], held[row] = start, size
        starts, sizes = places, held
    return b"".join(parts), starts, sizes


def _listed(column: Parts, length: int) -> list[Any]:
    kind, data, offsets, validity = kind_of(column[0]), *column[1:]
    if kind == "json":
        return [None if one == b"" else orjson.Fragment(one or b"") for one in pieces(data, offsets, validity)]
    return numbers_of_column(data, offsets, length) if kind == "number" else values(column, length)


def _original(buffer: Buffer, offsets: Buffer, lengths: Buffer, row: int) -> bytes:
    start, size, view = longs(offsets)[row], longs(lengths)[row], memoryview(buffer).cast("B")
    if start < 0 or size < 0 or start + size > len(view):
        raise ValueError(_OUTSIDE)
    return bytes(view[start : start + size])


def _extended(original: bytes, more: bytes) -> bytes:
    """An object with further fields behind its own."""
    whole = original.rstrip(_BLANKS)
    begin = whole[:-1].rstrip(_BLANKS)
    if whole[-1:] != b"}" or not begin:
        raise ValueError(_OUTSIDE)
    return begin + (more[1:] if begin[-1:] == b"{" else more) + b"}"


# ------------------------------------------------------------------------------------------------------- packed states

_SCALARS = {0xCA: ">f", 0xCB: ">d", 0xCC: ">B", 0xCD: ">H", 0xCE: ">I", 0xCF: ">Q"}
_SCALARS |= {0xD0: ">b", 0xD1: ">h", 0xD2: ">i", 0xD3: ">q"}
_NIL = 0xC0


def unpack(
    wanted: Sequence[tuple[int, bytes]], buffer: Buffer, offsets: Buffer, lengths: Buffer
) -> tuple[list[Made], bytes]:
    """Packed states as columns, and which records hold something else. `wanted`: the number of each type, and what stands before it."""
    kinds: list[Kind] = [kind_of(number) for number, _ in wanted]
    rows: list[list[Any]] = []
    odd = bytearray()
    for data in pieces(buffer, offsets, lengths):
        row = _states(data or b"", kinds, [before for _, before in wanted])
        odd.append(row is None)
        rows.append([None] * len(kinds) if row is None else row)
    by_state: list[Any] = list(zip(*rows, strict=True)) if rows else [()] * len(kinds)
    return [column_made(kind, list(one)) for kind, one in zip(kinds, by_state, strict=True)], bytes(odd)


def _states(data: bytes, kinds: Sequence[Kind], before: Sequence[bytes]) -> list[Any] | None:
    """The states of one record; None if it is something else."""
    at, found = 0, list[Any]()
    for kind, prefix in zip(kinds, before, strict=True):
        if not data.startswith(prefix, at):
            return None
        one, at = _scalar(data, at + len(prefix))
        if at < 0 or not (one is None or _fits(one, kind)):
            return None
        found.append(float(one) if kind == "float64" and one is not None else one)
    return found if at == len(data) else None


def _scalar(data: bytes, at: int) -> tuple[Any, int]:
    """A number or null, and where it ends; -1 if something else stands there."""
    code = data[at] if at < len(data) else 0xC1
    if code == _NIL:
        return None, at + 1
    if code < 0x80 or code >= 0xE0:
        return code if code < 0x80 else code - 0x100, at + 1
    form = _SCALARS.get(code)
    if form is None or at + 1 + struct.calcsize(form) > len(data):
        return None, -1
    return struct.unpack_from(form, data, at + 1)[0], at + 1 + struct.calcsize(form)


def _fits(one: Any, kind: Kind) -> bool:
    is_long = type(one) is int and one < 2**63
    return {"float64": True, "number": is_long or type(one) is float}.get(kind, is_long)
