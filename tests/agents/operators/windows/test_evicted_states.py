"""States of aggregates that do not fit into memory are dropped, and read from the store again: nobody sees a difference."""

from __future__ import annotations

import random
from typing import Any

import pytest

import headgate as hg
from headgate.agents.state import tables
from headgate.agents.state.cache_memory import CacheMemory
from headgate.agents.testing.driver import Driver

KEYS, CHUNKS = 1_500, 60


def last(state: Any, value: Any) -> Any:
    return [value["n"], state[1] + 1]


def lived(limit: int, monkeypatch: pytest.MonkeyPatch) -> tuple[list[Any], int]:
    """All updates of aggregates in arrays and in lists, and what was evicted."""
    memories: list[CacheMemory] = []

    def made() -> CacheMemory:
        memories.append(CacheMemory(limit))
        return memories[-1]

    monkeypatch.setattr(tables, "CacheMemory", made)
    app = hg.App("job")
    rows = app.input("in", key="k")
    rows.agg(n=hg.count(), total=hg.sum("n"), name="arrays").to("numbers")
    rows.agg(last=hg.aggregate(lambda: [0, 0], last), name="lists").to("values")
    chance = random.Random(5)
    found: list[Any] = []
    with Driver(app) as d:
        for chunk in range(CHUNKS):
            d.send_all("in", [{"k": f"k{chance.randrange(KEYS)}", "n": chunk * 50 + n} for n in range(50)])
            for topic in ("numbers", "values"):
                found += sorted((one.key, str(one.value)) for one in d.read(topic))
    return found, sum(one.evicted for one in memories)


def test_evicted_states_go_on_where_they_were(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rule that evicts is called by what a task does, with each letter, and not by tests alone."""
    expected, none = lived(1 << 30, monkeypatch)
    found, evicted = lived(64 << 10, monkeypatch)
    assert none == 0
    assert evicted > 64 << 10
    assert found == expected
