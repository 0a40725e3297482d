"""Shows the rows of a task's tables to people, from a live store or from a replay of the task log.

With the job's declaration, keys and values are decoded with the table's serdes. Without it (a command knows only the job's name), bytes are
shown as msgpack, JSON or text, whichever is most probable, and otherwise as hex. Expired rows are not shown.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from itertools import islice
from typing import Any, cast

import msgpack
import orjson

from ...core.errors import DataError, HeadgateError
from ...core.graph.schema import JOIN, SCHEMA_TABLE, WINDOW, History, unpack_history
from ...core.settings import offer
from ...core.task.stored.checkpoint import CONTROL_TABLE, parse_log_value
from ...core.windows.slots import holds_window
from ..job.derive.declaration import Declared
from ..job.types.parking import ParkedRow
from ..job.types.schemas import CLOSED, PARKED, STATES
from ..records.values import keys
from .expiry_index import TTL_TABLE
from .join_rows import alone_of, kept_rows, others
from .store import Store
from .window_rows import WindowFormat

DecodedRow = tuple[Any, Any]
CHECKPOINT = "__checkpoint"
"""The task's checkpoint, shown as a table with one row."""


OWN = (CHECKPOINT, CLOSED, PARKED, CONTROL_TABLE, SCHEMA_TABLE)
UNOWNED = "unowned"
"""The kind of a table with rows that the code no longer declares."""


def kind_of(table: str) -> str:
    """The kind of a table: `control` for headgate's own, otherwise `user`."""
    return "control" if table in OWN else "user"


class NoSuchTable(HeadgateError):
    """The job has no table with this name."""


class RowDecoder:
    """Decodes the rows of one task's store."""

    def __init__(self, store: Store, declared: Declared | None = None) -> None:
        self.store = store
        self._histories: dict[str, History | None] = {}
        self.serdes = {} if declared is None else {spec.name: (spec.key, spec.value) for spec in declared.every_table()}
        self.keys_in_blocks = (
            {}
            if declared is None
            else {spec.name: spec.keys for spec in declared.every_table() if spec.keys is not None}
        )
        """By table of a window or join, the serde of its keys."""

    @staticmethod
    def names(declared: Declared) -> list[tuple[str, str]]:
        """Every table of the job with its kind: `user`, or `control` for headgate's own."""
        return [(name, kind_of(name)) for name in (*sorted(spec.name for spec in declared.every_table()), *OWN)]

    @staticmethod
    def known(declared: Declared, table: str, unowned: Iterable[str] = ()) -> None:
        """Raise `NoSuchTable` for a name that the job does not have."""
        names = [*(name for name, _ in RowDecoder.names(declared)), *unowned]
        if table not in names:
            raise NoSuchTable(f"there is no table '{table}'", remedy=offer(table, names))

    def stored(self) -> list[str]:
        """The tables that were ever written to."""
        return [name for name in self.store.tables() if not name.startswith(TTL_TABLE)]

    def key_bytes(self, table: str, key: str) -> list[bytes]:
        """The possible bytes of a key that a person typed: encoded by the table's serde, as a number or as text."""
        found: dict[bytes, None] = {}
        values = keys.named(key)
        with contextlib.suppress(orjson.JSONDecodeError):
            values.append(orjson.loads(key))
        for value in values:
            for dump in (*self._key_serdes(table), keys.encode, _pack):
                with contextlib.suppress(DataError, TypeError, ValueError):
                    found[dump(value)] = None
        return list(found)

    def _key_serdes(self, table: str) -> list[Callable[[Any], bytes]]:
        if table in self.keys_in_blocks:
            return [self.keys_in_blocks[table].dumps]
        return [self.serdes[table][0].dumps] if table in self.serdes else []

    def decode(self, table: str, key: bytes, data: bytes, now_ms: int) -> DecodedRow | None:
        """One decoded row; None if it has expired."""
        try:
            value, expires, schema = parse_log_value(data)
        except HeadgateError as error:
            return guess_key(key), {"unreadable": error.what, "bytes": data.hex()}
        if expires is not None and expires <= now_ms:
            return None
        if table == PARKED:
            return msgpack.unpackb(key), ParkedRow(*msgpack.unpackb(value)).shown
        if table in self.serdes:
            key_serde, value_serde = self.serdes[table]
            row = keys.shown(_tried(key_serde.loads, key, guess_key)), _tried(value_serde.loads, value, guess)
        else:
            row = guess_key(key), guess(value)
        return row[0], self._named(table, schema, row[1])

    def history(self, table: str) -> History | None:
        """The schemas of a table, if it has any."""
        if table not in self._histories:
            data = self.store.get(SCHEMA_TABLE, table.encode())
            self._histories[table] = None if data is None else unpack_history(table, parse_log_value(data).body)
        return self._histories[table]

    def windows(self, table: str) -> WindowFormat | None:
        """How the rows of a window's table are stored; None for any other table."""
        history = self.history(table)
        return None if history is None or not history.kind.startswith(WINDOW) else WindowFormat.of(history.kind)

    def join(self, table: str) -> str | None:
        """The kind of a join, by its table; None for any other table."""
        history = self.history(table)
        return None if history is None or not history.kind.startswith(JOIN) else history.kind

    def kept(self, table: str, kind: str, meant: Collection[bytes], most: int) -> Iterator[DecodedRow]:
        """The rows that a join keeps, by side, key and time."""
        alone = alone_of(kind)
        for row in kept_rows(lambda: self.store.range(table), meant, most):
            yield self._key_in_block(table, row.key), row.shown(alone, guess)

    def rows(self, table: str, key: bytes, data: bytes, now_ms: int, meant: Collection[bytes] = ()) -> list[DecodedRow]:
        """The decoded rows of a stored row. A row of a window's table gives one for each of its keys, or only for those in `meant`."""
        windows = self.windows(table)
        if windows is not None:
            with contextlib.suppress(HeadgateError):
                value, _, schema = parse_log_value(data)
                found = windows.read(value)
                if not found and not meant:
                    named: Any = msgpack.unpackb(value)
                    return [(guess_key(key), named)]
                return [
                    (
                        self._key_in_block(table, one.key),
                        one.window() | self._in_window(table, windows, schema, one.states),
                    )
                    for one in found
                    if not meant or one.key in meant
                ]
        row = self.decode(table, key, data, now_ms)
        return [] if row is None else [row]

    def _key_in_block(self, table: str, key: bytes) -> Any:
        serde = self.keys_in_blocks.get(table)
        return guess_key(key) if serde is None else keys.shown(_tried(serde.loads, key, guess_key))

    def _in_window(self, table: str, windows: WindowFormat, schema: int, states: Any) -> Any:
        """The states of a key in a window, or its rows."""
        if not windows.rows:
            return self._named(table, schema, states)
        return {"rows": list(map(shown_row, states))} if windows.sessions else shown_row(states)

    def _named(self, table: str, schema: int, value: Any) -> Any:
        """The states of an aggregate with their names, according to the schema under which they were written."""
        history = self.history(table)
        if history is None or schema > history.number or not isinstance(value, list):
            return value
        version, states = history.versions[schema], cast("list[Any]", value)
        if version.value != STATES or len(states) != len(version.fields):
            return value
        return {field.name: state for field, state in zip(version.fields, states, strict=True)}


def shown_row(entry: list[Any]) -> dict[str, Any]:
    """A row that a window keeps for an actor.

    >>> shown_row([7, b'{"n": 1}', None])
    {'timestamp': 7, 'value': {'n': 1}}
    """
    time, value, headers = entry
    found = {"timestamp": time, "value": None if value is None else guess(value)}
    return found if headers is None else found | {"headers": [[name, _plain(data)] for name, data in headers]}


def scan(reader: RowDecoder, table: str, key: str, most: int) -> Iterator[DecodedRow]:
    """The rows of one table, or of the keys that `key` may mean: "7" is a text or a number. For a window's table, the rows of
    all of its open windows; for a join's, all rows that it keeps.
    """
    now_ms = int(time.time() * 1000)
    store = reader.store
    if table == CHECKPOINT:
        found = store.meta.checkpoint
        if found is not None:
            yield "checkpoint", guess(found)
        return
    join = reader.join(table)
    if join is not None:
        if not key:
            for raw, data in others(store.range(table)):
                yield from reader.rows(table, raw, data, now_ms)
        yield from reader.kept(table, join, reader.key_bytes(table, key) if key else (), most)
        return
    if key and reader.windows(table) is None:
        for raw in reader.key_bytes(table, key):
            data = store.get(table, raw)
            if data is not None:
                yield from reader.rows(table, raw, data, now_ms)
        return
    yield from islice(_listed(reader, table, key, now_ms), most)


def _listed(reader: RowDecoder, table: str, key: str, now_ms: int) -> Iterator[DecodedRow]:
    """The rows in the order of the store; of a window's table in the order of its windows. Any row of it may hold the key; only rows that
    contain its bytes are decoded."""
    meant = reader.key_bytes(table, key) if key else []
    rows = reader.store.range(table)
    if meant:
        rows = ((raw, data) for raw, data in rows if any(one in data or raw.startswith(one) for one in meant))
    windows = reader.windows(table)
    if windows is not None:
        rows = _by_window(reader.store, table, windows, rows)
    for raw, data in rows:
        yield from reader.rows(table, raw, data, now_ms, meant)


def _by_window(
    store: Store, table: str, windows: WindowFormat, rows: Iterator[tuple[bytes, bytes]]
) -> Iterator[tuple[bytes, bytes]]:
    """Rows that hold no window or cannot be read, then the windows in their order: a slot says nothing about it. Only places and keys are
    held in memory."""
    places: list[tuple[Any, bytes]] = []
    for raw, data in rows:
        place = None
        if holds_window(raw):
            with contextlib.suppress(HeadgateError):  # whoever shows the row says that it cannot be read
                place = windows.place(parse_log_value(data).body)
        if place is None:
            yield raw, data
        else:
            places.append((place, raw))
    for _, raw in sorted(places):
        data = store.get(table, raw)
        if data is not None:
            yield raw, data


def _pack(value: Any) -> bytes:
    packed: Any = msgpack.packb(value)
    return packed


def _tried(load: Callable[[bytes], Any], data: bytes, otherwise: Callable[[bytes], Any]) -> Any:
    try:
        return load(data)
    except DataError:
        return otherwise(data)


def guess_key(data: bytes) -> Any:
    """The same of a key, as `keys.shown` has it: text is text, whatever it looks like.

    >>> guess_key(b"7"), guess_key(keys.encode(("DE", 7))), guess_key(b'{"id":1}')
    ('7', ['DE', 7], {'id': 1})
    """
    with contextlib.suppress(DataError):
        key = keys.decode(data)
        if not isinstance(key, str) or (key.isprintable() and key[:1] not in ("{", "[")):
            return keys.shown(key)
    return guess(data)


def guess(data: bytes) -> Any:
    """The most probable reading of bytes whose serde is not known.

    >>> guess(b'{"n": 1}'), guess(b"DE"), guess(msgpack.packb([1, "x"]))
    ({'n': 1}, 'DE', [1, 'x'])
    """
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:
        pass
    if data[:1] and data[0] >= 0x80:
        try:
            return _plain(msgpack.unpackb(data, strict_map_key=False))
        except (ValueError, TypeError, RecursionError, msgpack.UnpackException):
            pass
    try:
        text = data.decode()
        if text.isprintable():
            return text
    except UnicodeDecodeError:
        pass
    return data.hex()


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {(key if isinstance(key, str) else str(_plain(key))): _plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    if isinstance(value, bytes):
        return value.hex()
    return value if value is None or isinstance(value, str | int | float) else str(value)
