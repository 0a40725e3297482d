"""The rows of the open windows of one step and task, for an actor; and how they are stored.

The table holds them in blocks, in the order of their arrival (`block_store`). Memory holds only what the next write needs: the last block
of each window, the blocks that no commit has written yet, and the keys. Where it does not suffice, last blocks are given up, and the next
rows begin other blocks. A window that closes is read back from the table,
one window at a time, and its rows are grouped by key. Rows that the running letter has taken wait in `taken`, so a failed letter leaves no
trace.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from typing import Any, NamedTuple

from ....core.windows.spans import Spans, due
from ...records.kafka.columns import pick
from ..base.block_store import BlockStore
from ..base.letter import LetterPart
from .closed_windows import ClosedWindows
from .open_windows import CLOSING, GivenOut, OpenCounts, TooLate, forget_given, is_more, write_given
from .row_blocks import RowBlock, RowBlocks

KEY_BYTES = 100
"""What a key takes in the set of a window."""
ROW_BYTES = 300
"""What the objects of a row take beside its bytes."""

KeptRow = list[Any]
"""A row as it is stored: its time, the bytes of its value, its headers or None."""


class KeptRows(NamedTuple):
    """Rows of the running letter for one window."""

    end: int
    keys: list[bytes]
    entries: list[KeptRow]


def size_of(key: bytes, entry: KeptRow) -> int:
    """The approximate size of a stored row in bytes."""
    _, value, headers = entry
    size = len(key) + len(value or b"") + 16
    return size if headers is None else size + sum(len(name) + len(data or b"") + 8 for name, data in headers)


class WindowOfRows:
    """One window: its keys, and the blocks of its rows."""

    def __init__(self) -> None:
        self.keys: set[bytes] = set()
        self.blocks = RowBlocks()
        self.out = 0
        """The number of keys whose rows were emitted, if closing takes several steps."""

    @property
    def weight(self) -> int:
        """The bytes that it takes in memory."""
        rows = (one.size + len(one.keys) * ROW_BYTES for one in self.blocks.held())
        return len(self.keys) * KEY_BYTES + sum(rows)

    def blocks_with(self, parts: list[KeptRows]) -> dict[int, RowBlock]:
        """The blocks that these rows change, by number."""
        keys = [key for part in parts for key in part.keys]
        entries = [entry for part in parts for entry in part.entries]
        return self.blocks.plus(keys, entries, list(map(size_of, keys, entries)))

    def take(self, blocks: dict[int, RowBlock]) -> None:
        """Take over these new or changed blocks."""
        self.blocks.take(blocks)
        for block in blocks.values():
            self.keys.update(block.keys)


class OpenRows(LetterPart):
    """The rows of open windows of a fixed length. `careful`: each letter writes its changes to the table."""

    of_letter = ("taken", "given")

    def __init__(self, spans: Spans, table: Any) -> None:
        self.spans = spans
        self.table = table
        self.careful = False
        self.early = None
        """An actor gets closed windows only."""
        self.open: dict[int, WindowOfRows] = {}
        self.ends: list[int] = []
        """Of the open windows, sorted."""
        self.changed: set[int] = set()
        """Windows with blocks that the next commit writes."""
        self.taken: list[KeptRows] = []
        self.given: list[GivenOut] = []
        """What the running letter has emitted."""
        self.read: tuple[int, dict[bytes, list[KeptRow]]] | None = None
        """The end and the rows of the window that was read back last: closing it may take several steps."""
        self.blocks: BlockStore[int] = BlockStore(table, self)
        self._load()
        self.blocks.weigh(self.open)

    def _load(self) -> None:
        """Load what the next write and `counts` need."""

        def found(end: int, number: int, block: list[Any]) -> None:
            _, _, keys, entries = block
            window = self._opened(end)
            window.keys.update(keys)
            window.blocks.loaded(number, RowBlock(keys, entries, sum(map(size_of, keys, entries))))

        self.blocks.load(found)
        closing = self.table.get(CLOSING)
        if closing is not None and closing["end"] in self.open:
            window = self.open[closing["end"]]
            window.out = bisect_right(sorted(window.keys), closing["key"])

    # -------------------------------------------------------------------------------------------------------------- memory

    def weight_of(self, end: int) -> int:
        """The bytes that a window takes in memory."""
        return self.open[end].weight if end in self.open else 0

    def spare(self) -> list[int]:
        """The windows whose last blocks are written, and not needed for rows of the letter."""
        needed = self.changed.union(part.end for part in self.taken)
        return [end for end, one in self.open.items() if one.blocks.last.keys and end not in needed]

    def pack(self, end: int) -> None:
        """Forget the last block of a window."""
        self.open[end].blocks.give_up()

    def counts(self) -> OpenCounts:
        """Count what is open now."""
        keys = sum(len(window.keys) - window.out for window in self.open.values())
        return OpenCounts(len(self.open), keys, self.first_end())

    # ------------------------------------------------------------------------------------------------------------ rows come in

    def take(self, keys: list[bytes], times: list[int], values: list[KeptRow], closed: int) -> TooLate:
        """Add rows to the open windows: those that end after `closed`."""
        found = self.spans.assign_open(times, closed)
        for end, places in found.open.items():
            if places is None:
                self.taken.append(KeptRows(end, keys, values))
            else:
                self.taken.append(KeptRows(end, pick(keys, places), pick(values, places)))
        return TooLate(found.late, found.partly)

    # ------------------------------------------------------------------------------------------------------- with the letter

    def _blocks(self) -> dict[int, dict[int, RowBlock]]:
        """By window, the blocks that the taken rows change."""
        parts: dict[int, list[KeptRows]] = {}
        for part in self.taken:
            parts.setdefault(part.end, []).append(part)
        return {end: self.open.get(end, WindowOfRows()).blocks_with(rows) for end, rows in parts.items()}

    def prepare(self) -> None:
        """Get ready to complete: write what cannot wait for the commit."""
        if self.careful:
            for end, blocks in self._blocks().items():
                self._write(end, blocks)
        write_given(self.given, self.open, self.table, self.blocks)

    def _write(self, end: int, blocks: dict[int, RowBlock]) -> None:
        rows = [[end, number, block.keys, block.entries] for number, block in blocks.items()]
        self.blocks.write(end, dict(zip(blocks, self.blocks.encoded(rows), strict=True)))

    def complete(self) -> None:
        """The letter is complete."""
        changed = self._blocks()
        for end, blocks in changed.items():
            window = self._opened(end)
            window.take(blocks)
            if self.read is not None and self.read[0] == end:
                self.read = None
            if not self.careful:  # otherwise the letter has written them
                window.blocks.unwritten.update(blocks)
                self.changed.add(end)
        forget_given(self.given, self.open, self.ends, self.changed)
        if any(one.whole for one in self.given):
            self.read = None
        self.blocks.complete()
        closed = [one.end for one in self.given if one.whole]
        self.drop()
        self.blocks.weigh([*changed, *closed])

    def _opened(self, end: int) -> WindowOfRows:
        window = self.open.get(end)
        if window is None:
            window = self.open[end] = WindowOfRows()
            insort(self.ends, end)
        return window

    def drop(self) -> None:
        """The letter failed."""
        self.taken, self.given = [], []
        self.blocks.drop()

    def seal(self) -> None:
        """Write the changed blocks to the table."""
        for end in sorted(self.changed):
            self._write(end, self.open[end].blocks.unwritten)
            self.open[end].blocks.unwritten.clear()
        self.blocks.complete()
        written, self.changed = self.changed, set[int]()
        self.blocks.weigh(written)

    # ------------------------------------------------------------------------------------------------------------ closing

    def first_end(self) -> int | None:
        """When the first open window ends."""
        return self.ends[0] if self.ends else None

    def awaits(self, closed: int | None) -> bool:
        """Whether rows of this letter belong to a window that is due. They count once the letter is complete: the next step closes it."""
        return any(closed is None or part.end <= closed for part in self.taken)

    def close(self, closed: int | None, room: int) -> ClosedWindows:
        """Take out the rows of windows that end no later than `closed` (None: any), ordered by end, then by key. It stops after the
        key with which there are `room` rows or more, because an actor gets all rows of a key and window at once."""
        ends = due(self.ends, closed)
        states: list[list[Any]] = []
        found = ClosedWindows([], [], [], [states])
        for end in ends:
            window, rows = self.open[end], self._rows(end)
            keys = sorted(rows)
            out = window.out
            while out < len(keys) and room > 0:
                found.keys.append(keys[out])
                states.append([rows[keys[out]]])
                room -= len(rows[keys[out]])
                out += 1
            found.starts.extend([end - self.spans.size] * (out - window.out))
            found.ends.extend([end] * (out - window.out))
            self.given.append(GivenOut(end, out, keys[out - 1], out == len(keys)))
            if room <= 0:
                break
        return found._replace(more=is_more(self.given, ends))

    def _rows(self, end: int) -> dict[bytes, list[KeptRow]]:
        """All rows of a window, by key."""
        if self.read is None or self.read[0] != end:
            unwritten = self.open[end].blocks.unwritten
            stored = self.blocks.read((end, n) for n in self.blocks.slots(end) if n not in unwritten)
            blocks = {number: RowBlock(keys, entries, 0) for _, (_, number, keys, entries), _ in stored} | unwritten
            rows: dict[bytes, list[KeptRow]] = {}
            for number in sorted(blocks):
                for key, entry in zip(blocks[number].keys, blocks[number].entries, strict=True):
                    rows.setdefault(key, []).append(entry)
            self.read = end, rows
        return self.read[1]
