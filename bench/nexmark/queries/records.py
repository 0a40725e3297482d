"""What the queries read: topics, and the fields of their records. A query declares those fields that it needs."""

from __future__ import annotations

from collections.abc import Mapping
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
    ad: str = "ad"
    adevent: str = "adevent"
    blob: str = "blob"
    out: str = "out"
    side: Path | None = None
    """The file of q13, or of the rules of `shuffle`."""


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


BID = [*WholeBid.__annotations__]
"""The fields of a bid."""
