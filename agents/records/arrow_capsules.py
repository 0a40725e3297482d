"""Arrow's C data interface by ctypes: capsules that hand a vector to another library without copying it.

What it decides: nothing. Promises: each exported structure keeps what it points to alive until the library that took it has released it,
in whatever order it releases or moves them; what nobody took is released with its capsule.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from itertools import count
from typing import Any

from ...core.columns.schema import ColumnKind
from .vectors import Vector, VectorBatch

FORMATS: dict[ColumnKind, bytes] = {"int64": b"l", "float64": b"g", "bool": b"b", "text": b"u"}
_NULLABLE = 2


class _Schema(ctypes.Structure):
    pass


class _Array(ctypes.Structure):
    pass


_ReleaseSchema = ctypes.CFUNCTYPE(None, ctypes.POINTER(_Schema))
_ReleaseArray = ctypes.CFUNCTYPE(None, ctypes.POINTER(_Array))
_Schema._fields_ = [
    ("format", ctypes.c_char_p),
    ("name", ctypes.c_char_p),
    ("metadata", ctypes.c_char_p),
    ("flags", ctypes.c_int64),
    ("n_children", ctypes.c_int64),
    ("children", ctypes.POINTER(ctypes.POINTER(_Schema))),
    ("dictionary", ctypes.POINTER(_Schema)),
    ("release", _ReleaseSchema),
    ("private_data", ctypes.c_void_p),
]
_Array._fields_ = [
    ("length", ctypes.c_int64),
    ("null_count", ctypes.c_int64),
    ("offset", ctypes.c_int64),
    ("n_buffers", ctypes.c_int64),
    ("n_children", ctypes.c_int64),
    ("buffers", ctypes.POINTER(ctypes.c_void_p)),
    ("children", ctypes.POINTER(ctypes.POINTER(_Array))),
    ("dictionary", ctypes.POINTER(_Array)),
    ("release", _ReleaseArray),
    ("private_data", ctypes.c_void_p),
]

_held: dict[int, Any] = {}
"""What each exported structure points to, by the number that it carries as private data."""
_numbers = count(1)
_capsules: dict[int, Any] = {}
"""The structures in capsules, by their addresses."""


def _hold(structure: Any, *parts: Any) -> None:
    number = next(_numbers)
    _held[number] = parts
    structure.private_data = number


def _releasing(kind: Any) -> Any:
    def release(pointer: Any) -> None:
        structure = pointer.contents
        for index in range(structure.n_children):
            child = structure.children[index]
            if child.contents.release:
                child.contents.release(child)
        number = structure.private_data
        structure.release = kind()
        _held.pop(number, None)

    return kind(release)


_release_schema = _releasing(_ReleaseSchema)
_release_array = _releasing(_ReleaseArray)

_pointer_of: Callable[[int, bytes], int] = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)
_Destructor = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)
_new_capsule: Callable[[int, bytes, Any], Any] = ctypes.PYFUNCTYPE(
    ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, _Destructor
)(("PyCapsule_New", ctypes.pythonapi))


def _destroying(name: bytes) -> Any:
    def destroy(capsule: int) -> None:
        structure = _capsules.pop(_pointer_of(capsule, name))
        if structure.release:
            structure.release(ctypes.pointer(structure))

    return _Destructor(destroy)


_SCHEMA, _ARRAY = b"arrow_schema", b"arrow_array"
_destroy = {_SCHEMA: _destroying(_SCHEMA), _ARRAY: _destroying(_ARRAY)}


def _capsule(structure: Any, name: bytes) -> Any:
    address = ctypes.addressof(structure)
    _capsules[address] = structure
    return _new_capsule(address, name, _destroy[name])


def _children(structure: Any, kind: Any, parts: Sequence[Any]) -> tuple[Any, ...]:
    pointers = (ctypes.POINTER(kind) * len(parts))(*[ctypes.pointer(part) for part in parts])
    structure.n_children = len(parts)
    structure.children = ctypes.cast(pointers, ctypes.POINTER(ctypes.POINTER(kind)))
    return pointers, *parts


def _schema(form: bytes, name: str, parts: Sequence[_Schema] = (), flags: int = _NULLABLE) -> _Schema:
    made = _Schema(format=form, name=name.encode(), flags=flags, release=_release_schema)
    _hold(made, form, name.encode(), *_children(made, _Schema, parts))
    made.name = _held[made.private_data][1]
    return made


def _address(buffer: Any) -> tuple[int | None, Any]:
    """Where a buffer lies, and what keeps it there. Buffers that cannot be written are as good: nobody writes them."""
    if buffer is None:
        return None, None
    view = memoryview(buffer).cast("B")
    if not len(view):
        view = memoryview(bytearray(8))
    if view.readonly:
        held = bytes(view) if not isinstance(buffer, bytes) else buffer
        return ctypes.cast(ctypes.c_char_p(held), ctypes.c_void_p).value, held
    held = (ctypes.c_char * len(view)).from_buffer(view)
    return ctypes.addressof(held), held


def _array(length: int, nulls: int, buffers: Sequence[Any], parts: Sequence[_Array] = ()) -> _Array:
    made = _Array(length=length, null_count=nulls, n_buffers=len(buffers), release=_release_array)
    found = [_address(buffer) for buffer in buffers]
    places = (ctypes.c_void_p * len(found))(*[address for address, _ in found])
    made.buffers = ctypes.cast(places, ctypes.POINTER(ctypes.c_void_p))
    _hold(made, places, found, *_children(made, _Array, parts))
    return made


def _vector(vector: Vector) -> _Array:
    own = [vector.data] if vector.offsets is None else [vector.offsets, vector.data]
    return _array(vector.length, vector.nulls, [vector.validity, *own])


def schema_capsule(kind: ColumnKind) -> Any:
    """A capsule with the type of a vector."""
    return _capsule(_schema(FORMATS[kind], ""), _SCHEMA)


def array_capsule(vector: Vector) -> Any:
    """A capsule with a vector."""
    return _capsule(_vector(vector), _ARRAY)


def batch_schema_capsule(batch: VectorBatch) -> Any:
    """A capsule with the types of a batch."""
    parts = [_schema(FORMATS[one.kind], name) for name, one in zip(batch.names, batch.vectors, strict=True)]
    return _capsule(_schema(b"+s", "", parts, 0), _SCHEMA)


def batch_capsule(batch: VectorBatch) -> Any:
    """A capsule with a batch."""
    return _capsule(_array(batch.length, 0, [None], [_vector(one) for one in batch.vectors]), _ARRAY)
