"""An actor over several streams: its time goes on when one of them has ended, or says nothing."""

from __future__ import annotations

from typing import Any

import pytest

import headgate as hg
from headgate.agents.testing.driver import Driver


class Hears(hg.Actor):
    """Says what it hears of time, and when its timer at 150 s fires."""

    def on_batch(self, ctx: Any, batch: Any) -> None:
        if ctx.watermark is None:
            ctx.timer("late", at=150_000)

    def on_watermark(self, ctx: Any, timestamp: int) -> None:
        ctx.emit("heard", timestamp)

    def on_timer(self, ctx: Any, name: str, timestamp: int) -> None:
        ctx.emit("fired", timestamp)


def job() -> hg.App:
    app = hg.App("job")
    one, other = (app.input(name, timestamp="ts") for name in ("one", "other"))
    app.actor(one, other)(Hears)
    return app


def values(d: Driver, topic: str) -> list[Any]:
    return [record.value for record in d.read(topic)]


@pytest.mark.parametrize("way", ["ended", "idle"])
def test_the_other_one_goes_on(way: str) -> None:
    """The watermark stood still for ever, and with it every event-time timer of the actor."""
    with Driver(job(), settings={"watermark.idle-timeout": "10s"}) as d:
        d.send("one", {"ts": 100_000})
        d.send("other", {"ts": 200_000})
        assert values(d, "heard") == [100_000]
        if way == "ended":
            d.end("one")
        else:
            for n in range(5):  # the other one is not idle
                d.advance("4s")
                d.send("other", {"ts": 201_000 + n})
        assert values(d, "fired") == [150_000]
        assert 200_000 <= values(d, "heard")[-1] < 202_000
        d.send("other", {"ts": 300_000})
        d.advance("1s")
        assert values(d, "heard")[-1] == 300_000
