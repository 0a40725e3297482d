"""A task's store between open and closed, when both are wanted at once."""

from __future__ import annotations

import asyncio
import threading
from types import SimpleNamespace

import pytest

from headgate.agents.job.types.schemas import CLOSED
from headgate.agents.kafka.port import KafkaPort
from headgate.agents.kafka.settings import ClientSettings
from headgate.agents.runtime.store.state import TaskStore
from headgate.agents.state import directory as module
from headgate.agents.state.directory import Directory, open_best
from headgate.agents.state.rocks import StoreMemory, open_rocks
from headgate.agents.state.store import Owner
from headgate.core.names import StreamPartition


@pytest.fixture
def path(tmp_path):
    """Where it lies."""
    return tmp_path / "tasks" / "Partition-0"


@pytest.fixture
def memory():
    """What stores on disk and their rows take."""
    return StoreMemory(8 << 20)


@pytest.fixture
def state(tmp_path, memory):
    """The state of a task that keeps it on disk, and knows nobody."""
    return TaskStore(
        KafkaPort(ClientSettings("nobody:1")),
        SimpleNamespace(tables=lambda: (), copied={}),
        "Partition 0",
        StreamPartition("log", 0),
        job_uuid="u",
        disk=Directory(tmp_path, "Partition 0", memory),
        decoded=memory.decoded,
        clock=lambda: 0,
        ends=SimpleNamespace(),
    )


@pytest.mark.asyncio
@pytest.mark.parametrize("called_off", [False, True])
async def test_a_release_while_the_store_opens_closes_what_was_opened(state, path, monkeypatch, called_off):
    """Else nobody holds the store and nobody closes it: the next life of the task finds its directory held, and restores everything
    into another one."""
    opening, may_open = threading.Event(), threading.Event()

    def slowly(*args):
        opening.set()
        may_open.wait(20)
        return open_best(*args)

    monkeypatch.setattr(module, "open_best", slowly)
    opened = asyncio.get_running_loop().create_task(state.open())
    await asyncio.to_thread(opening.wait, 20)
    if called_off:
        opened.cancel()
    closing = asyncio.get_running_loop().create_task(state.close())
    if called_off:
        await asyncio.sleep(0)
        closing.cancel()
    may_open.set()
    await asyncio.wait([opened, closing])
    await state.close()
    assert state.store is None
    again = open_rocks(path, StoreMemory(8 << 20), Owner("u", "Partition 0", 0))
    again.close()


@pytest.mark.asyncio
async def test_closing_twice_at_a_time_ends_when_the_store_is_closed(state, path):
    """Whoever waits for the end of a task opens its directory next."""
    await state.open()
    await asyncio.gather(state.close(), state.close())
    open_rocks(path, StoreMemory(8 << 20), Owner("u", "Partition 0", 0)).close()
    await state.close()


@pytest.mark.asyncio
async def test_a_closed_task_gives_back_what_its_decoded_rows_took(state, memory):
    """The tasks that stay on this worker would have less and less room for theirs with each task that leaves it."""
    await state.open()
    for _ in range(2):  # restored twice, as after a store that was wiped
        state._bind(state.store)
        state.table(CLOSED).update({f"k{n}": "x" * 1000 for n in range(100)})
        state.complete()
    assert 200_000 < memory.decoded.used < 300_000
    await state.close()
    assert memory.decoded.used == 0


@pytest.mark.asyncio
@pytest.mark.parametrize("called_off", [False, True])
@pytest.mark.parametrize("at", ["close", "wipe"])
async def test_a_release_while_the_store_is_wiped_waits_for_it(state, path, monkeypatch, called_off, at):
    """Else it is answered while a thread still removes the directory, and a store that is opened behind it is held by nobody."""
    begun, may_go_on = threading.Event(), threading.Event()
    await state.open()
    owner, name = (module, "wipe") if at == "wipe" else (state.store, "close")
    really = getattr(owner, name)

    def slowly(*args):
        begun.set()
        may_go_on.wait(20)
        really(*args)

    monkeypatch.setattr(owner, name, slowly)
    wiping = asyncio.get_running_loop().create_task(state.wipe())
    await asyncio.to_thread(begun.wait, 20)
    if called_off:
        wiping.cancel()
        await asyncio.wait([wiping])
    closing = asyncio.get_running_loop().create_task(state.close())
    for _ in range(10):
        await asyncio.sleep(0)
    assert not closing.done(), "nothing is closed before the wipe is through"
    may_go_on.set()
    await asyncio.wait([wiping, closing])
    open_rocks(path, StoreMemory(8 << 20), Owner("u", "Partition 0", 0)).close()


@pytest.mark.asyncio
async def test_a_store_that_is_about_to_be_released_is_written_out_and_closed_after_that(state, path):
    """The next owner waits for the release. A store closes in no time once the disk has what it holds; closing waits for the flush."""
    await state.open()
    state.tables = SimpleNamespace(close=lambda: None)
    flushing, may_flush, events = threading.Event(), threading.Event(), []
    flush, close = state.store.flush, state.store.close

    def slowly():
        flushing.set()
        may_flush.wait(20)
        flush()
        events.append("flushed")

    state.store.flush, state.store.close = slowly, lambda: (events.append("closed"), close())
    async with asyncio.TaskGroup() as group:
        group.create_task(state.write_out())
        await asyncio.to_thread(flushing.wait, 20)
        await state.write_out()  # once is enough
        closing = group.create_task(state.close())
        await asyncio.sleep(0.05)
        assert not closing.done()
        may_flush.set()
    assert events == ["flushed", "closed"]
