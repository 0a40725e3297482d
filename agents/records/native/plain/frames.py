"""Frames of other libraries, taken over with pyarrow: what `native/frames.py` does with `arrow_take.c`."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from math import isfinite
from typing import Any, NamedTuple

from .....core.columns.schema import ColumnKind
from ...layout import KINDS, column_made

WHOLE_FORMS = {
    "c": "int8",
    "C": "uint8",
    "s": "int16",
    "S": "uint16",
    "i": "int32",
    "I": "uint32",
    "l": "int64",
    "L": "uint64",
}
"""Arrow's formats of whole numbers → their names."""
_FORMATS = {**{name: form for form, name in WHOLE_FORMS.items()}, "float": "f", "double": "g", "bool": "b", "null": "n"}
_FORMATS |= {"string": "u", "large_string": "U", "string_view": "vu"}


class OpenedFrame(NamedTuple):
    """A frame whose columns can be taken over."""

    is_table: bool
    """Not a single column."""
    fields: Sequence[tuple[str, str, bool]]
    """Name and format of each column, and whether it has a dictionary."""
    take: Callable[[int, int], tuple[Any, ...]]
    """Takes the column at an index over as a type with this number: its length, data, offsets, validity and nulls; and the first row with
    a value that no column of that type can hold, -1 for none. Raises `ValueError` or `OverflowError` for what cannot be read."""


def open_frame(frame: Any) -> OpenedFrame:
    """Open what has `__arrow_c_array__` or `__arrow_c_stream__`. Raises `ValueError` or `TypeError`."""
    pa: Any = importlib.import_module("pyarrow")
    try:
        table: Any = pa.table(frame)
    except pa.ArrowInvalid as error:
        if "non-struct" not in str(error):
            raise
        return OpenedFrame(False, [], lambda at, number: ())

    def take(at: int, number: int) -> tuple[Any, ...]:
        column, kind = table.column(at), KINDS[number]
        try:
            column.validate(full=True)
        except pa.ArrowInvalid:
            flawed = _not_utf8(pa, column) if kind == "text" else None
            if flawed is None:
                raise
            return 0, *column_made(kind, []), flawed
        values: list[Any] = column.to_pylist()
        flawed = next((i for i, value in enumerate(values) if value is not None and not _held(value, kind)), -1)
        if kind == "float64":
            values = [None if value is None else float(value) for value in values]
        found = [] if flawed >= 0 else values
        return len(found), *column_made(kind, found), flawed

    fields = [(one.name, _FORMATS.get(str(one.type), str(one.type)), one.type) for one in table.schema]
    return OpenedFrame(True, [(name, form, pa.types.is_dictionary(kind)) for name, form, kind in fields], take)


def _held(value: Any, kind: ColumnKind) -> bool:
    return isfinite(value) if kind == "float64" else kind != "int64" or -(2**63) <= value < 2**63


def _not_utf8(pa: Any, column: Any) -> int | None:
    """The first row whose text is no UTF-8."""
    for index, value in enumerate(column.cast(pa.large_binary()).to_pylist()):
        try:
            (value or b"").decode()
        except UnicodeDecodeError:
            return index
    return None
