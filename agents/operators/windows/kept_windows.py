"""The open windows of one step and task by their end, and which of them memory holds.

Windows in memory count against `state.memory`. Where it does not suffice, windows are *packed*, those first that had no rows for the
longest time: their states are in the table only, and are loaded when rows come for them or when they close. So after a restart: windows are
packed until they are wanted.

Promises: a window that the running letter or the next commit needs is not packed. What stays of a packed window is a number for each block.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Collection
from typing import Any

from .window_states import ArrayWindow, ListWindow

READ_BLOCKS = 16
"""So many blocks are read from the table at a time."""

LiveWindow = ListWindow | ArrayWindow


class PackedWindow:
    """A window whose states are in the table only."""

    __slots__ = ("count", "out", "slots")

    def __init__(self, slots: list[int], count: int, out: int = 0) -> None:
        self.slots = slots
        self.count = count
        self.out = out


class KeptWindows:
    """The windows by their end. Indexed, it gives what is stored of a window, wherever its states are."""

    def __init__(self, empty: Callable[[], LiveWindow], table: Any, needed: Callable[[], Collection[int]]) -> None:
        """`empty` makes a window; `needed`: the windows that must stay in memory. Without a table, all do."""
        self.ends: list[int] = []
        """Of all windows, sorted."""
        self.live: dict[int, LiveWindow] = {}
        """The windows in memory; the one that has waited longest for rows comes first."""
        self.packed: dict[int, PackedWindow] = {}
        self.weight = 0
        """The bytes that windows take in memory."""
        self._weights: dict[int, int] = {}
        self._empty = empty
        self._needed = needed
        self._table = table
        self._held: Any = None
        if table is not None:
            table.caches_written = False
            self._held = table.keep((), self._give_back, lambda: self.weight, reads=False)

    def __len__(self) -> int:
        return len(self.ends)

    def __getitem__(self, end: int) -> LiveWindow | PackedWindow:
        return self.live[end] if end in self.live else self.packed[end]

    def __delitem__(self, end: int) -> None:
        self.packed.pop(end, None)
        if self.live.pop(end, None) is not None:
            self.weight -= self._weights.pop(end, 0)

    def keys(self) -> int:
        """How many keys have states, over all windows."""
        return sum(one.count for one in self.live.values()) + sum(one.count for one in self.packed.values())

    # ------------------------------------------------------------------------------------------------------------- windows

    def stored(self, end: int, slots: list[int], count: int) -> None:
        """The table holds a window with these blocks."""
        insort(self.ends, end)
        self.packed[end] = PackedWindow(slots, count)

    def get(self, end: int) -> LiveWindow | None:
        """The window with its states, which are loaded if they are not in memory; None if there is none."""
        window = self.live.get(end)
        if window is None and end in self.packed:
            window = self._loaded(end, self.packed.pop(end))
            self.put(end, window)
            self._weigh(end)
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

    def _loaded(self, end: int, packed: PackedWindow) -> LiveWindow:
        """Read a window from the table."""
        table, window = self._table, self._empty()
        for start in range(0, len(packed.slots), READ_BLOCKS):
            rows = table.newest([table.key_bytes(slot) for slot in packed.slots[start : start + READ_BLOCKS]])
            for row in rows:
                _, _, keys, states = table.read(row)
                if isinstance(window, ArrayWindow) and not window.load(keys, states):
                    window = window.in_lists()
                if isinstance(window, ListWindow):
                    window.load(keys, states, len(row))
        window.slots, window.out = packed.slots, packed.out
        return window

    # -------------------------------------------------------------------------------------------------------------- memory

    def used(self, ends: Collection[int]) -> None:
        """Rows came for these windows: count what they take now, which may pack others."""
        if self._held is None:
            return
        for end in ends:
            if end in self.live:
                self.live[end] = self.live.pop(end)
        self.weigh(ends)

    def weigh(self, ends: Collection[int]) -> None:
        """Count what these windows take now, which may pack others."""
        for end in ends:
            if end in self.live:
                self._weigh(end)
        self._held.count()

    def _weigh(self, end: int) -> None:
        weight = self.live[end].weight
        self.weight += weight - self._weights.get(end, 0)
        self._weights[end] = weight

    def _give_back(self) -> None:
        """Pack windows, until half of what could be packed is."""
        needed = self._needed()
        able = [end for end, one in self.live.items() if end not in needed and not one.out]
        left = sum(self._weights.get(end, 0) for end in able) // 2
        for end in able:
            window = self.live.pop(end)
            self.packed[end] = PackedWindow(window.slots, window.count)
            weight = self._weights.pop(end, 0)
            self.weight -= weight
            left -= weight
            if left < 0:
                break
        self._held.count()
