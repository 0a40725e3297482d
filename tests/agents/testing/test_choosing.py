"""What the choosers promise, seen in what a job is given: the driver runs the intake, the chooser and the tasks of a worker.

Samza's hole 22: another thread changed the queues beside the loop that chose from them; here one coroutine looks and chooses. Hole 11: a
bootstrap input kept the highest priority for ever; here it has its own once it has caught up.
"""

from __future__ import annotations

from typing import Any

import pytest

import headgate as hg
from headgate.agents.testing.driver import Driver
from headgate.agents.testing.logs import in_columns
from headgate.core.names import StreamPartition

from .test_driver_as_worker import Breaks

CHUNK = 10


class Seen:
    """The batches that a job was given, in order: the topic, and the values."""

    def __init__(self) -> None:
        self.batches: list[tuple[str, list[Any]]] = []

    def into(self, topic: str, stream: Any) -> None:
        """Note what comes of this stream."""
        stream.sink(lambda batch: self.batches.append((topic, list(batch.values))))

    @property
    def topics(self) -> list[str]:
        return [topic for topic, _ in self.batches]


def app_of(seen: Seen, chooser: str | None = None, **inputs: dict[str, Any]) -> hg.App:
    """A job with these inputs, and one of which every first record fails: until a restart nothing of the others is read."""
    app = hg.App("job", chooser=chooser)
    app.input("boom").map(Breaks()).to("broken")
    for topic, options in inputs.items():
        seen.into(topic, app.input(topic, **options))
    return app


def read(app: hg.App, waiting: dict[str, list[hg.Record[Any, Any]]], **settings: Any) -> Driver:
    """A job that begins with all of these records before it."""
    driver = Driver(app, settings={"chunk.max-records": CHUNK, "chooser.batch-size": CHUNK, **settings})
    with pytest.raises(hg.UserCodeError):
        driver.send("boom", 0)
    for topic, records in waiting.items():
        driver.send_all(topic, records)
    driver.restart()
    return driver


def records(count: int, *, first: int = 0, every: int = 1) -> list[hg.Record[Any, Any]]:
    return [hg.Record(None, n, first + n * every) for n in range(count)]


def counts(driver: Driver) -> dict[str, int]:
    return {name: n for name, n in driver.counters.items() if name.startswith(("chosen", "waited"))}


def test_an_urgent_record_never_waits_for_a_backlog() -> None:
    """It comes while a backlog is read, again and again: at most two chunks are read before it."""
    chunks, asked, waits = [0], [0], list[int]()
    app = hg.App("job")

    def low(batch: Any) -> None:
        chunks[0] += 1
        asked[0] = chunks[0]
        driver.topics.write(StreamPartition("urgent", 0), *in_columns([(None, b"%d" % chunks[0], 0, ())]))

    def high(batch: Any) -> None:
        waits.extend(chunks[0] - value for value in batch.values)

    app.input("urgent", priority=1).sink(high)
    app.input("backlog").sink(low)
    with Driver(app, settings={"chunk.max-records": CHUNK}) as driver:
        driver.send_all("backlog", records(100 * CHUNK))
        assert len(waits) == chunks[0] >= 100
        assert max(waits) <= 2
        assert counts(driver)["chosen.0"] == chunks[0]
        assert counts(driver)["chosen.1"] > 0


def test_after_a_restart_the_higher_tier_catches_up_first() -> None:
    """All of its backlog, although the lower one stands in the buffer already; and the metrics say so."""
    seen = Seen()
    app = app_of(seen, low={}, high={"priority": 5})
    with read(app, {"low": records(30), "high": records(300)}) as driver:
        assert seen.topics == ["high"] * 30 + ["low"] * 3
        found = counts(driver)
        assert (found["chosen.5"], found["chosen.0"]) == (30, 3 + 2)  # what had failed was read twice


def test_a_bootstrap_input_is_complete_before_the_first_other_record_and_then_like_any_other() -> None:
    """Also one of a lower tier. What comes of it later has that tier, so a higher one goes first (Samza's hole 11: it kept the highest for
    ever).
    """
    seen: list[tuple[str, Any]] = []
    app = hg.App("job")
    app.input("boom").map(Breaks()).to("broken")
    rates = app.input("rates", key="k", priority=-1).table("rates")

    def note(row: Any, rate: Any) -> Any:
        seen.append((row["n"], rate["x"]))
        if row["n"] == 30:  # a backlog of both comes at once
            for topic, field in (("rates", b"x"), ("orders", b"n")):
                rows = [(b"k", b'{"k": "k", "%b": %d}' % (field, n), 0, ()) for n in range(1_000, 1_000 + 5 * CHUNK)]
                d.topics.write(StreamPartition(topic, 0), *in_columns(rows))
        return row

    app.input("orders", key="k").join(rates, into=note).to("out")
    with read(
        app, {"orders": [{"k": "k", "n": n} for n in range(30)], "rates": [{"k": "k", "x": n} for n in range(200)]}
    ) as d:  # type: ignore[dict-item]
        assert {rate for _, rate in seen} == {199}
        d.send("orders", {"k": "k", "n": 30})
        assert seen[31:] == [(n, 199) for n in range(1_000, 1_000 + 5 * CHUNK)]
        d.send("orders", {"k": "k", "n": 31})
        assert seen[-1] == (31, 1_000 + 5 * CHUNK - 1)


@pytest.mark.parametrize("every", [1, 7])
def test_inputs_that_are_aligned_by_time_stay_within_a_chunk_of_each_other(every: int) -> None:
    """One has seven times as many records as the other: neither runs ahead by more than a chunk, by event time."""
    seen = Seen()
    app = app_of(seen, "time-aligned", a={}, b={})
    waiting = {"a": records(700), "b": records(700 // every, every=every)}
    with read(app, waiting, **{"chooser.align-wait": "0s"}) as driver:
        driver.advance("1s")
        reached = {"a": -1, "b": -1}
        step = {"a": 1, "b": every}
        for topic, values in seen.batches:
            reached[topic] = values[-1] * step[topic]
            if -1 not in reached.values():
                assert abs(reached["a"] - reached["b"]) <= CHUNK * every
        assert sum(len(values) for _, values in seen.batches) == 700 + 700 // every


def test_a_chooser_by_time_waits_for_an_input_that_may_have_something_older_and_says_so() -> None:
    """The wait is counted once, with its reason."""
    seen = Seen()
    app = hg.App("job", chooser="time-aligned")
    for topic in ("a", "b"):
        seen.into(topic, app.input(topic))
    with Driver(app, settings={"chooser.align-wait": "2s"}) as driver:
        driver.send_all("a", records(5))
        assert seen.batches == []
        assert counts(driver)["waited.alignment"] == 1
        driver.advance("3s")
        assert seen.topics == ["a"]


def test_starting_alignment_keeps_the_distances_that_inputs_had_at_the_start() -> None:
    """A long and a short backlog: both get the same share of turns until the short one is read up."""
    seen = Seen()
    app = app_of(seen, "starting-alignment", long={}, short={})
    with read(app, {"long": records(3000), "short": records(1000)}):
        taken = {"long": 0, "short": 0}
        for topic, values in seen.batches:
            taken[topic] += len(values)
            if taken["short"] < 1000:
                assert abs(taken["long"] - taken["short"]) <= CHUNK
        assert taken == {"long": 3000, "short": 1000}


def test_a_paused_input_is_a_reason_to_wait() -> None:
    """Its records stand in the buffer, and the machine lets nobody have them."""
    seen = Seen()
    app = app_of(seen, a={})
    with read(app, {}) as driver:
        driver.metadata.put("requests", "p", {"verb": "pause"})
        driver.send_all("a", records(5))
        assert counts(driver)["waited.paused"] == 1
        driver.metadata.put("requests", "r", {"verb": "resume"})
        assert seen.topics == ["a"]


def test_streams_that_meet_in_a_join_are_read_together_in_event_time() -> None:
    """By the time that the input declares, whatever Kafka's is. So a join keeps the rows of its distance, of the drift and of a chunk."""
    app = hg.App("job")
    app.input("boom").map(Breaks()).to("broken")
    left, right = (app.input(topic, key="k", timestamp="ts") for topic in ("left", "right"))
    left.join(right, within="1s", into=lambda a, b: [a["ts"], b["ts"]], name="j").to("out")
    most: list[int] = []
    taken: list[tuple[str, int]] = []
    for topic, stream in (("left", left), ("right", right)):
        stream.sink(lambda batch, topic=topic: taken.extend((topic, value["ts"]) for value in batch.values))
    waiting = {
        topic: [hg.Record(None, {"k": "a", "ts": 1_000 * n}, 5) for n in range(count)]
        for topic, count in (("left", 100), ("right", 100))
    }
    with read(app, waiting, **{"chooser.max-drift": "15s", "chooser.batch-size": 1000}) as driver:
        newest = {"left": 0, "right": 0}
        for topic, ts in taken:
            newest[topic] = ts
            most.append(abs(newest["left"] - newest["right"]))
        assert 10_000 < max(most) <= 15_000 + 1_000 * CHUNK
        assert len(driver.read("out")) == 100 + 2 * 99
