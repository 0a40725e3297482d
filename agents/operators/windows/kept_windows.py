"""The open windows of one step and task by their end, and which of them memory holds.

Windows in memory count against `state.memory`. Where it does not suffice, windows are *packed*, those first that had no rows for the
longest time: their states are in the table only, and are loaded when rows come for them or when they close. So after a restart: windows are
packed until they are wanted.

Promises: a window that the running letter or the next commit needs is not packed. What stays of a packed window is a number for each block,
and of one that emits early results the keys that have changed since the last ones.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Collection, Iterable
from typing import Any

from ..base.block_store import BlockStore
from .window_states import ArrayWindow, ListWindow, unmark

LiveWindow = ListWindow | ArrayWindow


class PackedWindow:
    """A window whose states are in the table only. Its marks are in memory alone: the table does not have them."""

    __slots__ = ("count", "marks", "out")

    def __init__(self, count: int, out: int = 0, marks: dict[bytes, int] | None = None) -> None:
        self.count = count
        self.out = out
        self.marks = marks or {}

    @property
    def marked(self) -> int:
        """How many keys have marks."""
        return len(self.marks)

    def unmark(self, keys: Iterable[bytes] | None) -> None:
        """Forget the marks of these keys, or of all."""
        unmark(self.marks, keys)


class KeptWindows:
    """The windows by their end. Indexed, it gives what is known of a window, wherever its states are."""

    def __init__(self, empty: Callable[[], LiveWindow], table: Any, needed: Callable[[], Collection[int]]) -> None:
        """`empty` makes a window; `needed`: the windows that must stay in memory. Without a table, all do."""
        self.ends: list[int] = []
        """Of all windows, sorted."""
        self.live: dict[int, LiveWindow] = {}
        """The windows in memory; the one that has waited longest for rows comes first."""
        self.packed: dict[int, PackedWindow] = {}
        self._empty = empty
        self._needed = needed
        self.blocks: BlockStore[int] | None = None if table is None else BlockStore(table, self)

    def __len__(self) -> int:
        return len(self.ends)

    def __getitem__(self, end: int) -> LiveWindow | PackedWindow:
        return self.live[end] if end in self.live else self.packed[end]

    def __delitem__(self, end: int) -> None:
        self.packed.pop(end, None)
        if self.live.pop(end, None) is not None and self.blocks is not None:
            self.blocks.note((end,))

    def keys(self) -> int:
        """How many keys have states, over all windows."""
        return sum(one.count for one in self.live.values()) + sum(one.count for one in self.packed.values())

    # ------------------------------------------------------------------------------------------------------------- windows

    def stored(self, end: int, count: int) -> None:
        """The table holds a window with so many keys."""
        insort(self.ends, end)
        self.packed[end] = PackedWindow(count)

    def get(self, end: int) -> LiveWindow | None:
        """The window with its states, which are loaded if they are not in memory; None if there is none."""
        window = self.live.get(end)
        if window is None and end in self.packed and self.blocks is not None:
            window = self._loaded(end, self.packed.pop(end), self.blocks)
            self.put(end, window)
            self.blocks.note((end,))
        return window

    def opened(self, end: int, window: LiveWindow | None = None) -> LiveWindow:
        """The window, which is opened if there is none: `window`, or an empty one."""
        found = self.get(end)
        if found is None:
            insort(self.ends, end)
            found = self.put(end, self._empty() if window is None else window)
        return found

    def put(self, end: int, window: LiveWindow) -> LiveWindow:
        """Keep this window instead of the one with this end."""
        self.live[end] = window
        return window

    def _loaded(self, end: int, packed: PackedWindow, blocks: BlockStore[int]) -> LiveWindow:
        """Read a window from the table."""
        window = self._empty()
        for _, (_, _, keys, states), size in blocks.read((end, number) for number in sorted(blocks.slots(end))):
            if isinstance(window, ArrayWindow) and not window.load(keys, states):
                window = window.in_lists()
            if isinstance(window, ListWindow):
                window.load(keys, states, size)
        window.out = packed.out
        if packed.marks:
            window.mark(list(packed.marks), list(packed.marks.values()))
        return window

    # -------------------------------------------------------------------------------------------------------------- memory

    def used(self, ends: Collection[int]) -> None:
        """Rows came for these windows: count what they take now, which may pack others."""
        if self.blocks is None:
            return
        for end in ends:
            if end in self.live:
                self.live[end] = self.live.pop(end)
        self.blocks.weigh(ends)

    def weight_of(self, end: int) -> int:
        """The bytes that a window takes in memory."""
        return self.live[end].weight if end in self.live else 0

    def spare(self) -> list[int]:
        """The windows that can be packed; the one that has waited longest for rows comes first."""
        needed = self._needed()
        return [end for end, one in self.live.items() if end not in needed and not one.out]

    def pack(self, end: int) -> None:
        """Keep the states of a window in the table only."""
        window = self.live.pop(end)
        self.packed[end] = PackedWindow(window.count, marks=window.marks)
