"""Event time: where an input says that it is, and what is bad data."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

import headgate as hg
from headgate.agents.job.types.timestamps import BadTimestamp, timestamps_of
from headgate.agents.testing.driver import Driver
from headgate.core.errors import DeclarationError


@pytest.mark.parametrize(
    ("of", "value", "ms"),
    [
        ("ts", {"ts": 1500}, 1500),
        ("ts", {"ts": 1500.7}, 1500),
        (hg.field("ts"), {"ts": -5}, -5),
        (hg.field("ts", unit="s"), {"ts": 1.5}, 1500),
        (hg.field("ts", unit="s"), {"ts": 2}, 2000),
        (hg.field("ts", unit="iso"), {"ts": "1970-01-01T00:00:01Z"}, 1000),
        (hg.field("ts", unit="iso"), {"ts": "1970-01-01T01:00:01.250+01:00"}, 1250),
        (hg.field("ts", unit="iso"), {"ts": "1970-01-01"}, 0),
        (hg.field("ts", unit="iso"), {"ts": "2026-01-31T12:00:00"}, 1769860800000),
        (hg.field("ts", unit="iso"), {"ts": "20260131T120000.123999999Z"}, 1769860800123),
        (hg.field("ts", unit="iso"), {"ts": "1969-12-31T23:59:59.9999Z"}, -1),
        (hg.field("ts", unit="iso"), {"ts": datetime(1970, 1, 1, 0, 0, 1)}, 1000),
        (hg.field("ts", unit="s"), {"ts": -2}, -2000),
        (hg.field("ts", unit="s"), {"ts": -0.0004}, 0),
        (hg.field("ts", unit="s"), {"ts": 1769860800.123}, 1769860800123),
        (hg.field("ts", unit="us"), {"ts": 1769860800123999}, 1769860800123),
        (hg.field("ts", unit="us"), {"ts": -1}, -1),
        (hg.field("ts", unit="us"), {"ts": 2500.0}, 2),
        (hg.field("ts", unit="ns"), {"ts": 1769860800123999999}, 1769860800123),
        (hg.field("ts", unit="ns"), {"ts": -1_000_001}, -2),
        (hg.field("ts", unit="ns"), {"ts": -0.5}, -1),
        ("ts", {"ts": -1500.2}, -1501),
        ("ts", {"ts": datetime(1970, 1, 1, 1, tzinfo=timezone(timedelta(hours=1)))}, 0),
        (lambda value: value["a"] + value["b"], {"a": 1, "b": 2}, 3),
        (lambda value: datetime(1970, 1, 1, 0, 0, 2), {}, 2000),
    ],
)
def test_every_notation(of: Any, value: Any, ms: int) -> None:
    """A field in any unit or ISO text, or a function; a null value keeps Kafka's timestamp. What is finer is cut towards the past."""
    assert timestamps_of(of)([value, None], [7, 8]) == [ms, 8]
    assert timestamps_of(of)([value] * 3, [7] * 3) == [ms] * 3


@pytest.mark.parametrize(
    ("of", "value"),
    [
        ("ts", {}),
        ("ts", {"ts": None}),
        ("ts", {"ts": "1500"}),
        ("ts", {"ts": True}),
        ("ts", {"ts": float("nan")}),
        ("ts", 3),
        (hg.field("ts", unit="iso"), {"ts": "yesterday"}),
        (hg.field("ts", unit="iso"), {"ts": 1500}),
        (hg.field("ts", unit="iso"), {"ts": ""}),
        (hg.field("ts", unit="s"), {"ts": "1"}),
        (hg.field("ts", unit="s"), {"ts": float("inf")}),
        (hg.field("ts", unit="s"), {"ts": 2**60}),
        (hg.field("ts", unit="us"), {"ts": True}),
        (hg.field("ts", unit="ns"), {"ts": None}),
        (lambda value: 1 / 0, {}),
    ],
)
def test_what_is_missing_or_unreadable_is_bad_data_with_its_index(of: Any, value: Any) -> None:
    """Also in the middle of good ones."""
    with pytest.raises(BadTimestamp) as bad:
        timestamps_of(of)([None, value], [7, 8])
    assert bad.value.index == 1


@pytest.mark.parametrize("wide", [2**70, 2**62, -(2**62)])
@pytest.mark.parametrize("of", ["ts", lambda value: value["ts"]])
def test_a_number_that_64_bits_do_not_hold_is_bad_data(of: Any, wide: int) -> None:
    """It went into the watermark and the state of all behind it, and raised when half of its chunk was committed."""
    with pytest.raises(BadTimestamp) as bad:
        timestamps_of(of)([{"ts": 5}, {"ts": wide}], [7, 8])
    assert bad.value.index == 1


def test_event_time_goes_out_and_makes_the_watermark() -> None:
    """The greatest timestamp less the lag, exactly; a late record does not turn it back."""
    app = hg.App("job")
    app.input("in", timestamp="ts", max_out_of_order="5s").to("out")
    with Driver(app) as d:
        d.send_all("in", [{"ts": 10_000}, {"ts": 90_000}, {"ts": 30_000}])
        assert [r.timestamp for r in d.read("out")] == [10_000, 90_000, 30_000]
        d.send("in", {"ts": 20_000})
        assert d.watermarks == {"Partition 0": {"in": 85_000}}


def test_a_unit_that_nobody_knows_is_refused_with_those_that_there_are() -> None:
    """Before anything runs."""
    with pytest.raises(DeclarationError, match="unit='minutes'"):
        hg.field("ts", unit="minutes")


@pytest.mark.parametrize(
    ("of", "values"),
    [
        (hg.field("ts", unit="s"), [10, 5.5, -3]),
        (hg.field("ts", unit="ms"), [10_000, 5_500, -3_000]),
        (hg.field("ts", unit="us"), [10_000_000, 5_500_000, -3_000_000]),
        (hg.field("ts", unit="ns"), [10_000_000_000, 5_500_000_000, -3_000_000_000]),
        (hg.field("ts", unit="iso"), ["1970-01-01T00:00:10Z", "1970-01-01T01:00:05.5+01:00", "1969-12-31T23:59:57"]),
        (lambda value: value["ts"] * 1000, [10, 5.5, -3]),
    ],
    ids=["s", "ms", "us", "ns", "iso", "function"],
)
def test_a_job_has_the_same_times_whatever_their_kind(of: Any, values: list[Any]) -> None:
    """Rows and watermark; what cannot be read goes where bad data goes, and does not touch the time."""
    app = hg.App("job")
    app.input("in", timestamp=of, max_out_of_order="1s", on_bad_data="dead_letter", earliest="1969-01-01").map(
        lambda record: record.timestamp, with_record=True
    ).repartition(str, name="by").map(lambda record: [record.value, record.timestamp], with_record=True).process(Says)
    with Driver(app) as d:
        d.send_all("in", [{"ts": one} for one in [*values, None]])
        d.send("in", {})
        d.advance("1s")
        assert [record.value for record in d.read("rows")] == [[10_000, 10_000], [5_500, 5_500], [-3_000, -3_000]]
        assert d.watermarks["Partition 0"]["in"] == 9_000
        assert len(d.dead_letters()) == 2


class Says(hg.Actor):
    """Writes what it gets, at the time of the clock: Kafka takes no timestamps before 1970."""

    def on_batch(self, ctx: Any, batch: Any) -> None:
        for record in batch:
            ctx.emit("rows", record.value, timestamp=ctx.now_ms)


def test_a_function_that_returns_text_is_told_what_to_do() -> None:
    """A number in quotes is none, and what to do about it stands in the message."""
    with pytest.raises(BadTimestamp, match="unit='iso'"):
        timestamps_of("ts")([{"ts": "2026-01-31"}], [0])


def test_an_input_without_a_timestamp_has_kafkas() -> None:
    """What the producer said."""
    app = hg.App("job")
    app.input("in").to("out")
    with Driver(app) as d:
        d.send("in", 1, at=77)
        assert [r.timestamp for r in d.read("out")] == [77]
