"""A task log that is followed without a grant: what is read, when it is near, what the task takes over, and what goes wrong."""

from __future__ import annotations

import asyncio
from functools import partial

import pytest

from headgate.agents.port.bounds import log_ends
from headgate.agents.runtime.store.followers import AT_ONCE, Followers
from headgate.agents.runtime.store.log import restore
from headgate.agents.state.directory import Directory
from headgate.agents.state.rocks import StoreMemory
from headgate.agents.state.store import MemoryStore, Owner, StoreMeta
from headgate.agents.testing.clock import VirtualClock
from headgate.agents.testing.logs import Logs
from headgate.agents.testing.port import MemoryPort
from headgate.core.coordination.member.protocol import FollowedLog
from headgate.core.names import StreamPartition
from headgate.core.task.stored.checkpoint import log_value, table_prefix

TASK = "Partition 0"
AT = StreamPartition("log", 0)
LOG = FollowedLog(3, 0, "u")


class Room:
    """One worker that follows logs, in virtual time; and the owner that writes them."""

    def __init__(self, disk):
        self.clock = VirtualClock(1_000_000_000)
        self.logs = Logs({})
        self.port = MemoryPort(self.logs, self.clock)
        self.near = []
        self.broken = []
        self.ends = partial(log_ends, self.port)
        self.followers = Followers(self.port, self, disk, "log", (), lambda at: self.ends(at))

    def spawn(self, work, name):
        task = asyncio.get_running_loop().create_task(work(), name=name)
        task.add_done_callback(lambda one: None if one.cancelled() else self.broken.append(one.exception()))
        return task

    def commit(self, rows, *, at=AT, done=True):
        """A transaction of the owner. Without `done` it is left open, and returned."""
        producer = object()
        keys = [table_prefix("a") + key for key in rows]
        values = [None if value is None else log_value(value) for value in rows.values()]
        self.logs.write(at, keys, values, [1] * len(keys), None, producer)
        if done:
            self.logs.finish(producer, committed=True)
        return producer

    def follow(self, logs):
        self.followers.follow(logs, lambda task, grant: self.near.append((task, grant)))

    async def until(self, found, most_s=100.0):
        """Let time pass until this is true."""
        while not found():
            assert self.clock.now().mono < most_s, "not in time"
            for _ in range(20):
                await asyncio.sleep(0)
            self.clock.move(self.clock.now().mono + 0.05)
            while self.clock.ring():
                pass

    async def quiet(self, seconds):
        end = self.clock.now().mono + seconds
        await self.until(lambda: self.clock.now().mono >= end, end + 1)


class Kept:
    """A disk in memory: what was written stays. `open` may fail so often."""

    def __init__(self, meta=None, failing=0):
        self.meta, self.rows, self.wiped, self.failing = meta, {}, 0, failing
        self.store = None

    def __call__(self, task):
        return self

    def open(self, owner, tables=()):
        if self.failing:
            self.failing -= 1
            raise OSError("no room")
        self.store = MemoryStore(owner)
        if self.meta is not None:
            self.store._meta = self.meta
            self.store.write(self.rows)
        return self.store

    def wipe(self):
        self.wiped, self.meta, self.rows = self.wiped + 1, None, {}


def values(store):
    return {key: value[-1:] for key, value in store.range("a")}


@pytest.mark.asyncio
async def test_what_is_committed_is_followed_and_the_task_takes_it_over_open():
    room = Room(Kept())
    room.commit({b"x": b"1", b"y": b"1"})
    room.follow({TASK: LOG})
    await room.until(lambda: room.near)
    assert room.near == [(TASK, 3)]
    room.commit({b"x": b"2", b"y": None})
    await room.quiet(1.0)
    assert room.followers.left() == {TASK: 0}
    taken = await room.followers.take(TASK)
    assert values(taken.store) == {b"x": b"2"}
    assert taken.store.meta.owner == Owner("u", TASK, 0)
    room.commit({b"x": b"3"})
    await room.quiet(3.0)
    assert values(taken.store) == {b"x": b"2"}  # nobody writes to it any more
    end = room.logs.log(AT).end
    result = await restore(room.port, AT, taken.store, start=taken.store.meta.position, end=end)
    assert (result.records, values(taken.store)) == (1, {b"x": b"3"})
    assert room.near == [(TASK, 3)]
    assert await room.followers.take(TASK) is None
    assert room.broken == []


@pytest.mark.asyncio
async def test_what_is_not_committed_is_not_in_the_store_and_holds_nearness_up():
    room = Room(Kept())
    room.commit({b"x": b"1"})
    open_one = room.commit({b"x": b"2"}, done=False)
    room.follow({TASK: LOG})
    await room.quiet(5.0)
    assert room.near == []
    assert values(room.followers._disk(TASK).store) == {b"x": b"1"}
    room.logs.finish(open_one, committed=False)
    await room.until(lambda: room.near)
    taken = await room.followers.take(TASK)
    assert values(taken.store) == {b"x": b"1"}


@pytest.mark.asyncio
async def test_a_store_that_may_have_missed_deletions_or_is_of_another_log_begins_anew():
    for meta in (
        StoreMeta(Owner("u", TASK, 0), 1, 1),
        StoreMeta(Owner("u", TASK, 0), 99, 999_000_000),
        StoreMeta(Owner("other", TASK, 0), 1, 999_000_000),
    ):
        disk = Kept(meta)
        disk.rows = {"a": {b"old": b"1"}}
        room = Room(disk)
        room.commit({b"x": b"1"})
        room.commit({b"x": b"2"})
        room.follow({TASK: LOG})
        await room.until(lambda room=room: room.near)
        taken = await room.followers.take(TASK)
        assert (disk.wiped, values(taken.store)) == (1, {b"x": b"2"})


@pytest.mark.asyncio
async def test_a_store_is_as_old_as_when_its_log_is_read_and_not_as_when_the_end_was_asked_for():
    """The simulator has found it: the answer came after an outage, and by then compaction had removed what deletes a row of the store."""
    disk, came = Kept(), asyncio.Event()
    room = Room(disk)
    room.commit({b"x": b"1"})
    room.follow({TASK: LOG})
    await room.until(lambda: room.near)

    async def late(at):
        start, end, _ = await log_ends(room.port, at)
        await came.wait()
        return start, end, 4000

    room.ends = late
    room.commit({b"x": b"2"})
    await room.quiet(3.0)
    came.set()
    await room.until(lambda: disk.wiped)
    assert disk.wiped == 1
    await room.quiet(3.0)
    taken = await room.followers.take(TASK)
    assert values(taken.store) == {b"x": b"2"}


@pytest.mark.asyncio
async def test_what_goes_wrong_is_tried_again():
    disk = Kept(failing=2)
    room = Room(disk)
    room.commit({b"x": b"1"})
    room.follow({TASK: LOG})
    await room.until(lambda: room.near)
    assert room.clock.now().mono >= 4.0
    assert room.broken == []


@pytest.mark.asyncio
async def test_what_is_named_no_more_is_closed_and_another_grant_goes_on_in_the_same_store():
    disk = Kept()
    room = Room(disk)
    room.commit({b"x": b"1"})
    room.follow({TASK: LOG})
    await room.until(lambda: room.near)
    first = disk.store
    room.follow({TASK: FollowedLog(5, 0, "u")})
    await room.until(lambda: len(room.near) == 2)
    assert room.near[-1] == (TASK, 5)
    assert disk.store is first
    room.follow({TASK: FollowedLog(5, 0, "another life of the job")})
    await room.quiet(0.2)
    assert first._closed
    room.follow({})
    await room.quiet(0.2)
    assert disk.store._closed
    assert room.followers.all == {}
    room.follow({TASK: FollowedLog(6, 0, "u")})
    await room.until(lambda: room.near[-1] == (TASK, 6))
    await room.followers.take(TASK)
    room.follow({TASK: FollowedLog(8, 0, "u")})  # what was taken over is not followed on
    await room.until(lambda: room.near[-1] == (TASK, 8))
    await room.followers.stop()


@pytest.mark.asyncio
async def test_few_logs_are_read_up_at_once_and_all_are_in_the_end():
    room = Room(lambda _: Kept())
    tasks = {f"Partition {n}": FollowedLog(1, n, "u") for n in range(6)}
    open_ones = []
    for n in range(6):
        room.commit({b"x": b"1"}, at=StreamPartition("log", n))
        open_ones.append(room.commit({b"x": b"2"}, at=StreamPartition("log", n), done=False))
    room.follow(tasks)
    await room.quiet(3.0)
    assert sum(one.progress is not None for one in room.followers.all.values()) == AT_ONCE
    for one in open_ones:
        room.logs.finish(one, committed=True)
    await room.until(lambda: len(room.near) == 6)
    await room.followers.stop()


@pytest.mark.asyncio
async def test_a_process_that_ends_closes_its_stores(tmp_path):
    memory = StoreMemory(8 << 20)
    room = Room(lambda task: Directory(tmp_path, task, memory))
    room.commit({b"x": b"1"})
    room.follow({TASK: LOG})
    await room.until(lambda: room.near)
    await room.followers.stop()
    again = Directory(tmp_path, TASK, memory).open(Owner("u", TASK, 0))
    assert values(again) == {b"x": b"1"}
    again.close()
