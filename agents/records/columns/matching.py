"""The index by which a join finds its rows: that of the compiled part (`matching.c`), or its twin (`core.windows.matching`).

What it decides: nothing. Promise: both find the same rows.
"""

from __future__ import annotations

from collections.abc import Sequence

from ....core.windows.matching import Matches, Matching, SearchedSlice
from ..native import chosen


def matching() -> Matching:
    """How the rows of a join are indexed and found.

    A row that is not packed is two `bytes` in two lists. Packed or not, the index takes up to 20 bytes for it, its time and its flag nine.
    """
    find_pairs = chosen.part.find_pairs

    def find(
        parts: Sequence[SearchedSlice], keys: Sequence[bytes], times: Sequence[int], back: int, ahead: int
    ) -> Matches:
        return Matches(*find_pairs(parts, keys, times, back, ahead))

    return Matching(chosen.part.RowIndex, find, row_bytes=chosen.part.ROW_BYTES, packed_bytes=chosen.part.PACKED_BYTES)
