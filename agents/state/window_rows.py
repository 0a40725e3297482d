"""The rows of a window's table in readable form: each key of a stored row with its window and its states.

This needs only the kind of window, which the schema in the task log names. So a job's state can be read without its code.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from ...core.graph.schema import WINDOW, WITH_ROWS
from ...core.settings import duration_ms
from ...core.windows.blocks import unpack_key, unpack_session
from ...core.windows.results import END_FIELD, START_FIELD
from ...core.windows.sessions import end_of
from ..records.serdes import msgpack


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

    @classmethod
    def of(cls, kind: str) -> WindowFormat:
        """The format for the kind of window in a schema.

        >>> WindowFormat.of("window hopping-1m-every-10s"), WindowFormat.of("window session-30s")
        (WindowFormat(sessions=False, length=60000, rows=False), WindowFormat(sessions=True, length=30000, rows=False))
        """
        name, length, *_ = kind.removeprefix(WINDOW).split("-")
        return cls(name == "session", duration_ms(length), kind.endswith(WITH_ROWS))

    def read(self, key: bytes, value: bytes) -> list[WindowState]:
        """The keys of a stored row with their states; empty if the row holds no window. Raises a `HeadgateError` for unreadable bytes."""
        stored = msgpack().loads(value)
        if not isinstance(stored, list):
            return []
        head, states = stored
        if self.sessions:
            session = unpack_session(key)
            if isinstance(session, str):
                return []
            states = states[0] if self.rows else states
            return [WindowState(*session, end_of(head, self.length), states)]
        block = unpack_key(key)
        if isinstance(block, str):
            return []
        end, _ = block
        return [WindowState(one, end - self.length, end, state) for one, state in zip(head, states, strict=True)]
