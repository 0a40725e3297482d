"""Hands vectors over to other libraries as capsules of Arrow's C data interface, without copying them.

What it decides: nothing. Promises: each exported structure keeps what it points to alive until the library that took it has released it,
in whatever order and on whatever thread it releases or moves them, also while an exception is being raised; what nobody took is released
with its capsule. Without the compiled part, pyarrow makes the capsules.
"""

from __future__ import annotations

import importlib
from typing import Any

from . import compiled_part
from .vectors import Vector, VectorBatch, number_of

_TYPES = {"int64": "int64", "float64": "float64", "bool": "bool_", "text": "string"}


def vector_capsules(vector: Vector) -> tuple[Any, Any]:
    """The type of a vector and the vector itself, each in a capsule."""
    if compiled_part.compiled is None:
        return _arrow_array(vector).__arrow_c_array__()
    return compiled_part.compiled.arrow_give(True, [_given("", vector)], vector.length)


def batch_capsules(batch: VectorBatch) -> tuple[Any, Any]:
    """The types of a batch and the batch itself, each in a capsule."""
    if compiled_part.compiled is None:
        pa: Any = importlib.import_module("pyarrow")
        made = pa.RecordBatch.from_arrays([*map(_arrow_array, batch.vectors)], names=list(batch.names))
        return made.__arrow_c_array__()
    columns = [_given(name, one) for name, one in zip(batch.names, batch.vectors, strict=True)]
    return compiled_part.compiled.arrow_give(False, columns, batch.length)


def _given(name: str, vector: Vector) -> tuple[str, tuple[Any, ...], int]:
    return name, (number_of(vector.kind), vector.data, vector.offsets, vector.validity), vector.nulls


def _arrow_type(vector: Vector) -> Any:
    return getattr(importlib.import_module("pyarrow"), _TYPES[vector.kind])()


def _arrow_array(vector: Vector) -> Any:
    pa: Any = importlib.import_module("pyarrow")
    own = [vector.data] if vector.offsets is None else [vector.offsets, vector.data]
    buffers = [None if one is None else pa.py_buffer(one) for one in (vector.validity, *own)]
    return pa.Array.from_buffers(_arrow_type(vector), vector.length, buffers, vector.nulls)
