"""How far the partitions of a worker are read ahead, all together.

Each task has a consumer of its own, and each partition may be read ahead by `buffer.bytes`. What 64 tasks read ahead is not worth 64 times
as much memory: the loop works on one letter at a time, and needs only so much that each task has some records when its turn comes.

What it decides: whether a partition may be fetched now. Promises:

- A partition that holds something is read further only while all partitions of the worker hold less than `SHARED` times `buffer.bytes`,
  together with the chunks that were taken and with what may be fetched for them.
- A partition that holds nothing may always be fetched, once. So no task waits for another one, and a task that is stuck takes nothing from
  the others but the share that they would read ahead.
- With `SHARED` partitions or fewer, each is read ahead as if it were alone.
"""

from __future__ import annotations

SHARED = 4
"""As many partitions may be read ahead in full."""
FEW, SMALLER = 8, 512 << 10
"""Of more partitions than these, each has smaller fetches: one of each may be in memory."""


class ReadAhead:
    """What all partitions of a worker hold."""

    def __init__(self) -> None:
        self.held = 0
        """The bytes that are in memory, and those that may come for partitions of which more is known to be there."""
        self.partitions = 0
        """How many partitions are read."""

    def fetch_bytes(self, most: int) -> int:
        """How many bytes a fetch of a task that begins to read now asks for, at most `most`."""
        return most if self.partitions <= FEW else min(most, SMALLER)

    def change(self, size: int) -> None:
        """They hold so many bytes more now, or fewer."""
        self.held += size

    def more(self, size: int, *, own: int, each: int) -> bool:
        """Whether a partition that holds `own` bytes may hold `size` more, if each may hold `each`.

        >>> ahead = ReadAhead()
        >>> ahead.change(SHARED * 100)
        >>> ahead.more(1, own=1, each=100), ahead.more(1, own=0, each=100)
        (False, True)
        """
        return not own or self.held + size <= SHARED * each
