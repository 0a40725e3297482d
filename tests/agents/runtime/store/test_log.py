"""What a restore makes of the records of a task's log, also when it is interrupted."""

from __future__ import annotations

import asyncio
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.agents.records.frames.chunks import Chunk
from headgate.agents.records.kafka.columns import Columns
from headgate.agents.records.kafka.spans import SpannedColumns, spanned
from headgate.agents.records.native import chosen
from headgate.agents.runtime.store import log as tasklog
from headgate.agents.runtime.store.log import folded, restore
from headgate.agents.state.expiry_index import TTL_TABLE, ExpiryIndex
from headgate.agents.state.rocks import StoreMemory, open_rocks
from headgate.agents.state.store import MemoryStore, Owner
from headgate.agents.testing.clock import VirtualClock
from headgate.agents.testing.logs import Logs
from headgate.agents.testing.port import MemoryPort
from headgate.core.names import StreamPartition
from headgate.core.task.stored.checkpoint import CHECKPOINT_KEY, log_value, table_prefix

AT = StreamPartition("log", 0)
A, B, AB = map(table_prefix, ("a", "b", "ab"))
NO_ENTRY = st.sampled_from([None, b"", b"\x09", A[:1] + b"\x09ab", A[:2] + b"\xff", CHECKPOINT_KEY + b"\0"])
ENTRY = st.tuples(st.sampled_from([A, B, AB]), st.binary(max_size=2)).map(b"".join)
RECORDS = st.lists(
    st.tuples(ENTRY, st.none() | st.binary(max_size=3))
    | st.tuples(st.just(CHECKPOINT_KEY), st.binary(min_size=1, max_size=3))
    | st.tuples(NO_ENTRY, st.binary(max_size=1)),
    min_size=1,
    max_size=40,
)


def fold(records):
    """The tables and the checkpoint of a log, by dicts."""
    tables, checkpoint = {"a": {}, "b": {}, "ab": {}}, None
    for key, value in records:
        if key == CHECKPOINT_KEY:
            checkpoint = value
        for table in tables:
            if (key or b"").startswith(table_prefix(table)):
                tables[table][key[2 + len(table) :]] = value
    return {table: rows for table, rows in tables.items() if rows}, checkpoint


@given(RECORDS, st.integers(1, 5), st.booleans(), st.booleans())
def test_records_are_folded_by_key_and_written_in_the_order_of_keys(records, most, compiled, in_spans):
    """Several tables in one log: of each key the last value, tombstones included. What is no entry is counted, with the last offset."""
    listed = Columns([v for _, v in records], [0] * len(records), 100, [k for k, _ in records])
    with pytest.MonkeyPatch.context() as patch:
        if not compiled:
            patch.setattr(chosen, "part", chosen.PLAIN)
        part = folded(Chunk(AT, 0, SpannedColumns(spanned(listed)) if in_spans else listed), most)
        sizes = [sum(map(len, rows.values())) for rows in part.writes]
        tables = {}
        for rows in part.writes:
            for table, own in rows.items():
                tables.setdefault(table, []).extend(own.items())
    wanted, checkpoint = fold(records)
    assert tables == {table: sorted(rows.items()) for table, rows in wanted.items()}
    assert sizes[:-1] == [most] * (len(sizes) - 1)
    assert sum(sizes) == sum(map(len, wanted.values()))
    assert part.checkpoint == checkpoint
    bad = [at for at, (key, _) in enumerate(records, 100) if key != CHECKPOINT_KEY and not fold([(key, b"")])[0]]
    assert (part.unread or (0, None, ""))[:2] == (len(bad), bad[-1] if bad else None)


class KilledError(BaseException):
    """The process ends here."""


def killed_after(store, writes):
    """Let the process die at the write behind these."""
    left, write = [writes], store.write

    def until_killed(*changes, **meta):
        if not left[0]:
            raise KilledError
        left[0] -= 1
        write(*changes, **meta)

    store.write = until_killed


def restored(logs, store, day=0):
    """Restore a store to the end of the log."""
    end = logs.log(AT).end
    start = store.meta.position or 0
    return asyncio.run(restore(MemoryPort(logs, VirtualClock(day)), AT, store, start=start, end=end))


def rows_of(store):
    """All tables of a store that have rows."""
    tables = [table for table in store.tables() if not table.startswith(TTL_TABLE)]  # an index is no part of the log
    return {table: rows for table in tables if (rows := dict(store.range(table)))}


def written(transactions):
    """A log of these transactions, each with records and whether it was committed. And what was committed."""
    logs = Logs({})
    for records, committed in transactions:
        producer = object()
        logs.write(AT, [k for k, _ in records], [v for _, v in records], [1] * len(records), None, producer)
        logs.finish(producer, committed=committed)
    tables, checkpoint = fold([one for records, committed in transactions if committed for one in records])
    alive = {table: {k: v for k, v in rows.items() if v is not None} for table, rows in tables.items()}
    return logs, {table: rows for table, rows in alive.items() if rows}, checkpoint


@given(
    st.lists(st.tuples(RECORDS, st.booleans()), min_size=1, max_size=4),
    st.lists(st.integers(0, 9), max_size=4),
    st.booleans(),
)
def test_a_restore_that_was_killed_between_any_two_writes_gives_what_was_committed(transactions, kills, compiled):
    """It reads the part that it has not finished again. Until it has finished the first one, the store says where it began and when: taken
    for a new one, it would be used whatever its age, with rows that were deleted since."""
    logs, tables, checkpoint = written(transactions)
    store = MemoryStore()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tasklog, "WRITE_ROWS", 2)
        patch.setattr(tasklog, "PART_RECORDS", 11)
        if not compiled:
            patch.setattr(chosen, "part", chosen.PLAIN)
        for day, writes in enumerate(kills, 100):
            killed_after(store, writes)
            try:
                restored(logs, store, day)
            except KilledError:
                assert not rows_of(store) or store.meta.position is not None
                assert not rows_of(store) or store.meta.followed_until_ms is not None
            del store.write
        done = restored(logs, store)
    assert rows_of(store) == tables
    assert (store.meta.position, store.meta.checkpoint) == (logs.log(AT).end, checkpoint)
    assert done.checkpoint == checkpoint


def test_a_store_on_disk_that_was_killed_between_two_writes_restores_the_rest(tmp_path, monkeypatch):
    """Two parts of several writes each, killed before each of them; deleted keys stay deleted, and expiring rows are found."""
    monkeypatch.setattr(tasklog, "WRITE_ROWS", 40)
    monkeypatch.setattr(tasklog, "PART_RECORDS", 150)
    chance = random.Random(3)
    made = [(A + b"%d" % chance.randrange(200), log_value(b"%d" % n, 5_000 + n % 3)) for n in range(250)]
    gone = [(key, None) for key in {key for key, _ in made[::3]}]
    logs, tables, checkpoint = written(
        [(made, True), ([(A + b"0", b"aborted")], False), (gone, True), ([(CHECKPOINT_KEY, b"c")], True)]
    )
    memory = StoreMemory(8 << 20)
    positions = set()
    for writes in range(12):
        store = open_rocks(tmp_path / "task", memory, Owner("u"))
        positions.add(store.meta.position)
        killed_after(store, writes % 3 + 1)
        try:
            restored(logs, store)
        except KilledError:
            store.close()
        else:
            break
    assert len(positions) > 2
    store.close()
    again = open_rocks(tmp_path / "task", memory, Owner("u"))
    assert {name: rows for name, rows in rows_of(again).items() if name == "a"} == tables
    assert again.meta.checkpoint == checkpoint
    due = ExpiryIndex("a", again).due((6_000).to_bytes(8, "big"), 1_000)
    assert {key for block in due.blocks for key in block.keys} >= set(tables["a"])
    again.close()
