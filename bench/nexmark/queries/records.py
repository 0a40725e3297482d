"""What the queries read: topics, and the fields of their records. A query declares those fields that it needs."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypedDict, TypeVar

import headgate as hg

OUT_OF_ORDER = "4s"
"""How far event time stays behind, as published."""
V = TypeVar("V")


@dataclass(frozen=True)
class Topics:
    """Where a query reads and writes."""

    person: str = "person"
    auction: str = "auction"
    bid: str = "bid"
    out: str = "out"
    side: Path | None = None
    """The file of q13."""


class BidRow(TypedDict):
    """What q0 and others write of a bid."""

    auction: int
    bidder: int
    price: int
    dateTime: int
    extra: str


class AuctionPrice(TypedDict):
    """What q2 reads of a bid."""

    auction: int
    price: int


class Visited(TypedDict):
    """What q21 and q22 read of a bid."""

    auction: int
    bidder: int
    price: int
    channel: str
    url: str


class WholeBid(TypedDict):
    """All of a bid."""

    auction: int
    bidder: int
    price: int
    channel: str
    url: str
    dateTime: int
    extra: str


def timed(app: hg.App, topic: str, kind: type[V], **more: Any) -> hg.Stream[Any, V]:
    """An input whose event times are read."""
    given: Mapping[str, Any] = {"timestamp": "dateTime", "max_out_of_order": OUT_OF_ORDER, **more}
    return app.input(topic, serde=hg.json(kind), **given)


def packed(names: Iterable[str], numbers: Collection[str]) -> hg.Expression:
    """These columns as one text: an aggregate takes one column, and a column holds no row. `numbers`: those that are numbers, which
    may have `bid_` in front."""
    parts: list[Any] = []
    for name in names:
        column = hg.col(name)
        parts += ["\t", column.cast(str) if name.removeprefix("bid_") in numbers else column]
    return hg.concat(*parts[1:])


ROW = packed(WholeBid.__annotations__, ("auction", "bidder", "price", "dateTime"))


def bid_of(row: str) -> dict[str, Any]:
    """The bid of such a text."""
    auction, bidder, price, channel, url, at, extra = row.split("\t")
    return {
        "auction": int(auction),
        "bidder": int(bidder),
        "price": int(price),
        "channel": channel,
        "url": url,
        "dateTime": int(at),
        "extra": extra,
    }
