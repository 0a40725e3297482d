"""Event time: where an input says that it is, and what is bad data."""

from __future__ import annotations

from typing import Any

import pytest

import headgate as hg
from headgate.agents.job.timestamps import BadTimestamp, timestamps_of
from headgate.agents.testing.driver import Driver


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
        (lambda value: value["a"] + value["b"], {"a": 1, "b": 2}, 3),
    ],
)
def test_every_notation(of: Any, value: Any, ms: int) -> None:
    """A field in ms, s or ISO text, or a function; a null value keeps Kafka's timestamp."""
    assert timestamps_of(of)([value, None], [7, 8]) == [ms, 8]


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
        (hg.field("ts", unit="s"), {"ts": "1"}),
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


def test_an_input_without_a_timestamp_has_kafkas() -> None:
    """What the producer said."""
    app = hg.App("job")
    app.input("in").to("out")
    with Driver(app) as d:
        d.send("in", 1, at=77)
        assert [r.timestamp for r in d.read("out")] == [77]
