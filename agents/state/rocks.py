"""RocksDB as a task's store: one database for each task, one column family for each table, one memory limit for each worker.

It decides whether the contents of a directory may be used, and, when a store opens and while it grows, whether its new files have their
indexes and filters in whole or in parts. Promises:

- All databases of a worker share one block cache and one limit for write buffers. Together with the rows that tasks keep decoded, they use
  `memory_bytes`.
- A file lock protects the directory while the store is open. A second opener gets `StoreHeld`.
- A store of another job or task, of a newer format, without metadata, or reported as damaged by RocksDB raises `StoreUnusable` with the
  reason and is never opened; `wipe` removes it. So does one that could not be read while it was open: that is noted in its directory.
- A store on a disk that takes no files is not judged: opening it raises `WriteRefused`, and it stays.
- Nothing waits for the disk while it holds the interpreter's lock. rocksdict keeps that lock in `write` and while it opens a database; a
  stall of RocksDB would therefore stop every thread, and the worker would look dead. A write that would stall raises `StoreBusy`; a child
  process replays a long log that a killed process left behind.
- A write is one batch over all tables, including the metadata. It is not synced: after a crash of the machine, the store is at an earlier
  position of the task log and replays the difference.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from weakref import WeakSet

import msgpack as _msgpack
from rocksdict import (
    BlockBasedOptions,
    Cache,
    DBCompressionType,
    Options,
    Rdict,
    ReadOptions,
    WriteBatch,
    WriteBufferManager,
    WriteOptions,
)

from ...core.errors import StoreUnreadable
from ..logger import Logger
from .cache_memory import CacheMemory
from .packed_rows import PackedRows
from .store import (
    FORMAT,
    Changes,
    GuardedStore,
    Owner,
    StoreBusy,
    StoreHeld,
    StoreMeta,
    StoreUnusable,
    foreign,
    refused,
)

log = Logger("headgate.store")
LOCK = "lock"
DATABASE = "db"
REMOVED = "db.removed"
"""A database that is being removed."""
DAMAGED = "damaged"
"""The file that says why a store must not be opened again."""
STOP_FILES = 36
"""The number of files on the first level at which writes wait for a compaction."""
METADATA_BLOCK = 16 << 10
"""The bytes of a part of a file's index, or of its filter, when they are in parts."""
CACHE_ENTRY = 4 << 10
"""The bytes of most entries of the cache: a block of rows. The cache has room for so many."""
FILTER_BITS = 10
"""The bits of a file's filter for each row."""
INDEXED = 64
"""A file's index takes one byte for so many of the file, at most about."""
WHOLE = 4
"""Indexes and filters of all stores may take one part in so many of RocksDB's memory and be written in whole. A lookup in parts first seeks
the part, in each file: that took two fifths of the time of all lookups. But of a filter that is not in memory, only a part must be read."""
IN_PARTS = {
    "block_based_table_factory": f"{{partition_filters=true;index_type=kTwoLevelIndexSearch;metadata_block_size={METADATA_BLOCK}}}"
}
"""What a table's options become when its indexes and filters are to be in parts. Each file says itself which it has."""
MOST_BUFFER = 16 << 20
"""The bytes of rows after which a table writes them to a file. Small ones stay in the processor's caches, where a row is written and found
faster; that many small files are merged at a time makes up for their number."""
FILES_MERGED = 8
"""The number of files on the first level at which they are merged into the next."""
FILTERED = 0.02
"""The part of a write buffer that is a filter of its keys, ten bits for each row of 64 bytes: a key that is not there is not searched."""
RECOVERED_HERE = 2 << 20
"""The opening process itself replays a write-ahead log up to this size."""
PROBE, PROBED = "probe", 4 << 20
"""A file that is written, of so many bytes, to see whether a disk takes one."""
_META = b"meta"
_TABLE = "t."
"""The prefix of column families for tables. RocksDB's own `default` contains the metadata."""


class StoreMemory:
    """The memory for the state of one worker: a quarter for decoded rows, the rest for all its RocksDB databases.

    At most half of that rest is for write buffers, and both are charged to the same cache.
    """

    def __init__(self, memory_bytes: int = 256 << 20) -> None:
        self.decoded = CacheMemory(memory_bytes // 4)
        self.limit = memory_bytes - self.decoded.limit
        """The limit for RocksDB."""
        # its lookups take no lock, and its shards are large: a filter in whole is larger than a shard of the LRU cache
        self.cache: Any = Cache.new_hyper_clock_cache(self.limit, CACHE_ENTRY)
        self.buffers: Any = WriteBufferManager.new_write_buffer_manager_with_cache(self.limit // 2, False, self.cache)
        self._buffer = min(MOST_BUFFER, max(1 << 20, self.limit // 24))
        self._filters = self.limit // 16
        """The memory that is left for filters of write buffers. A table has its filter before its first row, and keeps it."""
        self._metadata: dict[int, int] = {}
        """The bytes of the indexes and filters of each open store when it was last weighed, about."""
        self.weighed_rows = max(1, self.limit // WHOLE // FILTER_BITS)
        """A store is weighed again when so many rows were written to it: their filters take an eighth of the room for those in whole."""

    def used(self) -> int:
        """The bytes that RocksDB uses now."""
        return self.cache.get_usage()

    def overdrawn(self) -> bool:
        """Whether tasks write faster than RocksDB's threads flush. A writer must then wait for its own flush."""
        return self.buffers.get_usage() > self.limit // 2 + self.limit // 8

    def weighed(self, store: object, metadata: int) -> bool:
        """Count the indexes and filters of a store. Returns whether there is room for them in whole."""
        self._metadata[id(store)] = metadata
        return sum(list(self._metadata.values())) <= self.limit // WHOLE

    def options(self) -> Options:
        """The options of a database or column family that uses this memory."""
        table = BlockBasedOptions()
        table.set_block_cache(self.cache)
        table.set_bloom_filter(FILTER_BITS, False)
        table.set_cache_index_and_filter_blocks(True)
        table.set_pin_l0_filter_and_index_blocks_in_cache(True)
        table.set_pin_top_level_index_and_filter(True)
        table.set_format_version(5)
        options = Options(raw_mode=True)
        options.create_if_missing(True)
        options.create_missing_column_families(True)
        options.set_block_based_table_factory(table)
        options.set_write_buffer_manager(self.buffers)
        options.set_write_buffer_size(self._buffer)
        options.set_level_zero_file_num_compaction_trigger(FILES_MERGED)
        options.set_arena_block_size(64 << 10)  # a table that is hardly written to must not hold a megabyte
        options.set_compression_type(DBCompressionType.lz4())
        options.set_max_open_files(256)
        options.set_keep_log_file_num(2)
        options.set_max_log_file_size(1 << 20)
        options.set_max_total_wal_size(64 << 20)
        # a write is accepted at once or not at all: a delayed write would be delayed again at each retry
        options.set_level_zero_slowdown_writes_trigger(STOP_FILES)
        options.set_level_zero_stop_writes_trigger(STOP_FILES)
        options.set_soft_pending_compaction_bytes_limit(0)
        return options

    def table_options(self) -> tuple[Options, int]:
        """The options of a table, and the bytes of its filter, which `release` returns. Without a filter if the memory has none left."""
        options, size = self.options(), int(self._buffer * FILTERED)
        if size > self._filters:
            return options, 0
        self._filters -= size
        options.set_memtable_prefix_bloom_ratio(FILTERED)
        options.set_memtable_whole_key_filtering(True)
        return options, size

    def release(self, size: int) -> None:
        """A store with filters of so many bytes has closed."""
        self._filters += size

    def forget(self, store: object) -> None:
        """A store has closed."""
        self._metadata.pop(id(store), None)


class RocksStore(GuardedStore):
    """The RocksDB database of one task. Made by `open_rocks`."""

    def __init__(self, path: Path, memory: StoreMemory, meta: StoreMeta, lock: int, tables: Iterable[str] = ()) -> None:
        super().__init__(meta)
        self._path = path
        self._memory = memory
        self._lock: int | None = lock
        self._families: dict[str, tuple[Any, Any]] = {}
        self._at_once = WriteOptions()
        self._at_once.no_slowdown = True
        self._db: Any = None
        self._scans: WeakSet[Generator[Any, None, None]] = WeakSet()
        """Iterators that may not be exhausted. RocksDB keeps its lock while one of them exists."""
        self._filters = 0
        """The bytes of its write buffers' filters."""
        self._parted = False
        """New files have their indexes and filters in parts."""
        self._unweighed = 0
        """Rows that were written since the indexes and filters were weighed."""
        try:
            self._open(tables)
            self._weigh()
        except BaseException:
            memory.release(self._filters)
            memory.forget(self)
            raise

    def _open(self, tables: Iterable[str]) -> None:
        """`tables` get their column families here: each takes a write to the disk, and the first commit has no time for that."""
        path = str(self._path / DATABASE)
        options = self._memory.options()
        known = Rdict.list_cf(path, Options(raw_mode=True)) if (self._path / DATABASE / "CURRENT").exists() else []
        names = [*known, *(name for table in tables if (name := _TABLE + table) not in known)]
        self._db = Rdict(path, options, column_families={n: self._table_options() for n in names if n != "default"})
        for name in names:
            if name.startswith(_TABLE):
                self._families[name[len(_TABLE) :]] = self._handles(name)

    def _weigh(self) -> None:
        """Write indexes and filters in parts from now on if there is no room for them in whole. It waits for the disk then, once."""
        self._unweighed = 0
        keys, size = self.figure("rocksdb.estimate-num-keys"), self.figure("rocksdb.total-sst-files-size")
        if not self._memory.weighed(self, keys * FILTER_BITS // 8 + size // INDEXED) and not self._parted:
            self._parted = True
            for view, _ in self._families.values():
                view.set_options(IN_PARTS)

    def _table_options(self) -> Options:
        options, size = self._memory.table_options()
        self._filters += size
        return options

    def _handles(self, name: str) -> tuple[Any, Any]:
        return self._db.get_column_family(name), self._db.get_column_family_handle(name)

    def _family(self, table: str) -> tuple[Any, Any]:
        found = self._families.get(table)
        if found is None:
            name = _TABLE + table
            self._db.create_column_family(name, self._table_options())
            found = self._families[table] = self._handles(name)
            if self._parted:
                found[0].set_options(IN_PARTS)
        return found

    @property
    def path(self) -> Path:
        """The task's directory."""
        return self._path

    def _view(self, table: str) -> Any:
        """A column family to read from, never its handle: an exception keeps references to the frames it passed, and a reference to a
        handle keeps RocksDB's own lock.
        """
        self._must_be_open()
        found = self._families.get(table)
        return None if found is None else found[0]

    def get(self, table: str, key: bytes) -> bytes | None:
        """The value of a key."""
        view = self._view(table)
        try:
            return None if view is None else view.get(key)
        except Exception as error:  # rocksdict raises plain Exception
            raise self._unreadable(error) from error

    def get_many(self, table: str, keys: Sequence[bytes]) -> list[bytes | None]:
        """The values of many keys, in one call."""
        view = self._view(table)
        if view is None:
            return [None] * len(keys)
        try:
            return view.get(list(keys)) if keys else []
        except Exception as error:  # rocksdict raises plain Exception
            raise self._unreadable(error) from error

    def range(
        self, table: str, start: bytes | None = None, end: bytes | None = None, *, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        """Rows in the order of their keys, as of the moment in which the iteration begins."""
        view = self._view(table)
        if view is None:
            return iter(())
        rows = _rows(view, start, end, reverse=reverse)
        self._scans.add(rows)
        return self._while_open(rows)

    def _while_open(self, rows: Iterator[tuple[bytes, bytes]]) -> Iterator[tuple[bytes, bytes]]:
        """Raise if the store was closed during the iteration, because the rows are then not complete."""
        try:
            yield from rows
        except Exception as error:  # rocksdict raises plain Exception
            raise self._unreadable(error) from error
        self._must_be_open()

    def _unreadable(self, error: Exception) -> StoreUnreadable:
        """The error for a reader. A store that could not be read while it was open must not be opened again: it would fail again."""
        if not self._closed:
            self._damaged(error)
        return StoreUnreadable(self._path, error)

    def _damaged(self, error: Exception) -> None:
        """Note in the directory that this store is to be restored from its log."""
        try:
            (self._path / DAMAGED).write_text(f"{error}\n")
        except OSError as refused:
            log.warning("a damaged store cannot be marked", path=str(self._path), why=str(refused))

    def _where(self) -> str:
        return f"in {self._path}"

    def _put(self, changes: Changes, meta: StoreMeta) -> None:
        if self._stalled():
            raise self._busy()
        batch = WriteBatch(raw_mode=True)
        for table, rows in changes.items():
            batch.set_default_column_family(
                self._family(table)[1]
            )  # `put` takes half as long again with a handle each time
            for key, value in _in_order(rows):
                if value is None:
                    del batch[key]
                else:
                    batch[key] = value
        batch.set_default_column_family(None)
        batch[_META] = _packed(meta)
        try:
            self._db.write(batch, self._at_once)
        except Exception as error:  # rocksdict raises plain Exception
            if str(error).startswith(
                "Corruption"
            ):  # a compaction has met a damaged block: each later write would fail, too
                self._damaged(error)
            if not str(error).startswith("Result incomplete"):
                raise
            raise self._busy() from None
        self._unweighed += sum(map(len, changes.values()))
        if self._unweighed >= self._memory.weighed_rows:
            self._weigh()

    def _stalled(self) -> bool:
        """Whether the disk must catch up first: RocksDB has stopped writes, or the worker's memory is used up and this store is being
        flushed.
        """
        if self._db.property_int_value("rocksdb.is-write-stopped"):
            return True
        views = [view for view, _ in self._families.values()] if self._memory.overdrawn() else []
        return any(view.property_int_value("rocksdb.num-immutable-mem-table") for view in views)

    def _busy(self) -> StoreBusy:
        return StoreBusy(
            f"the store {self._where()} has accepted more than its disk has written",
            remedy="none needed: it recovers by itself; a faster disk for state.dir or more state.memory makes this rarer",
        )

    def tables(self) -> list[str]:
        """The tables that were ever written to."""
        self._must_be_open()
        return sorted(self._families)

    def _forget(self, table: str) -> None:
        if table in self._families:
            del self._families[table]
            self._db.drop_column_family(_TABLE + table)

    def figure(self, name: str) -> int:
        """See `Store`. Of bytes and keys it is the sum over all tables; what RocksDB does, the database says for all of them."""
        if self._closed or self._db is None:
            return 0
        summed = name.endswith(("-size", "-bytes", "-keys"))
        tables = [view for view, _ in self._families.values()] if summed else []
        return sum(one.property_int_value(name) or 0 for one in (self._db, *tables))

    def size(self) -> int:
        """Bytes on disk."""
        self._must_be_open()
        return sum(int(file.get("size", 0)) for file in self._db.live_files())

    def flush(self) -> None:
        """See `store.Store`. A disk that is full is for the next write to tell."""
        for database in (self._db, *(view for view, _ in list(self._families.values()))):
            try:
                database.flush(True)
            except Exception as error:  # noqa: BLE001 - rocksdict raises plain Exception
                log.warning("a store cannot be written out", path=str(self._path), why=str(error))
                return

    def close(self) -> None:
        """Close every iterator and handle, then the database, then the lock. RocksDB keeps its own lock while one of them exists.

        A store that could not accept its last write often cannot flush either. It is closed nevertheless: the task log contains what it
        lacks.
        """
        self._closed = True
        try:
            for rows in list(self._scans):
                _ended(rows)
            if self._db is not None:
                families, self._families = self._families, {}
                database, self._db = self._db, None
                views = [view for view, _ in families.values()]
                families.clear()
                while views:
                    _closed(views.pop())
                _closed(database)
                del database
        finally:
            self._memory.release(self._filters)
            self._memory.forget(self)
            self._filters = 0
            if self._lock is not None:
                os.close(self._lock)
                self._lock = None

    def remove(self) -> None:
        """Close the store and remove its directory while its lock is held, so that no other process opens it meanwhile."""
        lock, self._lock = self._lock, None
        try:
            self.close()
            _empty(self._path)
            (self._path / LOCK).unlink()
            with contextlib.suppress(OSError):  # someone else makes a new store there at this moment
                self._path.rmdir()
        finally:
            if lock is not None:
                os.close(lock)


def _rows(
    view: Any, start: bytes | None, end: bytes | None, *, reverse: bool
) -> Generator[tuple[bytes, bytes], None, None]:
    """The rows of a column family. While it iterates, RocksDB reads the upper bound from the given bytes, and rocksdict neither copies them
    nor keeps a reference; this frame keeps one.

    At a block that cannot be read, RocksDB's iterator just ends, and so do rocksdict's `items()`: only its status tells that rows are
    missing.
    """
    options = ReadOptions()
    if end is not None:
        options.set_iterate_upper_bound(end)
    rows = view.iter(options)
    valid, key, value = rows.valid, rows.key, rows.value
    if reverse:
        rows.seek_to_last()
        following = rows.prev
    else:
        rows.seek_to_first() if start is None else rows.seek(start)
        following = rows.next
    while valid():
        row = key(), value()
        if reverse and start is not None and row[0] < start:  # a lower bound in the options would replace the upper one
            return
        yield row
        following()
    rows.status()
    del options, end


def _in_order(rows: Mapping[bytes, bytes | None]) -> Iterator[tuple[bytes, bytes | None]]:
    """Rows in the order of their keys. RocksDB takes them at less than half of the cost."""
    return rows.in_order() if isinstance(rows, PackedRows) else ((key, rows[key]) for key in sorted(rows))


def _ended(rows: Generator[Any, None, None]) -> None:
    """Close an iterator that someone has not exhausted and may still hold."""
    while True:
        try:
            rows.close()
            return
        except ValueError:  # another thread is just reading a row from it
            time.sleep(0)


def _closed(handle: Any) -> None:
    """Close a handle of RocksDB, even if its last flush fails."""
    try:
        handle.close()
    except Exception as error:  # noqa: BLE001 - rocksdict raises plain Exception
        log.warning("a store could not be flushed", why=str(error))


def _packed(meta: StoreMeta) -> bytes:
    library: Any = _msgpack
    return library.packb(
        {
            "format": meta.format,
            "job": meta.owner.job_uuid,
            "task": meta.owner.task,
            "partition": meta.owner.partition,
            "position": meta.position,
            "followed": meta.followed_until_ms,
            "checkpoint": meta.checkpoint,
        }
    )


def _unpacked(where: str, data: bytes | None) -> StoreMeta:
    library: Any = _msgpack
    if data is None:
        raise StoreUnusable(where, "it has no metadata")
    try:
        fields = library.unpackb(data)
        version = fields["format"]
        if version > FORMAT:
            raise StoreUnusable(where, f"its format {version} is newer than {FORMAT}; a newer headgate wrote it")
        owner = Owner(fields["job"], fields.get("task", ""), fields.get("partition", -1))
        return StoreMeta(owner, fields["position"], fields["followed"], fields["checkpoint"], version)
    except (ValueError, TypeError, KeyError) as error:
        raise StoreUnusable(where, f"its metadata cannot be read ({error})") from error


def _recorded(path: Path, store: RocksStore) -> bytes | None:
    try:
        return store._db.get(_META)
    except Exception as error:  # rocksdict raises plain Exception
        raise StoreUnusable(str(path), f"its metadata cannot be read ({error})") from error


def _lock(path: Path) -> int:
    try:
        path.mkdir(parents=True, exist_ok=True)
        held = os.open(path / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise refused(f"in {path}", error.strerror or error) from error
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(held)
        raise StoreHeld(
            f"{path} is locked by another process", remedy="wait until it ends, or use another state.dir"
        ) from error
    if not _lies_in(path, held):
        os.close(held)
        raise StoreHeld(f"{path} is being removed by another process", remedy="none needed: it is made again")
    return held


def _lies_in(path: Path, held: int) -> bool:
    """Whether the lock file is still that of the directory: `RocksStore.remove` may have removed both before it was locked here."""
    try:
        return os.path.samestat(os.fstat(held), os.stat(path / LOCK))
    except FileNotFoundError:
        return False


def open_rocks(path: Path, memory: StoreMemory, owner: Owner | None, tables: Iterable[str] = ()) -> RocksStore:
    """The store in this directory, or a new one. Raises `StoreUnusable` (wipe it) or `StoreHeld` (another process uses it). Without `owner`
    it is opened whoever's it is.
    """
    lock = _lock(path)
    try:
        shutil.rmtree(path / REMOVED, ignore_errors=True)  # a process was killed while it removed it
        _refuse_damaged(path)
        fresh = not (path / DATABASE / "CURRENT").exists()
        _recover_elsewhere(path / DATABASE, lock)
        try:
            store = RocksStore(path, memory, StoreMeta(owner or Owner()), lock, tables)
        except Exception as error:  # what rocksdict raises for a damaged database, and for a full disk
            if why := _refuses(path):
                raise refused(f"in {path}", f"{error}; {why}") from error
            raise StoreUnusable(str(path), f"RocksDB cannot open it ({error})") from error
        try:
            if fresh:
                store.write({})
                return store
            meta = _unpacked(str(path), _recorded(path, store))
            if owner is not None and (reason := foreign(meta.owner, owner)):
                raise StoreUnusable(str(path), reason)
        except BaseException:
            store._lock = None  # released below
            store.close()
            raise
        store._meta = meta
        return store
    except BaseException:
        os.close(lock)
        raise


def _refuses(path: Path) -> str:
    """Why this disk takes no more files; empty if it does. A store on such a disk may be sound, so it is not wiped. RocksDB's text is not
    asked: a file is written, of as many bytes as opening a store needs."""
    probe = path / PROBE
    try:
        try:
            probe.write_bytes(bytes(PROBED))
        finally:
            probe.unlink(missing_ok=True)
    except OSError as error:
        return f"a file of {PROBED >> 10} KiB cannot be written there: {error.strerror or error}"
    return ""


def _refuse_damaged(path: Path) -> None:
    try:
        reason = (path / DAMAGED).read_text(errors="replace").strip()
    except FileNotFoundError:
        return
    raise StoreUnusable(str(path), f"it could not be read ({reason})")


def recover(path: str) -> None:
    """Open and close the database, which moves the contents of the write-ahead log into tables."""
    families = Rdict.list_cf(path, Options(raw_mode=True))
    options = StoreMemory(16 << 20).options
    Rdict(path, options(), column_families={name: options() for name in families if name != "default"}).close()


def _recover_elsewhere(database: Path, lock: int) -> None:
    """Replay a long write-ahead log in a child process.

    A killed process leaves a log that the next opener replays, and rocksdict holds the interpreter's lock meanwhile. The child inherits the
    lock of the directory, which stays held until the child has ended, even if this process ends earlier. If the child fails, opening the
    store fails too and gives the reason.
    """
    if sum(file.stat().st_size for file in database.glob("*.log")) <= RECOVERED_HERE:
        return
    replay = subprocess.run(
        [sys.executable, "-c", f"from {__name__} import recover; import sys; recover(sys.argv[1])", str(database)],
        pass_fds=(lock,),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    if replay.returncode:
        log.warning(
            "the log of a store could not be replayed in the background", path=str(database), why=replay.stderr[-500:]
        )


def wipe(path: Path) -> None:
    """Remove the contents of the task's directory, under its lock. The directory and the lock file stay."""
    lock = _lock(path)
    try:
        _empty(path)
    finally:
        os.close(lock)


def _empty(path: Path) -> None:
    """The database vanishes in one step: a half removed one could be opened, and RocksDB would replay what is left of its log."""
    removed = path / REMOVED
    if removed.exists():
        shutil.rmtree(removed)
    if (path / DATABASE).exists():
        (path / DATABASE).rename(removed)
    for child in path.iterdir():
        if child.name != LOCK:
            shutil.rmtree(child) if child.is_dir() else child.unlink()
