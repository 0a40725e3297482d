"""Queries that look at one bid at a time: all in columns."""

from __future__ import annotations

from typing import Any, TypedDict

import headgate as hg

from .records import AuctionPrice, BidRow, Topics, Visited

HOUR_MS = 3_600_000


def q0(app: hg.App, t: Topics) -> None:
    """Pass through."""
    app.input(t.bid, serde=hg.json(BidRow)).columns().to(t.out)


def q1(app: hg.App, t: Topics) -> None:
    """Prices in euros. A float where SQL has a decimal."""
    bids = app.input(t.bid, serde=hg.json(BidRow)).columns()
    bids.with_columns(price=hg.col("price") * 0.908).to(t.out)


def q2(app: hg.App, t: Topics) -> None:
    """Bids of some auctions."""
    bids = app.input(t.bid, serde=hg.json(AuctionPrice)).columns()
    bids.filter(hg.col("auction") % 123 == 0).to(t.out)


def q10(app: hg.App, t: Topics) -> None:
    """Each bid with its day and minute."""
    bids = app.input(t.bid, serde=hg.json(BidRow)).columns()
    at = hg.col("dateTime")
    bids.with_columns(dt=at.strftime("%Y-%m-%d"), hm=at.strftime("%H:%M")).to(t.out)


class Looked(TypedDict):
    """A bid with its row of the side input."""

    auction: int
    bidder: int
    price: int
    dateTime: int
    value: str


def q13(app: hg.App, t: Topics) -> None:
    """A value for each bid from a file."""
    import polars

    if t.side is None:
        raise ValueError("q13 needs a file")
    side = polars.read_csv(
        t.side, has_header=False, new_columns=["key", "value"], schema_overrides=[polars.Int64, polars.String]
    )

    def looked_up(bids: Any) -> Any:
        return bids.with_columns(key=polars.col("auction") % 10_000).join(side, on="key", how="inner")

    app.input(t.bid, serde=hg.json(BidRow)).columns().frame(looked_up, like="polars", schema=Looked).to(t.out)


def q14(app: hg.App, t: Topics) -> None:
    """Prices in a range, the time of day, and a count of letters."""
    bids = app.input(t.bid, serde=hg.json(BidRow)).columns()
    euros, hour, extra = hg.col("price") * 0.908, hg.col("dateTime").hour(), hg.col("extra")
    day = hg.when((hour >= 8) & (hour <= 18)).then("dayTime")
    kept = bids.filter((euros > 1_000_000) & (euros < 50_000_000))
    kept.with_columns(
        price=euros,
        bidTimeType=day.when((hour <= 6) | (hour >= 20)).then("nightTime").otherwise("otherTime"),
        c_counts=extra.length() - extra.replace("c", "").length(),
    ).to(t.out)


def q21(app: hg.App, t: Topics) -> None:
    """The id of each channel, from its name or its address. The address is written, too: columns are not left out."""
    bids = app.input(t.bid, serde=hg.json(Visited)).columns()
    channel, in_url = hg.col("channel").lower(), hg.col("url").split("&channel_id=", 1).split("&", 0)
    known = hg.when(channel == "apple").then("0").when(channel == "google").then("1")
    known = known.when(channel == "facebook").then("2").when(channel == "baidu").then("3")
    found = bids.with_columns(channel_id=known.otherwise(in_url))
    found.filter(~hg.col("channel_id").is_null()).to(t.out)


def q22(app: hg.App, t: Topics) -> None:
    """The directories of each address. The address is written, too: columns are not left out."""
    bids = app.input(t.bid, serde=hg.json(Visited)).columns()
    url = hg.col("url")
    bids.with_columns(dir1=url.split("/", 3), dir2=url.split("/", 4), dir3=url.split("/", 5)).to(t.out)
