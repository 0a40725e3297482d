"""Takes frames of other libraries over: whatever speaks the Arrow PyCapsule interface becomes vectors of declared columns.

    batch = columns_of_frame(polars_frame, [ColumnSpec("user", "text"), ColumnSpec("total", "float64")])

What it decides: which frames hold the declared columns. Promises:

- The values are copied, so nothing of the frame's library is needed afterwards, and each structure is released once.
- Text may be in any of Arrow's three layouts. Whole numbers of every size are an `int64` if they fit into it, and all numbers a `float64`.
  A column without a type is null. Nothing else is converted: it is refused with the column and its type.
- A frame that does not have a column, or has it with another type, is a `FrameRefused`. So is a row that has a value that no such column
  can hold (null where the column is not optional, a float that is not finite, text that is no UTF-8), with its `index`. Further columns
  are left out.
- Counts, offsets and the places of texts are checked. How long the buffers of another library are, the interface does not say.

Without the compiled part, pyarrow reads the frame, with the same results.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ....core.columns.schema import ColumnKind, ColumnSpec
from ....core.errors import DataError
from ....core.settings import offer
from ..layout import KINDS
from ..memory.vectors import Vector, VectorBatch
from ..native import chosen
from ..native.plain.frames import WHOLE_FORMS

_TYPES = {
    **WHOLE_FORMS,
    "f": "float32",
    "g": "float64",
    "b": "bool",
    "u": "text",
    "U": "text",
    "vu": "text",
    "n": "null",
}
"""Arrow's formats that are taken over → their names."""
_OTHERS = {
    "z": "binary",
    "Z": "binary",
    "vz": "binary",
    "d": "decimal",
    "t": "a time",
    "+l": "list",
    "+L": "list",
    "+s": "struct",
}
_FITTING: dict[ColumnKind, frozenset[str]] = {
    "int64": frozenset((*WHOLE_FORMS, "n")),
    "float64": frozenset((*WHOLE_FORMS, "f", "g", "n")),
    "bool": frozenset("bn"),
    "text": frozenset(("u", "U", "vu", "n")),
}
_SHOWN = 300
_A_FRAME = (
    "return a frame: whatever has __arrow_c_stream__ or __arrow_c_array__, as those of polars, pyarrow and pandas"
)


class FrameRefused(DataError):
    """A frame, or one row of it, that does not have the declared columns."""

    index: int | None = None
    """The row; None if it is the frame."""


class NoFrame(DataError):
    """A value that is no frame, whatever it was made of."""


class _Field(NamedTuple):
    name: str
    form: str
    has_dictionary: bool

    def type(self) -> str:
        if self.has_dictionary:
            return "categorical (a dictionary)"
        return _TYPES.get(self.form) or _OTHERS.get(self.form) or _OTHERS.get(self.form[:1]) or self.form


_Take = Callable[[int, ColumnKind], tuple[Vector, int]]
"""Takes the column at an index over. Also returns the first row with a value that no column of that kind can hold; -1 if there is none."""


def columns_of_frame(frame: Any, declared: Sequence[ColumnSpec], hidden: Sequence[ColumnSpec] = ()) -> VectorBatch:
    """The declared columns of a frame, and those in `hidden` that it has. Raises `FrameRefused`, or `NoFrame`."""
    fields, take = _opened(frame)
    names = [field.name for field in fields]
    returned = ", ".join(f"{field.name}: {field.type()}" for field in fields)
    returned = f"it returned {returned if len(returned) <= _SHOWN else returned[: _SHOWN - 1] + '…'}"
    made: dict[str, Vector] = {}
    for one in (*declared, *(column for column in hidden if column.name in names)):
        if one.name not in names:
            raise FrameRefused(f"there is no column '{one.name}': {returned}", remedy=offer(one.name, names))
        at = names.index(one.name)
        if names.count(one.name) > 1:
            raise FrameRefused(f"there are two columns '{one.name}': {returned}", remedy="rename one of them")
        if fields[at].has_dictionary or fields[at].form not in _FITTING[one.type]:
            what = f"the column '{one.name}' is {fields[at].type()}, not {one.type}"
            raise FrameRefused(f"{what}: {returned}", remedy=f"cast it to {one.type}")
        made[one.name], flawed = take(at, one.type)
        if flawed >= 0:
            what = f"the column '{one.name}' has a value that no {one.type} column can hold"
            raise _of_row(flawed, what, _HOLDS[one.type])
        if made[one.name].nulls and not one.optional:
            index = made[one.name].values().index(None)
            raise _of_row(index, f"the column '{one.name}' is null", "declare it optional (| None), or fill it")
    vectors = tuple(made.values())
    return VectorBatch(tuple(made), vectors, vectors[0].length)


def columns_as_they_are(frame: Any) -> VectorBatch | None:
    """All columns of a frame, with the types that hold their values; None if there are no such types, or two columns have the same name.

    Its rows as JSON are the same then, whether they are written from these columns or from dicts.
    """
    fields, take = _opened(frame)
    names = [field.name for field in fields]
    kinds: list[ColumnKind | None] = [
        next((kind for kind, forms in _FITTING.items() if field.form in forms), None) for field in fields
    ]
    if None in kinds or len(set(names)) < len(names) or any(field.has_dictionary for field in fields):
        return None
    made: list[Vector] = []
    for at, kind in enumerate(kinds):
        assert kind is not None
        vector, flawed = take(at, kind)
        if flawed >= 0:
            return None
        made.append(vector)
    return VectorBatch(tuple(names), tuple(made), made[0].length) if made else None


_HOLDS = {
    "int64": "a whole number has at most 64 bits, with its sign",
    "float64": "a float is finite: replace what is not, for example by null in an optional column",
    "text": "text is UTF-8",
}


def _of_row(index: int, what: str, remedy: str) -> FrameRefused:
    error = FrameRefused(f"{what}, in row {index} of the frame that it returned", remedy=remedy)
    error.index = index
    return error


def _opened(frame: Any) -> tuple[list[_Field], _Take]:
    """The fields of a frame, and the function that takes a column over."""
    # a class has the methods of its objects
    given = None if isinstance(frame, type) else frame
    array, stream = (getattr(given, name, None) for name in ("__arrow_c_array__", "__arrow_c_stream__"))
    if array is None and stream is None:
        raise _no_frame(frame)
    try:
        is_table, found, taken = chosen.part.open_frame(frame)
    except (ValueError, TypeError) as error:
        raise FrameRefused(f"the frame that it returned cannot be read: {error}") from error
    if not is_table:
        raise NoFrame(f"it returned a single column ({type(frame).__name__}), not a frame", remedy=_A_FRAME)

    def take(at: int, kind: ColumnKind) -> tuple[Vector, int]:
        try:
            *parts, flawed = taken(at, KINDS.index(kind))
        except (ValueError, OverflowError) as error:
            raise FrameRefused(f"the column '{found[at][0]}' that it returned cannot be read: {error}") from error
        return Vector(kind, *parts), flawed

    return [_Field(*one) for one in found], take


def _no_frame(value: Any) -> NoFrame:
    if inspect.iscoroutine(value):
        value.close()
        return NoFrame("it is a coroutine function, and nothing awaits it", remedy="define it with def")
    if value is None:
        return NoFrame("it returned None, not a frame", remedy="return the frame, also where it was changed in place")
    if hasattr(value, "collect"):
        return NoFrame(f"it returned a lazy frame ({type(value).__name__})", remedy="return frame.collect()")
    what = value.__name__ + " itself" if isinstance(value, type) else type(value).__name__
    return NoFrame(f"it returned {what}, not a frame", remedy=_A_FRAME)
