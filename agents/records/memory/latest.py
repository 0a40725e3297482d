"""The last record of each key, in the order of the keys.

What it decides: nothing. Promises: the compiled part (`latest.c`) and Python give the same. Keys are ordered by their bytes. The compiled
part makes no object for a record.
"""

from __future__ import annotations

from ..layout import Buffer
from ..native import chosen
from .record_spans import RecordSpans


def latest_rows(keys: RecordSpans) -> Buffer:
    """The indexes of these records. A null key counts as an empty one. Raises `ValueError` for a key that lies outside of the buffer.

    >>> array("q", latest_rows(RecordSpans(b"bab", array("q", [0, 1, 2, 0]), array("q", [1, 1, 1, -1])))).tolist()
    [3, 1, 2]
    """
    return chosen.part.latest(*keys)
