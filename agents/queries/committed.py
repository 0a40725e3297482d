"""What is committed of a task's table, for others: read from its store, never from what waits for a commit.

    part.read(keys) -> values in JSON, None for a key without a row; part.at() says of which commit

Promises:

- A value that a crash could take back is never given: the store has only what a commit has made durable. `at()` of the same turn of the
  loop names that commit by the task log's position behind it.
- A row that has expired, or that was written under an earlier schema, is read as the task would read it.
- A standby's copy (`standby=True`) is of a position of the log up to which it was read. That may be in the middle of a commit.
- The age is how long ago the store was last known to stand at the end of its task's log, by this worker's clock: when its last commit was
  applied, or, if none is under way, when the coordinator stream last said nothing of another owner, who alone could have committed since.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, cast

import msgspec
import orjson

from ..state.store import Store, StoreMeta
from ..state.table import Table
from .json_keys import after_prefix
from .queryable import Queryable

_UNREAD: Any = object()
TOGETHER = 100
"""How many rows of a page are read at once."""


@dataclass(frozen=True, slots=True)
class CommitMark:
    """The commit that an answer is of."""

    task: str
    position: int | None
    """The task log's position behind its last commit; None before the first."""
    age_ms: int
    standby: bool = False
    """Whether it is of a copy that follows the log."""


def age_ms(meta: StoreMeta, owned_ms: int | None, now_ms: int) -> int:
    """How long ago a store was last known to stand at the end of its log."""
    return max(0, now_ms - max(meta.followed_until_ms or 0, owned_ms or 0))


class CommittedPart:
    """One task's part of a table."""

    def __init__(
        self,
        task: str,
        store: Store,
        table: Table[Any, Any],
        asked: Queryable,
        owned_ms: int | None = None,
        *,
        standby: bool = False,
    ) -> None:
        """`owned_ms`: until when this worker alone could have committed; None while a commit is under way, and of a standby's copy."""
        self.task = task
        self.standby = standby
        self._owned_ms = owned_ms
        self._store = store
        self._table = table
        self._asked = asked

    def at(self, now_ms: int) -> CommitMark:
        """The commit of what is read now."""
        meta = self._store.meta
        return CommitMark(self.task, meta.position, age_ms(meta, self._owned_ms, now_ms), self.standby)

    def read(self, keys: Sequence[bytes]) -> list[Any]:
        """The values of encoded keys, for `written`; None for a key without a row."""
        at_hand = self._table.at_hand
        if at_hand is None or self._asked.finish is None:
            return self._stored(keys)
        places, results = at_hand(list(keys))
        fragment = orjson.Fragment
        if len(places) == len(keys):
            return list(map(fragment, results))
        found: list[Any] = [_UNREAD] * len(keys)
        for place, result in zip(places, results, strict=True):
            found[place] = fragment(result)
        rest = iter(self._stored([key for key, one in zip(keys, found, strict=True) if one is _UNREAD]))
        return [next(rest) if one is _UNREAD else one for one in found]

    def _stored(self, keys: Sequence[bytes]) -> list[Any]:
        return self._values(self._store.get_many(self._asked.name, keys))

    def one(self, key: bytes) -> bytes | None:
        """The value of one encoded key in JSON; None without a row."""
        data = self._store.get(self._asked.name, key)
        if data is None:
            return None
        head = self._table.head
        if self._asked.spliced and data.startswith(head):
            return data[len(head) :]
        value = self._read(data)
        return None if value is None else written(value)

    def value(self, key: bytes) -> Any:
        """The value of one encoded key as the job's functions get it; None without a row."""
        data = self._store.get(self._asked.name, key)
        return None if data is None else self._read(data)

    def _read(self, data: bytes) -> Any:
        value, finish = self._table.read(data), self._asked.finish
        return value if value is None or finish is None else finish([value])[0]

    def rows(self, prefix: bytes, after: bytes | None) -> Iterator[tuple[bytes, Any]]:
        """The rows whose keys begin so, behind a key, in the order of the bytes of keys; as of the moment in which the first is taken."""
        low = prefix if after is None else max(prefix, after + b"\x00")
        stored = self._store.range(self._asked.name, low or None, after_prefix(prefix))
        while some := list(islice(stored, TOGETHER)):
            for (key, _), value in zip(some, self._values([data for _, data in some]), strict=True):
                if value is not None:
                    yield key, value

    def _values(self, raw: Sequence[bytes | None]) -> list[Any]:
        head, size = self._table.head, len(self._table.head)
        if self._asked.spliced:
            fragment, read = orjson.Fragment, self._table.read
            return [
                None if data is None else fragment(data[size:]) if data.startswith(head) else read(data) for data in raw
            ]
        at = [n for n, data in enumerate(raw) if data is not None]
        there = [data for data in raw if data is not None]
        if all(data.startswith(head) for data in there):
            found = self._asked.value.loads_many([data[size:] for data in there])
            if found.bad:
                raise found.bad[0][1]
            values = found.values
        else:
            read = self._table.read
            values = [read(data) for data in there]
        return self._finished(len(raw), at, values)

    def _finished(self, size: int, at: list[int], values: list[Any]) -> list[Any]:
        """The values at their places, finished; those that have expired are none."""
        finish = self._asked.finish
        if finish is not None and values:
            values = finish(values)  # nothing of an aggregate expires
        if len(at) == size:
            return values
        found: list[Any] = [None] * size
        for place, value in zip(at, values, strict=True):
            found[place] = value
        return found


class CopiedPart(CommittedPart):
    """A worker's copy of a table. Its age is how long ago it was last known to have read its topic to the end."""

    def __init__(
        self, task: str, store: Store, table: Table[Any, Any], asked: Queryable, copy_age_ms: int | None
    ) -> None:
        """`task`: one that reads the copy there. `copy_age_ms`: None if it has not read up yet."""
        super().__init__(task, store, table, asked)
        self._copy_age_ms = copy_age_ms

    def at(self, now_ms: int) -> CommitMark:
        """See `CommittedPart`. No commit of a task is behind it."""
        return CommitMark(self.task, None, now_ms if self._copy_age_ms is None else self._copy_age_ms)


def written(document: Any) -> bytes:
    """A document in JSON: bytes are `{"bytes": "01ff"}`, structs and dataclasses their fields, and what JSON has no form for is its text.

    >>> written({"at": b"\\x01", "n": 2**70})
    b'{"at":{"bytes":"01"},"n":1180591620717411303424}'
    """
    try:
        return orjson.dumps(document)
    except TypeError:  # nearly no document has what JSON has no form for, and to ask for it costs each
        pass
    try:
        return orjson.dumps(document, default=_part, option=orjson.OPT_NON_STR_KEYS)
    except TypeError:  # a number of more than 64 bits
        return orjson.dumps(_spelled(document), default=_part, option=orjson.OPT_NON_STR_KEYS)


def _part(value: Any) -> Any:
    if isinstance(value, bytes | bytearray | memoryview):
        return {"bytes": bytes(value).hex()}
    if isinstance(value, msgspec.Struct):
        return msgspec.to_builtins(value, builtin_types=(bytes,), enc_hook=str)
    if isinstance(value, set | frozenset | tuple):
        return list(cast("Iterable[Any]", value))
    if hasattr(value, "to_pylist"):  # an Arrow table
        return value.to_pylist()
    return str(value)


def _spelled(value: Any) -> Any:
    """The same with the digits of whole numbers that orjson refuses."""
    if type(value) is int:
        return value if -(1 << 63) <= value < 1 << 64 else orjson.Fragment(str(value))
    if isinstance(value, msgspec.Struct):
        value = _part(value)
    if isinstance(value, dict):
        fields = cast("dict[Any, Any]", value)
        return {name: _spelled(one) for name, one in fields.items()}
    if isinstance(value, list | tuple):
        return [_spelled(one) for one in cast("Iterable[Any]", value)]
    return value
