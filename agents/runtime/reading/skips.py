"""Records that are left out because an operator said so: found in the chunks that are handed out, by offset and by row.

Decides: which rows of a chunk these are. Promises: a record is left out however often its chunk runs, and no other one is. A frame is
always whole in a chunk, so a row counts from the first row with the frame's offset.
"""

from __future__ import annotations

from ....core.names import StreamPartition
from ....core.task.protocol import SkipRecord
from ...logger import Logger
from ...records.frames.chunks import Chunk
from ...records.frames.range_buffer import UnreadRecords

log = Logger("headgate.task")


class Skips:
    """The records of one task that are left out."""

    def __init__(self) -> None:
        self._wanted: dict[StreamPartition, dict[int, set[int | None]]] = {}

    def add(self, order: SkipRecord) -> None:
        """Leave out this record."""
        self._wanted.setdefault(order.at, {}).setdefault(order.offset, set()).add(order.row)

    def forget(self, at: StreamPartition) -> None:
        """The position of the partition is moved."""
        self._wanted.pop(at, None)

    def mark(self, chunk: Chunk) -> None:
        """Mark the rows of this chunk that are left out."""
        wanted = self._wanted.get(chunk.at)
        if not wanted or isinstance(chunk.columns, UnreadRecords):
            return
        found: set[int] = set()
        first: dict[int, int] = {}
        for index, offset in enumerate(chunk.columns.every_offset()):
            rows = wanted.get(offset, ())
            if rows and (None in rows or index - first.setdefault(offset, index) in rows):
                found.add(index)
        if found:
            chunk.skipped = frozenset(found)
            log.warning("records are skipped, as was asked", at=str(chunk.at), rows=len(found), offsets=sorted(first))
        for offset in [one for one in wanted if one < chunk.next_position]:
            del wanted[offset]
