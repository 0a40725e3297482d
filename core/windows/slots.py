"""The slots under which a task stores its open windows: small numbers, each used again when its window has closed.

The task log is compacted by key, and a deleted key leaves a tombstone that Kafka keeps for days. If the key of a stored block named its
window, the log would fill up with tombstones of windows that have long been closed. A slot says nothing: the window is in the value,
and the next window that opens overwrites it.

Promises:

- A slot is free when the letter that gave it back is complete. So what overwrites it is in the transaction of the close, or a later one.
- The lowest free slot is taken first, so there are never more slots than were in use at once.
- Which slots are in use follows from the stored rows alone.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from heapq import heappop, heappush

_KEY = struct.Struct(">Q")

SlotKey = int | str
"""A row of a window's table is identified by its slot; rows that hold no window (the floor, the progress of a closing) by their names."""


def pack_slot(key: SlotKey) -> bytes:
    """The bytes of a row's key. Names are shorter than slots.

    >>> pack_slot(258).hex(), pack_slot("floor")
    ('0000000000000102', b'floor')
    """
    return key.encode() if isinstance(key, str) else _KEY.pack(key)


def unpack_slot(data: bytes) -> SlotKey:
    """The row's key from its bytes.

    >>> unpack_slot(pack_slot(258)), unpack_slot(b"floor")
    (258, 'floor')
    """
    if not holds_window(data):
        return data.decode()
    (slot,) = _KEY.unpack(data)
    return slot


def holds_window(key: bytes) -> bool:
    """Whether a row of a window's table holds a window, or a part of one.

    >>> holds_window(pack_slot(0)), holds_window(b"closing")
    (True, False)
    """
    return len(key) == _KEY.size


class Slots:
    """The slots of one table."""

    def __init__(self, used: Iterable[int] = ()) -> None:
        known = set(used)
        self._next = max(known, default=-1) + 1
        self._free = [slot for slot in range(self._next) if slot not in known]
        """A heap."""
        self._taken: list[int] = []
        """What the running letter has taken."""
        self._given: list[int] = []
        """What the running letter has given back."""

    def take(self) -> int:
        """Take the lowest free slot.

        >>> slots = Slots([0, 3])
        >>> slots.take(), slots.take(), slots.take()
        (1, 2, 4)
        """
        if self._free:
            slot = heappop(self._free)
        else:
            slot, self._next = self._next, self._next + 1
        self._taken.append(slot)
        return slot

    def give(self, slots: Iterable[int]) -> None:
        """Give back slots whose rows the running letter deletes. They are free when it is complete."""
        self._given += slots

    def complete(self) -> None:
        """The letter is complete."""
        for slot in self._given:
            heappush(self._free, slot)
        self._taken, self._given = [], []

    def drop(self) -> None:
        """The letter failed."""
        for slot in self._taken:
            heappush(self._free, slot)
        self._taken, self._given = [], []
