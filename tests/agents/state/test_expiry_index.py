"""The index of what expires: a chunk is one entry, a restore means the same, and what could not be read was not spent."""

import pytest

from headgate.agents.records.memory.record_spans import packed
from headgate.agents.state.expiry_index import BLOCK, TTL_TABLE, ExpiryIndex, indexed
from headgate.agents.state.packed_rows import PackedRows
from headgate.agents.state.store import MemoryStore
from headgate.core.task.stored.checkpoint import log_value

INDEX = TTL_TABLE + "counts"
KEYS = [b"user %05d" % n for n in range(2 * BLOCK + 500)]


def commit(index, store):
    index.seal()
    store.write(index.to_apply())
    index.applied()


def found(index, now_ms):
    """Everything that is due, by its time."""
    gone = {}
    while (end := index.ends(now_ms)) is not None:
        due = index.due(end, BLOCK)
        for block in due.blocks:
            gone.setdefault(int.from_bytes(block.at, "big"), set()).update(block.keys)
        index.spend(due)
    return gone


def test_keys_of_one_time_are_a_few_entries_and_are_removed_as_these():
    """An entry for each key would cost as much as the row itself, twice: once written, once deleted."""
    store = MemoryStore()
    index = ExpiryIndex("counts", store)
    index.written(100, KEYS)
    index.written(200, [b"later"])
    commit(index, store)
    assert len(list(store.range(INDEX))) == 4
    assert found(index, 99) == {}
    assert found(index, 150) == {100: set(KEYS)}
    commit(index, store)
    assert [entry[:8] for entry, _ in store.range(INDEX)] == [(200).to_bytes(8, "big")]
    assert found(index, 200) == {200: {b"later"}}


def test_the_same_keys_at_the_same_time_in_two_commits_are_both_found():
    """Two entries of one millisecond must not replace one another, or the rows of the first would stay for ever."""
    store = MemoryStore()
    index = ExpiryIndex("counts", store)
    index.written(100, KEYS[:3])
    commit(index, store)
    index.written(100, [KEYS[0], KEYS[4]])
    commit(index, store)
    assert found(index, 100) == {100: {*KEYS[:3], KEYS[4]}}


def packed_rows(rows):
    """Rows as a restore has them."""
    keys = packed(list(rows))
    return PackedRows(keys, keys, packed(list(rows.values())))


def test_a_restore_makes_an_index_that_means_the_same():
    """A worker that restores from nothing deletes at the same times; deletes and rows without a ttl have no entry."""
    rows = {key: log_value(b"1", 100 + n % 2) for n, key in enumerate(KEYS)}
    store = MemoryStore()
    counts = packed_rows({**rows, b"gone": None, b"stays": log_value(b"1")})
    store.write(indexed({"counts": counts, "others": packed_rows({b"a": log_value(b"1")})}))
    assert store.tables() == [INDEX, "counts", "others"]
    assert found(ExpiryIndex("counts", store), 1000) == {100: set(KEYS[::2]), 101: set(KEYS[1::2])}


def test_what_a_broken_disk_did_not_give_is_not_spent():
    """The search fails in its middle: whoever searches again finds all of it."""

    class Broken(MemoryStore):
        broken = True

        def range(self, table, start=None, end=None, *, reverse=False):
            for n, row in enumerate(super().range(table, start, end, reverse=reverse)):
                if n and self.broken:
                    raise OSError("unreadable")
                yield row

    store = Broken("u")
    index = ExpiryIndex("counts", store)
    index.written(100, KEYS)
    commit(index, store)
    with pytest.raises(OSError, match="unreadable"):
        index.due(index.ends(100), len(KEYS))
    assert not index.changed
    store.broken = False
    assert found(index, 100) == {100: set(KEYS)}
