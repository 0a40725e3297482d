"""A task's log on a real broker: what commits write is what a restore makes a store of."""

from __future__ import annotations

import pytest

from headgate.agents.kafka.offsets import KafkaOffsets
from headgate.agents.kafka.port import KafkaPort, WallClock
from headgate.agents.kafka.settings import ClientSettings
from headgate.agents.records.values import serdes as serde
from headgate.agents.runtime.store import log as tasklog
from headgate.agents.runtime.store.log import log_write, restore
from headgate.agents.state.rocks import StoreMemory, open_rocks
from headgate.agents.state.store import MemoryStore, Owner
from headgate.agents.state.tables import TaskTables
from headgate.core.errors import EnvironmentFault
from headgate.core.machine import Now
from headgate.core.names import StreamPartition
from headgate.core.task.stored.checkpoint import table_prefix

from .commits import committed
from .scenes import outbox_on

pytestmark = pytest.mark.kafka


async def ends_of(kafka, at):
    """The end of the log, asked of the broker."""
    reader = KafkaOffsets(ClientSettings(kafka.bootstrap))
    await reader.start()
    try:
        return await reader.end_of(at, committed=False)
    finally:
        await reader.stop()


async def fill(outbox, at, tables, table, commits=4, keys=500):
    """Commits that set, change and delete keys, each applied to the store as a worker would."""
    for n in range(commits):
        table.update({f"k{i:04}": {"n": n, "i": i} for i in range(keys)})
        table.delete_many([f"k{n:04}"])
        tables.complete()
        checkpoint = b"checkpoint %d" % n
        positions = await committed(outbox, [log_write("t", at, tables.seal(), checkpoint, now_ms=1)])
        tables.applied(positions[at], checkpoint=checkpoint)


async def leave_open(outbox, name, keys):
    """Records of a transaction that nobody ends: the next initialisation of its id aborts it."""
    buffer = outbox.buffer("t")
    buffer.emit(name, 0, keys, [b"v"] * len(keys), 1)
    buffer.complete()
    await outbox._send(outbox._open, everything=True)
    await outbox._confirm(outbox._open)


@pytest.mark.asyncio
@pytest.mark.parametrize("raw", [True, False])
async def test_a_restored_store_equals_the_one_that_wrote_the_log(kafka, topic, tmp_path, raw, monkeypatch):
    """Six commits of 501 entries and a checkpoint, an aborted one between them; the difference is replayed, and at the end nothing is."""
    monkeypatch.setattr(tasklog, "WRITE_ROWS", 200)
    name = topic("log", config={"cleanup.policy": "compact"})
    at = StreamPartition(name, 0)
    client = ClientSettings(kafka.bootstrap)
    tables = TaskTables(MemoryStore())
    table = tables.declare("counts", serde.text(), serde.json())
    async with outbox_on(kafka, name, name) as outbox:
        await fill(outbox, at, tables, table)
        await leave_open(outbox, name, [table_prefix("counts") + b"k%04d" % n for n in range(500)])
    async with outbox_on(kafka, name, name) as outbox:
        await fill(outbox, at, tables, table, commits=2)
    end = await ends_of(kafka, at)
    said = []
    store = open_rocks(tmp_path / "task", StoreMemory(16 << 20), Owner("u"))
    done = await restore(KafkaPort(client), at, store, start=0, end=end, progress=said.append, raw=raw)
    assert done.records == 6 * 501
    assert done.checkpoint == b"checkpoint 1"
    assert done.position == end == store.meta.position
    assert dict(store.range("counts")) == dict(tables.store.range("counts"))
    assert said[-1].position == end
    store.close()

    again = open_rocks(tmp_path / "task", StoreMemory(16 << 20), Owner("u"))
    nothing = await restore(KafkaPort(client), at, again, start=again.meta.position, end=end, raw=raw)
    assert (nothing.records, nothing.checkpoint) == (0, b"checkpoint 1")
    again.close()

    behind = MemoryStore()
    part = await restore(KafkaPort(client), at, behind, start=tables.store.meta.position, end=end, raw=raw)
    assert part.records == 0  # what was applied stands before the commit's marker


@pytest.mark.asyncio
async def test_an_open_transaction_blocks_a_restore_up_to_its_deadline(kafka, topic):
    """The predecessor is not fenced and its transaction is open: said while waiting, and an error after the deadline."""
    name = topic("log")
    at = StreamPartition(name, 0)
    tables = TaskTables(MemoryStore())
    table = tables.declare("counts", serde.text(), serde.json())
    said = []
    async with outbox_on(kafka, name, name) as outbox:
        await fill(outbox, at, tables, table, commits=1, keys=5)
        await leave_open(outbox, name, [b"k"])
        end = await ends_of(kafka, at)
        with pytest.raises(EnvironmentFault, match="an open transaction blocks it"):
            await restore(
                KafkaPort(ClientSettings(kafka.bootstrap)),
                at,
                MemoryStore(),
                start=0,
                end=end,
                progress=said.append,
                deadline_s=5.0,
            )
    assert any(one.blocked for one in said)


class OnDay(KafkaPort):
    """Kafka on a certain day."""

    def __init__(self, client, day):
        super().__init__(client)
        self.clock = OnDay.Calendar(day)

    class Calendar(WallClock):
        def __init__(self, day):
            self.day = day
            self.leapt_s = 0.0

        def now(self):
            return Now(super().now().mono + self.leapt_s, self.day)


@pytest.mark.asyncio
async def test_a_restore_that_is_cut_short_has_not_stood_at_the_end(kafka, topic):
    """It goes on from where it stood, and the time at which the store last knew of every deleted key stays what it was: moved on at
    each try, it would be trusted when the log has forgotten what was deleted, and deleted keys would rise again."""
    name = topic("log")
    at = StreamPartition(name, 0)
    client = ClientSettings(kafka.bootstrap)
    tables = TaskTables(MemoryStore())
    table = tables.declare("counts", serde.text(), serde.json())
    async with outbox_on(kafka, name, name) as outbox:

        async def cut_short(store, now):
            await fill(outbox, at, tables, table, commits=1, keys=5)
            start, end = store.meta.position or 0, await ends_of(kafka, at)
            port = OnDay(client, now)

            def looks(seen):  # when all is read, its patience is over at once
                port.clock.leapt_s = 3600.0 * (seen.position >= end)

            with pytest.raises(EnvironmentFault, match="cannot be read up to"):
                # beyond the marker of the last commit, too, which may be appended after the commit was confirmed
                await restore(port, at, store, start=start, end=end + 10, progress=looks, deadline_s=60.0)
            assert store.meta.position > start

        fresh = MemoryStore()
        for day in (1000, 2000):
            await cut_short(fresh, day)
            assert fresh.meta.followed_until_ms == 1000  # nothing in it is older than that
        await restore(OnDay(client, 3000), at, fresh, start=fresh.meta.position, end=await ends_of(kafka, at))
        for day in (4000, 5000):
            await cut_short(fresh, day)
            assert fresh.meta.followed_until_ms == 3000
