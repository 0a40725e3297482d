"""The index by which a join finds its rows: the compiled one (`matching.c`), or the plain one of `core.windows.matching`.

What it decides: nothing. Promise: both find the same rows.
"""

from __future__ import annotations

from collections.abc import Sequence

from ....core.windows.matching import PLAIN, Matches, Matching, SearchedSlice
from ..native import compiled_part


def matching() -> Matching:
    """How the rows of a join are indexed and found.

    A row that is not packed is two `bytes` in two lists. Packed or not, the index takes up to 20 bytes for it, its time and its flag nine.
    """
    compiled = compiled_part.compiled
    if compiled is None:
        return PLAIN

    def find(
        parts: Sequence[SearchedSlice], keys: Sequence[bytes], times: Sequence[int], back: int, ahead: int
    ) -> Matches:
        return Matches(*compiled.find_pairs(parts, keys, times, back, ahead))

    return Matching(compiled.RowIndex, find, row_bytes=80, packed_bytes=29)
