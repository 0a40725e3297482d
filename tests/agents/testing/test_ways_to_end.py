"""Stop, pause, drain and end: what each does to windows, positions, streams between stages, and timers. The table in `docs/stopping.md`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import headgate as hg
from headgate.agents.testing.driver import Driver
from headgate.core.names import StreamPartition


class Keeps(hg.Actor):
    """Sets a timer of each kind with its first record, and says what it hears."""

    def on_batch(self, ctx: Any, batch: Any) -> None:
        for value in batch.values:
            if value["n"] == 1:
                ctx.timer("event", at=60_000)
                ctx.timer("clock", after="1h")

    def on_timer(self, ctx: Any, name: str, at: int) -> None:
        ctx.emit("heard", name)

    def on_drain(self, ctx: Any) -> None:
        ctx.emit("heard", "drain")

    def on_end_of_stream(self, ctx: Any) -> None:
        ctx.emit("heard", "end of stream")

    def on_stop(self, ctx: Any) -> None:
        STOPPED.append(ctx.task)


STOPPED: list[str] = []


@pytest.fixture
def job() -> Iterator[Driver]:
    """A window and two timers are open: one row of two lies in [0 s, 10 s)."""
    app = hg.App("job")
    shuffled = app.input("in", timestamp="ts").repartition("k")
    shuffled.window(hg.tumbling("10s")).agg(n=hg.sum("n")).to("windows")
    shuffled.process(Keeps)
    with Driver(app) as driver:
        STOPPED.clear()
        row(driver, 1, 1_000)
        assert (windows(driver), heard(driver)) == ([], [])
        yield driver


def row(driver: Driver, n: int, ts: int) -> None:
    driver.send("in", {"k": "k", "n": n, "ts": ts})


def windows(driver: Driver) -> list[tuple[int, str]]:
    return [(one.value["n"], one.value["closed_by"]) for one in driver.read("windows")]


def heard(driver: Driver) -> list[str]:
    return [one.value for one in driver.read("heard")]


def unread(driver: Driver) -> int:
    """How many records of the stream between the stages its task has not passed."""
    [actor] = driver.tasks.values()
    positions = actor.machine.inputs.positions
    return sum(
        driver.topics.log(StreamPartition(at.stream, at.partition)).end - position
        for at, position in positions.items()
        if at.stream != "in"
    )


def test_a_stop_leaves_windows_and_timers_open_and_the_run_goes_on(job: Driver) -> None:
    """Nothing closes and nothing fires; the same run reads on, and each result is that of a run that never stopped."""
    job.restart()  # as a stop and a start, or a crash: what is committed goes on
    assert (windows(job), heard(job)) == ([], [])
    row(job, 2, 2_000)
    row(job, 4, 70_000)
    assert windows(job) == [(3, "watermark")]
    assert heard(job) == ["event"]
    job.advance("1h")
    assert heard(job) == ["clock"]


def test_a_pause_reads_nothing_and_holds_event_time_while_the_clock_goes_on(job: Driver) -> None:
    """Windows and timers of event time stay as they are; a timer of the clock fires in a paused job, too."""
    job.metadata.put("requests", "p", {"verb": "pause"})
    row(job, 2, 2_000)
    row(job, 4, 70_000)
    job.advance("1h")
    assert (windows(job), heard(job)) == ([], ["clock"])
    job.metadata.put("requests", "r", {"verb": "resume"})
    assert (windows(job), heard(job)) == ([(3, "watermark")], ["event"])
    assert not STOPPED


def test_a_drain_closes_windows_fires_timers_and_leaves_nothing_between_the_stages(job: Driver) -> None:
    """Samza's hole 5: its windows lost what a drain should have flushed. The next run reads on, with the windows open from nothing."""
    job.drain()
    assert windows(job) == [(1, "drain")]
    assert heard(job) == ["event", "clock", "drain"]
    assert unread(job) == 0
    row(job, 2, 2_000)
    assert windows(job) == []
    job.restart()
    assert STOPPED
    row(job, 4, 70_000)
    assert windows(job) == [(2, "watermark")]
    job.advance("2h")
    assert heard(job) == []


def test_an_end_does_the_same_and_calls_the_other_hook(job: Driver) -> None:
    """The inputs have ended by themselves; the next run begins behind their ends."""
    job.end()
    assert windows(job) == [(1, "end")]
    assert heard(job) == ["event", "clock", "end of stream"]
    assert unread(job) == 0
    job.restart()
    row(job, 2, 2_000)
    row(job, 4, 70_000)
    assert windows(job) == [(2, "watermark")]
    assert heard(job) == []
