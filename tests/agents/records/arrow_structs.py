"""Structures of Arrow's C data interface by hand, right and wrong ones, that count how often each was released."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any


class Schema(ctypes.Structure):
    """`struct ArrowSchema`."""


class Array(ctypes.Structure):
    """`struct ArrowArray`."""


class Stream(ctypes.Structure):
    """`struct ArrowArrayStream`."""


RELEASE = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
GET = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
SAY = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)
Schema._fields_ = [
    ("format", ctypes.c_char_p),
    ("name", ctypes.c_char_p),
    ("metadata", ctypes.c_char_p),
    ("flags", ctypes.c_int64),
    ("n_children", ctypes.c_int64),
    ("children", ctypes.POINTER(ctypes.POINTER(Schema))),
    ("dictionary", ctypes.POINTER(Schema)),
    ("release", RELEASE),
    ("private_data", ctypes.c_void_p),
]
Array._fields_ = [
    ("length", ctypes.c_int64),
    ("null_count", ctypes.c_int64),
    ("offset", ctypes.c_int64),
    ("n_buffers", ctypes.c_int64),
    ("n_children", ctypes.c_int64),
    ("buffers", ctypes.POINTER(ctypes.c_void_p)),
    ("children", ctypes.POINTER(ctypes.POINTER(Array))),
    ("dictionary", ctypes.POINTER(Array)),
    ("release", RELEASE),
    ("private_data", ctypes.c_void_p),
]
Stream._fields_ = [
    ("get_schema", GET),
    ("get_next", GET),
    ("get_last_error", SAY),
    ("release", RELEASE),
    ("private_data", ctypes.c_void_p),
]

_new: Any = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)(
    ("PyCapsule_New", ctypes.pythonapi)
)


class HandMade:
    """A frame that speaks the capsule interface. Nothing is released but by whoever takes it."""

    def __init__(
        self,
        columns: Sequence[tuple[str, bytes, dict[str, Any], Sequence[bytes | None]]],
        length: int,
        /,
        *,
        streamed: int = 0,
        fails: int = 0,
        **frame: Any,
    ) -> None:
        """`columns`: name, format, fields of the array that are not what they should be, buffers. `streamed`: how many times it comes in a
        stream; 0 for an array. `fails`: the error of the stream behind them. `frame`: fields of the frame itself."""
        self.released: list[str] = []
        self.streamed, self.left, self.fails = streamed, streamed, fails
        self._columns, self._length, self._frame = columns, length, frame
        self._kept: list[Any] = []

    def _releasing(self, what: str, kind: Any) -> Any:
        def release(at: int) -> None:
            kind.from_address(at).release = RELEASE()
            self.released.append(what)

        self._kept.append(made := RELEASE(release))
        return made

    def _pointers(self, kind: Any, parts: Sequence[Any]) -> Any:
        made = (ctypes.POINTER(kind) * max(1, len(parts)))(*[ctypes.pointer(part) for part in parts])
        self._kept += [made, *parts]
        return ctypes.cast(made, ctypes.POINTER(ctypes.POINTER(kind)))

    def schema(self) -> Schema:
        """A schema of its columns."""
        parts = [Schema(format=form, name=name.encode()) for name, form, _, _ in self._columns]
        for part, (_, _, fields, _) in zip(parts, self._columns, strict=True):
            if fields.get("dictionary"):
                part.dictionary = ctypes.pointer(Schema(format=b"u"))
        release = self._releasing("schema", Schema)
        made = Schema(format=b"+s", n_children=len(parts), children=self._pointers(Schema, parts), release=release)
        self._kept.append(made)
        return made

    def array(self) -> Array:
        """An array of its columns."""
        parts: list[Array] = []
        for _, _, fields, buffers in self._columns:
            exact = [
                None if one is None else (ctypes.c_ubyte * max(1, len(one))).from_buffer_copy(one or b"\0")
                for one in buffers
            ]
            places = (ctypes.c_void_p * max(1, len(exact)))(
                *[None if one is None else ctypes.addressof(one) for one in exact]
            )
            self._kept += [exact, places]
            pointer = ctypes.cast(places, ctypes.POINTER(ctypes.c_void_p))
            parts.append(Array(length=self._length, null_count=-1, n_buffers=len(exact), buffers=pointer))
            for name, value in fields.items():
                setattr(parts[-1], name, ctypes.pointer(Array()) if name == "dictionary" else value)
        none = (ctypes.c_void_p * 1)(None)
        made = Array(length=self._length, n_buffers=1, buffers=ctypes.cast(none, ctypes.POINTER(ctypes.c_void_p)))
        made.n_children, made.children = len(parts), self._pointers(Array, parts)
        made.release = self._releasing("array", Array)
        for name, value in self._frame.items():
            setattr(made, name, value)
        self._kept += [made, none]
        return made

    def arrow_c_array(self, requested_schema: Any = None) -> Any:
        """`__arrow_c_array__`: capsules that release nothing by themselves."""
        schema, array = self.schema(), self.array()
        return (
            _new(ctypes.addressof(schema), b"arrow_schema", None),
            _new(ctypes.addressof(array), b"arrow_array", None),
        )

    def arrow_c_stream(self, requested_schema: Any = None) -> Any:
        """`__arrow_c_stream__`."""

        def get_schema(_: int, to: int) -> int:
            ctypes.memmove(to, ctypes.addressof(self.schema()), ctypes.sizeof(Schema))
            return 0

        def get_next(_: int, to: int) -> int:
            if not self.left:
                ctypes.memset(to, 0, ctypes.sizeof(Array))
                return self.fails
            self.left -= 1
            ctypes.memmove(to, ctypes.addressof(self.array()), ctypes.sizeof(Array))
            return 0

        why = ctypes.create_string_buffer(b"the wire broke")
        say = SAY(lambda _: ctypes.addressof(why))
        stream = Stream(GET(get_schema), GET(get_next), say, self._releasing("stream", Stream))
        self._kept += [stream, why]
        return _new(ctypes.addressof(stream), b"arrow_array_stream", None)

    def __getattr__(self, name: str) -> Any:
        if name == ("__arrow_c_stream__" if self.streamed or self.fails else "__arrow_c_array__"):
            return self.arrow_c_stream if self.streamed or self.fails else self.arrow_c_array
        raise AttributeError(name)
