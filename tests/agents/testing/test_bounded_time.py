"""What the end of a bounded input does to time. Where every input ends, a part that has ended keeps its last time until the others have
ended, too, because the next run goes on there. Where something goes on without it, it leaves the time to the others."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

import headgate as hg
from headgate.agents.testing.driver import Driver

ALL, EACH = {"grouper": "all"}, {}
"""All partitions in one task, or a task for each."""


def counted(stream: Any, at_end: Any = "keep") -> None:
    stream.window(hg.tumbling("10s"), at_end=at_end).agg(n=hg.count()).to("out")


def shuffled(*, at_end: Any = "keep", **more: Any) -> hg.App:
    app = hg.App("job")
    counted(app.input("in", timestamp="ts", **more).repartition("k", partitions=2), at_end)
    return app


@contextmanager
def driver(app: hg.App, partitions: int = 3, **settings: Any) -> Iterator[Driver]:
    with Driver(app, partitions=dict.fromkeys(app_inputs(app), partitions), settings=settings) as made:
        yield made


def app_inputs(app: hg.App) -> list[str]:
    return [one.topic for one in app.steps if hasattr(one, "until")]


def send(d: Driver, seconds: Any, partition: int = 0, topic: str = "in") -> None:
    d.send_all(topic, [hg.Record("k", {"k": f"k{one % 5}", "ts": one * 1000}) for one in seconds], partition=partition)


def run(d: Driver, *parts: Any) -> None:
    """One bounded run, in which each partition brings these seconds, one partition after the other."""
    for partition, seconds in enumerate(parts):
        send(d, seconds, partition)
    d.end()
    assert set(d.states.values()) == {"ended"}


def rows(d: Driver) -> int:
    return sum(one.value["n"] for one in d.read("out"))


def late(d: Driver) -> int:
    return d.counters["late_rows"] + d.counters["late_for_some_windows"]


def everything(d: Driver, partitions: int = 3) -> int:
    """What is still open, closed by a run that brings a much later record to each partition."""
    run(d, *([10_000],) * partitions)
    return rows(d)


@pytest.mark.parametrize("settings", [EACH, ALL], ids=["a task for each partition", "one task"])
def test_what_the_slower_partitions_bring_in_the_next_run_is_not_late(settings: dict[str, Any]) -> None:
    """Time ran on to the fastest when the others had ended: 40 of 300 rows were late in the second of two runs."""
    with driver(shuffled(), **settings) as d:
        run(d, range(41), range(100), range(70))
        assert rows(d) == 3 * 40  # what the slowest has passed
        d.restart()
        run(d, range(41, 81), range(100, 200), range(70, 140))
        assert rows(d) == 3 * 40
        d.restart()
        assert (everything(d), late(d)) == (1 + 120 + 60, 0)


@pytest.mark.parametrize("settings", [EACH, ALL], ids=["a task for each partition", "one task"])
def test_a_partition_that_brings_nothing_in_a_run_does_not_hold_the_others(settings: dict[str, Any]) -> None:
    with driver(shuffled(), **settings) as d:
        run(d, range(41), (), range(70))
        assert rows(d) == 2 * 40
        d.restart()
        run(d, (), (), ())
        assert rows(d) == 0
        d.restart()
        run(d, range(41, 71), (), range(70, 90))
        assert (rows(d), late(d)) == (2 * 30, 0)


def test_short_bounded_runs_close_what_time_has_passed() -> None:
    """The end was told before a watermark that was due: three runs of a hundred rows gave nothing, and thirty windows stayed open."""
    with driver(shuffled(), partitions=1) as d:
        for number in range(3):
            d.send_all("in", [{"k": "k", "ts": 1000 * (100 * number + second)} for second in range(100)])
            d.end()
            assert rows(d) == (90 if number == 0 else 100)
            d.restart()
        assert (everything(d, 1), late(d)) == (10, 0)


def test_the_end_itself_moves_no_floor() -> None:
    """What a run closes because it ends may be opened again by the next one: only what time has passed stays closed."""
    with driver(shuffled(at_end="close")) as d:
        run(d, range(35), range(100))
        found = d.read("out")
        assert {(one.value["window_end"] <= 30_000, one.value["closed_by"]) for one in found} == {
            (True, "watermark"),
            (False, "end"),
        }
        d.restart()
        run(d, range(35, 60), range(100, 120))
        assert (rows(d), late(d)) == (45, 0)


@pytest.mark.parametrize("first", ["left", "right"])
def test_a_join_whose_one_side_ends_first_loses_nothing_of_the_next_run(first: str) -> None:
    """Time went on with the other side, to its end."""
    app = hg.App("job")
    left, right = (app.input(name, timestamp="ts") for name in ("left", "right"))
    left.join(right, within="500ms", how="outer", at_end="keep", into=lambda a, b: [bool(a), bool(b)]).to("out")
    second = "right" if first == "left" else "left"
    with driver(app, partitions=1) as d:
        send(d, range(20), topic=first)
        d.end(first)
        send(d, range(100), topic=second)
        d.end(second)
        d.restart()
        send(d, range(20, 100), topic=first)
        d.end()
        assert [one.value for one in d.read("out")] == [[True, True]] * 100
        assert late(d) == 0


@pytest.mark.parametrize("empty", ["left", "right"])
@pytest.mark.parametrize("settings", [EACH, ALL], ids=["a task for each partition", "one task"])
def test_a_join_whose_one_side_is_empty_goes_on_with_the_other(empty: str, settings: dict[str, Any]) -> None:
    """An empty side has no time that the next run could go back to. Its records of the next run are late only behind the side that was
    read. One partition of each side is empty in both runs."""
    app = hg.App("job")
    left, right = (app.input(name, timestamp="ts") for name in ("left", "right"))
    left.join(right, within="500ms", how="outer", at_end="keep", into=lambda a, b: [bool(a), bool(b)]).to("out")
    other = "right" if empty == "left" else "left"
    with driver(app, partitions=2, **settings) as d:
        send(d, range(20), topic=other)
        d.end(empty)
        d.end(other)
        alone = [one.value for one in d.read("out")]
        assert (
            alone == [[other == "left", other == "right"]] * 19
        )  # the last one may still find a partner in the next run
        d.restart()
        send(d, range(19, 40), topic=empty)
        d.end(empty)
        send(d, range(20, 60), topic=other)
        d.end(other)
        pairs = [one.value for one in d.read("out")]
        assert pairs == [[True, True]] * 21  # 40 to 59 wait: the other side has come to 39
        assert late(d) == 0


@pytest.mark.parametrize("first", ["left", "right"])
def test_what_is_merged_goes_on_together_over_runs_though_one_stream_ends_first(first: str) -> None:
    """Behind a shuffle, with an empty partition in each stream."""
    app = hg.App("job")
    left, right = (app.input(name, timestamp="ts") for name in ("left", "right"))
    counted(left.merge(right).repartition("k", partitions=2))
    second = "right" if first == "left" else "left"
    with driver(app, partitions=2) as d:
        for number in range(2):
            send(d, range(number * 40 + bool(number), number * 40 + 41), 0, topic=first)
            d.end(first)
            send(d, range(number * 100, number * 100 + 100), 1, topic=second)
            d.end(second)
            assert rows(d) == 2 * 40  # what both have passed
            d.restart()
        assert (late(d), d.read("out")) == (0, [])


@pytest.mark.parametrize("empty", [0, 1, None], ids=["the first is empty", "the second is empty", "none is empty"])
@pytest.mark.parametrize("settings", [EACH, ALL], ids=["a task for each partition", "one task"])
def test_where_another_input_has_no_end_one_that_has_ended_leaves_the_time_to_it(
    settings: dict[str, Any], empty: int | None
) -> None:
    """Otherwise nothing of the stream that goes on would ever be closed again. An empty partition of what ends changes nothing."""
    app = hg.App("job")
    history = app.input("history", timestamp="ts", until="newest")
    counted(app.input("live", timestamp="ts").merge(history).repartition("k"))
    with driver(app, partitions=2, **settings) as d:
        old = sum(len(range(20 + 10 * one)) for one in (0, 1) if one != empty)
        for one in (0, 1):
            if one != empty:
                send(d, range(20 + 10 * one), one, topic="history")
        send(d, range(100), 0, topic="live")
        send(d, range(100), 1, topic="live")
        before = rows(d)
        assert before == (4 * 10 if empty is None else 0)  # an open partition that has said nothing holds the time
        d.end("history")
        send(d, range(100, 110), 0, topic="live")
        send(d, range(100, 110), 1, topic="live")
        assert (rows(d), late(d)) == (old + 200 - before, 0)


@pytest.mark.parametrize("rows_of_it", [1, 0], ids=["it brought a row", "it is empty"])
def test_where_a_job_that_shares_a_stream_has_ended_its_part_leaves_the_time_to_the_others(rows_of_it: int) -> None:
    """Its run is over: nothing of it comes in the next one. Also with a partition in which it has written nothing."""
    app = hg.App("job")
    shared = app.input("shared", producers=["up"], until="producers")
    counted(app.input("in", timestamp="ts").merge(shared).repartition("k", partitions=1))
    with driver(app, partitions=2) as d:
        for _ in range(rows_of_it):
            d.send("shared", {"k": "k"}, at=5_000, partition=0)
        d.end("shared")
        send(d, range(31), 0)
        send(d, range(31), 1)
        assert (rows(d), late(d)) == (2 * 30 + rows_of_it, 0)
        d.end("in")
        assert set(d.states.values()) == {"ended"}
        d.restart()
        send(d, range(31, 45), 0)
        send(d, range(31, 45), 1)
        d.end("shared", "in")
        assert (rows(d), late(d)) == (2 * 10, 0)


class Stops(hg.Actor):
    """Passes what it is given on, and stops at the first row that says so."""

    def on_batch(self, ctx: Any, batch: Any) -> None:
        for value in batch.values:
            ctx.forward(value)
            if value.get("last"):
                ctx.stop()
                return


@pytest.mark.parametrize("quiet", [True, False], ids=["with an empty partition", "without one"])
@pytest.mark.parametrize("settings", [EACH, ALL], ids=["a task for each partition", "one task"])
def test_what_an_actor_has_stopped_to_read_leaves_the_time_to_the_others(settings: dict[str, Any], quiet: bool) -> None:
    """It ends in the middle, of its own will, and nobody knows when it is read again. An input that brings nothing, but is read to its
    end, does not change that: the run closes what the others have passed."""
    app = hg.App("job")
    asked = app.input("asked", timestamp="ts", until="newest")
    passed = asked.process(Stops)
    counted(app.input("in", timestamp="ts", until="newest").merge(passed).repartition("k"))
    with driver(app, partitions=2, **settings) as d:
        for one in (0,) if quiet else (0, 1):
            d.send_all("asked", [{"k": "k", "ts": ts, "last": ts == 5_000} for ts in (4_000, 5_000)], partition=one)
        stopped = 1 if quiet or settings else 2  # a task has one actor
        for one in (0, 1):
            send(d, range(100), one)
        d.end()
        assert set(d.states.values()) == {"ended"}
        assert (rows(d), late(d)) == (2 * 90 + 2 * stopped, 0)
