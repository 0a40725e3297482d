"""What a worker says of event time: by stream and step, who holds it, within bounds, and together with what others say."""

from __future__ import annotations

from typing import Any

import headgate as hg
from headgate.agents.testing.driver import Driver
from headgate.agents.worker.load.times import MOST_HOLDERS, PlaceTime, Times, merged, time_load, times_of, times_of_load
from headgate.core.progress.frames import MAX_TIME, NO_TIME
from headgate.core.progress.producers import Holder


class Hears(hg.Actor):
    """Hears of time."""

    def on_watermark(self, ctx: Any, timestamp: int) -> None:
        ctx.emit("heard", timestamp)


def job() -> hg.App:
    app = hg.App("job")
    app.input("in", timestamp="ts").repartition("k").process(Hears, name="hears")
    return app


def held(times: list[PlaceTime]) -> dict[str, tuple[int, list[tuple[int, str, str]]]]:
    return {one.place: (one.ms, [tuple(holder) for holder in one.holders]) for one in times}  # type: ignore[misc]


def test_each_place_has_its_least_time_and_who_holds_it() -> None:
    """A source's partition (nothing waits in it: it is at its end, not behind), the tasks between the stages, and what a step reads."""
    with Driver(job(), partitions={"in": 2}) as d:
        d.send("in", {"ts": 5_000, "k": "a"}, partition=0)
        d.send("in", {"ts": 9_000, "k": "b"}, partition=1)
        d.advance("1s")
        times = Times()
        found = times.look(d.tasks.values(), 100_000)
        assert held(found) == {
            "in": (5_000, [(5_000, "in:0", "at-end")]),
            "job-1-by-k": (5_000, [(5_000, "Partition 0", "behind")]),
            "step hears": (5_000, [(5_000, "job-1-by-k", "behind")]),
        }
        assert [one.newest_ms for one in found] == [9_000, 9_000, None]
        d.send("in", {"ts": 7_000, "k": "a"}, partition=0)
        d.advance("1s")
        assert [(one.ms, one.since_ms) for one in times.look(d.tasks.values(), 101_000)] == [(7_000, 101_000)] * 3
        assert [(one.ms, one.since_ms) for one in times.look(d.tasks.values(), 102_000)] == [(7_000, 101_000)] * 3
        d.end("in")
        assert times_of(d.tasks.values()) == []


def test_no_more_than_fits_is_said_and_what_is_said_comes_back() -> None:
    """However many streams and producers there are: a heartbeat has its limit."""
    some = [
        PlaceTime(f"s{n}", NO_TIME if n else MAX_TIME, -5, 7, (Holder(NO_TIME, "up/1 Partition 0", "silent"),), n)
        for n in range(100)
    ]
    said = times_of_load(time_load(some, 2_000))
    assert said == some[: len(said)]
    assert 5 < len(said) < 30


def test_what_several_workers_say_is_shown_where_it_is_least() -> None:
    """Who speaks for all knows no names; a worker that does is believed, though it is a little ahead."""
    relayed = PlaceTime("s", 5, 6, 1, (Holder(5, "", "relayed"),))
    named = PlaceTime("s", 7, 9, 2, (Holder(7, "Partition 3", "behind"),), 2)
    (both,) = merged([named, relayed])
    assert both == PlaceTime("s", 5, 9, 1, (Holder(7, "Partition 3", "behind"),), 2)
    assert merged([relayed]) == [relayed]
    many = [PlaceTime("s", 5, None, 1, (Holder(5, f"Partition {n}", "behind"),)) for n in range(5)]
    (all_,) = merged([*many, many[0]])
    assert len(all_.holders) == MOST_HOLDERS
    assert all_.more == 2
