"""Rows of a table in columns: what a commit writes to the log and to the store without an object for each row.

What it decides: nothing. Promises: it is a mapping of keys to encoded values, as a dict of them is. None deletes; a commit packs no
deletions, a restore does. The dict is made only if a row is looked up while it is on its way into the store.
"""

from __future__ import annotations

from collections.abc import ItemsView, Iterator, Mapping, ValuesView
from functools import cached_property
from typing import Any

from ...core.task.stored.checkpoint import expiring_heads
from ..records.layout import longs
from ..records.memory.latest import latest_rows
from ..records.memory.record_spans import RecordSpans, marked, picked_spans, pieces


class PackedRows(Mapping[bytes, bytes | None]):
    """Rows of one table, each key once. `logged` are the keys as the task log has them, `keys` the same without their prefix. `ordered`:
    they come in the order of the keys."""

    def __init__(self, keys: RecordSpans, logged: RecordSpans, packed: RecordSpans, *, ordered: bool = False) -> None:
        self.spans, self.logged, self.packed = keys, logged, packed
        self._ordered = ordered

    def __len__(self) -> int:
        return len(longs(self.spans.lengths))

    def __getitem__(self, key: bytes) -> bytes | None:
        return self._rows[key]

    def __contains__(self, key: object) -> bool:
        return key in self._rows

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._rows)

    def items(self) -> ItemsView[bytes, bytes | None]:
        """The rows, made again for each caller."""
        found: Any = self.pairs()
        return found

    def may_expire(self) -> bool:
        """Whether any row has a time at which it expires."""
        return any(marked(self.packed, None, head) for head in expiring_heads(b""))

    def pairs(self) -> Iterator[tuple[bytes, bytes]]:
        """The rows, made again for each caller."""
        found: Any = zip(pieces(self.spans), pieces(self.packed), strict=True)
        return found

    def in_order(self) -> Iterator[tuple[bytes, bytes | None]]:
        """The rows in the order of their keys."""
        if self._ordered:
            return self.pairs()
        rows = latest_rows(self.spans)
        found: Any = zip(pieces(picked_spans(self.spans, rows)), pieces(picked_spans(self.packed, rows)), strict=True)
        return found

    def values(self) -> ValuesView[bytes | None]:
        """The values, made again for each caller."""
        found: Any = pieces(self.packed)
        return found

    def largest(self) -> int:
        """No row has more bytes, key and value together."""
        return sum(max(longs(one.lengths), default=0) for one in (self.spans, self.packed))

    def as_dict(self) -> Mapping[bytes, bytes | None]:
        """The same as a dict. It is made once."""
        return self._rows

    @cached_property
    def _rows(self) -> dict[bytes, bytes]:
        return dict(self.pairs())
