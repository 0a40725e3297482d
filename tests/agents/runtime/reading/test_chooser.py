"""What a task's chooser is shown of its partitions: ends that are not known yet, what is closed, and values that are decoded."""

from __future__ import annotations

from dataclasses import replace

import pytest

import headgate as hg
from headgate.agents.job.derive.declaration import Declared
from headgate.agents.records.frames.chunks import FetchBuffer
from headgate.agents.records.kafka.columns import Columns
from headgate.agents.records.kafka.fetched import RecordBatch
from headgate.agents.records.values.serdes import json
from headgate.agents.runtime.reading.chooser import TaskChooser
from headgate.agents.runtime.reading.head_readers import event_times, head_values
from headgate.agents.runtime.reading.intake import PartitionHead
from headgate.core.choosing.chooser import Choice
from headgate.core.machine import Now
from headgate.core.names import StreamPartition
from headgate.core.progress.frames import NO_TIME, BatchFrame, Drain, UserFrame, encode
from headgate.core.task.plan import InputPlan, TaskPlan

LOW, HIGH = StreamPartition("low", 0), StreamPartition("high", 0)
NOW = Now(10.0, 0)


def seen(at, count=0, position=0, stable=None, **more):
    """A head as the intake shows it; without `stable` no fetch of it has been answered."""
    answered = None if stable is None else 0.0
    values = {
        "at": at, "offset": position, "timestamp": 5 if count else None, "count": count, "size": 0, "position": position,
        "at_end": False, "blocked": False, "end_reached": False, "paused": False, "answers": 0 if stable is None else 1,
        "answered_age_s": answered,
        "high_watermark": None if stable is None else stable + 3, "stable": stable, "degraded": None, "lost": None, "value": None,
    }  # fmt: skip
    return PartitionHead(**{**values, **more})


def chooser_of(app, **settings):
    declared = Declared(app)
    inputs = tuple(InputPlan(name, (0,), 1, bootstrap=one.bootstrap) for name, one in declared.graph.input.items())
    return TaskChooser(declared, TaskPlan("job/1", "Partition 0", inputs), settings)


def two_tiers():
    app = hg.App("tiers")
    app.input("high", priority=1).merge(app.input("low")).to("out")
    return chooser_of(app)


def chosen(chooser, heads, closed=None):
    shown = {head.at: head for head in heads}
    ready = {at: head for at, head in shown.items() if head.count and at not in (closed or {})}
    taking = chooser.choose(shown, ready, closed or {}, NOW)
    return None if taking is None else taking.at


def test_no_lower_tier_flows_while_the_end_of_a_higher_one_is_unknown():
    """At a start the low input was answered first: it flowed, and stale low records overtook urgent ones that stood there already."""
    chooser = two_tiers()
    assert chosen(chooser, [seen(LOW, 5, stable=5), seen(HIGH)]) is None
    assert chooser.why == "catching up before lower priorities: high:0"
    assert chosen(chooser, [seen(LOW, 5, stable=5), seen(HIGH, 2, stable=2)]) == HIGH
    assert chosen(chooser, [seen(LOW, 5, stable=5), seen(HIGH, position=2, stable=2)]) == LOW
    assert chooser.why == ""


def test_the_end_of_a_higher_tier_is_what_is_committed():
    """What stands behind it belongs to somebody's open transaction: lower tiers wait for nobody else's."""
    chooser = two_tiers()
    assert chosen(chooser, [seen(LOW, 5, stable=5), seen(HIGH, stable=0)]) == LOW


def test_where_the_position_was_lost_the_end_is_that_of_the_log_that_is_there():
    """A topic that was made again may never reach the offset at which the one before ended: neither a table nor a priority waits for it."""
    app = hg.App("job")
    rates = app.input("high", key="k").table("rates")
    app.input("low", key="k").join(rates, into=lambda order, rate: order).to("out")
    for chooser in (chooser_of(app), two_tiers()):
        chooser.bootstrap({HIGH: 10})
        low = seen(LOW, 5, stable=5)
        assert chosen(chooser, [low, seen(HIGH, position=1, stable=10)]) is None
        chooser.anew(HIGH)
        assert chosen(chooser, [low, seen(HIGH)]) is None
        assert chosen(chooser, [low, seen(HIGH, position=1, stable=2)]) is None
        assert chosen(chooser, [low, seen(HIGH, position=2, stable=2)]) == LOW


def test_a_higher_tier_that_is_paused_or_over_holds_up_nobody_even_with_an_empty_buffer():
    """An operator pauses the urgent input before anything of it was fetched: everything else stood still with it."""
    for why in ("paused", "ended", "draining"):
        assert chosen(two_tiers(), [seen(LOW, 5, stable=5), seen(HIGH)], {HIGH: why}) == LOW


def test_nothing_to_take_is_nothing_to_be_asked_again_at_a_time():
    """A time that was due would have the task's loop spin."""
    chooser = two_tiers()
    chooser.until = 3.0
    chooser.nothing()
    assert (chooser.until, chooser.why) == (None, "")


class Curious:
    """Sees values."""

    needs = frozenset({"value"})

    def __init__(self):
        self.saw = []

    def choose(self, heads, now):
        self.saw = [(head.at.stream, head.value) for head in heads]
        able = [head for head in heads if head.takeable]
        return Choice(able[0].at, 1) if able else None


def test_a_chooser_that_needs_values_sees_them_decoded_and_others_see_none():
    """It was shown raw bytes: a chooser that looked at a field failed its task."""
    own = Curious()
    app = hg.App("curious", chooser=own)
    app.input("low").to("out")
    chooser = chooser_of(app)
    for data, value in ((b'{"n": 1}', {"n": 1}), (b"{", None), (None, None)):
        assert chosen(chooser, [seen(LOW, 1, value=data)]) == LOW
        assert own.saw == [("low", value)]
        chooser._heads.clear()
    assert chosen(chooser, [seen(LOW)]) is None
    assert own.saw == [("low", None)]
    plain = hg.App("plain")
    plain.input("low").to("out")
    other = chooser_of(plain)
    chosen(other, [seen(LOW, 1, value=b"{}")])
    assert other._heads[LOW].value is None


def test_values_of_streams_between_stages_are_read_out_of_their_frames():
    """A record's, the first row's of a batch; a control message has none, nor has rubbish."""
    app = hg.App("framed")
    app.input("low").repartition("k").map(lambda v: v).to("out")
    declared = Declared(app)
    (stream,) = declared.graph.intermediates
    value = head_values(declared)[stream]
    rows = BatchFrame((b"k", b"k"), (1, 2), (b'{"n": 2}', b'{"n": 3}'))
    assert value(encode(UserFrame(b'{"n": 1}'))) == {"n": 1}
    assert value(encode(rows)) == {"n": 2}
    assert value(encode(Drain("framed/1", "r1", "t", 1, 1, "d"))) is None
    assert value(b"\xff") is None
    assert value(None) is None


def times_of(when):
    app = hg.App("times")
    app.input("low", timestamp=when).to("out")
    return event_times(Declared(app))["low"]


@pytest.mark.parametrize("when", ["ts", lambda v: v["ts"]])
def test_event_times_are_those_that_the_input_declares(when):
    """A record without one has none, so that nothing waits for it; nor has one without a value, which moves no time."""
    values = [b'{"ts": 7}', b'{"ts": 9}']
    assert times_of(when)(Columns(values, [100, 101], 0)) == [7, 9]
    mixed = [b'{"ts": 7}', b"{", b"{}", None]
    assert times_of(when)(Columns(mixed, [100, 101, 102, 103], 0)) == [7, NO_TIME, NO_TIME, NO_TIME]


def test_a_time_that_the_input_does_not_take_aligns_nothing():
    """Before `earliest=`, 1970 unless it is declared, or none at all: the record is bad data, so nothing waits for it."""
    values = [b'{"ts": 7}', b'{"ts": -1}']
    assert times_of("ts")(Columns(values, [100, 101], 0)) == [7, NO_TIME]
    assert times_of("ts")(Columns([*values, b"{"], [100, 101, 102], 0)) == [7, NO_TIME, NO_TIME]


def test_only_choosers_that_go_by_time_pay_for_it():
    """Round robin decodes nothing."""
    app = hg.App("times")
    app.input("low", timestamp="ts").to("out")
    assert chooser_of(app).times == {}
    assert set(chooser_of(app, chooser="time-aligned").times) == {"low"}
    named = hg.App("times", chooser="time-aligned")
    named.input("low", timestamp="ts").to("out")
    assert set(chooser_of(named).times) == {"low"}
    assert chooser_of(named).stack.settings.rule == "time-aligned"


def test_a_chunk_is_cut_by_event_time_and_a_control_message_has_none():
    """Cut by Kafka's timestamps, an aligned task read ahead of its other inputs, or stood still."""
    columns = [b'{"ts": 1}', b'{"ts": 5}', b'{"ts": 9}']
    batch = RecordBatch(lambda most: Columns(columns, [900, 901, 902], 0), 0, 3, 3, 0, 0, 10)
    buffer = FetchBuffer(LOW, 0, times=times_of("ts"))
    buffer.put([batch], 0, 3)
    assert buffer.head().timestamp == 1
    assert len(buffer.take(10, up_to_ms=5)) == 2
    assert buffer.take(10, up_to_ms=5) is None
    framed = FetchBuffer(LOW, 0, framed=json())
    values = [encode(UserFrame(b"1")), encode(Drain("j/1", "r1", "t", 1, 1, "d"))]
    framed.put([RecordBatch(lambda most: Columns(values, [900, 901], 0), 0, 2, 2, 0, 0, 10)], 0, 2)
    assert framed.head().timestamp == 900
    assert len(framed.take(10)) == 1
    assert framed.head().timestamp == NO_TIME
    assert framed.take(10, up_to_ms=0).control is not None


def test_what_is_read_in_columns_is_not_bounded_by_a_number_of_rows():
    """Its chunks are bounded in bytes; a turn is bounded by the work that records in columns are."""
    chooser = two_tiers()
    chooser.apply({"chunk.max-records": 100, "chooser.batch-size": 1000, "chunk.max-bytes": "64KiB"})

    def most(**more):
        shown = {HIGH: seen(HIGH, 50_000, stable=0, **more)}
        taking = chooser.choose(shown, shown, {}, NOW)
        chooser.taken(taking, taking.max_records)
        return taking.max_records

    assert (most(bulk=True), chooser.room) == (8000, 65_536)
    assert most() == 100


def test_a_new_setting_of_priorities_counts_from_the_next_choice_on():
    """For tasks that run."""
    chooser = two_tiers()
    heads = [seen(LOW, 5, position=9, stable=5), seen(HIGH, 5, position=9, stable=5)]
    assert chosen(chooser, heads) == HIGH
    chooser.apply({"streams.low.priority": 2})
    assert chosen(chooser, [replace(head) for head in heads]) == LOW
