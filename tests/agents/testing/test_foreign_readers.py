"""A program that knows nothing but the page on frames reads a shared stream: its records, how far its time is, and when it has ended."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import msgpack
import orjson
import pyarrow as pa
import pytest

import headgate as hg
from headgate.agents.testing.driver import Driver
from headgate.core.names import StreamPartition

PLAIN, WATERMARK, END, DRAIN, BATCH, COLUMNS = range(6)


@dataclass
class Order:
    country: str
    amount: int
    ts: int


@dataclass
class Foreign:
    """Reads the records of one partition. Written by `docs/frames.md`."""

    rows: list[tuple[bytes | None, int, Any]] = field(default_factory=list[Any])
    times: dict[str, int] = field(default_factory=dict[str, int])
    """By task of the producing job, its watermark."""
    ended: set[str] = field(default_factory=set[str])
    drained: set[str] = field(default_factory=set[str])
    tasks: int = 0
    types: list[int] = field(default_factory=list[int])

    def read(self, value: bytes) -> None:
        kind, body = value[0], value[1:]
        self.types.append(kind)
        if kind in (WATERMARK, END, DRAIN):
            said = msgpack.unpackb(body)
            assert (said["v"], said["job"]) == (1, "pricing/1")
            self.tasks = said["tasks"]
            if kind == WATERMARK:
                self.times[said["task"]] = said["ts"]
            else:
                (self.ended if kind == END else self.drained).add(said["task"])
        elif kind == BATCH:
            version, keys, times, values, _, states = msgpack.unpackb(body)[:6]
            assert (version, states) == (1, 0)
            self.rows += zip(keys, times, map(orjson.loads, values), strict=True)
        else:
            assert kind == COLUMNS
            table = pa.ipc.open_stream(body).read_all()
            assert (table.schema.metadata[b"hg.v"], table.schema.metadata[b"hg.kind"]) == (b"1", b"0")
            for row in table.to_pylist():
                self.rows.append((row.pop("__key"), row.pop("__timestamp"), row))

    @property
    def time(self) -> int | None:
        """No record below this time follows; None: not known yet."""
        return min(self.times.values()) if self.times and len(self.times) == self.tasks else None


def pricing(columns: bool, **options: Any) -> hg.App:
    app = hg.App("pricing")
    orders = app.input("orders", serde=hg.json(Order), timestamp="ts", **options)
    (orders.columns() if columns else orders).share("priced", key="country", partitions=2)
    return app


@pytest.mark.parametrize("columns", [False, True], ids=["rows", "columns"])
def test_a_program_that_is_no_headgate_job_reads_a_shared_stream_by_the_page_on_frames(columns: bool) -> None:
    """Each record once, behind no watermark that has passed it; the two tasks of the job are told apart, and so are drain and end."""
    sent = [{"country": ("DE", "FR", "US")[n % 3], "amount": n, "ts": 1_000 + n} for n in range(600)]
    with Driver(pricing(columns), partitions={"orders": 2}) as d:
        for partition in (0, 1):
            d.send_all("orders", [row for n, row in enumerate(sent) if n % 2 == partition], partition=partition)
        d.advance("1s")
        found = [Foreign(), Foreign()]
        for partition, reader in enumerate(found):
            for record in d.topics.records(StreamPartition("priced", partition)):
                before, passed = len(reader.rows), reader.time
                reader.read(record.value or b"")
                assert passed is None or all(ts >= passed for _, ts, _ in reader.rows[before:])
        assert sorted((row for one in found for *_, row in one.rows), key=lambda row: row["ts"]) == sent
        assert all((key, ts) == (row["country"].encode(), row["ts"]) for one in found for key, ts, row in one.rows)
        assert [one.time for one in found] == [
            1_598,
            1_598,
        ]  # the least of both tasks: their last orders are of 1,598 and 1,599
        assert {kind for one in found for kind in one.types if kind > DRAIN} == {COLUMNS if columns else BATCH}
        d.drain()
        for partition, reader in enumerate(found):
            for record in d.topics.records(StreamPartition("priced", partition))[len(reader.types) :]:
                reader.read(record.value or b"")
        assert [len(one.drained) for one in found] == [2, 2]
        assert [one.ended for one in found] == [set(), set()]


@pytest.mark.parametrize("columns", [False, True], ids=["rows", "columns"])
def test_a_job_that_takes_frames_for_records_is_told_what_they_are(columns: bool) -> None:
    """Somebody forgets `producers=`: "cannot be decoded as JSON" alone sent them to the wrong place."""
    first = hg.App("pricing")
    first.input("orders", timestamp="ts").share("priced", key="country")
    second = hg.App("revenue", on_bad_data="dead_letter")
    priced = second.input("priced", serde=hg.json(Order))
    (priced.columns() if columns else priced.filter(lambda order: order.amount > 0)).to("out")
    with Driver(first) as theirs, Driver(second) as d:
        theirs.send("orders", {"country": "DE", "amount": 3, "ts": 1_000})
        theirs.advance("1s")
        d.send_all("priced", [{"country": "DE", "amount": 3, "ts": 1_000}, b"no JSON"])
        for one in theirs.topics.records(StreamPartition("priced", 0)):
            d.send("priced", one.value, headers=dict(one.headers))
        assert len(d.read("out")) == 1
        other, *frames = [letter.exception for letter in d.dead_letters()]
        assert "frame" not in other
        assert frames
        assert all("it is a frame" in one and 'producers=["that-job"]' in one for one in frames)
