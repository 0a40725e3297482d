"""The executors' reader, without Spark and without Kafka: parts are read whole or fail, and what was seen counts once."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, ClassVar

import pyarrow as pa
import pytest
from pyspark.errors import PythonException

from headgate.core.batching.range_notes import decode, key_of
from headgate.core.batching.ranges import Range, RangeAway, RangeBroken, RangeGone, RangeRead, Ranges, UndecodedRecord
from headgate.spark_bridge.base.errors import SparkPlanError
from headgate.spark_bridge.data import ranges
from headgate.spark_bridge.data.ranges import (
    Connect,
    Merged,
    RangePart,
    SparkRangeAway,
    SparkRangeError,
    SparkRangeGone,
    Unfetched,
    blamed,
    close_links,
    link,
    reader,
)

STEP = 10
COLUMNS = (("n", "int64", False),)


class Topic:
    """Stands for the client: each fetch brings `STEP` offsets."""

    live: ClassVar[list[Topic]] = []
    begins = 0
    """Where the logs start."""
    identity = ""

    def __init__(self, *, fails: bool = False) -> None:
        self.fails = fails
        self.fetched: list[int] = []

    async def start(self) -> None:
        if self.fails:
            raise RangeAway("nobody is there")
        Topic.live.append(self)

    async def stop(self) -> None:
        Topic.live.remove(self)

    async def fetch(self, topic: str, partition: int, offset: int) -> Any:
        self.fetched.append(offset)
        await asyncio.sleep(0)
        return SimpleNamespace(raw=b"", aborted=(), log_start=Topic.begins)

    async def topic_id(self, topic: str) -> str:
        return Topic.identity

    async def log_start(self, topic: str, partition: int) -> int:
        return Topic.begins


class Decoder:
    """Stands for the decoder: odd offsets hold rows, and those that divide by 7 cannot be decoded."""

    def __init__(self, columns: Any) -> None:
        assert columns == COLUMNS

    def __call__(self, topic: str, partition: int, raw: bytes, position: int, behind: int, aborted: Any) -> Any:
        upto = min(behind, position + STEP)
        rows = [n for n in range(position, upto) if n % 2 and n % 7]
        torn = [n for n in range(position, upto) if n % 7 == 0]
        return SimpleNamespace(
            position=upto,
            batch=pa.record_batch({"n": pa.array(rows, pa.int64())}) if rows else None,
            frames=(),
            rows=len(rows),
            tombstones=1,
            greatest_ms=max(rows, default=None),
            bad=tuple(UndecodedRecord(topic, partition, n, 0, None, b"", (), "torn") for n in torn),
        )


HERE = Connect(f"{__name__}:Topic", ())


@pytest.fixture(autouse=True)
def _alone() -> Iterator[None]:
    Topic.begins, Topic.identity = 0, ""
    yield
    close_links()
    assert Topic.live == []


def of(*parts: tuple[int, int], keeps_bad: bool = True) -> Ranges:
    found = tuple(Range("t", 0, *one) for one in parts)
    return Ranges(found, COLUMNS, f"{__name__}:Decoder", (), keeps_bad)


def numbers(*values: int) -> Iterator[pa.RecordBatch]:
    return iter([pa.record_batch({"id": pa.array(values, pa.int64())})])


def rows(batches: Any) -> list[int]:
    return [row["n"] for batch in batches for row in batch.to_pylist()]


def test_a_part_is_read_from_its_first_to_its_last_offset() -> None:
    part = RangePart(Range("t", 0, 8, 31), of(), link(HERE), Decoder(COLUMNS))
    assert rows(part) == [9, 11, 13, 15, 17, 19, 23, 25, 27, 29]
    assert part.seen.rows == 10
    assert (part.seen.greatest_ms, part.seen.tombstones) == (29, 3)
    assert [one.offset for one in part.seen.bad] == [14, 21, 28]
    assert Topic.live[0].fetched == [8, 18, 28]


def test_a_bad_record_is_an_error_unless_bad_records_are_kept() -> None:
    with pytest.raises(RangeBroken, match=r"t\[0\] offset 14: torn\. Remedy: on_bad_data="):
        rows(RangePart(Range("t", 0, 8, 31), of(keeps_bad=False), link(HERE), Decoder(COLUMNS)))


def test_records_that_were_removed_meanwhile_are_an_error() -> None:
    part = iter(RangePart(Range("t", 0, 8, 31), of(), link(HERE), Decoder(COLUMNS)))
    next(part)
    Topic.begins = 9
    with pytest.raises(
        RangeGone, match="from offset 8 on were removed before Spark had read them; the log starts at 9"
    ):
        list(part)


def test_a_topic_that_was_made_again_is_an_error_to_whoever_reads_its_records() -> None:
    """The offsets are there, with other records."""
    part = Range("t", 0, 8, 31, "one")
    for told in ("one", ""):
        Topic.identity = told
        assert rows(RangePart(part, of(), link(HERE), Decoder(COLUMNS)))
    Topic.identity = "two"
    with pytest.raises(
        RangeGone, match=r"t\[0\]: the topic was deleted and re-created .* its id was one, and is two now"
    ):
        rows(RangePart(part, of(), link(HERE), Decoder(COLUMNS)))
    assert rows(RangePart(Range("t", 0, 8, 31), of(), link(HERE), Decoder(COLUMNS)))


def test_the_function_of_a_job_reads_its_parts_and_notes_what_it_saw() -> None:
    parts = [Range("t", 0, 0, 4), Range("t", 0, 4, 9)]
    notes = SimpleNamespace(found={})
    notes.add = notes.found.update
    read = reader(parts, of(), HERE, notes, "first")
    assert rows(read(numbers(1, 0))) == [5, 1, 3]
    assert {key: decode(seen).rows for key, seen in notes.found.items()} == {
        key_of("first", parts[1]): 1,
        key_of("first", parts[0]): 2,
    }
    merged = Merged()
    both = merged.addInPlace(merged.addInPlace(merged.zero({}), notes.found), notes.found)
    assert both == notes.found
    alone = next(reader(parts, of(), HERE, None)(numbers(1)))
    assert alone.schema.names == ["notes"]


def test_places_are_those_of_offsets() -> None:
    unfetched = Unfetched(of((0, 4), (20, 26)), HERE)
    assert unfetched.num_rows == 10
    assert unfetched.slice(1, 1).to_pylist() == [{"n": 1}]
    assert rows_of(unfetched.slice(3)) == [3, 23, 25]
    keep = pa.array([place not in (1, 7) for place in range(10)])
    assert rows_of(unfetched.filter(keep)) == [3, 25]


def rows_of(unfetched: Unfetched) -> list[int]:
    return [row["n"] for row in unfetched.to_pylist()]


def test_clients_are_shared_and_closed() -> None:
    assert link(HERE) is link(HERE)
    assert len(Topic.live) == 1
    close_links()
    assert Topic.live == []
    with pytest.raises(RangeAway):
        link(Connect(f"{__name__}:Unreachable", ()))


class Unreachable(Topic):
    """Stands for the client while no broker answers."""

    def __init__(self) -> None:
        super().__init__(fails=True)


def test_secrets_are_not_shown() -> None:
    assert "secret" not in repr(Connect("a:b", ("secret",)))


READER = "/site-packages/headgate/spark_bridge/data/ranges.py"


def in_a_worker(file: str, text: str) -> Exception:
    """What Spark raises here if a Python worker has raised this there, in this file."""
    lines = [
        "Traceback (most recent call last):",
        f'  File "{file}", line 7, in __iter__',
        f"headgate.core.batching.ranges.{text}",
        "",
    ]
    error = PythonException(message="\n".join(lines))
    error._origin = None  # as Spark's converter leaves it
    return error


@pytest.mark.parametrize(
    ("error", "kind", "says"),
    [
        (RangeGone("gone", remedy="more"), SparkRangeGone, "gone. Remedy: more"),
        (RangeAway("away"), SparkRangeAway, "away"),
        (in_a_worker(READER, "RangeAway: no broker"), SparkRangeAway, "no broker"),
        (in_a_worker(READER, "RangeBroken: t[0] offset 3: torn"), SparkRangeError, "t[0] offset 3: torn"),
    ],
)
def test_what_failed_to_be_read_is_told_from_what_else_failed(error: Exception, kind: type, says: str) -> None:
    found = blamed(error)
    assert type(found) is kind
    assert str(found) == says
    assert blamed(SparkPlanError("no column")) is None
    assert blamed(in_a_worker("/home/a/job.py", "RangeAway: no broker")) is None, "a function has raised it"
    assert found.final == issubclass(kind, SparkRangeError)


def test_nothing_was_seen_of_an_empty_part() -> None:
    assert RangeRead(Range("t", 0, 0, 4)).rows == 0
    assert ranges.unreadable(UndecodedRecord("t", 1, 5, 0, None, b"", (), "torn")).what == "t[1] offset 5: torn"


class FrameDecoder(Decoder):
    """Offset `n` holds a frame with the numbers from `10 n` on, `n` of them."""

    def __call__(self, topic: str, partition: int, raw: bytes, position: int, behind: int, aborted: Any) -> Any:
        upto = min(behind, position + STEP)
        frames = {n: pa.array(range(10 * n, 11 * n), pa.int64()) for n in range(position, upto) if n}
        return SimpleNamespace(
            position=upto,
            batch=None,
            frames=tuple((n, pa.record_batch({"n": one})) for n, one in frames.items()),
            rows=sum(map(len, frames.values())),
            tombstones=0,
            greatest_ms=None,
            bad=(),
        )


def test_frames_are_read_whole_and_rows_of_them_can_be_left_out() -> None:
    """All rows count as seen, so that a frame that is missing is noticed all the same."""
    found = Ranges((Range("t", 0, 0, 4),), COLUMNS, f"{__name__}:FrameDecoder", rows=6)
    frames = Unfetched(found, HERE)
    assert rows_of(frames) == [10, 20, 21, 30, 31, 32]
    assert (frames.num_rows, frames.rows, frames.slice(2, 1).rows) == (4, 6, 2)
    assert frames.frame_at(2)["n"].to_pylist() == [20, 21]
    good = frames.without_rows([(2, 1), (3, 0)])
    assert rows_of(good) == [10, 20, 31, 32]
    part = RangePart(found.parts[0], replace(found, without=good._ranges.without), link(HERE), FrameDecoder(COLUMNS))
    assert rows(part) == [10, 20, 31, 32]
    assert part.seen.rows == 6
