"""Batches of a task, from the rows to the results: with limits, windows and late rows. What stands for Spark runs at once."""

from __future__ import annotations

from typing import Any

import pytest

import headgate as hg
from headgate.agents.testing import driver
from headgate.agents.testing.driver import Driver

from ..without_spark import Rows, WithoutSpark


@pytest.fixture(autouse=True)
def spark(monkeypatch: pytest.MonkeyPatch) -> WithoutSpark:
    """Each driver runs its stages here."""
    bridge = WithoutSpark()
    monkeypatch.setattr(driver, "_spark", lambda declared, session: bridge)
    return bridge


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
    app.input("orders").batch(max_rows=4, name="lot").spark(summed, schema="n long").to("out")
    with Driver(app) as d:
        d.send_all("orders", orders(0, 9))
        assert read(d) == [("lot/1", "rows", [0, 1, 2, 3]), ("lot/2", "rows", [4, 5, 6, 7])]
        d.send_all("orders", orders(9, 10))
        d.restart()
        d.drain()
        assert read(d) == [("lot/3", "drain", [8, 9])]
