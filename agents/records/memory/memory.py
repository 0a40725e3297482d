"""Memory for large pieces of bytes that come and go, such as the answers of brokers.

What it decides: which memory is used again. An operating system hands out memory page by page, at the first access of each; for a megabyte
that costs as much as copying it several times. So memory that no one sees any more is kept for the next caller.

Promises:

- What `fresh` returns overlaps nothing that anybody can still see: memory is used again only after the last view of it is gone, also of
  those that were made from other views.
- At most 4 MiB that no one uses are kept in a process. Without the compiled part (`memory.c`), nothing is kept.
- Its content is arbitrary: whoever asks for it fills it.
"""

from __future__ import annotations

from ..native import chosen


def fresh(size: int) -> memoryview:
    """A writable view of so many bytes.

    >>> len(fresh(5)), fresh(5).readonly
    (5, False)
    """
    return chosen.part.fresh(size)
