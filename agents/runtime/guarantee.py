"""`guarantee = at_least_once`: final outputs are sent at once through a second producer; everything else stays transactional.

When a chunk is complete, what it emitted to output topics goes to the second, non-transactional producer. A checkpoint is committed only
after the brokers have acknowledged all of it. So after a crash outputs may be duplicated, but none is missing. The second producer is not
fenced: the last outputs of a stalled worker may arrive after those of its successor.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .buffer import Emitted, TaskBuffer


class SplitBuffer:
    """A task's buffer in two parts: what must be fenced goes `inside` the transaction, final outputs go `outside` of it."""

    def __init__(self, inside: TaskBuffer, outside: TaskBuffer, fenced: Callable[[str], bool]) -> None:
        self._inside = inside
        self._outside = outside
        self._fenced = fenced

    def emit(self, topic: str, *columns: Any, **named: Any) -> Emitted:
        """Emit columns to one topic."""
        return (self._inside if self._fenced(topic) else self._outside).emit(topic, *columns, **named)

    def emit_spans(self, topic: str, *records: Any, **named: Any) -> Emitted:
        """Emit records that lie in buffers to one topic."""
        return (self._inside if self._fenced(topic) else self._outside).emit_spans(topic, *records, **named)

    def complete(self) -> None:
        """The chunk is complete: complete both parts."""
        self._inside.complete()
        self._outside.complete()

    def drop(self) -> None:
        """The chunk failed: drop both parts."""
        self._inside.drop()
        self._outside.drop()
