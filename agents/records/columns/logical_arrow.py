"""Columns of logical types for libraries that speak Arrow, and back: timestamps, dates, decimals, binaries, lists and maps of Arrow.

What it decides: which type of Arrow a logical type is. Promises: it follows from the declaration, never from the values. Times, dates and
decimals are made of buffers, without an object for each value; bytes, lists and maps cost one. It needs pyarrow.
"""

from __future__ import annotations

import importlib
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from ....core.columns import logical as of
from ....core.columns.logical import Logical, NotStorable
from ....core.columns.schema import BOOL, FLOAT, INT, TEXT, ColumnSpec
from ..logical.logical_columns import shown_values, stored_value
from ..memory.octets import octets_of, stored_octets
from ..memory.record_spans import RecordSpans
from ..memory.vectors import Vector, VectorBatch
from .arrow_take import FrameRefused


def _pa() -> Any:
    return importlib.import_module("pyarrow")


def arrow_type(kind: Logical) -> Any:
    """The type of Arrow."""
    pa = _pa()
    match kind.name:
        case of.TIMESTAMP:
            return pa.timestamp("us", tz="UTC")
        case of.LOCAL:
            return pa.timestamp("us")
        case of.DATE:
            return pa.date32()
        case of.DECIMAL:
            return pa.decimal128(kind.digits, kind.scale)
        case of.BYTES:
            return pa.binary()
        case of.LIST:
            return pa.list_(_element("item", kind.of[0]))
        case of.MAP:
            return pa.map_(pa.string(), _element("value", kind.of[0]))
        case of.OBJECT:
            return pa.struct([_element(name, one) for name, one in zip(kind.fields, kind.of, strict=True)])
        case plain:
            return {INT: pa.int64(), FLOAT: pa.float64(), BOOL: pa.bool_(), TEXT: pa.string()}[plain]


def _element(name: str, kind: Logical) -> Any:
    return _pa().field(name, arrow_type(kind), nullable=kind.optional)


def arrow_array(column: Vector, kind: Logical) -> Any:
    """A stored column as an array of Arrow."""
    pa, wanted = _pa(), arrow_type(kind)
    if kind.name in (*of.TIMES,):
        return pa.array(column).view(wanted)
    if kind.name == of.DATE:
        return pa.array(column).cast(pa.int32()).view(wanted)
    if kind.name == of.DECIMAL:
        whole = pa.array(column).cast(pa.decimal128(of.COMPUTED_DIGITS, 0))
        return pa.Array.from_buffers(wanted, len(whole), whole.buffers(), whole.null_count, whole.offset)
    if kind.name == of.BYTES and (found := _octets(column)) is not None:
        return pa.Array.from_buffers(wanted, len(found), _buffers(pa, found), found.nulls)
    return pa.array(shown_values(column.values(), kind), wanted)


def _octets(column: Vector) -> Vector | None:
    try:
        return octets_of(column)
    except ValueError:  # what another program has stored is decoded value by value
        return None


def _buffers(pa: Any, column: Vector) -> list[Any]:
    parts = column.validity if column.nulls else None, column.offsets, column.data
    return [None if one is None else pa.py_buffer(one) for one in parts]


def arrow_batch(batch: VectorBatch, logical: dict[str, Logical]) -> Any:
    """A record batch of Arrow with these columns of logical types; the others are not copied."""
    pa = _pa()
    columns = [
        pa.array(one) if name not in logical else arrow_array(one, logical[name])
        for name, one in zip(batch.names, batch.vectors, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, names=list(batch.names))


def logical_in(columns: Sequence[ColumnSpec]) -> dict[str, Logical]:
    """The logical types among these columns, by name."""
    return {one.name: one.logical for one in columns if one.logical is not None}


@dataclass(frozen=True, slots=True)
class LogicalVector:
    """A column of a logical type, as functions of users get it."""

    stored: Vector
    kind: Logical

    def __len__(self) -> int:
        return len(self.stored)

    def values(self) -> list[Any]:
        """The column as Python values, with None for null."""
        return shown_values(self.stored.values(), self.kind)

    def __arrow_c_schema__(self) -> Any:
        return self.__arrow_c_array__()[0]

    def __arrow_c_array__(self, requested_schema: Any = None) -> tuple[Any, Any]:
        return arrow_array(self.stored, self.kind).__arrow_c_array__(requested_schema)


# -------------------------------------------------------------------------------------------------------------- and back


def stored_frame(frame: Any, declared: Sequence[ColumnSpec]) -> Any:
    """A frame in which the declared columns of logical types are as they are stored. Raises `FrameRefused`; what is no frame comes back."""
    logical = logical_in(declared)
    given = None if isinstance(frame, type) else frame
    if not logical or not (hasattr(given, "__arrow_c_array__") or hasattr(given, "__arrow_c_stream__")):
        return frame
    pa = _pa()
    table = pa.table(frame)
    for at, name in enumerate(table.column_names):
        if name in logical:
            table = table.set_column(at, name, _stored(pa, name, table.column(at), logical[name]))
    return table


def _stored(pa: Any, name: str, column: Any, kind: Logical) -> Any:
    wanted, found = arrow_type(kind), column.type
    if pa.types.is_null(found):
        return column
    what = f"the column '{name}' is {found}, not {kind}"
    zoned = bool(getattr(found, "tz", None))
    if kind.name in of.TIMES and not (pa.types.is_timestamp(found) and zoned == (kind.name == of.TIMESTAMP)):
        raise FrameRefused(what, remedy=f"cast it to {wanted}")
    if kind.name == of.DATE and not pa.types.is_date(found):
        raise FrameRefused(what, remedy=f"cast it to {wanted}")
    if kind.name == of.DECIMAL and not pa.types.is_decimal(found):
        raise FrameRefused(what, remedy=f"cast it to {wanted}")
    try:
        one = column.cast(wanted).combine_chunks()
    except pa.ArrowException as error:
        raise FrameRefused(f"{what}: {error}", remedy=f"cast it to {wanted}") from None
    one = pa.chunked_array([one], wanted).combine_chunks() if not isinstance(one, pa.Array) else one
    if kind.name in of.TIMES:
        return one.view(pa.int64())
    if kind.name == of.DATE:
        return one.view(pa.int32()).cast(pa.int64())
    if kind.name == of.DECIMAL:
        whole = pa.decimal128(of.COMPUTED_DIGITS, 0)
        return pa.Array.from_buffers(whole, len(one), one.buffers(), one.null_count, one.offset).cast(pa.int64())
    if kind.name == of.BYTES:
        return _stored_octets(pa, one)
    values = one.to_pylist(maps_as_pydicts="strict")
    return pa.array([_text(row, value, name, kind) for row, value in enumerate(values)], pa.string())


def _stored_octets(pa: Any, binary: Any) -> Any:
    """An array of binaries as a column stores them."""
    _, ends, data = binary.buffers()
    length, start = len(binary), binary.offset
    ends = memoryview(ends or bytes(4)).cast("B").cast("i")[start : start + length + 1]
    bits = None if not binary.null_count else binary.is_valid().to_pylist()
    sizes = [behind - first for first, behind in pairwise(ends)]
    lengths = sizes if bits is None else [size if there else -1 for size, there in zip(sizes, bits, strict=True)]
    spans = RecordSpans(data or b"", array("q", ends[:length]), array("q", lengths))
    made = stored_octets(spans)
    return pa.Array.from_buffers(pa.string(), length, _buffers(pa, made), made.nulls)


def _text(row: int, value: Any, name: str, kind: Logical) -> str | None:
    try:
        return None if value is None else stored_value(value, kind).decode()
    except NotStorable as error:
        refused = FrameRefused(f"the column '{name}' has a value that is {error}, in row {row} of the frame")
        refused.index = row
        raise refused from None
