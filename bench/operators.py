"""The cost of a task's operators, without Kafka: records per CPU-second through a pipeline, compared with hand-written loops.

    python -m bench.operators [records]

A  parse, filter, add a field, write      B  repartition by user, count and sum      C  parse and add up
J  add a field of a broadcast table of 1,000 rows, write      K  join two streams by key within 10 s, a pair for nine in ten, write

Chunks of 2,000 records of about 100 bytes of JSON; commits every 100 chunks. The hand-written loops have no atomicity, keys, headers or
event time. So they are the upper bound, and the difference is the cost of the guarantees.
"""

from __future__ import annotations

import asyncio
import gc
import sys
import time
from array import array
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import msgpack
import msgspec
import orjson

import headgate as hg
from headgate.agents.job.derive.declaration import Declared
from headgate.agents.operators.pipeline.pipeline import Pipeline
from headgate.agents.operators.shuffle.shuffles import PARTIAL
from headgate.agents.process.memory import keep_memory
from headgate.agents.records.frames.arrow_columns import ArrivedColumns
from headgate.agents.records.frames.chunks import Chunk
from headgate.agents.records.kafka.columns import Columns, columns_of
from headgate.agents.records.kafka.spans import SpannedColumns, SpannedRecords
from headgate.agents.records.memory.record_spans import packed
from headgate.agents.state.opening import open_tables
from headgate.agents.state.store import MemoryStore
from headgate.core.names import StreamPartition
from headgate.core.progress.frames import ArrowFrame, BatchFrame, decode

CHUNK = 2000
CHUNKS_A_COMMIT = 100
USERS = 10_000


class Raw(NamedTuple):
    """A record as the intake returns it."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes
    headers: tuple[Any, ...]


def records(number: int, base: int) -> list[Raw]:
    """Records with about 100 bytes of JSON each."""
    made: list[Raw] = []
    for n in range(base, base + number):
        value = {"id": n, "user": f"user-{n * 7919 % USERS}", "amount": n % 100, "country": "DE", "note": "x" * 22}
        made.append(Raw(n, 1_700_000_000_000 + n, None, orjson.dumps(value), ()))
    return made


class Ready:
    """A ready buffer that counts, and keeps what goes to intermediate streams."""

    def __init__(self) -> None:
        self.records = 0
        self.frames: list[tuple[int, bytes]] = []
        self._fresh: list[tuple[str, int | None, list[Any]]] = []

    def emit(
        self, topic: str, partition: int | None, keys: Any, values: Any, timestamps: Any, headers: Any = None
    ) -> tuple[int, int]:
        self._fresh.append((topic, partition, values))
        return 0, 0

    def emit_spans(self, topic: str, partition: int | None, of: SpannedRecords, rows: Any = None) -> tuple[int, int]:
        self.records += len(of) if rows is None else memoryview(rows).nbytes // 8
        return 0, 0

    def complete(self) -> None:
        for topic, partition, values in self._fresh:
            self.records += len(values)
            if topic.startswith("bench-1-"):
                self.frames.extend((partition or 0, value) for value in values)
        self._fresh = []

    def drop(self) -> None:
        self._fresh = []


class Rig:
    """One task's pipeline in memory."""

    def __init__(self, app: hg.App, streams: list[str]) -> None:
        declared = Declared(app)
        self.tables = open_tables(MemoryStore("u"), declared, clock=lambda: 0).tables
        self.ready, self.commits = Ready(), 0
        self.pipeline = Pipeline(
            declared,
            "Partition 0",
            buffer=self.ready,
            seal_buffer=self.ready,
            table=self.tables.table,
            widths=defaultdict(lambda: 4),
            now_ms=lambda: 0,
            count=lambda _, __: None,
            streams=streams,
        )

    async def chunk(self, chunk: Chunk) -> None:
        await self.pipeline.chunk(chunk)
        self.done()

    def done(self) -> None:
        """The letter is complete."""
        self.pipeline.complete()
        self.tables.complete()

    def commit(self) -> None:
        self.pipeline.seal()
        self.tables.complete()
        self.tables.seal()
        self.tables.applied(self.commits)
        self.commits += 1


def plain_chunks(kept: list[list[Raw]]) -> Iterator[Chunk]:
    for part in kept:
        yield Chunk(StreamPartition("events", 0), part[-1].offset + 1, columns_of(part))


def spanned_chunks(kept: list[list[Raw]]) -> Iterator[Chunk]:
    """The same records in spans, as a reader of columns gets them."""
    for part in kept:
        values, times = packed([raw.value for raw in part]), array("q", [raw.timestamp for raw in part])
        columns = SpannedColumns(SpannedRecords(values, times, part[0].offset, None))
        yield Chunk(StreamPartition("events", 0), part[-1].offset + 1, columns)


def framed_chunks(frames: list[tuple[int, bytes]], stream: str) -> Iterator[Chunk]:
    """The frames of one partition as chunks, as the intake unpacks them."""
    for n, (_, data) in enumerate(frames):
        frame = decode(data)
        assert isinstance(frame, ArrowFrame | BatchFrame)
        columns: Any = ArrivedColumns([(frame, n)], PARTIAL) if isinstance(frame, ArrowFrame) else None
        if isinstance(frame, BatchFrame):
            columns = Columns(frame.values, frame.timestamps, n, frame.keys)
        yield Chunk(StreamPartition(stream, 0), n + 1, columns, plan=frame.plan)


async def run(rig: Rig, made: Iterator[Chunk]) -> float:
    """CPU-seconds for all chunks, with commits."""
    chunks = list(made)
    began = time.process_time()
    for n, chunk in enumerate(chunks, 1):
        await rig.chunk(chunk)
        if n % CHUNKS_A_COMMIT == 0:
            rig.commit()
    rig.commit()
    return time.process_time() - began


def add_total(event: dict[str, Any]) -> dict[str, Any]:
    event["total"] = event["amount"] * 1.2
    return event


def job_a() -> hg.App:
    app = hg.App("bench")
    app.input("events").filter(lambda e: e["amount"] >= 10).map(add_total).to("out")
    return app


def job_b(*, combine: bool) -> hg.App:
    app = hg.App("bench")
    by_user = app.input("events").repartition("user")
    by_user.agg(n=hg.count(), total=hg.sum("amount")).to("totals")
    if not combine:
        by_user.sink(lambda batch: None)
    return app


def job_c(total: list[int]) -> hg.App:
    def add(batch: hg.Batch[Any, Any]) -> None:
        total[0] += sum([event["amount"] for event in batch.values])

    app = hg.App("bench")
    app.input("events").sink(add)
    return app


class Event(msgspec.Struct, gc=False):
    """What columns are decoded of."""

    id: int
    user: str
    amount: int
    country: str
    note: str


class User(msgspec.Struct, gc=False):
    """A row of the table."""

    campaign: str


def columns_of_events(app: hg.App) -> hg.ColumnStream[Any, Event]:
    return app.input("events", serde=hg.json(Event)).columns()


def columns_a() -> hg.App:
    app = hg.App("bench")
    columns_of_events(app).filter(hg.col("amount") >= 10).with_columns(total=hg.col("amount") * 1.2).to("out")
    return app


def columns_b() -> hg.App:
    app = hg.App("bench")
    columns_of_events(app).repartition("user").agg(n=hg.count(), total=hg.sum("amount")).to("totals")
    return app


def job_j(*, columns: bool) -> hg.App:
    app = hg.App("bench")
    users = app.input("users", serde=hg.json(User), key_serde=hg.text()).table("users", broadcast=True)
    if columns:
        columns_of_events(app).join(users, on="user", take=["campaign"], how="left").to("out")
        return app
    into = lambda event, user: {**event, "campaign": user and user.campaign}  # noqa: E731
    app.input("events").join(users, on="user", into=into, how="left").to("out")
    return app


class Order(msgspec.Struct, gc=False):
    """The left side of K."""

    id: str
    amount: int
    ts: int


class Payment(msgspec.Struct, gc=False):
    """The right side of K."""

    id: str
    paid: int
    ts: int


def job_k(*, columns: bool) -> hg.App:
    app = hg.App("bench")
    given: Any = {"key": "id", "timestamp": "ts"}
    kinds = [("orders", Order), ("payments", Payment)]
    orders, payments = (app.input(name, serde=hg.json(kind), **given) for name, kind in kinds)
    if columns:
        orders.columns().join(payments.columns(), within="10s", grace="30s", take=["paid"]).to("out")
        return app
    into = lambda order, payment: {"id": order.id, "amount": order.amount, "ts": order.ts, "paid": payment.paid}  # noqa: E731
    orders.join(payments, within="10s", grace="30s", into=into).to("out")
    return app


async def paired(number: int, *, columns: bool) -> float:
    """K: half of the records are orders. Event time goes on by 0.8 s with each chunk, as in a task of `bench joins`."""
    rig = Rig(job_k(columns=columns), ["orders", "payments"])
    chunks: list[Chunk] = []
    for base in range(0, number // 2, CHUNK):
        ids = range(base, base + CHUNK)
        for name, late in (("orders", 0), ("payments", 1)):
            times = [i * 2 // 5 + late * (12_000 if i % 10 == 0 else i * 7919 % 9001) for i in ids]
            field = b"paid" if late else b"amount"
            values = [
                b'{"id":"o%d","%b":%d,"ts":%d,"city":"Leuven","pad":"%b"}' % (i, field, i % 97, time, b"x" * 40)
                for i, time in zip(ids, times, strict=True)
            ]
            keys: Any = [b"o%d" % i for i in ids]
            at = StreamPartition(name, 0)
            if columns:
                spans = SpannedRecords(packed(values), array("q", times), base, packed(keys))
                chunks.append(Chunk(at, base + CHUNK, SpannedColumns(spans)))
            else:
                chunks.append(Chunk.of(at, values, keys=keys, timestamps=times, base=base))
    took = 0.0
    for begin in range(0, len(chunks), CHUNKS_A_COMMIT):
        took += await run(rig, iter(chunks[begin : begin + CHUNKS_A_COMMIT]))
        began = time.process_time()
        told = [("join-10s", (begin - 50) // 2 * CHUNK * 2 // 5)]
        while await rig.pipeline.step("watermark", None, None, "", "", told):
            rig.done()
        rig.done()
        took += time.process_time() - began
    assert rig.ready.records == number // 2 * 9 // 10, rig.ready.records
    return took


async def joined(kept: list[list[Raw]], *, columns: bool) -> float:
    rig = Rig(job_j(columns=columns), ["events", "users"])
    keys: Any = [f"user-{n * USERS // 1000}".encode() for n in range(1000)]
    await rig.chunk(Chunk.of(StreamPartition("users", 0), [b'{"campaign":"c"}'] * 1000, keys=keys))
    rig.commit()
    return await run(rig, (spanned_chunks if columns else plain_chunks)(kept))


def hand_a(kept: list[list[Raw]]) -> int:
    loads, dumps, out = orjson.loads, orjson.dumps, 0
    for part in kept:
        made: list[bytes] = []
        for event in [loads(r.value) for r in part]:
            if event["amount"] >= 10:
                event["total"] = event["amount"] * 1.2
                made.append(dumps(event))
        out += len(made)
    return out


def hand_b(kept: list[list[Raw]]) -> int:
    """With combining, like the faster of the two prototypes: partial states, then sums, then updates."""
    loads, dumps, pack = orjson.loads, orjson.dumps, msgpack.packb
    combined: dict[str, list[int]] = {}
    states: dict[str, list[int]] = {}
    updates = 0

    def commit() -> None:
        nonlocal combined, updates
        rows: Any = msgpack.unpackb(pack(combined))
        for user, (n, amount) in rows.items():
            state = states.get(user)
            if state is None:
                states[user] = [n, amount]
            else:
                state[0] += n
                state[1] += amount
        for user in rows:
            pack(states[user])
            dumps({"user": user, "n": states[user][0], "total": states[user][1]})
        updates += len(rows)
        combined = {}

    for number, part in enumerate(kept, 1):
        for event in [loads(r.value) for r in part]:
            user = event["user"]
            state = combined.get(user)
            if state is None:
                combined[user] = [1, event["amount"]]
            else:
                state[0] += 1
                state[1] += event["amount"]
        if number % CHUNKS_A_COMMIT == 0:
            commit()
    commit()
    return updates


def hand_c(kept: list[list[Raw]]) -> int:
    loads, total = orjson.loads, 0
    for part in kept:
        total += sum([event["amount"] for event in [loads(r.value) for r in part]])
    return total


def timed(fn: Callable[[list[list[Raw]]], int], kept: list[list[Raw]]) -> float:
    began = time.process_time()
    fn(kept)
    return time.process_time() - began


async def main(number: int) -> None:
    kept = [records(CHUNK, base) for base in range(0, number, CHUNK)]
    size = sum(len(r.value) for r in kept[0]) // CHUNK
    print(
        f"{number:,} records of {size} bytes, chunks of {CHUNK}, a commit every {CHUNKS_A_COMMIT} chunks; k records/s"
    )
    keep_memory()
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 100)  # as in a worker
    total = [0]
    rows: list[tuple[str, float, float | None]] = []
    rows.append(("A  whole", await run(Rig(job_a(), ["events"]), plain_chunks(kept)), timed(hand_a, kept)))
    first = Rig(job_b(combine=True), ["events"])
    up = await run(first, plain_chunks(kept))
    inner = "bench-1-by-user"
    down = await run(Rig(job_b(combine=True), [inner]), framed_chunks(first.ready.frames, inner))
    rows.append(("B  up to the shuffle, combining", up, None))
    rows.append(("B  behind it, combined", down, None))
    rows.append(("B  whole, combining", up + down, timed(hand_b, kept)))
    plain = Rig(job_b(combine=False), ["events"])
    up = await run(plain, plain_chunks(kept))
    down = await run(Rig(job_b(combine=False), [inner]), framed_chunks(plain.ready.frames, inner))
    rows.append(("B  up to the shuffle, row by row", up, None))
    rows.append(("B  behind it, row by row", down, None))
    rows.append(("C  whole", await run(Rig(job_c(total), ["events"]), plain_chunks(kept)), timed(hand_c, kept)))
    rows.append(("J  whole", await joined(kept, columns=False), None))
    rows.append(("A  in columns", await run(Rig(columns_a(), ["events"]), spanned_chunks(kept)), None))
    rows.append(
        ("B  in columns, up to the shuffle", await run(Rig(columns_b(), ["events"]), spanned_chunks(kept)), None)
    )
    rows.append(("J  in columns", await joined(kept, columns=True), None))
    rows.append(("K  whole, of typed rows", await paired(number, columns=False), None))
    rows.append(("K  in columns", await paired(number, columns=True), None))
    for name, took, by_hand in rows:
        hand = "" if by_hand is None else f"   by hand {number / by_hand / 1000:8,.0f}   {by_hand / took:5.0%}"
        print(f"  {name:36} {number / took / 1000:8,.0f}{hand}")


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 400_000))
