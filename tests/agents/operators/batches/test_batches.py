"""Batches of a task, from the rows to the results: with limits, windows and late rows. What stands for Spark runs at once."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any, TypedDict

import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import headgate as hg
from headgate.agents.testing import driver
from headgate.agents.testing.driver import Driver
from headgate.core.batching.batches import BatchOutcome

from ...without_spark import Rows, WithoutSpark


@pytest.fixture(autouse=True)
def spark(monkeypatch: pytest.MonkeyPatch) -> WithoutSpark:
    """Each driver runs its stages here."""
    bridge = WithoutSpark()
    monkeypatch.setattr(driver, "_spark", lambda declared, session: bridge)
    return bridge


class Order(TypedDict):
    n: int


def summed(rows: Rows, batch: Any) -> Rows:
    """One row for a batch."""
    return [{"batch": batch.id.partition("/")[2], "why": batch.closed_by, "n": [row["n"] for row in rows]}]


def read(d: Driver, topic: str = "out") -> list[tuple[str, str, list[int]]]:
    return [(one.value["batch"], one.value["why"], one.value["n"]) for one in d.read(topic)]


def orders(first: int, behind: int) -> list[dict[str, Any]]:
    return [{"n": n} for n in range(first, behind)]


def test_batches_are_closed_by_rows_and_drain() -> None:
    """In their order, also over a restart in the middle of one."""
    app = hg.App("sales")
    app.input("orders").batch(max_rows=4, name="lot").spark(summed, rows=Order, schema="n long").to("out")
    with Driver(app) as d:
        d.send_all("orders", orders(0, 9))
        assert read(d) == [("lot/1", "rows", [0, 1, 2, 3]), ("lot/2", "rows", [4, 5, 6, 7])]
        d.send_all("orders", orders(9, 10))
        d.restart()
        d.drain()
        assert read(d) == [("lot/3", "drain", [8, 9])]


def test_batches_are_closed_by_bytes_and_age() -> None:
    """A wide stream does not wait for its last row, and a slow one not for its hundredth."""
    app = hg.App("sales")
    lots = app.input("orders").batch(max_bytes=80, max_rows=100, max_age="1m", name="lot")
    lots.spark(summed, rows=Order, schema="n long").to("out")
    with Driver(app) as d:
        d.send_all("orders", orders(0, 12))
        first = read(d)
        assert {why for _, why, _ in first} == {"bytes"}
        d.advance("1m")
        last = read(d)
        assert [why for _, why, _ in last] == ["age"]
        assert [n for _, _, some in first + last for n in some] == list(range(12))


def test_rows_that_do_not_fit_a_batch_cost_no_run_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """All rows without the declared columns are named at once."""
    app = hg.App("sales", on_error="dead_letter")
    app.input("orders").batch(max_rows=100, name="lot").spark(summed, rows=Order, schema="n long").to("out")
    with Driver(app) as d:
        tries: list[int] = []
        pipeline = d.tasks["Partition 0"].site.pipeline
        whole = pipeline.chunk
        monkeypatch.setattr(
            pipeline, "chunk", lambda chunk, skip=frozenset(): (tries.append(len(skip)), whole(chunk, skip))[1]
        )
        d.send_all("orders", [{"n": n if n % 2 else "x"} for n in range(200)])
        assert tries == [0, 100]
        assert [one.offset for one in d.dead_letters()] == list(range(0, 200, 2))
        assert read(d) == [("lot/1", "rows", list(range(1, 200, 2)))]


# -------------------------------------------------------------------------------------------------------------- windows


def windowed(rows: Rows, batch: Any) -> Rows:
    """One row for a window."""
    span = [batch.window_start, batch.window_end, batch.earliest_ms, batch.latest_ms]
    return [{"span": span, "why": batch.closed_by, "n": [row["n"] for row in rows]}]


def spans(d: Driver) -> list[tuple[list[int], str, list[int], int]]:
    return [(one.value["span"], one.value["why"], one.value["n"], one.timestamp) for one in d.read("out")]


def job(window: Any, *, columns: bool = False, late: str | None = None, **more: Any) -> hg.App:
    app = hg.App("sales")
    orders = app.input("orders", serde=hg.json(Order), timestamp="n", max_out_of_order="2s")
    made = orders.columns().window(window, late=late, **more) if columns else orders.window(window, late=late, **more)
    made.spark(windowed, schema="n long").to("out")
    return app


BOTH = pytest.mark.parametrize("columns", [False, True], ids=["rows", "columns"])


@BOTH
def test_a_window_that_a_watermark_closes_is_a_batch_of_its_rows(columns: bool, spark: WithoutSpark) -> None:
    """At once, in the order of their ends, with the time of their ends; whatever was not closed is, by the drain."""
    with Driver(job(hg.tumbling("10s"), columns=columns)) as d:
        d.send_all("orders", [{"n": n} for n in (1_000, 14_000, 2_000, 12_500)])
        d.advance("1s")
        assert spans(d) == [([0, 10_000, 1_000, 2_000], "watermark", [1_000, 2_000], 9_999)]
        d.send_all("orders", [{"n": n} for n in (11_000, 25_000, 41_000)])
        d.advance("1s")
        assert spans(d) == [
            ([10_000, 20_000, 11_000, 14_000], "watermark", [14_000, 12_500, 11_000], 19_999),
            ([20_000, 30_000, 25_000, 25_000], "watermark", [25_000], 29_999),
        ]
        d.restart()
        d.drain()
        assert spans(d) == [([40_000, 50_000, 41_000, 41_000], "drain", [41_000], 49_999)]
        assert [one.id for one in spark.ran] == [f"Partition 0/tumbling-10s/{n}" for n in (1, 2, 3, 4)]
        assert {one.attempt for one in spark.ran} == {1}


@BOTH
def test_rows_of_hopping_windows_are_in_each_batch(columns: bool) -> None:
    """A row of two windows is in two batches."""
    with Driver(job(hg.hopping("10s", every="5s"), columns=columns)) as d:
        d.send_all("orders", [{"n": n} for n in (1_000, 7_000, 12_000)])
        d.end("orders")
        assert [one[:3] for one in spans(d)] == [
            ([-5_000, 5_000, 1_000, 1_000], "watermark", [1_000]),
            ([0, 10_000, 1_000, 7_000], "watermark", [1_000, 7_000]),
            ([5_000, 15_000, 7_000, 12_000], "end", [7_000, 12_000]),
            ([10_000, 20_000, 12_000, 12_000], "end", [12_000]),
        ]


@BOTH
def test_late_rows_are_counted_and_written(columns: bool) -> None:
    """A window that is closed stays closed, also after a restart; the grace lets rows in for a while."""
    with Driver(job(hg.tumbling("10s", grace="1s"), columns=columns, late="late")) as d:
        d.send_all("orders", [{"n": n} for n in (1_000, 12_900)])
        d.advance("1s")
        d.send("orders", {"n": 3_000}, key="in time")
        d.send("orders", {"n": 13_000})
        d.advance("1s")
        assert [one[2] for one in spans(d)] == [[1_000, 3_000]]
        d.restart()
        d.send_all("orders", [hg.Record("DE", {"n": 9_000}, 5), {"n": 14_000}])
        d.advance("1s")
        (late,) = d.read("late")
        assert (late.key, late.value, late.timestamp) == ("DE", {"n": 9_000}, 9_000)
        assert d.counters["late_rows"] == 1
        d.drain()
        assert [one[1:3] for one in spans(d)] == [("drain", [12_900, 13_000, 14_000])]


@BOTH
def test_a_row_that_is_left_out_of_a_window_names_its_record(
    columns: bool, spark: WithoutSpark, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In each of its windows, though the rows of a chunk are spread over several and an earlier step has dropped some."""

    def left_out(fn: Any, rows: Rows, batch: Any) -> BatchOutcome:
        return BatchOutcome([], 0, [(at, row, ValueError("bad")) for at, row in enumerate(rows) if row["n"] % 7 == 0])

    monkeypatch.setattr(spark, "_outcome", left_out)
    app = hg.App("sales", on_error="dead_letter")
    given = app.input("orders", serde=hg.json(Order), timestamp="n")
    kept = given.columns().filter(hg.col("n") > 2) if columns else given.filter(hg.col("n") > 2)
    kept.window(hg.hopping(0.02, every=0.01)).spark(windowed, schema="n long").to("out")
    with Driver(app, partitions={"orders": 2}) as d:
        d.send_all("orders", [{"n": n} for n in (1, 14, 3, 35, 2, 28)], partition=1)
        d.send_all("orders", [{"n": n} for n in (30, 21)], partition=1)
        d.drain()
        found = sorted((one.partition, one.offset, orjson.loads(one.value or b"")["n"]) for one in d.dead_letters())
        assert found == [*sorted(2 * [(1, 1, 14), (1, 3, 35), (1, 5, 28)]), (1, 7, 21)]  # late for one of its windows


def left_out_with_trace(fn: Any, rows: Rows, batch: Any) -> BatchOutcome:
    """The second row fails, in code of the user."""
    try:
        raise ValueError("two")
    except ValueError as error:
        return BatchOutcome([], 0, [(1, rows[1], error)])


def test_a_dead_letter_of_spark_says_what_every_other_one_says(
    spark: WithoutSpark, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Step, batch, exception and traceback."""
    monkeypatch.setattr(spark, "_outcome", left_out_with_trace)
    app = hg.App("sales", on_error="dead_letter")
    app.input("orders").batch(max_rows=3, name="lot").spark(summed, rows=Order, schema="n long", name="sum").to("out")
    with Driver(app) as d:
        d.send_all("orders", orders(1, 4))
        (letter,) = d.dead_letters()
        assert (letter.step, letter.exception, letter.offset) == ("sum", "ValueError: two", 1)
        assert letter.traceback.endswith("ValueError: two\n")
        assert "left_out_with_trace" in letter.traceback


@pytest.mark.parametrize(
    ("answer", "letters", "words"),
    [("dead_letter", 1, ""), ("skip", 0, ""), (None, 0, ""), ("fail", 0, "two"), ("drop", 0, "answered 'drop'")],
)
def test_a_policy_decides_about_a_row_of_a_batch_as_about_any_record(
    answer: Any, letters: int, words: str, spark: WithoutSpark, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It gets the row as a record. What it wants to fail was skipped, and so was what is no answer."""
    monkeypatch.setattr(spark, "_outcome", left_out_with_trace)
    told: list[Any] = []

    def policy(record: hg.Record[Any, Any], error: BaseException) -> Any:
        told.append((record.value, record.timestamp, str(error)))
        return answer

    app = hg.App("sales", on_error=policy)
    app.input("orders").batch(max_rows=3, name="lot").spark(summed, rows=Order, schema="n long", name="sum").to("out")
    with Driver(app) as d:
        with pytest.raises(Exception, match=words) if words else nullcontext():
            d.send_all("orders", [hg.Record(None, {"n": n}, 10 * n) for n in (1, 2, 3)])
        assert told[0] == ({"n": 2}, 20, "two")
        assert len(d.dead_letters()) == letters
        assert d.counters.get("records_failed", 0) == (0 if words else 1)


def test_windows_of_the_clock_close_when_it_has_passed_them() -> None:
    """Without any further record."""
    with Driver(job(hg.tumbling("10s", time="processing"))) as d:
        d.send_all("orders", [{"n": n} for n in (77_000, 5)])
        d.advance("9s")
        assert spans(d) == []
        d.advance("1s")
        assert spans(d) == [([0, 10_000, 5, 77_000], "clock", [77_000, 5], 9_999)]


def test_what_is_kept_open_survives_a_drain() -> None:
    """The next run goes on with the open windows."""
    with Driver(job(hg.tumbling("10s"), at_end="keep")) as d:
        d.send_all("orders", [{"n": n} for n in (1_000, 2_000)])
        d.drain()
        assert spans(d) == []
        d.restart()
        d.send_all("orders", [{"n": n} for n in (3_000, 12_000)])
        d.advance("1s")
        assert [one[1:3] for one in spans(d)] == [("watermark", [1_000, 2_000, 3_000])]


class Hears(hg.Actor):
    """Says in which order results and times come."""

    def on_batch(self, ctx: Any, batch: Any) -> None:
        for record in batch:
            ctx.emit("order", ["row", record.timestamp])

    def on_watermark(self, ctx: Any, timestamp: int) -> None:
        ctx.emit("order", ["heard", timestamp])


def test_the_time_behind_the_step_waits_for_results_and_for_grace() -> None:
    """A window behind Spark would drop a result that comes after its time."""
    app = hg.App("sales")
    orders = app.input("orders", serde=hg.json(Order), timestamp="n")
    orders.window(hg.tumbling("10s", grace="3s")).spark(windowed, schema="n long").process(Hears)
    with Driver(app) as d:
        d.send_all("orders", [{"n": n} for n in (1_000, 12_000)])
        d.advance("1s")
        assert [one.value for one in d.read("order")] == [["heard", 9_000]]
        d.send("orders", {"n": 14_000})
        d.advance("1s")
        assert [one.value for one in d.read("order")] == [["heard", 9_999], ["row", 9_999], ["heard", 11_000]]


def test_one_window_goes_to_two_stages() -> None:
    """As one batch."""
    app = hg.App("sales")
    window = app.input("orders", serde=hg.json(Order), timestamp="n").window(hg.tumbling("10s"))
    window.spark(windowed, schema="n long", name="one").to("out")
    window.spark(windowed, schema="n long", name="two").to("other")
    with Driver(app) as d:
        d.send_all("orders", [{"n": n} for n in (1_000, 12_000)])
        d.drain()
        assert [one.value for one in d.read("other")] == [one.value for one in d.read("out")] != []


class Paid(TypedDict):
    n: int
    paid: float | None


def test_rows_of_a_declared_type_have_its_columns(spark: WithoutSpark) -> None:
    """Also a column that is null in all of them, which the values alone do not tell the type of. Undeclared fields are no columns."""
    app = hg.App("sales")
    given = app.input("orders", serde=hg.json(Paid)).filter(lambda order: order["n"] > 0)
    given.batch(max_rows=2).spark(summed, schema="n long").to("out")
    with Driver(app) as d:
        d.send_all("orders", [{"n": n, "paid": None, "more": n} for n in (0, 1, 2)])
        assert spark.kinds == [{"n": "int64", "paid": "double"}]


# ------------------------------------------------------------------------------------------------------- several stages


def counted(rows: Rows, batch: Any) -> Rows:
    return [{"task": batch.task, "start": batch.window_start, "n": len(rows)}]


@BOTH
def test_a_gather_brings_the_windows_of_all_tasks_together(columns: bool) -> None:
    """To the task that its name gives, which waits for the slowest task."""
    app = hg.App("sales")
    orders = app.input("orders", serde=hg.json(Order), timestamp="n")
    gathered = orders.columns().gather() if columns else orders.gather()
    gathered.window(hg.tumbling("10s")).spark(counted, schema="n long").to("out")
    with Driver(app, partitions={"orders": 3}) as d:
        for partition in (0, 1, 2):
            d.send_all("orders", [{"n": n} for n in range(0, 12_000, 1_000)], partition=partition)
            d.advance("1s")
            if partition < 2:
                assert d.read("out") == []
        assert [one.value for one in d.read("out")] == [{"task": "Partition 2", "start": 0, "n": 30}]
        d.drain()
        assert [one.value["n"] for one in d.read("out")] == [6]


def test_more_than_a_gather_may_hold_is_refused_whatever_the_policy() -> None:
    """The records are not to blame: none is left out, and the task says what to raise."""
    app = hg.App("sales", on_error="skip", settings={"gather.max-bytes": 1_000})
    app.input("orders").gather(name="all").batch(max_age="1m", name="lot").spark(
        counted, rows=Order, schema="n long"
    ).to("out")
    with Driver(app, partitions={"orders": 2}) as d:
        d.send_all("orders", orders(0, 50), partition=0)
        with pytest.raises(hg.HeadgateError, match=r"hold .* bytes of all tasks' rows, and gather\.max-bytes is 1000"):
            d.send_all("orders", orders(0, 1_000), partition=1)
        assert "failed" in d.states.values()
        assert d.counters["records_skipped"] == 0


def test_the_result_of_a_stage_is_windowed_again_for_a_second_one() -> None:
    """Its time waits for the first one's results, across the stream between them."""
    app = hg.App("sales")
    first = (
        app.input("orders", serde=hg.json(Order), timestamp="n")
        .window(hg.tumbling("10s"))
        .spark(counted, schema="start long, n long", name="first")
    )
    by_start = first.repartition("start", partitions=2)
    by_start.window(hg.tumbling("30s")).spark(
        lambda rows, batch: [{"start": batch.window_start, "n": sum(row["n"] for row in rows), "of": len(rows)}],
        schema="start long, n long, of long",
        name="second",
    ).to("out")
    with Driver(app, partitions={"orders": 2}) as d:
        for partition in (0, 1):
            d.send_all("orders", [{"n": n} for n in range(0, 65_000, 500)], partition=partition)
        d.advance("1s")
        d.drain()
        found: dict[int, int] = {}
        for one in d.read("out"):
            found[one.value["start"]] = found.get(one.value["start"], 0) + one.value["n"]
        assert found == {0: 120, 30_000: 120, 60_000: 20}


def test_a_backlog_closes_many_windows_and_each_row_is_in_one_result() -> None:
    """In the order of the windows, though their intake has to wait."""
    app = job(hg.tumbling("1s"))
    with Driver(app, settings={"chunk.max-records": 5, "spark.in-flight": 1}) as d:
        d.send_all("orders", [{"n": n} for n in range(0, 60_000, 500)])
        d.drain()
        found = spans(d)
        assert [one[0][0] for one in found] == list(range(0, 60_000, 1_000))
        assert sum(len(one[2]) for one in found) == 120


@settings(deadline=None, max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.sampled_from([(10, 10), (10, 4), (7, 7)]),
    st.lists(st.one_of(st.lists(st.integers(0, 80), min_size=1, max_size=8), st.just(None)), max_size=8),
    st.booleans(),
)
def test_windows_against_a_model(spark: WithoutSpark, window: tuple[int, int], steps: list[Any], columns: bool) -> None:
    """Whatever comes, in any order and across restarts: each row is in the batch of each of its windows, or late."""
    size, every = window
    made = hg.tumbling(size) if size == every else hg.hopping(size, every=every)
    open_, closed, floor, late = dict[int, list[int]](), list[tuple[int, list[int]]](), -(10**9), 0
    with Driver(job(made, columns=columns)) as d:
        for step in [*steps, None]:
            if step is None:
                d.restart()
                continue
            d.send_all("orders", [{"n": n * 1000} for n in step])
            d.advance("1s")
            for n in step:
                ends = [end for end in range(-200, 200) if (end - size) % every == 0 and end - size <= n < end]
                for end in ends:
                    if end > floor:
                        open_.setdefault(end, []).append(n)
                late += all(end <= floor for end in ends)
            floor = max(floor, max(step) - 2)
            for end in sorted(end for end in open_ if end <= floor):
                closed.append((end, open_.pop(end)))
        d.drain()
        closed += sorted(open_.items())
        assert [(span[1] // 1000, [n // 1000 for n in rows]) for span, _, rows, _ in spans(d)] == closed
        assert d.counters["late_rows"] == late


# ------------------------------------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("declare", "why"),
    [
        (lambda s: s.window(hg.session("1m")).spark(counted, schema="n long"), "a session belongs to a key"),
        (lambda s: s.window(hg.tumbling("1m"), emit=5).spark(counted, schema="n long"), "when it is closed"),
        (lambda s: s.window(hg.tumbling("1m")).spark(counted, schema=""), "without a schema"),
        (lambda s: s.window(hg.tumbling("1m")).batch(max_rows=3), "a window is a batch of its own"),
        (lambda s: s.gather().window("1m"), "takes a window"),
        (lambda s: s.gather().window(hg.session("1m")), "a session belongs to a key"),
        (lambda s: s.gather().window(hg.tumbling("1m"), at_end="never"), "at_end"),
        (lambda s: s.gather().window(hg.tumbling("1m", time="processing"), late="t"), "no row comes late by the clock"),
        (lambda s: s.gather().batch(), "without a limit"),
        (lambda s: s.gather().map(print), "one task gets all rows"),
        (lambda s: s.gather().window(hg.tumbling("1m")).to("t"), "a batch is not a record"),
        (
            lambda s: s.repartition("n").agg(n=hg.count()).window(hg.tumbling("1m")).spark(counted, schema="n long"),
            "update",
        ),
        (lambda s: s.repartition("n").agg(n=hg.count()).gather().batch(max_rows=3), "update"),
    ],
)
def test_what_cannot_be_is_refused_at_its_line(declare: Any, why: str) -> None:
    """Before anything runs."""
    app = hg.App("sales")
    with pytest.raises(hg.DeclarationError, match=why):
        declare(app.input("orders"))


def test_a_driver_without_a_session_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """And how to get one."""
    monkeypatch.undo()
    with pytest.raises(hg.HeadgateError, match=r"'spark-windowed' .* has no session.*Driver\(app, spark=session\)"):
        Driver(job(hg.tumbling("1m")))
