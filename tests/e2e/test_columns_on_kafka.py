"""Columns on the real broker, through the public API: what comes out at a reader that is none of our code.

That they give what rows give is told on the test driver (`tests/agents/operators/plain`).
"""

from __future__ import annotations

from collections import Counter
from typing import TypedDict

import orjson
import pytest
from aiokafka import AIOKafkaProducer

import headgate as hg
from headgate.core.progress.frames import BatchFrame, encode

pytestmark = [pytest.mark.kafka, pytest.mark.asyncio]


class Order(TypedDict):
    user: str
    amount: float
    ts: int
    country: str | None


class Priced(TypedDict):
    user: str
    total: float


SOURCE = """
from typing import TypedDict

import headgate as hg


class Order(TypedDict):
    user: str
    amount: float
    ts: int


app = hg.App("JOB")
orders = app.input("IN", serde=hg.json(Order), timestamp="ts").columns().filter(hg.col("amount") >= 10)
orders.with_columns(total=hg.col("amount") * 2).to("BIG")
by_user = orders.repartition("user")
by_user.agg(n=hg.count(), total=hg.sum("amount"), name="totals").to("OUT")
by_user.window(hg.tumbling("100ms"), name="tumbling").agg(n=hg.count(), total=hg.sum("amount")).to("TENTHS")
by_user.window(hg.hopping("200ms", every="100ms"), name="hopping").agg(n=hg.count(), least=hg.min("ts")).to("FIFTHS")
"""


SHUFFLED = """
from typing import TypedDict

import headgate as hg


class Order(TypedDict):
    user: str
    amount: float
    ts: int


app = hg.App("JOB")
orders = app.input("IN", serde=hg.json(Order)).columns().repartition("user", name="between")
orders.filter(hg.col("amount") >= 10).to("OUT")
"""


def last(updates: list) -> dict[str, int]:
    """The last count of each user."""
    return {r.key.decode(): orjson.loads(r.value)["n"] for r in updates}


def order(n: int) -> dict[str, object]:
    return {"user": f"u{n % 7}", "amount": float(n % 20), "ts": 1_000_000 + n, "other": {"n": [n]}}


async def test_the_whole_line(job, topic):
    """Filter, derived columns, shuffle and sums, back to rows and to columns again; from four partitions, with bad records among them."""
    inp, big, sums, rows = topic("in", 4), topic("big", 4), topic("sums", 4), topic("rows", 4)
    app = hg.App(job.name, on_bad_data="dead_letter")
    orders = app.input(inp, serde=hg.json(Order), timestamp="ts", until="newest").columns()
    user, amount = hg.col("user"), hg.col("amount")
    priced = orders.filter(amount >= 10).with_columns(
        total=amount * 1.2,
        label=hg.concat(user.upper(), "-", hg.coalesce(hg.col("country"), hg.col("ts").strftime("%M:%S"))),
        each=hg.when(amount > 10).then(1 / (amount - 10)),
    )
    priced.to(big)
    priced.repartition("user").agg(n=hg.count(), total=hg.sum("total")).to(sums)
    priced.rows().map(lambda o: {"user": o["user"].upper(), "total": o["total"]}).columns(Priced).to(rows, key="user")
    for partition in range(4):
        mine = [order(n) for n in range(200) if n % 4 == partition]
        await job.write(inp, [*mine, b'{"user":"a","amount":"12","ts":1}', None], partition=partition, key=b"key")
    worker = await job.start(app)
    assert await worker.ended() == 0
    good = [one for one in map(order, range(200)) if one["amount"] >= 10]
    found = await job.records(big, len(good))
    wanted = [
        {
            **{name: one[name] for name in ("user", "amount", "ts")},
            "country": None,
            "total": one["amount"] * 1.2,
            "label": one["user"].upper() + "-16:40",
            "each": 1 / (one["amount"] - 10) if one["amount"] > 10 else None,
        }
        for one in good
    ]
    assert sorted((orjson.loads(r.value) for r in found), key=lambda v: v["ts"]) == wanted
    assert all((r.timestamp, r.key) == (orjson.loads(r.value)["ts"], b"key") for r in found)
    results = {r.key.decode(): orjson.loads(r.value) for r in await job.records(sums, 7)}
    assert {user: one["n"] for user, one in results.items()} == Counter(one["user"] for one in good)
    for user, one in results.items():
        assert one["total"] == pytest.approx(sum(v["total"] for v in wanted if v["user"] == user))
    back = [(r.key, orjson.loads(r.value)) for r in await job.records(rows, len(good))]
    assert sorted(one["total"] for _, one in back) == sorted(one["total"] for one in wanted)
    assert all(key == value["user"].encode() and key.isupper() for key, value in back)
    letters = await job.records(job.topics.dead_letters, 4)
    assert {r.value for r in letters} == {b'{"user":"a","amount":"12","ts":1}'}
    counts = list(worker.worker.counters.values())
    assert sum(one["tombstones_dropped"] for one in counts) == 4
    assert sum(one["dead_letters"] for one in counts) == 4


async def from_elsewhere(job, topic: str, numbers: range, *, good: bool = True, **options) -> None:
    """Orders of another producer, in small batches, with keys and headers; if they are not good, their transaction is aborted."""
    producer = AIOKafkaProducer(
        **job.client.producer(), max_batch_size=1500, transactional_id=f"{topic}-{numbers}", **options
    )
    await producer.start()
    await producer.begin_transaction()
    for n in numbers:
        headers = [("n", b"%d" % n), ("none", None)] if n % 3 == 0 else []
        await producer.send(topic, orjson.dumps(order(n)), key=b"k%d" % n, headers=headers, partition=0)
    await (producer.commit_transaction() if good else producer.abort_transaction())
    await producer.stop()


async def test_what_other_producers_write(job, topic):
    """Batches of several codecs, an aborted transaction among them, keys and headers; 50 bad records in their midst."""
    inp, out = topic("in"), topic("out")
    app = hg.App(job.name, on_bad_data="dead_letter")
    app.input(inp, serde=hg.json(Order), timestamp="ts", until="newest").columns().to(out)
    bad = [b'{"user":%d}' % n for n in range(50)]
    for turn, codec in enumerate(["lz4", "gzip", None, "zstd"]):
        numbers = range(100 * turn, 100 * turn + 100)
        await from_elsewhere(job, inp, range(1000 + 100 * turn, 1050 + 100 * turn), good=False, compression_type=codec)
        await from_elsewhere(job, inp, numbers, compression_type=codec)
        if turn == 1:
            await job.write(inp, bad)
    worker = await job.start(app)
    assert await worker.ended() == 0
    found = await job.records(out, 400)
    assert [(orjson.loads(r.value)["ts"], r.key, r.timestamp) for r in found] == [
        (1_000_000 + n, b"k%d" % n, 1_000_000 + n) for n in range(400)
    ]
    assert [list(r.headers) for r in found] == [
        [("n", b"%d" % n), ("none", None)] if n % 3 == 0 else [] for n in range(400)
    ]
    assert sum(one["records_failed"] for one in worker.worker.counters.values()) == 50
    assert [r.value for r in await job.records(job.topics.dead_letters, 50)] == bad


def windows(values: list, size: int) -> dict[tuple[str, int], list[dict]]:
    """The records of each user and window, which begin each 100 ms."""
    found: dict[tuple[str, int], list[dict]] = {}
    for one in values:
        ts = one["ts"]
        for start in range(ts - ts % 100, ts - size, -100):
            found.setdefault((one["user"], start), []).append(one)
    return found


async def test_columns_lose_and_double_nothing_behind_kill_9(job, topic):
    """A process is killed while records flow, and again while windows close; each successor goes on from what was committed."""
    inp, big, out = topic("in", 2), topic("big", 2), topic("out", 2)
    tumbling, hopping = topic("tumbling", 2), topic("hopping", 2)
    source = SOURCE.replace("IN", inp).replace("OUT", out).replace("BIG", big)
    source = source.replace("TENTHS", tumbling).replace("FIFTHS", hopping)
    words = ("--set", "watermark.idle-timeout=1h")  # no partition is left out, so no record is late
    seen, results = (big, tumbling), []
    for life in range(3):
        one = await job.process(source, "w1", *words)
        for partition in range(2):
            await job.write(inp, [order(n) for n in range(life * 2000, life * 2000 + 2000)], partition=partition)
        if life < 2:
            await job.records(seen[life], 1, more_s=0)
            one.kill()
            await one.ended()
    good = [value for value in map(order, range(6000)) if value["amount"] >= 10]
    for partition in range(2):
        await job.write(inp, [{"user": "end", "amount": 10.0, "ts": 9_000_000}], partition=partition)
    try:
        found = await job.records(big, 2 * len(good) + 2, within_s=240)
        updates: list = []
        while sum(last(updates).values()) < 2 * len(good) + 2:
            updates = await job.records(out, len(updates) + 1, within_s=240)
        for name, size in ((tumbling, 100), (hopping, 200)):
            results.append((await job.records(name, len(windows(good, size)), within_s=240), windows(good, size)))
    except AssertionError as error:
        raise AssertionError(one.text()[-6000:]) from error
    per_user = {user: 2 * n for user, n in Counter(one["user"] for one in good).items()} | {"end": 2}
    assert Counter(orjson.loads(r.value)["user"] for r in found) == per_user
    assert last(updates) == per_user
    for records, wanted in results:
        made = [(r.key.decode(), orjson.loads(r.value)) for r in records]
        assert len(made) == len({(user, v["window_start"]) for user, v in made}) == len(wanted)
        for user, value in made:
            rows = wanted[user, value["window_start"]]
            assert value["n"] == 2 * len(rows)
            assert value.get("total", 0) in (0, 2 * sum(one["amount"] for one in rows))
            assert value.get("least", rows[0]["ts"]) == min(one["ts"] for one in rows)
    one.kill()
    await one.ended()


async def test_frames_of_rows_and_of_columns_on_one_stream(job, topic):
    """A job writes columns, another program rows, and the job is killed in between, twice: each record comes out once."""
    inp, out = topic("in", 2), topic("out", 2)
    between = job.topics.intermediate("between")
    source = SHUFFLED.replace("IN", inp).replace("OUT", out)
    number, others = 0, []
    untrimmed = ("--set", "intermediate.trim=false")  # a job deletes the frames that it has read, every ten seconds
    for _ in range(3):
        one = await job.process(source, "w1", *untrimmed)
        for partition in range(2):
            await job.write(inp, [order(number + n) for n in range(2000)], partition=partition)
        number += 2000
        good = [value for value in map(order, range(number)) if value["amount"] >= 10]
        least = 2 * len(good) + len(others) - 900  # the rest is under way when it dies
        try:
            await job.records(out, least, more_s=0, within_s=240)
        except AssertionError as error:
            raise AssertionError(one.text()[-6000:]) from error
        one.kill()
        await one.ended()
        more = [{**order(19), "ts": number + 5_000_000 + n} for n in range(5)]
        rows = BatchFrame([b"u5"] * 5, [9] * 5, [orjson.dumps(value) for value in more])
        await job.write(between, [encode(rows)], partition=0, headers=[("hg-type", b"batch")])
        others += more
    one = await job.process(source, "w1", *untrimmed)
    found = await job.records(out, 2 * len(good) + len(others), within_s=240)
    wanted = Counter((v["user"], v["ts"]) for v in [*good, *good, *others])
    assert Counter((v["user"], v["ts"]) for v in (orjson.loads(one.value) for one in found)) == wanted
    types = {dict(one.headers)["hg-type"] for one in await job.records(between, 1)}
    assert {b"batch", b"arrow"} <= types
    one.kill()
    await one.ended()
