"""A record that user code makes without a timestamp has that of the record that it was made of, and never one of 1970."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

import headgate as hg

NOON = 1_769_860_800_000


def mapped(orders: hg.Stream[Any, Any]) -> None:
    """The key is another one, the time is the same."""
    orders.map(lambda one: hg.Record(one.value["user"], one.value), with_record=True).to("out")


def spread(orders: hg.Stream[Any, Any]) -> None:
    """As with a plain value."""

    def both(one: hg.Record[Any, Any]) -> Iterator[Any]:
        yield hg.Record(one.value["user"], one.value)

    orders.flat_map(both, with_record=True).to("out")


def awaited(orders: hg.Stream[Any, Any]) -> None:
    """A call of a service in between."""

    async def asked(one: hg.Record[Any, Any]) -> hg.Record[Any, Any]:
        return hg.Record(one.value["user"], one.value)

    orders.map_async(asked, with_record=True).to("out")


def yielded(orders: hg.Stream[Any, Any]) -> None:
    """What a Faust user writes first. A batch has many times; the latest counts, as for a plain value."""

    @orders.app.agent(orders, sink="out")
    async def pick(batches: hg.Batches) -> AsyncIterator[Any]:
        async for batch in batches:
            yield [hg.Record(one["user"], one) for one in batch.values]


@pytest.mark.parametrize("declare", [mapped, spread, awaited, yielded])
def test_a_record_without_a_time_has_that_of_its_origin(declare: Any) -> None:
    """It had 0: brokers delete what is older than the retention of its topic, so the result was gone minutes later."""
    app = hg.App("shop")
    declare(app.input("orders"))
    with hg.testing.Driver(app) as d:
        d.send("orders", {"user": "ann"}, at=NOON)
        assert d.read("out") == [hg.Record("ann", {"user": "ann"}, NOON)]


def test_a_time_that_is_said_counts() -> None:
    """Also one of 1970, for whoever means it."""
    app = hg.App("shop")
    app.input("orders").map(lambda one: hg.Record(None, one.value, 0), with_record=True).to("out")
    with hg.testing.Driver(app, now=NOON) as d:
        d.send_all("orders", [1, hg.Record(None, 2)])
        assert [one.timestamp for one in d.read("out")] == [0, 0]
