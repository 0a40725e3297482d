"""Queries that keep something for each key, without windows: columns, and functions of the results."""

from __future__ import annotations

from typing import Any, TypedDict

import headgate as hg

from .records import BID, Topics, WholeBid

PRICE = hg.col("price")
RANKS = {"rank1": PRICE < 10_000, "rank2": (PRICE >= 10_000) & (PRICE < 1_000_000), "rank3": PRICE >= 1_000_000}
DAY = hg.col("dateTime").strftime("%Y-%m-%d")
RANKED = [f"{rank}_{what}" for what in ("bids", "bidders", "auctions") for rank in ("total", *RANKS)]


class Ranked(TypedDict):
    """What q15 and q17 read of a bid."""

    auction: int
    bidder: int
    price: int
    dateTime: int


class RankedByChannel(Ranked):
    """What q16 reads of a bid."""

    channel: str


def counts() -> dict[str, Any]:
    """How many bids, and how many of each rank."""
    return {"total_bids": hg.count(), **{f"{rank}_bids": hg.count(where=where) for rank, where in RANKS.items()}}


def q15(app: hg.App, t: Topics) -> None:
    """Bids, bidders and auctions of each day. Exact, so each new bidder and auction of a day is told by a table of those seen before.

    `hg.count_distinct` would say it in one step, exactly up to 10,000 and then by an estimate, as in q16.
    """
    bids = (
        app.input(t.bid, serde=hg.json(Ranked)).columns().with_columns(midnight=hg.col("dateTime").floor("1d"), day=DAY)
    )
    news = [new_of(bids, what) for what in ("bidder", "auction")]
    of_days = news[0].merge(news[1]).with_columns(day=hg.col("midnight").strftime("%Y-%m-%d"))
    of_days.repartition("day", name="by-day").agg(name="days", **{name: hg.sum(name) for name in RANKED}).to(t.out)


def new_of(bids: Any, what: str) -> hg.ColumnStream[Any, Any]:
    """What is new of each day's bidders, or auctions, since the last commit."""
    keyed = bids.with_columns(key=hg.concat(hg.col("day"), "|", hg.col(what).cast(str)))
    each = keyed.repartition("key", name=f"by-{what}").agg(
        name=f"each-{what}", before=True, midnight=hg.max("midnight"), **counts()
    )
    return each.as_events().columns().select("midnight", **news_of(what))


def news_of(what: str) -> dict[str, Any]:
    """What an update of one bidder, or auction, adds to the counts of its group: bids, and itself if it is new."""
    found: dict[str, Any] = {}
    for rank in ("total", *RANKS):
        now, before = hg.col(f"{rank}_bids"), hg.col(f"{rank}_bids_before")
        found[f"{rank}_bids"] = now - before if what == "bidder" else 0
        for one in ("bidder", "auction"):
            found[f"{rank}_{one}s"] = ((now > 0) & (before == 0)).cast(int) if one == what else 0
    return found


def q16(app: hg.App, t: Topics) -> None:
    """Bids, bidders and auctions of each channel and day. Exact, as in q15: aggregates of pairs say which are new."""
    at = hg.col("dateTime")
    bids = app.input(t.bid, serde=hg.json(RankedByChannel)).columns()
    bids = bids.with_columns(group=hg.concat(hg.col("channel"), "|", DAY), minute=at.hour() * 60 + at.minute())
    news = [new_in(bids, what) for what in ("bidder", "auction")]
    of_channels = news[0].merge(news[1]).repartition("group", name="by-channel")
    found = of_channels.agg(name="channels", minute=hg.max("minute"), **{name: hg.sum(name) for name in RANKED})
    found.map(with_minute).to(t.out)


def new_in(bids: Any, what: str) -> hg.ColumnStream[Any, Any]:
    """What is new of the bidders, or auctions, of each channel and day since the last commit."""
    keyed = bids.with_columns(pair=hg.concat(hg.col("group"), "|", hg.col(what).cast(str)))
    each = keyed.repartition("pair", name=f"by-{what}").agg(
        name=f"each-{what}", before=True, minute=hg.max("minute"), **counts()
    )
    pair = hg.col("pair")
    group = hg.concat(pair.split("|", 0), "|", pair.split("|", 1))
    return each.as_events().columns().key_as("pair").select("minute", group=group, **news_of(what))


def with_minute(row: dict[str, Any]) -> dict[str, Any]:
    """A row whose minute of the day is text."""
    hour, minute = divmod(row["minute"], 60)
    return {**row, "minute": f"{hour:02d}:{minute:02d}"}


def q17(app: hg.App, t: Topics) -> None:
    """Bids and prices of each auction and day."""
    bids = app.input(t.bid, serde=hg.json(Ranked)).columns()
    keyed = bids.with_columns(key=hg.concat(hg.col("auction").cast(str), "|", DAY))
    prices = {
        "min_price": hg.min("price"),
        "max_price": hg.max("price"),
        "avg_price": hg.mean("price"),
        "sum_price": hg.sum("price"),
    }
    keyed.repartition("key").agg(**counts(), **prices).to(t.out)


def q18(app: hg.App, t: Topics) -> None:
    """The newest bid of each bidder for each auction; of several of one millisecond, the least by its bytes."""
    bids = app.input(t.bid, serde=hg.json(WholeBid)).columns()
    keyed = bids.with_columns(key=hg.concat(hg.col("bidder").cast(str), "|", hg.col("auction").cast(str)))
    newest = keyed.repartition("key").agg(newest=hg.arg_max(BID, by="dateTime"))
    newest.map(lambda found: found["newest"]).to(t.out)


def q19(app: hg.App, t: Topics) -> None:
    """The ten highest bids for each auction, as one record."""
    bids = app.input(t.bid, serde=hg.json(WholeBid)).columns()
    bids.repartition("auction").agg(top=hg.top(10, BID, by="price")).to(t.out)
