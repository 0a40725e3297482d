"""`guarantee = at_least_once`: final outputs go out at once through a producer of their own, everything else stays transactional.

What a chunk has emitted to output topics is handed to the second, plain producer when the chunk is complete; a checkpoint is committed
only after all of it has been acknowledged. So after a crash outputs may come again, and none is missing. The second producer is not
fenced: the last outputs of a stalled worker may land after its successor's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .buffer import TaskBuffer


class SplitBuffer:
    """A task's ready buffer in two: what must be fenced goes `inside` the transaction, final outputs `outside` of it."""

    def __init__(self, inside: TaskBuffer, outside: TaskBuffer, fenced: Callable[[str], bool]) -> None:
        self._inside = inside
        self._outside = outside
        self._fenced = fenced

    def emit(self, topic: str, *columns: Any, **named: Any) -> None:
        """Columns for one topic."""
        (self._inside if self._fenced(topic) else self._outside).emit(topic, *columns, **named)

    def complete(self) -> None:
        """The chunk is complete."""
        self._inside.complete()
        self._outside.complete()

    def drop(self) -> None:
        """The chunk failed."""
        self._inside.drop()
        self._outside.drop()
