"""MetadataStore: get, put, remove and all, by namespace: the small interface under config, locality, assignments and requests.

Two implementations. The one in memory is for tests and for whoever needs no more. The one over the coordinator stream reads what was
folded and turns `put` and `remove` into messages to write: it is pure, so whoever holds it decides in which transaction they go.

Promises:

- a key that was put is found, until it is removed; `all` is a snapshot that later changes do not reach;
- namespaces do not see each other;
- the coordinator stream never lets anybody remove what the law of keys does not let the leader delete.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Protocol

from ..errors import DataError
from .messages import FOR_EVER, KEYS, Delete, Message, Write, key_of
from .state import JobState

NAMESPACES = frozenset(kind for kind, _ in KEYS.values())
"""The namespaces of the coordinator stream: its message types."""
REMOVABLE = NAMESPACES - FOR_EVER
"""The namespaces in which the leader may delete: overrides that were unset, and what is answered, superseded, fenced or gone."""


class MetadataStore(Protocol):
    """Small values by namespace and key."""

    def get(self, namespace: str, key: str) -> Any | None:
        """The value, or None."""
        ...

    def put(self, namespace: str, key: str, value: Any) -> None:
        """Keep this value; it replaces what stood there."""
        ...

    def remove(self, namespace: str, key: str) -> None:
        """Forget the key; no matter if it was never there."""
        ...

    def all(self, namespace: str) -> Mapping[str, Any]:
        """Every key of the namespace with its value, as it is now."""
        ...


class MemoryStore:
    """A `MetadataStore` in memory.

    >>> store = MemoryStore(); store.put("locality", "Partition 3", "rack-1"); store.get("locality", "Partition 3")
    'rack-1'
    """

    def __init__(self) -> None:
        self._spaces: dict[str, dict[str, Any]] = {}

    def get(self, namespace: str, key: str) -> Any | None:
        return self._spaces.get(namespace, {}).get(key)

    def put(self, namespace: str, key: str, value: Any) -> None:
        self._spaces.setdefault(namespace, {})[key] = value

    def remove(self, namespace: str, key: str) -> None:
        self._spaces.get(namespace, {}).pop(key, None)

    def all(self, namespace: str) -> Mapping[str, Any]:
        return MappingProxyType(dict(self._spaces.get(namespace, {})))


class StreamStore:
    """A `MetadataStore` over the coordinator stream: reads the folded state, and hands what must be written to `write`.

    Namespaces are message types, values are messages, and a key of several parts is written `first/second`. What was put is
    found once it has been read back from the stream, not before: only then is it true.
    """

    def __init__(self, state: JobState, write: Callable[[Write], None]) -> None:
        self._state = state
        self._write = write

    def get(self, namespace: str, key: str) -> Message | None:
        return self.all(namespace).get(key)

    def put(self, namespace: str, key: str, value: Message) -> None:
        kind, parts = key_of(value)
        self._known(namespace)
        if kind != namespace or _spelled(parts) != key:
            raise DataError(
                f"'{namespace}/{key}' cannot hold a message whose key is '{kind}/{_spelled(parts)}'",
                remedy="put a message under its own type and key",
            )
        self._write(value)

    def remove(self, namespace: str, key: str) -> None:
        self._known(namespace)
        if namespace not in REMOVABLE:
            raise DataError(f"'{namespace}/{key}' stands for ever", remedy="only replace it")
        for parts in list(self._state.messages[namespace]):
            if _spelled(parts) == key:
                self._write(Delete((namespace, parts)))

    def all(self, namespace: str) -> Mapping[str, Message]:
        self._known(namespace)
        return MappingProxyType({_spelled(parts): m for parts, m in self._state.messages[namespace].items()})

    def _known(self, namespace: str) -> None:
        if namespace not in NAMESPACES:
            raise DataError(
                f"the coordinator stream has no namespace '{namespace}'",
                remedy=f"one of {', '.join(sorted(NAMESPACES))}",
            )


def _spelled(parts: tuple[str | int, ...]) -> str:
    return "/".join(map(str, parts))
