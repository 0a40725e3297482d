"""Frames of other libraries, taken over by the compiled part: see `plain/frames.py`, which does it with pyarrow."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .plain.frames import OpenedFrame


def opener(built: Any) -> Callable[[Any], OpenedFrame]:
    """The function that opens a frame with these compiled functions."""

    def open_frame(frame: Any) -> OpenedFrame:
        if (array := getattr(frame, "__arrow_c_array__", None)) is not None:
            schema, *arrays = array()
        else:
            schema, arrays = built.arrow_drain(frame.__arrow_c_stream__())
        own, fields = built.arrow_fields(schema)

        def take(at: int, number: int) -> tuple[Any, ...]:
            return built.arrow_take(arrays, at, fields[at][1], number)

        return OpenedFrame(own[1] == "+s", fields, take)

    return open_frame
