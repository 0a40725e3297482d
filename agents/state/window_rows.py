"""The rows of a window's table in readable form: each key of a stored row with its window and its states.

This needs only the kind of window, which the schema in the task log names. So a job's state can be read without its code.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from msgpack import Unpacker, UnpackException

from ...core.graph.schema import WINDOW, WITH_ROWS
from ...core.settings import duration_ms
from ...core.windows import sliding
from ...core.windows.results import END_FIELD, START_FIELD
from ...core.windows.sessions import end_of
from ..records.values.serdes import stored as states

PARTS = 4
"""The parts of a stored row: end, number, keys and states; or key, start, last time and states."""


class WindowState(NamedTuple):
    """The states of one key in one window; of a window that keeps rows one row, or the rows of a session."""

    key: bytes
    start: int
    end: int
    states: Any

    def window(self) -> dict[str, Any]:
        """The window as the fields of a result row."""
        return {START_FIELD: self.start, END_FIELD: self.end}


class WindowFormat(NamedTuple):
    """How the windows of one table are stored."""

    sessions: bool
    length: int
    """The size of a window, or the gap of sessions."""
    rows: bool = False
    """It keeps rows, and no states."""
    sliding: bool = False
    """Each row has a window of its own, and the states that it makes alone."""

    @classmethod
    def of(cls, kind: str) -> WindowFormat:
        """The format for the kind of window in a schema.

        >>> WindowFormat.of("window hopping-1m-every-10s")
        WindowFormat(sessions=False, length=60000, rows=False, sliding=False)
        >>> WindowFormat.of("window session-30s") == WindowFormat(sessions=True, length=30_000)
        True
        """
        name, length, *_ = kind.removeprefix(WINDOW).split("-")
        return cls(name == "session", duration_ms(length), kind.endswith(WITH_ROWS), name == "sliding")

    def place(self, value: bytes) -> tuple[Any, int] | None:
        """Where a stored row stands among the others: windows by end and number of the block, sessions by key and start. None if it holds
        no window. Reads no states.

        >>> WindowFormat.of("window tumbling-1m").place(states().dumps([60_000, 2, [b"k"], [[7]]]) or b"")
        (60000, 2)
        """
        head = Unpacker()
        head.feed(value)
        try:
            return (head.unpack(), head.unpack()) if head.read_array_header() == PARTS else None
        except (ValueError, UnpackException):  # it is no array
            return None

    def read(self, value: bytes) -> list[WindowState]:
        """The keys of a stored row with their states; empty if the row holds no window. Raises a `HeadgateError` for unreadable bytes."""
        stored = states().loads(value)
        return self.states(stored) if isinstance(stored, list) else []

    def states(self, stored: list[Any]) -> list[WindowState]:
        """As `read`, of a decoded row."""
        if self.sessions:
            key, start, last, states = stored
            return [WindowState(key, start, end_of(last, self.length), states[0] if self.rows else states)]
        end, _, keys, states = stored
        if self.sliding:
            ends = [(key, sliding.end_of(time)) for key, time in keys]
            return [WindowState(key, at - self.length, at, one) for (key, at), one in zip(ends, states, strict=True)]
        return [WindowState(one, end - self.length, end, state) for one, state in zip(keys, states, strict=True)]
