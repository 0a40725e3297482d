"""Columns of nested objects, and those of logical types, as structs and other types of Arrow: what Spark gets of a stream of columns.

What it decides: nothing. Promises: the schema follows from the declared columns alone, never from what they hold; the buffers of columns
are not copied; a struct is null where its object is. It needs pyarrow, as Spark does.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any

from ....core.columns.logical import Logical
from ..memory.vectors import VectorBatch
from ..values.nesting import Nesting
from .logical_arrow import arrow_array


class ObjectColumns:
    """A batch of columns which speaks the Arrow capsule interface, with its nested objects as structs.

    >>> import pyarrow
    >>> from headgate.core.columns.schema import ColumnSpec, PathPart
    >>> from ..memory.vectors import Vector
    >>> from ..values.nesting import nesting
    >>> inner = ColumnSpec("a.n", "int64", path=(PathPart("a", False), PathPart("n", False)))
    >>> batch = VectorBatch(("a.n",), (Vector.of("int64", [7]),), 1)
    >>> pyarrow.record_batch(ObjectColumns(batch, nesting([inner]))).to_pylist()
    [{'a': {'n': 7}}]
    """

    def __init__(self, batch: VectorBatch, of: Nesting, logical: Mapping[str, Logical] | None = None) -> None:
        """`logical`: the columns of logical types, by name."""
        self._batch, self._of, self._logical = batch, of, logical or {}

    def __arrow_c_schema__(self) -> Any:
        return self.__arrow_c_array__()[0]

    def __arrow_c_array__(self, requested_schema: Any = None) -> tuple[Any, Any]:
        pa: Any = importlib.import_module("pyarrow")
        batch = self._batch
        arrays = [
            arrow_array(one, self._logical[name]) if name in self._logical else pa.array(one)
            for name, one in zip(batch.names, batch.vectors, strict=True)
        ]
        return _struct(pa, arrays, self._of).__arrow_c_array__(requested_schema)


def _struct(pa: Any, arrays: Sequence[Any], of: Nesting) -> Any:
    members = [arrays[one] if isinstance(one, int) else _struct(pa, arrays, one) for one in of.members.values()]
    fields = [pa.field(name, one.type) for name, one in zip(of.members, members, strict=True)]
    return pa.StructArray.from_arrays(members, fields=fields, mask=_nulls(arrays, of) if of.optional else None)


def _nulls(arrays: Sequence[Any], of: Nesting) -> Any:
    """Where an object is null."""
    both = importlib.import_module("pyarrow.compute").and_
    numbers = of.numbers() if of.there is None else [of.there]
    return reduce(both, [arrays[number].is_null() for number in numbers])
