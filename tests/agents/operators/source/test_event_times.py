"""The event time of a record: where it is read, what a record without a value has, and which times are none. Rows, typed rows and columns,
compiled and plain, say the same."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any, TypedDict

import pytest

import headgate as hg
from headgate.agents.operators.base.bad_records import BadRecord
from headgate.agents.operators.source.event_times import EventLimits
from headgate.agents.operators.source.range_rows import RangeDecoder
from headgate.agents.records.frames.chunks import Chunk
from headgate.agents.records.kafka.columns import Columns
from headgate.agents.records.kafka.spans import SpannedColumns, spanned
from headgate.agents.records.layout import longs
from headgate.agents.records.native import chosen
from headgate.agents.testing.driver import Driver

from ..pipeline.test_pipeline import IN, Rig

WAYS = [True, False] if chosen.COMPILED is not None else [False]
KINDS = ["rows", "typed rows", "columns"]


class Order(TypedDict):
    user: str
    ts: int


@pytest.fixture(params=WAYS, ids=["compiled", "plain"][-len(WAYS) :])
def way(request: Any, monkeypatch: Any) -> None:
    """The compiled part, and its plain twin."""
    if not request.param:
        monkeypatch.setattr(chosen, "part", chosen.PLAIN)


def job(kind: str, **options: Any) -> hg.App:
    """A job that copies its input, in rows of this kind."""
    app = hg.App("job")
    stream: Any = app.input("in", serde=hg.json() if kind == "rows" else hg.json(Order), **options)
    stream = stream.columns() if kind == "columns" else stream.map(lambda value: value)
    stream.to("out")
    return app


def written(rig: Rig) -> list[int]:
    """The event times of what was written."""
    return [
        next((int(value) for name, value in pairs if name == "hg-time"), stamp)
        for one in rig.topics.open
        for stamp, pairs in zip(one.timestamps, one.headers or [[]] * len(one.timestamps), strict=True)
    ]


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("spans", [True, False], ids=["spans", "lists"])
@pytest.mark.parametrize("kind", KINDS)
def test_the_event_time_beside_a_timestamp_is_what_an_input_reads(kind: str, spans: bool) -> None:
    """That of the header `hg-time`. A header of that name that holds no number is somebody's own, and a declared field comes first."""
    values: list[bytes | None] = [b'{"user":"a","ts":7}'] * 4
    headers: list[Any] = [[], [("hg-time", b"-5")], [("a", None), ("hg-time", b"9")], [("hg-time", b"?")]]
    records = Columns(values, [1, 2, 3, 4], 0, None, None, headers)
    for timestamp, times in ((None, [1, -5, 9, 4]), ("ts", [7] * 4)):
        rig = Rig(job(kind, timestamp=timestamp, earliest=None))
        greatest = asyncio.run(rig.run(Chunk(IN, 4, SpannedColumns(spanned(records)) if spans else records)))
        assert (written(rig), greatest) == (times, max(times))


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("kind", KINDS)
def test_a_time_outside_of_the_limits_is_bad_data(kind: str) -> None:
    """Before 1970, the year 2099, a time that cannot be: all are found at once, before anything is stored. What lies within goes on."""
    app = job(kind, timestamp="ts", on_bad_data="skip")
    hour, now = 3_600_000, 1_700_000_000_000
    times = [now, -1, -62135596800000, 4070908800000, now + hour, now + hour + 1, 1 << 62]
    values: list[bytes | None] = [b'{"user":"a","ts":%d}' % ms for ms in times]
    chunk = Chunk.of(IN, values)
    rig = Rig(app)
    with pytest.raises(BadRecord) as raised:
        asyncio.run(rig.run(chunk))  # the broker's time is unknown: nothing is too far ahead
    assert list(raised.value.all) == [1, 2, 6]
    chunk.now_ms = now
    with pytest.raises(BadRecord) as raised:
        asyncio.run(rig.run(chunk))
    said = {index: str(why).partition(" (")[0] for index, why in raised.value.all.items()}
    assert list(said) == [1, 2, 3, 5, 6]
    assert [said[index] for index in (1, 2, 3, 5)] == [f"the event time {times[index]}" for index in (1, 2, 3, 5)]
    assert "more than 1h ahead of the broker's time" in str(raised.value.all[3])
    assert "before 1970-01-01" in str(raised.value.all[2])
    assert asyncio.run(rig.pipeline.chunk(chunk, frozenset(raised.value.all))) == now + hour


@pytest.mark.parametrize("kind", KINDS)
def test_an_input_says_which_times_it_takes(kind: str) -> None:
    """None takes all, and a record without Kafka's timestamp has none that could be wrong."""
    values: list[bytes | None] = [b'{"user":"a","ts":%d}' % ms for ms in (-62135596800000, 4070908800000)]
    chunk = Chunk.of(IN, values)
    chunk.now_ms = 0
    rig = Rig(job(kind, timestamp="ts", earliest=None, max_future=None))
    asyncio.run(rig.run(chunk))
    assert written(rig) == [-62135596800000, 4070908800000]
    for options, least in (({"earliest": "2000-01-01"}, 946684800000), ({"earliest": 5}, 5)):
        rig = Rig(job(kind, timestamp="ts", max_future=None, **options))
        with pytest.raises(BadRecord, match=f"before {datetime.fromtimestamp(least / 1000, UTC).isoformat()[:19]}"):
            asyncio.run(rig.run(chunk))
    rig = Rig(job(kind))
    asyncio.run(rig.run(Chunk.of(IN, values, timestamps=[-1, 7])))
    assert written(rig) == [-1, 7]
    with pytest.raises(hg.DeclarationError, match="earliest='soon'"):
        job(kind, earliest="soon")


@pytest.mark.usefixtures("way")
def test_executors_judge_the_times_of_a_batch_by_reference_as_tasks_do() -> None:
    """By the limits that the batch was closed with."""
    columns = (("user", "text", False), ("ts", "int64", False))
    limits = EventLimits(0, 10, 5, own=False)
    decoder = RangeDecoder(columns, "ts", limits=tuple(limits))
    spans = spanned(Columns([b'{"user":"a","ts":%d}' % ms for ms in (-5, 10, 11)], [0, 0, 0], 0))
    bad: dict[int, Any] = {}
    found, times = decoder._decoded(spans, bad, "in", 0)
    assert (found.columns.length, list(longs(times)), sorted(bad)) == (1, [10], [0, 2])


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("kind", ["rows", "typed rows"])
def test_a_record_without_a_value_has_the_time_so_far_and_moves_nothing(kind: str) -> None:
    """Its Kafka timestamp is of another clock: the watermark went to it, and all that followed was late."""
    values: list[bytes | None] = [None, b'{"user":"a","ts":1000}', None, b'{"user":"a","ts":900}', None]
    stamps = [1_700_000_000_000] * 5
    rig = Rig(job(kind, timestamp="ts"))
    assert asyncio.run(rig.run(Chunk.of(IN, values, timestamps=stamps))) == 1000
    assert written(rig) == [stamps[0], 1000, 1000, 900, 1000]
    chunk = Chunk.of(IN, [None], timestamps=stamps[:1])
    chunk.so_far_ms = 1000
    rig = Rig(job(kind, timestamp="ts"))
    assert asyncio.run(rig.run(chunk)) is None
    assert written(rig) == [1000]


@pytest.mark.parametrize("kind", KINDS)
def test_a_deletion_does_not_move_the_watermark(kind: str) -> None:
    """Through a whole job, and over a restart."""
    app = hg.App("job", serde=hg.json() if kind == "rows" else hg.json(Order))
    stream: Any = app.input("in", timestamp="ts", max_out_of_order="1s")
    if kind == "columns":
        stream = stream.columns()
    else:
        stream = stream.filter(lambda value: value is not None)
    stream.repartition("user").window(hg.tumbling("10s"), late="late").agg(n=hg.count()).to("out")
    with Driver(app) as d:
        d.send("in", {"user": "a", "ts": 1_000}, at=1_700_000_000_000)
        d.send("in", None, at=1_700_000_000_000)
        d.restart()
        d.send("in", None, at=1_700_000_000_000)
        d.send("in", {"user": "a", "ts": 2_000}, at=1_700_000_000_000)
        d.advance("1s")
        assert (d.read("out"), d.read("late")) == ([], [])
        assert {one["in"] for one in d.watermarks.values()} == {1_000}


def test_the_driver_measures_by_its_own_clock_if_it_is_given_one() -> None:
    """Tests with times that are made up need no declaration."""
    app = hg.App("job", on_bad_data="dead_letter")
    app.input("in", timestamp="ts").to("out")
    with Driver(app) as d:
        d.send("in", {"ts": 10**13})
        assert (len(d.read("out")), d.dead_letters()) == (1, [])
    with Driver(app, now=10**12) as d:
        d.send("in", {"ts": 10**12 + 3_600_001})
        (letter,) = d.dead_letters()
        assert "more than 1h ahead" in letter.exception
        d.advance("1s")
        d.send("in", {"ts": 10**12 + 3_600_001})
        assert len(d.read("out")) == 1


def test_a_second_attempt_of_a_chunk_judges_its_times_as_the_first_one_did() -> None:
    """The broker's time is that of the moment when the chunk was cut: a record that was too far ahead then is so after a pause, too."""
    attempts: list[int] = []

    def fails_once(value: Any) -> Any:
        attempts.append(value["ts"])
        if len(attempts) == 1:
            raise ValueError("not yet")
        return value

    app = hg.App("job", on_bad_data="dead_letter")
    app.input("in", timestamp="ts").map(fails_once).to("out")
    now, hour = 10**12, 3_600_000
    with Driver(app, now=now, settings={"error.retries": 3}) as d:
        d.send_all("in", [{"ts": now}, {"ts": now + hour + 1}])
        d.advance("10s")
        assert (set(attempts), len(attempts) > 1) == ({now}, True)
        assert [one.value["ts"] for one in d.read("out")] == [now]
        (letter,) = d.dead_letters()
        assert "more than 1h ahead of the broker's time" in letter.exception


@pytest.mark.parametrize("ahead", ["1h", None])
def test_a_watermark_is_capped_by_the_largest_max_future_and_not_at_all_if_one_stream_takes_all(
    ahead: str | None,
) -> None:
    """Behind a shuffle of both: synthetic times of one input lie years ahead, and its windows close by them."""
    app = hg.App("job", on_bad_data="skip")
    near = app.input("near", timestamp="ts", max_future="1h")
    far = app.input("far", timestamp="ts", max_future=ahead)
    near.merge(far).repartition("k", partitions=2).window(hg.tumbling("10s")).agg(n=hg.count()).to("out")
    now = 1_700_000_000_000
    years = now + 10 * 365 * 86_400_000
    with Driver(app, now=now) as d:
        d.end("near")
        d.send_all("far", [{"k": "k", "ts": years}, {"k": "k", "ts": years + 20_000}])
        found = [(one.value["window_start"], one.value["closed_by"]) for one in d.read("out")]
        assert found == ([] if ahead else [(years // 10_000 * 10_000, "watermark")])
