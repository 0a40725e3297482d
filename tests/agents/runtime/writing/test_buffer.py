"""What a task emits as spans joins the transaction, or is refused, as the same records in lists."""

from __future__ import annotations

import time
from array import array
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from headgate.agents.kafka.record_batch import Builder
from headgate.agents.records.kafka.columns import Columns, pick
from headgate.agents.records.kafka.spans import spanned
from headgate.agents.records.kafka.target_rules import Rules
from headgate.agents.records.native import chosen
from headgate.agents.runtime.writing.buffer import Joining
from headgate.agents.testing.logs import Gathered

WAYS = [True, False] if chosen.COMPILED is not None else [False]
NOW = int(time.time() * 1000)
SOME = st.none() | st.binary(max_size=12)
HEADERS = st.lists(st.tuples(st.text(max_size=3) | st.just("hg-time"), st.none() | st.binary(max_size=9)), max_size=2)


class Open(Joining):
    """The open transaction over batches in memory or of Kafka."""

    def __init__(self, batch: Callable[[int], Any], rules: Rules | None, limit: int) -> None:
        super().__init__(
            transactional=True,
            batch=batch,
            batch_bytes=400,
            max_pending_bytes=1 << 20,
            wake=lambda: None,
            now_ms=lambda: NOW,
        )
        self.know("out", 3, limit, rules)

    def batches(self) -> dict[Any, Any]:
        """What has joined, by target."""
        self._open.fill_all()
        return {at: [_content(one) for one in ready] for at, ready in self._open.ready.items()}


def _content(batch: Any) -> Any:
    if isinstance(batch, Gathered):
        return batch.keys, batch.values, batch.stamps, batch.headers, batch.parts
    return bytes(batch.batch._build()), batch.parts


def emitted(make: Callable[[], Open], emit: Callable[[Any], None]) -> Any:
    """What joins, or how it is refused."""
    joining = make()
    buffer = joining.buffer("t")
    try:
        emit(buffer)
        emit(buffer)
    except Exception as error:  # noqa: BLE001 - compared
        return type(error), str(error), getattr(error, "index", None)
    size = buffer.size
    buffer.complete()
    return size, joining.pending_bytes, joining.batches()


@st.composite
def records(draw: Any) -> Columns:
    """Records as they leave, some of which no topic takes."""
    size = draw(st.integers(1, 8))

    def column(of: Any) -> Any:
        return draw(st.lists(of, min_size=size, max_size=size))

    odd = draw(st.booleans())
    times = st.sampled_from([0, 5, NOW, NOW - 10_000, *((-1, -2, NOW + 10**9, 1 << 62) if odd else ())])
    return Columns(
        column(st.none() | st.binary(max_size=300 if odd else 20)),
        column(times),
        0,
        draw(st.none() | st.just(column(SOME))),
        None,
        draw(st.none() | st.just(column(HEADERS))),
    )


HOUR = 3_600_000


def written(rules: Rules | None, times: Any, headers: Any = None) -> tuple[int, list[Any]]:
    """How many records got another timestamp, and the timestamps and headers with which they are written."""
    joining = Open(Gathered, rules, 1 << 20)
    buffer = joining.buffer("t")
    count = len(times) if isinstance(times, list) else 1
    changed, _ = buffer.emit("out", 0, [b"k"] * count, [b"v"] * count, times, headers)
    buffer.complete()
    (batches,) = joining.batches().values()
    return changed, [one for _, _, stamps, pairs, _ in batches for one in zip(stamps, pairs, strict=True)]


def test_a_record_has_the_nearest_timestamp_that_its_topic_accepts_and_its_event_time_beside_it() -> None:
    """A window that ends later today; a record of before 1970; one that is older than its topic accepts. Others are as they were."""
    rules = Rules(after_ms=HOUR, before_ms=24 * HOUR)
    times = [NOW, NOW + HOUR, NOW + 7 * HOUR, NOW - 48 * HOUR, -62135596800000, -1]
    changed, found = written(rules, times, [[("a", b"1")], [], [("a", b"2")], [], [], []])
    early = NOW - 24 * HOUR + 60_000
    assert changed == 3
    assert found == [
        (NOW, [("a", b"1")]),
        (NOW + HOUR, []),
        (NOW + HOUR - 60_000, [("a", b"2"), ("hg-time", b"%d" % (NOW + 7 * HOUR))]),
        (early, [("hg-time", b"%d" % (NOW - 48 * HOUR))]),
        (early, [("hg-time", b"-62135596800000")]),
        (-1, []),
    ]
    assert written(None, [-5, NOW + 7 * HOUR]) == (1, [(0, [("hg-time", b"-5")]), (NOW + 7 * HOUR, [])])
    assert written(rules, NOW + 7 * HOUR)[0] == 1


def test_a_record_does_not_keep_the_event_time_that_it_had_elsewhere() -> None:
    """A record that is copied from an input with its headers: what it carries is its event time now, once."""
    old = [[("hg-time", b"5"), ("a", b"1")]]
    assert written(None, [NOW], old) == (0, [(NOW, [("a", b"1")])])
    assert written(Rules(after_ms=HOUR), [NOW + 2 * HOUR], old) == (
        1,
        [(NOW + HOUR - 60_000, [("a", b"1"), ("hg-time", b"%d" % (NOW + 2 * HOUR))])],
    )


def test_a_topic_that_does_not_keep_what_is_written_is_named_once_and_what_is_lost_is_counted() -> None:
    """Results of a year ago, in a topic that keeps a week: they are gone at once, and nothing else would say why. A topic that accepts no
    times as old as that keeps them, for they get another timestamp."""
    joining = Open(Gathered, Rules(retention_ms=7 * 24 * HOUR), 1 << 20)
    buffer = joining.buffer("t")
    with capture_logs() as logs:
        assert buffer.emit("out", 0, None, [b"v"], [NOW - HOUR]) == (0, 0)
        assert logs == []
        old = NOW - 365 * 24 * HOUR
        assert buffer.emit("out", 0, None, [b"v"] * 4, [-1, old, NOW, old]) == (0, 2)
        assert buffer.emit("out", 0, None, [b"v"] * 2, old) == (0, 2)
        lying = spanned(Columns([b"v"] * 3, [old, NOW, old], 0))
        assert buffer.emit_spans("out", 0, lying) == (0, 2)
        assert buffer.emit_spans("out", 0, lying, array("q", [0, 1])) == (0, 1)
        assert buffer.emit_spans("out", 0, lying, array("q", [1])) == (0, 0)
    assert [(one["topic"], "retention.ms" in one["remedy"]) for one in logs] == [("out", True)]
    joining = Open(Gathered, Rules(retention_ms=7 * 24 * HOUR, before_ms=HOUR), 1 << 20)
    assert joining.buffer("t").emit("out", 0, None, [b"v"], [old]) == (1, 0)


@settings(max_examples=80, deadline=None)
@given(
    records(),
    st.data(),
    st.sampled_from([None, Rules(compacted=True), Rules(after_ms=60_000), Rules(before_ms=60_000)]),
    st.sampled_from([1 << 20, 200]),
    st.sampled_from([None, None, 0, 2, 3]),
)
def test_spans_are_emitted_like_lists(given_: Columns, data: Any, rules: Rules | None, limit: int, at: Any) -> None:
    """Partitions, batches, sizes; and each refusal with its index among the rows that were emitted."""
    size = len(given_)
    picks = data.draw(st.none() | st.lists(st.integers(0, size - 1), unique=True).map(sorted))
    rows = list(range(size)) if picks is None else picks
    listed: list[Any] = [
        None if one is None else pick(one, rows)
        for one in (given_.keys, given_.values, given_.timestamps, given_.headers)
    ]
    spans, picked = spanned(given_), None if picks is None else array("q", picks)

    def emit_spans(buffer: Any) -> None:
        buffer.emit_spans("out", at, spans, picked)

    kinds: list[Callable[[int], Any]] = [Gathered, lambda most: Builder(most, None, transactional=True)]
    for kind in kinds:

        def make(kind: Callable[[int], Any] = kind) -> Open:
            return Open(kind, rules, limit)

        wanted = emitted(make, lambda buffer: buffer.emit("out", at, *listed))
        for compiled in WAYS:
            with pytest.MonkeyPatch.context() as patch:
                if not compiled:
                    patch.setattr(chosen, "part", chosen.PLAIN)
                    if kind is not Gathered:
                        continue  # aiokafka builds other batches
                found = emitted(make, emit_spans)
            assert found == wanted


def test_what_is_dropped_leaves_nothing() -> None:
    """A chunk that failed."""
    joining = Open(Gathered, None, 1 << 20)
    buffer = joining.buffer("t")
    buffer.emit_spans("out", None, spanned(Columns([b"v"], [1], 0, [b"k"])))
    buffer.drop()
    buffer.complete()
    assert (buffer.size, joining.batches()) == (0, {})


@pytest.mark.skipif(chosen.COMPILED is None, reason="the compiled part is not built here")
@pytest.mark.parametrize("change", ["offsets", "lengths"])
def test_spans_that_lie_are_refused(change: str) -> None:
    """Nothing outside of a buffer is read."""
    good = spanned(Columns([b"abc"], [1], 0, [b"k"]))
    joining = Open(Gathered, None, 1 << 20)
    bad = good.keys._replace(**{change: array("q", [4])}) if good.keys is not None else None
    with pytest.raises(ValueError, match="outside"):
        chosen.COMPILED.measure_spans(bad, good.values, good.timestamps, None, None)
    with pytest.raises(ValueError, match="outside"):
        chosen.COMPILED.measure_spans(good.keys, good.values, good.timestamps, None, array("q", [1]))
    with pytest.raises(ValueError, match="outside"):
        joining.buffer("t").emit_spans("out", None, good, array("q", [-1]))


def test_final_outputs_join_the_second_outbox_and_everything_else_the_transaction() -> None:
    """Under `at_least_once`: what tasks of the job read must not stand in a topic that its position does not know of."""
    inside, direct = (Open(Gathered, None, 1 << 20) for _ in range(2))
    inside.know("between", 1)
    buffer = inside.buffer("t", direct, {"between"})
    buffer.emit("between", 0, None, [b"fenced"], 1)
    buffer.emit("out", 0, None, [b"final"], 1)
    assert (inside.batches(), direct.batches()) == ({}, {})
    buffer.complete()
    assert ([*inside.batches()], [*direct.batches()]) == ([("between", 0)], [("out", 0)])
