"""What a benchmark of this harness says of its events: how they are made, and how they are written.

What it decides: an event is a named tuple with a `dateTime`, its event time in ms. Its kind is its class, and the records of a kind are
in a topic of that name.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Any, Protocol

Kind = type[Any]


class Source(Protocol):
    """What makes the events of a seed, always the same ones."""

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """All kinds."""
        ...

    @property
    def tables(self) -> tuple[Kind, ...]:
        """Those whose topics are tables: all of their rows are there before a program starts, and none comes later."""
        ...

    @property
    def value_format(self) -> str:
        """What the values of its records are, as Flink calls it."""
        ...

    @property
    def declarations(self) -> str:
        """The file with the tables that all of its queries share in Flink; empty if each query declares its own."""
        ...

    def events(self, count: int, kinds: Collection[Kind]) -> Iterator[tuple[int, Any]]:
        """The first `count` events with their numbers, without those of other kinds. Rows of tables come first, with negative numbers."""
        ...

    def tail(self, count: int, partitions: int) -> list[Any]:
        """What follows the first `count` events and lets a program give its last results."""
        ...

    def record(self, event: Any) -> tuple[bytes | None, bytes]:
        """An event as the key and the value of a record."""
        ...

    def side(self) -> Iterable[tuple[str, str]]:
        """The keys and values of the file in which queries look something up."""
        ...


def topic_of(kind: Kind) -> str:
    """The name of a kind, which is the end of its topic's name."""
    return kind.__name__.lower()
