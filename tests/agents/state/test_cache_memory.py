"""Decoded rows and states count bytes, within what all tasks of a worker share."""

from __future__ import annotations

import asyncio

from headgate.agents.records.values import serdes as serde
from headgate.agents.state.cache_memory import DECODED, ROW_BYTES, CacheMemory
from headgate.agents.state.rocks import StoreMemory, open_rocks
from headgate.agents.state.store import BUSY_S, MemoryStore, Owner, StoreBusy
from headgate.agents.state.tables import TaskTables


def declared(memory, store=None, name="rows"):
    tables = TaskTables(store or MemoryStore(), memory=memory)
    return tables, tables.declare(name, serde.text(), serde.text())


def commit(tables, position):
    """Into the store, as soon as its disk has followed."""
    tables.seal()
    asyncio.run(applied(tables, position))


async def applied(tables, position):
    while True:
        try:
            return tables.applied(position)
        except StoreBusy:
            await asyncio.sleep(BUSY_S)


def test_large_rows_stay_within_state_memory(tmp_path):
    """Rows of 100 kB, 60 MB of them: with a limit that counts rows, a worker of 16 MiB is killed by its machine for all of them."""
    memory = StoreMemory(16 << 20)
    store = open_rocks(tmp_path / "t", memory, Owner("u"))
    tables, table = declared(memory.decoded, store)
    most = 0
    for start in range(0, 600, 20):
        for n in range(start, start + 10):
            table[f"k{n}"] = f"{n:06}" + "x" * 100_000
        table.update({f"k{n}": f"{n:06}" + "x" * 100_000 for n in range(start + 10, start + 20)})
        tables.complete()
        most = max(most, memory.decoded.used)
        commit(tables, start)
    assert [n for n in range(600) if not table[f"k{n}"].startswith(f"{n:06}")] == []
    most = max(most, memory.decoded.used)
    for start in range(0, 600, 20):
        found = table.get_many([f"k{n}" for n in range(start, start + 20)])
        assert [value[:6] for value in found] == [f"{n:06}" for n in range(start, start + 20)]
        most = max(most, memory.decoded.used)
    assert most <= memory.decoded.limit == 4 << 20
    assert 5 <= len(table._live) <= (4 << 20) // 100_000
    assert memory.limit + memory.decoded.limit == 16 << 20
    store.close()


def test_small_rows_are_kept_by_the_ten_thousands():
    """A limit in bytes is none on small rows: they are not read and decoded again."""
    memory = CacheMemory(16 << 20)
    tables, table = declared(memory)
    for start in range(0, 100_000, 1000):
        table.update({f"k{n}": "small" for n in range(start, start + 1000)})
        tables.complete()
    assert memory.used <= memory.limit
    assert len(table._live) >= 20_000


def test_large_rows_are_counted_exactly_also_among_small_ones():
    """A few large rows that nobody touches must not be forgotten in the sum because thousands of small ones are written beside them."""
    memory = CacheMemory(1 << 30)
    tables, table = declared(memory)
    table.update({f"large{n}": "x" * 100_000 for n in range(10)})
    for n in range(200):
        table.update({f"k{n % 7}": str(n) for n in range(100)})
        if n % 3 == 0:
            table["gone"] = "x"
            tables.drop() if n % 2 else tables.complete()
        tables.complete()
        table.get_many([f"k{n}", "absent", "absent"])
    del table["large0"]
    table["small"] = "x" * 100_000
    tables.complete()
    table["small"] = "x"
    tables.complete()
    aside = tables.suspend()
    tables.resume(aside)
    assert table._live.keys() >= {b"large%d" % n for n in range(1, 10)}
    assert memory.used == ROW_BYTES * len(table._live) + DECODED * 9 * 100_000


def test_two_tasks_share_and_a_closed_one_gives_its_share_back():
    """An idle task must not keep from a busy one what it does not use, nor one that has left this worker."""
    memory = CacheMemory(4 << 20)
    (idle, first), (busy, second) = declared(memory), declared(memory, name="others")
    first.update({f"k{n}": "x" * 10_000 for n in range(150)})
    idle.complete()
    assert len(first._live) == 150
    for n in range(1000):
        second[f"k{n}"] = "x" * 10_000
        busy.complete()
        assert memory.used <= memory.limit
    assert 10 <= len(first._live) < 150  # what it has left is less than what the busy one has
    assert len(second._live) > 50
    held = first._held.bytes
    used = memory.used
    idle.close()
    assert memory.used == used - held
    busy.close()
    busy.close()
    assert memory.used == 0


def test_what_a_chunk_has_changed_stays_and_is_not_looked_through_for_each_row():
    """A chunk changes more than fits: none of it may go before it is complete, and looking for something to give back must not take
    longer with each row that is read."""
    memory = CacheMemory(1 << 20)
    tables, table = declared(memory)
    asked = []
    give_back = table._held.give_back
    table._held.give_back = lambda: (asked.append(1), give_back())
    table.update({f"k{n}": "x" * 1000 for n in range(5000)})
    for n in range(5000):
        assert table.get(f"absent{n}") is None
    assert len(table._changed) == 5000
    assert table.get_many([f"k{n}" for n in range(5000)]) == ["x" * 1000] * 5000
    assert len(asked) < 200
    tables.complete()
    assert memory.used <= memory.limit
    assert len(table.dirty) == 5000
