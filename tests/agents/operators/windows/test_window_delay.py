"""How long the result of a window takes, in virtual time, where a commit every 200 ms takes 50 ms."""

from __future__ import annotations

from typing import TypedDict

import pytest

import headgate as hg
from headgate.agents.port.waiting import pause
from headgate.agents.runtime.writing.outbox import Outbox
from headgate.agents.testing import driver

from ...forms import Form

INTERVAL_MS, COMMIT_MS, STEP_MS = 200, 50, 10


class Row(TypedDict):
    k: str
    ts: int


def test_two_commits_lead_from_the_record_that_closes_a_window_to_its_result(
    monkeypatch: pytest.MonkeyPatch, form: Form
):
    """The first announces the time of the record, the second carries the result. It took up to four commits: 800 ms."""
    commit = Outbox._commit_transaction

    async def slow(outbox: Outbox) -> None:
        await pause(outbox._clock, COMMIT_MS / 1000)
        await commit(outbox)

    monkeypatch.setattr(Outbox, "_commit_transaction", slow)
    monkeypatch.setattr(driver, "OWN_SETTINGS", {"commit.interval": f"{INTERVAL_MS}ms"})
    app = hg.App("job", key_serde=hg.text())
    windows = form.input(app, "in", Row, timestamp="ts").repartition("k").window(hg.tumbling("490ms"), name="windows")
    windows.agg(n=hg.count()).to("out")
    delays: list[int] = []
    with driver.Driver(app, partitions={"in": 3}) as d:
        while d.wall_ms < 6_000:
            for partition in range(3):
                d.send("in", {"k": "a", "ts": d.wall_ms}, partition=partition)
            d.advance(f"{STEP_MS}ms")
            delays += [d.wall_ms - record.value["window_end"] for record in d.read("out")]
    assert len(delays) >= 10
    assert max(delays) <= 2 * INTERVAL_MS + COMMIT_MS + 2 * STEP_MS
