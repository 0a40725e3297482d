"""Sinks of the user's own, on the test driver: what they are told of a batch, and what happens when they fail."""

from __future__ import annotations

from typing import Any, TypedDict

import pytest

import headgate as hg


class Order(TypedDict):
    n: int


class Kept(hg.Sink):
    """Keeps what it is told, in a list of the test."""

    def __init__(self, into: list[Any], fails: int = 0) -> None:
        self.into, self.fails = into, fails

    def write(self, rows: Any, batch: Any) -> None:
        self.into.append((batch.id, batch.number, batch.offsets, rows.to_pylist()))
        if len(self.into) <= self.fails:
            raise hg.TargetDown("it is away")


def job(**more: Any) -> hg.App:
    app = hg.App("sales", serde=hg.json())
    app.input("orders", serde=hg.json(Order)).to_sink(Kept, max_rows=2, **more)
    return app


def test_a_batch_says_its_number_and_from_which_offsets_its_rows_came() -> None:
    kept: list[Any] = []
    with hg.testing.Driver(job(into=kept)) as d:
        d.send_all("orders", [{"n": n} for n in range(3)])
        d.end("orders")
    assert [(number, offsets) for _, number, offsets, _ in kept] == [
        (0, {"orders:0": (0, 1)}),
        (1, {"orders:0": (2, 2)}),
    ]
    assert [row["n"] for _, _, _, rows in kept for row in rows] == [0, 1, 2]


def test_a_batch_that_is_tried_again_has_the_same_id_and_rows() -> None:
    """The target was away, twice; what it gets the third time can be recognised."""
    kept: list[Any] = []
    with hg.testing.Driver(job(into=kept, fails=2), settings={"error.retries": 5}) as d:
        d.send_all("orders", [{"n": 1}, {"n": 2}])
        d.advance("1m")
    assert len(kept) == 3
    assert kept[0] == kept[1] == kept[2]


def test_a_policy_that_a_sink_cannot_follow_is_refused() -> None:
    """Which rows are refused is found by writing parts of a batch, which this sink does not undo."""
    with pytest.raises(hg.DeclarationError, match="does not undo"):
        job(into=[], on_error="skip")


def test_what_is_no_sink_is_refused() -> None:
    app = hg.App("sales", serde=hg.json())
    with pytest.raises(hg.DeclarationError, match=r"subclass of hg\.Sink"):
        app.input("orders", serde=hg.json(Order)).to_sink(print)  # type: ignore[arg-type]
