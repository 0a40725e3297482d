"""How many rows a letter has at most and at least, by what the operators behind its stream do with them."""

from __future__ import annotations

from typing import Any, TypedDict

import pytest

import headgate as hg
from headgate.agents.operators.pipeline.pipeline import Pipeline
from headgate.agents.records.frames.arrow_frames import COLUMN_FRAME_RECORDS
from headgate.agents.records.frames.chunks import Chunk
from headgate.agents.records.frames.framing import FRAME_RECORDS
from headgate.agents.testing.driver import Driver
from headgate.core.windows.spans import MOST_PAIRS

from ...forms import Form
from .test_pipeline import Rig

HOUR_MS = 3_600_000
MINUTES = 1440


class Row(TypedDict):
    k: str
    ts: int


async def awaited(row: Any) -> Any:
    return row


def test_rows_that_are_put_into_many_windows_come_in_short_letters() -> None:
    """All windows behind a stream count, on each side of a shuffle; tumbling ones alone bound nothing."""
    app = hg.App("job")
    rows = app.input("in", timestamp="ts")
    rows.window(hg.hopping("1d", "1m"), name="a").agg(n=hg.count()).to("out")
    rows.window(hg.hopping("10m", every="1m"), name="b").agg(n=hg.count()).to("out")
    rows.repartition("k", name="by").window(hg.hopping("1h", every="1m"), name="c", late="late").agg(n=hg.count()).to(
        "out"
    )
    app.input("other", timestamp="ts").window(hg.tumbling("1m"), name="d").agg(n=hg.count()).to("out")
    bounds = Rig(app, "in", "other").pipeline.bounds

    assert bounds.most == {"in": MOST_PAIRS // (MINUTES + 10), "job-1-by": MOST_PAIRS // 60}
    assert bounds.least == {}


def test_a_letter_has_as_many_rows_as_are_awaited_at_a_time() -> None:
    """The largest number counts; what stands behind a shuffle is another stream's."""
    app = hg.App("job")
    rows = app.input("in")
    rows.map_async(awaited, concurrency=4).map(lambda row: row).map_async(awaited, concurrency=7).to("out")
    rows.repartition("k", name="by").map_async(awaited, concurrency=90).to("out")
    app.input("other").map(lambda row: row).to("out")
    bounds = Rig(app, "in", "other").pipeline.bounds

    assert bounds.least == {"in": 7, "job-1-by": 90}
    assert bounds.most == {}


def test_a_frame_is_as_short_as_a_row_of_its_reader_is_slow(form: Form) -> None:
    """It is read whole: 500 rows for functions of rows, 4,096 for columns, fewer where each row is put into many windows."""
    app = hg.App("job")
    rows = form.input(app, "in", Row, timestamp="ts")
    rows.repartition("k", name="a").window(hg.hopping("1d", every="1m"), name="w", late="late").agg(n=hg.count()).to(
        "out"
    )
    counted = rows.repartition("k", name="b").agg(n=hg.count())
    made = rows.repartition("k", name="c")
    (made.rows() if form is Form.COLUMNS else made).map(lambda row: row).to("out")
    counted.to("out")
    most = Rig(app, "in").pipeline._spread.most

    assert most["job-1-a"] == MOST_PAIRS // MINUTES
    assert most["job-1-b"] == COLUMN_FRAME_RECORDS
    assert most["job-1-c"] == FRAME_RECORDS


@pytest.mark.parametrize("shuffled", [False, True])
def test_rows_times_windows_are_never_there_at_once(
    form: Form, shuffled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """4,000 rows came as one letter, each of them in 1,440 windows: all names of rows were held at once, for seconds."""
    lengths: dict[str, list[int]] = {}
    run = Pipeline.chunk

    async def seen(self: Pipeline, chunk: Chunk, *words: Any) -> int | None:
        lengths.setdefault(chunk.at.stream, []).append(len(chunk))
        return await run(self, chunk, *words)

    monkeypatch.setattr(Pipeline, "chunk", seen)
    app = hg.App("job")
    rows = form.input(app, "in", Row, key="k", timestamp="ts")
    rows = rows.repartition("k", name="by") if shuffled else rows
    rows.window(hg.hopping("1d", every="1m"), name="w", **({"late": "late"} if shuffled else {})).agg(n=hg.count()).to(
        "out"
    )
    count = 300
    with Driver(app) as d:
        d.send_all("in", [{"k": "a", "ts": HOUR_MS + n * 7} for n in range(count)])
        d.end()
        found = d.read("out")

    stream = "job-1-by" if shuffled else "in"
    assert sum(lengths[stream]) == count
    assert max(lengths[stream]) * MINUTES <= MOST_PAIRS
    assert {one.value["n"] for one in found} == {count}
    assert len(found) == MINUTES
