"""A copy as a task sees it: a table that can be read, and that nothing of the task changes.

Promises: within a letter, a key that was read keeps its value; the next letter reads what the copy has by then. Rows that have not changed
stay decoded, as those of a task's own tables do. A write is refused, with the topic to write to instead. A copy that is built anew closes
its store first: from then on a read raises, and never finds half a table.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from itertools import chain
from typing import Any, NoReturn, TypeVar

from ....core.errors import DataError
from ...records.memory.record_spans import RecordSpans
from ...state.table import Table

K = TypeVar("K")
V = TypeVar("V")


class CopyTable(Table[K, V]):
    """See above. `topic`: what the copy follows."""

    topic = ""

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self._stale: set[bytes] = set()
        """Keys that the running letter has read, and that have changed since."""

    def changed_in_copy(self, keys: Collection[bytes]) -> None:
        """The copy has other rows of these keys now. What the running letter has read of them stays what it was until it ends."""
        known = self._live.keys() & keys
        if known and self._read:
            held = known.intersection(chain.from_iterable(self._read))
            self._stale |= held
            known -= held
        if known:
            self._forget(list(known))

    def complete(self) -> None:
        """See `Table`."""
        super().complete()
        self._look_anew()

    def drop(self) -> None:
        """See `Table`."""
        super().drop()
        self._look_anew()

    def _look_anew(self) -> None:
        if self._stale:
            stale, self._stale = self._stale, set()
            self._forget(list(stale))

    def _refuse(self) -> NoReturn:
        raise DataError(
            f"table {self.name}: it is a copy of the topic '{self.topic}', which nothing but the topic changes",
            remedy=f"write to the topic: .to('{self.topic}') in a job that does not follow it, or take a table of its own: app.table(…)",
        )

    def __setitem__(self, key: K, value: V) -> None:
        self._refuse()

    def put(self, changes: Mapping[bytes, V]) -> None:
        """See `Table`. Refused."""
        self._refuse()

    def put_packed(self, keys: RecordSpans, logged: RecordSpans, rows: RecordSpans) -> None:
        """See `Table`. Refused."""
        self._refuse()

    def put_encoded(self, changes: Mapping[bytes, bytes]) -> None:
        """See `Table`. Refused."""
        self._refuse()

    def remove(self, keys: Iterable[bytes]) -> None:
        """See `Table`. Refused."""
        self._refuse()


def view_of(name: str, topic: str, store: Any, **bound: Any) -> CopyTable[Any, Any]:
    """A view of the copy that lies in this store."""
    made: CopyTable[Any, Any] = CopyTable(name, store, **bound)
    made.topic = topic
    return made
