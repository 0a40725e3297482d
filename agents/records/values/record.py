"""A record as user code sees it, if it needs more than the value: a function that is declared with `with_record=True`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
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
