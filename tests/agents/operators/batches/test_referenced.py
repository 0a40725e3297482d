"""Batches by reference in a task: offsets go in, ranges are closed, and what executors saw comes back with the result."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, TypedDict

import pyarrow as pa
import pytest

import headgate as hg
from headgate.agents.operators.base.stateless import UserCodeError
from headgate.agents.operators.batches.spark import BatchOp
from headgate.agents.records.frames.chunks import Chunk
from headgate.agents.records.frames.range_buffer import UnreadRecords
from headgate.agents.records.kafka.columns import Columns
from headgate.agents.state.store import MemoryStore
from headgate.core.batching.batches import BatchInfo, BatchOutcome, Contents, SparkStage
from headgate.core.batching.ranges import Range, RangeRead, Ranges, UndecodedRecord
from headgate.core.names import StreamPartition
from headgate.core.progress.frames import NO_TIME

from ...without_spark import WithoutSpark
from ..pipeline.test_pipeline import Rig

IN, IN1 = StreamPartition("in", 0), StreamPartition("in", 1)


class Order(TypedDict):
    n: int


class Executors(WithoutSpark):
    """Every offset holds a row with the time of its offset times ten, but those in `empty`; those in `bad` cannot be decoded."""

    def __init__(self) -> None:
        super().__init__()
        self.empty: set[int] = set()
        self.bad: dict[int, bytes] = {}
        self.contents: list[Ranges] = []

    async def run(self, batch: BatchInfo, contents: Contents, stages: Sequence[SparkStage]) -> list[BatchOutcome]:
        assert isinstance(contents, Ranges)
        self.ran.append(batch)
        self.contents.append(contents)
        read: list[RangeRead] = []
        for part in contents.parts:
            offsets = set(range(part.first, part.behind))
            rows = offsets - self.empty - set(self.bad)
            bad = tuple(
                UndecodedRecord(part.topic, part.partition, offset, 77, b"k", self.bad[offset], (("h", b"v"),), "torn")
                for offset in sorted(offsets & set(self.bad))
            )
            read.append(RangeRead(part, len(rows), 1, 10 * max(rows) if rows else None, bad))
        made = [{"batch": batch.id, "rows": sum(one.rows for one in read), "why": batch.closed_by}]
        return [BatchOutcome([self.encode([pa.Table.from_pylist(made)])], 1, read=read) for _ in stages]


def same(df: Any, batch: Any) -> Any:
    return df


def rig(store: MemoryStore | None = None, *, on_bad_data: Any = None, **limits: Any) -> tuple[Rig, Executors]:
    app = hg.App("job")
    orders = app.input("in", serde=hg.json(Order), on_bad_data=on_bad_data)
    orders.batch(by="reference", name="lot", **limits).spark(same, schema="n long").to("out")
    made, bridge = Rig(app, store=store), Executors()
    made.pipeline.spark = bridge
    return made, bridge


async def offsets(one: Rig, first: int, behind: int, at: StreamPartition = IN) -> None:
    assert await one.run(Chunk(at, behind, UnreadRecords(first, behind - first))) is None


def commit(one: Rig) -> None:
    one.seal()
    one.pipeline.sealed()
    one.pipeline.durable()


async def result(one: Rig) -> tuple[tuple[StreamPartition, int], ...]:
    """Take the next result. Returns what was seen."""
    batch: Any = next(operator for operator in one.pipeline.operators if isinstance(operator, BatchOp))
    await asyncio.wait([batch.results.runs._running[batch.rows.kept.closed[0].number]])
    await one.pipeline.step("work", None, None, "lot/run", "")
    one.pipeline.complete()
    one.tables.complete()
    return one.pipeline.seen()


def test_offsets_become_ranges_of_at_most_so_many() -> None:
    async def story() -> None:
        one, bridge = rig(max_rows=100)
        await offsets(one, 5, 45)
        await offsets(one, 45, 60)
        await offsets(one, 7, 9, IN1)
        assert one.pipeline.owed() == (("lot", NO_TIME),)
        await offsets(one, 60, 260)
        commit(one)
        await asyncio.sleep(0)
        assert [contents.parts for contents in bridge.contents] == [
            (Range("in", 0, 5, 103), Range("in", 1, 7, 9)),
            (Range("in", 0, 103, 203),),
        ]
        assert [(batch.number, batch.rows, batch.closed_by) for batch in bridge.ran] == [
            (1, 100, "rows"),
            (2, 100, "rows"),
        ]
        assert await result(one) == ((IN, 1020), (IN1, 80))
        assert await result(one) == ((IN, 2020),)
        assert one.pipeline.seen() == ()
        assert [(row.timestamps, row.values) for row in one.topics.open if row.at.stream == "out"] == [
            ([1020], [b'{"batch":"Partition 0/lot/1","rows":100,"why":"rows"}']),
            ([2020], [b'{"batch":"Partition 0/lot/2","rows":100,"why":"rows"}']),
        ]
        assert one.pipeline.owed() == (("lot", NO_TIME),)  # the open batch waits

    asyncio.run(story())


def test_ranges_name_their_topic_and_those_of_before_know_none() -> None:
    """A batch whose topic is made again meanwhile has a range of each; one that was adopted is read under
    the id that it was adopted as, and no other. Stored ranges of four values
    are those of an earlier version."""

    async def story() -> None:
        store = MemoryStore()
        one, bridge = rig(store, max_rows=100)
        topics = {IN: "one"}
        one.pipeline.topic_id = lambda at: topics.get(at, "")
        await offsets(one, 0, 10)
        await offsets(one, 10, 20)
        await offsets(one, 7, 9, IN1)
        topics[IN] = "two"
        await offsets(one, 20, 108)
        one.pipeline.adopted = lambda: {"one": "zwei"}
        commit(one)
        await asyncio.sleep(0)
        (contents,) = bridge.contents
        assert contents.parts == (Range("in", 0, 0, 20, "zwei"), Range("in", 1, 7, 9), Range("in", 0, 20, 98, "two"))
        batch: Any = next(operator for operator in one.pipeline.operators if isinstance(operator, BatchOp))
        assert batch.reference.ranges(1)[0] == Range("in", 0, 0, 20, "one")
        assert batch.rows.table.get_many(["r000000000001"])[0][1] == ["in", 1, 7, 9]

    asyncio.run(story())


def test_no_row_enters_the_task_log_and_a_restart_has_the_same_ranges() -> None:
    async def story() -> None:
        store = MemoryStore()
        one, _ = rig(store, max_rows=1_000_000)
        await offsets(one, 0, 3_000_000)
        one.seal()
        stored = sum(len(key) + len(value) for key, value in store._tables["lot"].items())
        assert stored < 2_000
        again, bridge = rig(store, max_rows=1_000_000)
        again.pipeline.durable()
        await asyncio.sleep(0)
        assert bridge.contents[0].parts == (Range("in", 0, 0, 1_000_000),)
        assert bridge.ran[0].id == "Partition 0/lot/1"

    asyncio.run(story())


def test_the_times_that_a_batch_may_have_are_fixed_when_its_offsets_are_read() -> None:
    """An hour ahead of the broker's time of then: a second attempt, of another life and an hour later, judges its records alike."""

    async def story() -> None:
        store = MemoryStore()
        one, bridge = rig(store, max_rows=10)
        for first, now_ms in ((0, 1_000), (5, 2_000)):
            chunk = Chunk(IN, first + 5, UnreadRecords(first, 5))
            chunk.now_ms = now_ms
            assert await one.run(chunk) is None
        commit(one)
        await asyncio.sleep(0)
        again, bridge_again = rig(store, max_rows=10)
        late = Chunk(IN, 20, UnreadRecords(10, 10))
        late.now_ms = 7_200_000
        assert await again.run(late) is None
        commit(again)
        await asyncio.sleep(0)
        assert await result(again) == ((IN, 90),)
        commit(again)
        await asyncio.sleep(0)
        (attempt,), second = bridge.contents, bridge_again.contents
        least, greatest, ahead_ms, own = attempt.arguments[-1]
        assert (least, greatest, ahead_ms, own) == (0, 2_000 + 3_600_000, 3_600_000, True)
        assert second[0] == attempt
        assert second[1].arguments[-1][1] == 7_200_000 + 3_600_000

    asyncio.run(story())


def test_a_batch_without_a_readable_row_has_no_result() -> None:
    async def story() -> None:
        one, bridge = rig(max_rows=10)
        bridge.empty = set(range(10))
        await offsets(one, 0, 10)
        commit(one)
        assert await result(one) == ()
        assert one.out() == []
        assert one.pipeline.owed() == ()

    asyncio.run(story())


@pytest.mark.parametrize("policy", ["skip", "dead_letter"])
def test_bad_records_are_counted_with_the_result(policy: str) -> None:
    async def story() -> None:
        one, bridge = rig(max_rows=10, on_bad_data=policy)
        one.pipeline.topic_id = lambda at: "one"
        bridge.bad = {3: b"{", 7: b"["}
        await offsets(one, 0, 10)
        commit(one)
        one.pipeline.topic_id = lambda at: "two"  # it was made again meanwhile
        assert bridge.contents == []
        assert await result(one) == ((IN, 90),)
        assert bridge.contents[0].keeps_bad
        assert one.counted["tombstones_dropped"] == 1
        dead = [row for row in one.topics.open if row.at.stream == "job-1-dead-letters"]
        assert [row.values for row in dead] == ([[b"{"], [b"["]] if policy == "dead_letter" else [])
        for row in dead:
            headers = dict(row.headers[0])
            assert (headers["hg-topic"], headers["hg-partition"], headers["hg-batch"]) == (
                b"in",
                b"0",
                b"Partition 0/lot/1",
            )
            assert headers["hg-topic-id"] == b"one"
            assert (headers["hg-exception"], headers["hg-timestamp"], headers["h"]) == (b"DataError: torn", b"77", b"v")
        assert [dict(row.headers[0])["hg-offset"] for row in dead] == ([b"3", b"7"] if policy == "dead_letter" else [])

    asyncio.run(story())


def test_a_bad_record_fails_its_batch_unless_the_input_says_otherwise() -> None:
    async def story() -> None:
        one, bridge = rig(max_rows=10)
        await offsets(one, 0, 10)
        commit(one)
        await asyncio.sleep(0)
        assert not bridge.contents[0].keeps_bad

    asyncio.run(story())


# ------------------------------------------------------------------------------------------------ frames of an intermediate stream

BY = StreamPartition("job-1-by-n", 0)


class FrameExecutors(Executors):
    """Every offset in `rows` holds a frame of so many rows."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: dict[int, int] = {}

    async def run(self, batch: BatchInfo, contents: Contents, stages: Sequence[SparkStage]) -> list[BatchOutcome]:
        assert isinstance(contents, Ranges)
        self.ran.append(batch)
        self.contents.append(contents)
        read = [
            RangeRead(part, sum(self.rows.get(at, 0) for at in range(part.first, part.behind)))
            for part in contents.parts
        ]
        made = [{"batch": batch.id, "rows": sum(one.rows for one in read)}]
        return [BatchOutcome([self.encode([pa.Table.from_pylist(made)])], 1, read=read) for _ in stages]


def framed(store: MemoryStore | None = None, **limits: Any) -> tuple[Rig, FrameExecutors]:
    app = hg.App("job")
    columns = app.input("in", serde=hg.json(Order)).columns().repartition("n")
    columns.batch(by="reference", name="lot", **limits).spark(same, schema="n long").to("out")
    made, bridge = Rig(app, BY.stream, store=store), FrameExecutors()
    made.pipeline.spark = bridge
    return made, bridge


async def frame(one: Rig, bridge: FrameExecutors, offset: int, *times: int, at: StreamPartition = BY) -> None:
    """A frame of rows with these times, as the task and the executors find it."""
    bridge.rows[offset] = len(times)
    values = [b'{"n":1}' for _ in times]
    columns = Columns(values, list(times), offset, None, [offset] * len(values))
    assert await one.run(Chunk(at, offset + 1, columns)) == max(times)


def test_frames_become_ranges_and_their_rows_and_times_are_known() -> None:
    """A batch takes whole frames, as many as it may have rows; what lies between frames, such as markers, is in the range."""

    async def story() -> None:
        one, bridge = framed(max_rows=5)
        await frame(one, bridge, 3, 30, 10, 20)
        await frame(one, bridge, 7, 50, 40)  # five rows: full
        await frame(one, bridge, 9, 70)
        await frame(one, bridge, 10, *range(80, 87))  # more than the rest of the batch takes, and than any other
        await frame(one, bridge, 11, 90)
        assert one.pipeline.owed() == (("lot", 50),)
        assert one.pipeline.needed() == {BY: 3}
        commit(one)
        await asyncio.sleep(0)
        assert [(contents.parts, contents.rows) for contents in bridge.contents] == [
            ((Range(BY.stream, 0, 3, 8),), 5),
            ((Range(BY.stream, 0, 9, 10),), 1),
            ((Range(BY.stream, 0, 10, 11),), 7),
        ]
        assert [(batch.rows, batch.earliest_ms, batch.latest_ms) for batch in bridge.ran] == [
            (5, 10, 50),
            (1, 70, 70),
            (7, 80, 86),
        ]
        assert await result(one) == ()
        assert one.pipeline.needed() == {BY: 9}
        assert await result(one) == ()
        assert await result(one) == ()
        assert one.pipeline.needed() == {BY: 11}
        stamps = [row.timestamps for row in one.topics.open if row.at.stream == "out"]
        assert stamps == [[50], [70], [86]]

    asyncio.run(story())


def test_a_restart_needs_the_frames_of_its_unfinished_batches() -> None:
    """No row is in the store, so the records must not be trimmed."""

    async def story() -> None:
        store = MemoryStore()
        one, bridge = framed(store, max_rows=3)
        await frame(one, bridge, 5, 1, 2, 3)
        await frame(one, bridge, 6, 4)
        one.seal()
        stored = b"".join(key + value for key, value in store._tables["lot"].items())
        assert len(stored) < 400
        again, bridge = framed(store, max_rows=3)
        bridge.rows = {5: 3, 6: 1}
        assert again.pipeline.needed() == {BY: 5}
        again.pipeline.durable()
        await asyncio.sleep(0)
        assert bridge.contents[0].parts == (Range(BY.stream, 0, 5, 6),)
        assert await result(again) == ()
        assert again.pipeline.needed() == {BY: 6}

    asyncio.run(story())


def test_a_letter_that_fails_needs_nothing_less() -> None:
    """What is dropped is run again; until then, what it had finished still counts as needed."""

    async def story() -> None:
        one, bridge = framed(max_rows=1)
        await frame(one, bridge, 5, 1)
        commit(one)
        batch: Any = next(operator for operator in one.pipeline.operators if isinstance(operator, BatchOp))
        await asyncio.wait([batch.results.runs._running[1]])
        await one.pipeline.step("work", None, None, "lot/run", "")
        assert one.pipeline.needed() == {BY: 5}
        one.pipeline.drop()
        one.tables.drop()
        assert one.pipeline.needed() == {BY: 5}
        assert await result(one) == ()
        assert one.pipeline.needed() == {}

    asyncio.run(story())


def test_executors_that_find_other_rows_are_an_error() -> None:
    """Never a smaller result, and never a larger one."""

    async def story() -> None:
        one, bridge = framed(max_rows=2)
        await frame(one, bridge, 5, 1, 2)
        bridge.rows[5] = 1
        commit(one)
        with pytest.raises(
            UserCodeError, match="the task saw 2 rows in its frames, and Spark's executors read 1 there"
        ):
            await result(one)

    asyncio.run(story())


def test_status_can_be_asked_for_when_the_store_is_closed() -> None:
    """A heartbeat asks between the end of a task and that of its operators; the worker must not end for it."""

    async def story() -> None:
        store = MemoryStore()
        one, _ = rig(store, max_rows=10)
        await offsets(one, 0, 15)
        one.seal()
        again, _ = rig(store, max_rows=10)
        store.close()
        for rigged in (one, again):
            (found,) = rigged.pipeline.batches()
            assert [batch.ranges for batch in found.batches] == [(Range("in", 0, 0, 10),), (Range("in", 0, 10, 15),)]

    asyncio.run(story())
