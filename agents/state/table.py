"""Tables of a task: mappings whose changes are atomic with the chunk, merged by key until the commit, and logged.

    t[k]   t[k] = v   del t[k]   k in t   t.get(k)   t.get_many(ks)   t.update({…})   t.range(a, b)

A change passes through four layers: the chunk (values), *dirty* (bytes of completed chunks, to be committed), *sealed* (in the running
transaction), and the store. A task always reads the newest one.

Promises:

- What tells keys apart is their bytes: `1`, `True` and `1.0` are not one key, as they would be in a dict.
- `drop()` undoes the chunk, even if user code modified a value in place that it had read.
- `complete()` applies to all tables of a task or to none: what cannot be encoded is found before anything is merged.
- Between two commits, each key is logged once. The expiry time is stored with the value. `expire` logs deletions; an expired value is
  invisible even before that.
- Decoded rows count against the memory that all tables of a worker share. Rows over the limit are read from the store again.
- A row that was written under an earlier schema is converted to the current one when read, and stored so when it changes.
- Outside of a task, a table raises an error.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, MutableMapping, Sequence, Sized
from dataclasses import dataclass
from itertools import chain, islice
from types import NoneType
from typing import Any, Generic, NamedTuple, Protocol, TypeVar, cast

from ...core.errors import DataError, RowRefused
from ...core.task.stored.checkpoint import expiring_heads, log_head, log_value, parse_log_value, table_prefix
from ..job.types.schemas import Layout
from ..records.memory.record_spans import RecordSpans
from ..records.values.keys import KeyRefused
from ..records.values.serdes import Serde, writes_utf8
from .cache_memory import CacheMemory, Held
from .expiry_index import ExpiryIndex, IndexRows
from .packed_rows import PackedRows
from .store import Store

K = TypeVar("K")
V = TypeVar("V")

KEY_ROOM = 256
EXPIRED_AT_ONCE = 4_000
"""The most keys handled between two letters. It exceeds the records of a chunk; otherwise expiry would fall behind."""


class Expired(NamedTuple):
    """The result of `expire`: keys deleted, keys looked at (0 if a commit must come first), and whether there is more to do."""

    gone: int
    seen: int
    more: bool


NOTHING_EXPIRED = Expired(0, 0, False)


@dataclass(frozen=True, slots=True)
class Aside:
    """What an unfinished chunk had changed and read in one table."""

    changed: dict[Any, Any]
    read: list[Any]


class AtHand(Protocol):
    """What a caller of a table keeps of its rows in its own form."""

    def __call__(self, keys: list[bytes]) -> tuple[Sequence[int], Sequence[bytes]]:
        """Of encoded keys the places of those whose newest state is the stored one, and what is made of these states, in JSON."""
        ...


class Table(MutableMapping[K, V], Generic[K, V]):
    """One table, bound to a task."""

    def __init__(
        self,
        name: str,
        store: Store,
        key: Serde[K],
        value: Serde[V],
        *,
        ttl_ms: int | None = None,
        clock: Callable[[], int] = lambda: 0,
        most_bytes: int | None = None,
        layout: Layout | None = None,
        memory: CacheMemory,
    ) -> None:
        """`layout`: the schemas of its values; without one, values are stored as they are."""
        self.name = name
        self.layout = layout
        self._schema = 0 if layout is None else layout.number
        self._head = b"\x00" if layout is None else layout.head
        self._swept: bytes = b""
        """No row before this key needs a migration function."""
        self.prefix = table_prefix(name)
        self._store = store
        self._key = key
        self._utf8 = writes_utf8(key)
        self._value = value
        self._ttl_ms = ttl_ms
        self._clock = clock
        self._memory = memory
        self.most_bytes = None if most_bytes is None else most_bytes - KEY_ROOM
        """The largest encoded value, provided that its key is short."""
        self._most_bytes = most_bytes
        self._live: dict[bytes, V | None] = {}
        """The decoded values that this chunk changed or read. None: known to be absent."""
        self._held = memory.hold(self._live, self._give_back)
        self._kept: Held | None = None
        self._kept_reads = True
        """Whether the rows that are read and written here are also in the caller's cache."""
        self.caches_written = True
        """Whether rows stay decoded once they are written. A caller that has its own copy of them saves the memory."""
        self._changed: dict[bytes, None] = {}
        self._read: list[Sequence[bytes]] = []
        self._ready: tuple[list[bytes], list[bytes | None]] | None = None
        self._arrived: PackedRows | None = None
        """Rows of the running letter that were encoded by whoever put them."""
        self._encoded: dict[bytes, bytes] = {}
        """The same, of `put_encoded`."""
        self.dirty: IndexRows = {}
        self.packed: PackedRows | None = None
        """As `dirty`; a key is in one of them, or newer in `dirty`."""
        self.sealed: deque[Mapping[bytes, bytes | None]] = deque()
        self.seals = 1
        """What is put now goes with the write of this number. 0: what the store had before."""
        self.at_hand: AtHand | None = None
        """How a caller that keeps rows in its own form answers for those whose values are in the store; None if it does not."""
        self.expiry = ExpiryIndex(name, store)

    # ---------------------------------------------------------------------------------------------------------- reading

    def __getitem__(self, key: K) -> V:
        found = self._find(key)
        if found is None:
            raise KeyError(key)
        return found

    def get(self, key: K, default: Any = None) -> Any:
        """The value of a key, or a default."""
        found = self._find(key)
        return default if found is None else found

    def __contains__(self, key: object) -> bool:
        return self._find(key) is not None  # pyright: ignore[reportArgumentType] - as with a dict, any object may be looked up

    def _find(self, key: K) -> V | None:
        raw = self.key_bytes(key)
        live = self._live
        if raw in live:
            found = live[raw]
        else:
            data = self._newest(raw)
            found = live[raw] = None if data is None else self._decode(data)
            self._weigh((raw,), (data,))
        self._read.append((raw,))
        return found

    def get_many(self, keys: Sequence[K]) -> list[V | None]:
        """The values of the keys, None for a missing one. Rows that are not cached are read from the store in one call."""
        return self.fetch(self._all_bytes(keys))

    def fetch(self, keys: Sequence[bytes]) -> list[V | None]:
        """Like `get_many`, with encoded keys."""
        live = self._live
        missing = [key for key in keys if key not in live]
        raw: list[bytes | None] = []
        if missing:
            raw = self._newest_many(missing)
            values = self._decode_many(raw)
            live.update(zip(missing, values, strict=True))
        self._read.append(keys)
        found = [live[key] for key in keys]
        if raw:
            self._weigh(missing, raw)
        return found

    def newest(self, keys: list[bytes]) -> list[bytes | None]:
        """The stored rows of encoded keys: what `head` begins, or another row that `read` decodes. The caller caches them, and puts them
        back with `put_packed` or `put`."""
        return self._newest_many(keys)

    @property
    def head(self) -> bytes:
        """The first bytes of rows as they are written now."""
        return self._head

    def read(self, data: bytes) -> V | None:
        """The value of a stored row; None if it has expired."""
        return self._decode(data)

    def encoded(self, values: list[V]) -> list[bytes]:
        """Values as they are stored, for `put_encoded`. Raises what `prepare` raises for them."""
        found = self._value.dumps_many(values)
        if found.bad:
            raise self._unstorable(found.bad[0][1])
        return [self._head + (one or b"") for one in found.values]

    def key_bytes(self, key: K) -> bytes:
        """The encoded key, which identifies it. Raises a `DataError` that names this table."""
        try:  # text is the common case, and needs no call of the serde
            return key.encode() if type(key) is str and self._utf8 else self._key.dumps(key)
        except (DataError, UnicodeEncodeError):
            try:
                return self._key.dumps(key)
            except DataError as error:
                raise self._refused("key", error) from error.__cause__

    def _all_bytes(self, keys: Iterable[K]) -> list[bytes]:
        encoded = self._key.dumps_many(list(keys))
        if encoded.bad:
            raise self._refused("key", encoded.bad[0][1])
        if None in encoded.values:
            self.key_bytes(cast("Any", None))  # a serde accepts it in a column, as a null
        return cast("list[bytes]", encoded.values)

    def _refused(self, part: str, error: DataError) -> DataError:
        """A serde's error with the table's name, and with the argument that changes the serde."""
        if isinstance(error, KeyRefused):
            return DataError(f"table {self.name}: the key {error.what}", remedy=error.remedy)
        remedy = f"a table of app.table() takes {part}=, one of a stream {'key_serde' if part == 'key' else 'serde'}="
        return DataError(f"table {self.name}: the {part} {error.what}", remedy=remedy)

    def _newest(self, key: bytes) -> bytes | None:
        for layer in self._layers():
            if key in layer:
                return layer[key]
        return self._store.get(self.name, key)

    def _layers(self) -> list[Mapping[bytes, bytes | None]]:
        """What is not in the store yet, the newest first."""
        return [one for one in (self._encoded, self.dirty, self.packed, *reversed(self.sealed)) if one]

    def _newest_many(self, keys: list[bytes]) -> list[bytes | None]:
        layers = [one.as_dict() if isinstance(one, PackedRows) else one for one in self._layers()]
        layers = [one for one in layers if not one.keys().isdisjoint(keys)]
        if not layers:
            return self._store.get_many(self.name, keys)
        out: list[bytes | None] = [None] * len(keys)
        asked: list[int] = []
        for index, key in enumerate(keys):
            for layer in layers:
                if key in layer:
                    out[index] = layer[key]
                    break
            else:
                asked.append(index)
        for index, data in zip(asked, self._store.get_many(self.name, [keys[i] for i in asked]), strict=True):
            out[index] = data
        return out

    def _decode(self, data: bytes) -> V | None:
        if data.startswith(self._head):
            return self._value.loads(data[len(self._head) :])
        body, expires, schema = parse_log_value(data)
        if expires is not None and expires <= self._clock():
            return None
        if schema != self._schema and self.layout is not None:
            return self.layout.read(schema, body)
        return self._value.loads(body)

    def _decode_many(self, raw: list[bytes | None]) -> list[V | None]:
        head, size = self._head, len(self._head)
        if any(data is not None and data[:size] != head for data in raw):
            return [None if data is None else self._decode(data) for data in raw]
        decoded = self._value.loads_many([None if data is None else data[size:] for data in raw])
        if decoded.bad:
            raise decoded.bad[0][1]
        return decoded.values

    @property
    def loaded(self) -> int:
        """The write that what is read now is no newer than."""
        return self.seals if self.sealed or self.changed or self._encoded else 0

    @property
    def waiting(self) -> int:
        """How many writes, up to that of number `seals`, are not in the store."""
        return len(self.sealed) + 1

    # ---------------------------------------------------------------------------------------------------------- writing

    def __setitem__(self, key: K, value: V) -> None:
        if value is None:
            raise DataError(f"table {self.name}: None is not a value", remedy="delete the key instead")
        raw = self.key_bytes(key)
        self._live[raw] = value
        self._changed[raw] = None

    def __delitem__(self, key: K) -> None:
        if self._find(key) is None:
            raise KeyError(key)
        self.remove((self.key_bytes(key),))

    def update(self, changes: Mapping[K, V] | Iterable[tuple[K, V]] = (), /, **named: Any) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Set many keys."""
        pairs: Any = changes.items() if isinstance(changes, Mapping) else changes
        every: list[tuple[Any, Any]] = [*pairs, *named.items()]
        self.put(dict(zip(self._all_bytes([key for key, _ in every]), [value for _, value in every], strict=True)))

    def put(self, changes: Mapping[bytes, V]) -> None:
        """Like `update`, with encoded keys."""
        if NoneType in map(type, changes.values()):  # by type: a value's own == may do anything
            raise DataError(f"table {self.name}: None is not a value", remedy="delete the key instead")
        self._live.update(changes)
        self._changed.update(dict.fromkeys(changes))

    def put_packed(self, keys: RecordSpans, logged: RecordSpans, rows: RecordSpans) -> None:
        """Like `put`, with rows that are encoded, including their head. `logged`: the keys with the table's prefix. Once between two
        completions; nothing of them is cached here."""
        assert self._ttl_ms is None, "packed rows do not expire"
        self._arrived = PackedRows(keys, logged, rows)

    def put_encoded(self, changes: Mapping[bytes, bytes]) -> None:
        """Like `put`, with values from `encoded`. Nothing of them is cached here."""
        assert self._ttl_ms is None, "encoded rows do not expire"
        self._encoded.update(changes)

    def delete_many(self, keys: Iterable[K]) -> None:
        """Delete keys, whether they exist or not."""
        self.remove(self._all_bytes(keys))

    def remove(self, keys: Iterable[bytes]) -> None:
        """Like `delete_many`, with encoded keys."""
        gone = dict.fromkeys(keys)
        self._live.update(gone)
        self._changed.update(gone)

    # ---------------------------------------------------------------------------------------------------------- ranges

    def range(self, start: K | None = None, end: K | None = None, *, reverse: bool = False) -> Iterator[tuple[K, V]]:
        """Keys and values from `start` up to, but not including, `end`, in the order of the encoded keys, as of now."""
        low = None if start is None else self.key_bytes(start)
        high = None if end is None else self.key_bytes(end)
        rows = {**dict(self._store.range(self.name, low, high))} if self._overlaid() else None
        if rows is None:
            stored = self._store.range(self.name, low, high, reverse=reverse)
            for key, data in stored:
                value = self._decode(data)
                if value is not None:
                    yield self._key.loads(key), value
            return
        for layer in reversed(self._layers()):
            _overlay(rows, layer, low, high)
        fresh = {key: self._live[key] for key in self._changed}
        _overlay(rows, dict.fromkeys(fresh, b""), low, high)
        for key in sorted(rows, reverse=reverse):
            value = fresh[key] if key in fresh else self._decode(rows[key])
            if value is not None:
                yield self._key.loads(key), value

    def _overlaid(self) -> bool:
        return bool(self._changed or self._encoded or self.changed or self.sealed)

    @property
    def changed(self) -> bool:
        """Whether a commit would log rows of this table."""
        return bool(self.dirty or self.packed)

    def __iter__(self) -> Iterator[K]:
        return (key for key, _ in self.range())

    def __len__(self) -> int:
        return sum(1 for _ in self.range())

    # ------------------------------------------------------------------------------------------------ with the chunk

    def prepare(self) -> None:
        """Encode what the chunk changed. Raises the first `DataError`; nothing has changed then."""
        arrived, most = self._arrived, self._most_bytes
        if arrived is not None and most is not None and arrived.largest() > most:
            self._must_fit(list(arrived), list(arrived.values()), most)
        if self._encoded and most is not None:
            self._must_fit(list(self._encoded), list(self._encoded.values()), most)
        if not self._changed:
            self._ready = None
            return
        live = self._live
        keys = list(self._changed)
        values = self._value.dumps_many([live[key] for key in keys])
        if values.bad:
            raise self._unstorable(values.bad[0][1])
        if self._most_bytes is not None:
            self._must_fit(keys, values.values, self._most_bytes)
        self._ready = keys, values.values

    def _must_fit(self, keys: list[bytes], values: Sequence[bytes | None], most: int) -> None:
        """Raise for a row that the task log would reject. Here the error belongs to the chunk that made the row, not to the commit of all
        tasks.
        """
        if max(map(len, filter(None, values)), default=0) + max(map(len, keys)) <= most:
            return
        for key, value in zip(keys, values, strict=True):
            size = len(key) + len(value or b"")
            if size > most:
                refused = RowRefused(
                    f"table {self.name}: {self._shown(key):.80} takes {size} bytes, but the task log accepts only {most}",
                    remedy="keep smaller rows, or raise max.message.bytes of the task log and start again",
                )
                refused.table = self.name
                raise refused

    def _shown(self, key: bytes) -> str:
        blocks = self.layout is not None and self.layout.spec.blocks
        return "a row with open windows" if blocks else f"the row of the key {self._key.loads(key)!r}"

    def _unstorable(self, error: DataError) -> RowRefused:
        """The error of a value that cannot be encoded."""
        found = self._refused("value", error)
        of_states = self.layout is not None and self.layout.spec.plan is not None
        remedy = "keep states in plain values: text, bytes, lists, dicts, numbers"
        refused = RowRefused(found.what, remedy=remedy if of_states else found.remedy)
        refused.table = self.name
        return refused

    def complete(self) -> None:
        """The chunk is done: queue what `prepare` encoded for the commit."""
        if self._arrived is not None:
            arrived, self._arrived = self._arrived, None
            if self.changed:
                self._unfold().update(arrived.pairs())
            else:
                self.packed = arrived
        if self._encoded:
            encoded, self._encoded = self._encoded, {}
            self._unfold().update(encoded)
            self._forget(list(encoded))
        if self._ready is not None:
            keys, values = self._ready
            self._ready = None
            dirty = self._unfold()
            head = self._head
            if self._ttl_ms is not None:
                expires = self._clock() + self._ttl_ms
                head = log_head(expires, self._schema)
                self.expiry.written(expires, [k for k, v in zip(keys, values, strict=True) if v is not None])
            for key, value in zip(keys, values, strict=True):
                dirty[key] = None if value is None else head + value
            changed, self._changed = self._changed, {}
            if self.caches_written:
                self._weigh(changed, values)
            else:
                self._forget(list(changed))
        self._read.clear()
        if self._ttl_ms is not None and self._live:
            self._live.clear()
            self._held.forget(list(self._held.large))

    def _unfold(self) -> IndexRows:
        """All changes as a dict."""
        if self.packed is not None:
            self.dirty = {**dict(self.packed.pairs()), **self.dirty}
            self.packed = None
        return self.dirty

    def keep(
        self, rows: Sized, give_back: Callable[[], None], arrays: Callable[[], int], *, reads: bool = True
    ) -> Held:
        """Count rows of this table that a caller caches in its own form: `rows` weigh what they weigh here, and `arrays` says how many
        bytes the others take. Until the table is closed or another caller replaces this one. `reads`: what is read or written here is
        among `rows`.
        """
        if self._kept is not None:
            self._kept.close()
        self._kept_reads = reads
        self._kept = self._memory.hold(rows, give_back, arrays)
        return self._kept

    def close(self) -> None:
        """Stop counting this table's rows: the task is closed."""
        self._held.close()
        if self._kept is not None:
            self._kept.close()

    def _weigh(self, keys: Collection[bytes], encoded: Sequence[bytes | None]) -> None:
        self._held.add(keys, encoded)
        if self._kept is not None and self._kept_reads:
            self._kept.add(keys, encoded)

    def _give_back(self) -> None:
        """Drop half of the cached rows, oldest first, except those that the running chunk has changed."""
        live, changed = self._live, self._changed
        if len(live) > len(changed):
            half = islice(live, (len(live) + 1) // 2)
            self._forget([k for k in half if k not in changed] or [k for k in live if k not in changed])

    def _forget(self, keys: list[bytes]) -> None:
        pop = self._live.pop
        for key in keys:
            pop(key, None)
        self._held.forget(keys)

    def drop(self) -> None:
        """The chunk failed: discard its changes, and every value that it read and may have modified."""
        self._forget([*self._changed, *chain.from_iterable(self._read)])
        self._changed.clear()
        self._read.clear()
        self._ready = self._arrived = None
        self._encoded = {}

    def suspend(self) -> Aside:
        """Set aside the changes of the unfinished chunk, so that a commit in the middle of it neither sees nor includes them."""
        live = self._live
        aside = Aside({key: live[key] for key in self._changed}, self._read)
        self._forget([*self._changed, *chain.from_iterable(self._read)])
        self._changed, self._read, self._ready = {}, [], None
        return aside

    def resume(self, aside: Aside) -> None:
        """Continue the chunk: restore its changes. Everything else is read again."""
        self._live.update(aside.changed)
        self._changed.update(dict.fromkeys(aside.changed))
        self._read = [*aside.read, *self._read]

    def expire(self, now_ms: int, most: int = EXPIRED_AT_ONCE) -> Expired:
        """Delete expired rows, with log entries; about `most` keys at a time. Only between two letters."""
        end = self.expiry.ends(now_ms)
        if end is None:
            return NOTHING_EXPIRED
        if self.expiry.full():
            return Expired(0, 0, True)
        due = self.expiry.due(end, most)
        keys = list(chain.from_iterable(block.keys for block in due.blocks))
        rows = iter(self._newest_many(keys))
        gone: list[bytes] = []
        for block in due.blocks:
            heads = expiring_heads(block.at)  # a value that was set again has another time, and an entry of its own
            found = zip(block.keys, rows, strict=False)
            gone += [key for key, data in found if data is not None and data.startswith(heads)]
        self.dirty.update(dict.fromkeys(gone))
        self.expiry.spend(due)
        if self._live:
            self._forget(gone)
        return Expired(len(gone), len(keys), due.more)

    def rewrite(self, most: int) -> int | None:
        """Look at `most` rows, and rewrite those that only a migration function can read. Returns how many rows were looked at; None at the
        end.

        Only between two letters. Neither the meaning of a row nor its expiry time changes.
        """
        layout = self.layout
        if layout is None or not layout.history.migrating:
            return None
        rows = list(islice(self._store.range(self.name, self._swept), most))
        for key, _ in rows:
            data = self._newest(key)
            if data is None:
                continue
            body, expires, schema = parse_log_value(data)
            if layout.history.needs_function(schema):
                value: Any = layout.read(schema, body)
                self.dirty[key] = log_value(self._value.dumps(value), expires, self._schema)
        if not rows:
            return None
        self._swept = rows[-1][0] + b"\x00"
        return len(rows)

    def seal(self) -> Mapping[bytes, bytes | None]:
        """What this commit logs. Reads find it here until it is applied."""
        self.sealed.append(self._unfold() if self.dirty or self.packed is None else self.packed)
        self.expiry.seal()
        self.dirty, self.packed = {}, None
        self.seals += 1
        return self.sealed[-1]

    def applied(self) -> None:
        """Drop the oldest seal: it is in the store."""
        self.sealed.popleft()
        self.expiry.applied()


def _overlay(
    rows: dict[bytes, bytes], layer: Mapping[bytes, bytes | None], low: bytes | None, high: bytes | None
) -> None:
    for key, data in layer.items():
        if (low is not None and key < low) or (high is not None and key >= high):
            continue
        if data is None:
            rows.pop(key, None)
        else:
            rows[key] = data
