"""Open windows count against the memory of a worker: those that do not fit are in the store only, and nobody sees a difference."""

from __future__ import annotations

import random
from functools import partial
from typing import Any

import pytest

import headgate as hg
from headgate.agents.state import tables
from headgate.agents.state.cache_memory import CacheMemory
from headgate.agents.testing.driver import Driver

from ...forms import Form
from .test_windowed import Row

ROWS, EVERY, KEYS = 4_000, 200, 40
SPAN_MS, BEHIND_MS = 1_000, 60_000
LIMIT = 200_000


def texts(rows: Any) -> Any:
    return rows.agg(n=hg.count(), all=hg.aggregate(list, lambda state, row: [*state, "x" * 50]), early=hg.min("ts"))


class Listed(hg.Actor):
    """Passes on the rows of a window."""

    def on_batch(self, ctx: Any, batch: Any) -> None:
        ctx.forward([[record.value["ts"], record.value["x"]] for record in batch])


def job(kind: str) -> hg.App:
    app = hg.App("job")
    form = Form.ROWS if kind != "columns" else Form.COLUMNS
    rows = form.input(app, "in", Row, key="k", timestamp="ts", max_out_of_order=f"{BEHIND_MS}ms")
    opened = rows.window(hg.session(f"{SPAN_MS}ms") if kind == "sessions" else hg.tumbling(f"{SPAN_MS}ms"), name="w")
    if kind == "actor":
        opened.process(Listed).to("out")
    elif kind == "texts":
        texts(opened).to("out")
    else:
        opened.agg(n=hg.count(), total=hg.sum("x")).to("out")
    return app


def lived(kind: str, memories: list[CacheMemory]) -> tuple[list[Any], list[int]]:
    """What comes out of windows that stay open for a minute, and the use of memory behind each commit."""
    chance = random.Random(7)
    found: list[Any] = []
    used: list[int] = []
    with Driver(job(kind)) as d:
        for start in range(0, ROWS, EVERY):
            times = [BEHIND_MS + n * 10 - chance.randrange(BEHIND_MS) for n in range(start, start + EVERY)]
            d.send_all("in", [{"k": f"k{chance.randrange(KEYS)}", "ts": ts, "x": ts % 7} for ts in times])
            d.advance("1s")
            used.append(memories[-1].used)
            if start == ROWS // 2:
                d.restart()
            found += [(one.key, one.value, one.timestamp) for one in d.read("out")]
        d.drain()
        found += [(one.key, one.value, one.timestamp) for one in d.read("out")]
    return found, used


@pytest.mark.parametrize("kind", ["rows", "columns", "texts", "actor", "sessions"])
def test_windows_beyond_the_memory_give_the_same_results(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sixty windows are open at a time, rows come for all of them, and memory has room for some: the others are read when rows come, and
    when they close; also behind a restart. Sessions cannot be given up, but count."""
    memories: list[CacheMemory] = []

    def made(limit: int) -> CacheMemory:
        memories.append(CacheMemory(limit))
        return memories[-1]

    monkeypatch.setattr(tables, "CacheMemory", partial(made, 1 << 30))
    expected, roomy = lived(kind, memories)
    assert len(expected) > 1_000
    assert max(roomy) > LIMIT
    assert [one.evicted for one in memories] == [0] * len(memories)
    memories.clear()
    monkeypatch.setattr(tables, "CacheMemory", partial(made, LIMIT))
    found, used = lived(kind, memories)
    assert found == expected
    if kind != "sessions":
        assert sum(one.evicted for one in memories) > LIMIT
        assert max(used) < max(roomy)
