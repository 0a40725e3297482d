"""A record as user code sees it if it needs more than the value, and the rows that operators pass on.

Operators never handle one record at a time: `Rows` are parallel columns, and a `Record` is made only if a function asks for one with
`with_record=True`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import compress
from typing import Any, Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")
SAME_TIME = -1
"""The timestamp of a record of which its maker has said none, as in Kafka's clients."""

Headers = Sequence[tuple[str, bytes | None]]


@dataclass(frozen=True, slots=True)
class Record(Generic[K, V]):
    """One record: `key`, `value`, `timestamp` (ms since the epoch) and `headers`.

    A function with `with_record=True` gets one, and may return one to set the key, the timestamp or the headers. One that is made without a
    timestamp gets that of the record that the function was called with, or, from an agent, the latest of its batch:

    >>> Record("DE", {"n": 1}, 1000).with_value({"n": 2}).value
    {'n': 2}
    """

    key: K
    value: V
    timestamp: int = SAME_TIME
    headers: Headers = ()

    def with_value(self, value: Any) -> Record[K, Any]:
        """The same record with another value."""
        return Record(self.key, value, self.timestamp, self.headers)


class PickedPlaces(Sequence[int]):
    """Those of some integers for which `keep` is true. They are picked when somebody asks for one: hardly ever, for these are places."""

    def __init__(self, of: Sequence[int], keep: Sequence[Any]) -> None:
        self._of, self._keep = of, keep

    @cached_property
    def _picked(self) -> list[int]:
        return list(compress(self._of, self._keep))

    def __len__(self) -> int:
        return len(self._picked)

    def __getitem__(self, at: Any) -> Any:
        return self._picked[at]


@dataclass(slots=True)
class Rows:
    """Columns of equal length. `keys` or `headers` of None mean that no row has any.

    `offsets`: for each row the offset of the record that it was made from, kept only if a later step needs it; None if a step has made
    rows from several records. `plan`: the digest of the aggregate plan whose partial states the values are; None for rows.

    `window`: the fields that name the window, if these are all of its rows for one key.

    `key_serde`: if set, the keys are bytes encoded by this serde and not decoded yet; otherwise they are keys as user code sees them.

    `places`: for each row the index, in the letter's chunk, of the record that it was made of; None if other records may have had a part in
    it. So a step that fails on some rows can name all records that fail, whatever the others are.
    """

    values: list[Any]
    timestamps: list[int]
    keys: list[Any] | None = None
    headers: list[Headers] | None = None
    offsets: Sequence[int] | None = None
    plan: int | None = None
    key_serde: Any = None
    window: Mapping[str, Any] | None = None
    places: Sequence[int] | None = None

    def __len__(self) -> int:
        return len(self.values)

    @property
    def record_of(self) -> Callable[[int], int] | None:
        """The index, in the letter's chunk, of the record that a row was made of; None if that is not known."""
        return None if self.places is None else self.places.__getitem__

    def records(self) -> Iterator[Record[Any, Any]]:
        """The rows one by one, for functions that want records."""
        keys = self.key_values() or [None] * len(self.values)
        headers = self.headers or [()] * len(self.values)
        return map(Record, keys, self.values, self.timestamps, headers)

    def kept(self, keep: Sequence[Any]) -> Rows:
        """The rows for which `keep` is true."""
        return Rows(
            list(compress(self.values, keep)),
            list(compress(self.timestamps, keep)),
            list(compress(self.keys, keep)) if self.keys is not None else None,
            list(compress(self.headers, keep)) if self.headers is not None else None,
            list(compress(self.offsets, keep)) if self.offsets is not None else None,
            key_serde=self.key_serde,
            places=PickedPlaces(self.places, keep) if self.places is not None else None,
        )

    @classmethod
    def of(cls, records: Sequence[Record[Any, Any]]) -> Rows:
        """Columns from records."""
        return cls(
            [r.value for r in records],
            [r.timestamp for r in records],
            [r.key for r in records] if any(r.key is not None for r in records) else None,
            [r.headers or () for r in records] if any(r.headers for r in records) else None,
        )

    def key_values(self) -> list[Any] | None:
        """The keys as user code sees them."""
        if self.keys is None or self.key_serde is None:
            return self.keys
        found = self.key_serde.loads_many(self.keys)
        if found.bad:
            raise found.bad[0][1]
        return found.values

    def with_values(self, values: list[Any]) -> Rows:
        """The same rows with other values."""
        return Rows(
            values,
            self.timestamps,
            self.keys,
            self.headers,
            self.offsets,
            key_serde=self.key_serde,
            places=self.places,
        )


@dataclass(slots=True)
class Batch(Generic[K, V]):
    """What an actor receives: a run of records of one partition. Iterating yields `Record`s; `values` is the plain column."""

    stream: str
    partition: int
    rows: Rows
    offsets: Sequence[int] = ()
    meta: Mapping[str, Any] = field(default_factory=dict[str, Any])

    @property
    def values(self) -> list[V]:
        """The values alone, without a `Record` around each."""
        return self.rows.values

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[Record[K, V]]:
        return self.rows.records()
