"""Queries of windows: columns up to the results of the first window, which are rows."""

from __future__ import annotations

from typing import Any, TypedDict

import headgate as hg

from .records import BID, Topics, WholeBid, timed


class AuctionTime(TypedDict):
    """What q5 reads of a bid."""

    auction: int
    dateTime: int


class BidderTime(TypedDict):
    """What q11 and q12 read of a bid."""

    bidder: int
    dateTime: int


class PersonName(TypedDict):
    """What q8 reads of a person."""

    id: int
    name: str
    dateTime: int


class SellerTime(TypedDict):
    """What q8 reads of an auction."""

    seller: int
    dateTime: int


def q5(app: hg.App, t: Topics) -> None:
    """The auctions with most bids, in windows of 10 s every 2 s."""
    bids = timed(app, t.bid, AuctionTime).columns().repartition("auction")
    # The key of a result is the auction, and an aggregate cannot read a key: so the auction goes along as its own maximum.
    counts = bids.window(hg.hopping("10s", every="2s")).agg(num=hg.count(), auction=hg.max("auction"))
    most = hg.aggregate(list, with_count, with_counts)
    ends = counts.repartition("window_end", name="ends").window(hg.tumbling("2s"), name="most")
    ends.agg(most=most).flat_map(each_of).to(t.out)


def with_count(state: list[Any], row: dict[str, Any]) -> list[Any]:
    """The greatest count so far, and whose it is."""
    return with_counts(state, [row["num"], row["window_end"], [row["auction"]]])


def with_counts(state: list[Any], other: list[Any]) -> list[Any]:
    """The greater of two counts; those of both if they are equal."""
    if not state or not other or state[0] != other[0]:
        return max(state, other, key=lambda one: one[0] if one else -1)
    return [state[0], state[1], state[2] + other[2]]


def each_of(row: dict[str, Any]) -> list[dict[str, Any]]:
    """A row for each auction."""
    num, end, auctions = row["most"]
    return [{"auction": auction, "num": num, "window_end": end} for auction in auctions]


def q7(app: hg.App, t: Topics) -> None:
    """The highest bids of each 10 s; at most ten that are equal."""
    bids = timed(app, t.bid, WholeBid).columns().with_columns(all=0)
    windows = bids.repartition("all").window(hg.tumbling("10s"))
    windows.agg(best=hg.top(10, BID, by="price")).flat_map(highest).to(t.out)


def highest(row: dict[str, Any]) -> list[dict[str, Any]]:
    """The bids whose price is that of the first."""
    best = row["best"]
    return [{**bid, "window_end": row["window_end"]} for bid in best if bid["price"] == best[0]["price"]]


def q8(app: hg.App, t: Topics) -> None:
    """Who has come and sells within the same 10 s."""
    come = timed(app, t.person, PersonName).columns().repartition("id", name="by-id")
    sell = timed(app, t.auction, SellerTime).columns().repartition("seller", name="by-seller")
    people = come.window(hg.tumbling("10s"), name="come").agg(name=hg.first("name"), id=hg.max("id"))
    sellers = sell.window(hg.tumbling("10s"), name="sell").agg(n=hg.count())
    people.join(sellers, on=("id", "seller"), within="0s", into=both).to(t.out)


def both(person: dict[str, Any], seller: dict[str, Any]) -> dict[str, Any]:
    """A person who sells."""
    return {"id": person["id"], "name": person["name"], "starttime": person["window_start"]}


def q11(app: hg.App, t: Topics) -> None:
    """Bids of each bidder in sessions of 10 s."""
    bids = timed(app, t.bid, BidderTime).columns().repartition("bidder")
    bids.window(hg.session("10s")).agg(bid_count=hg.count()).map(with_times).to(t.out)


def q12(app: hg.App, t: Topics) -> None:
    """Bids of each bidder in 10 s of the clock."""
    bids = app.input(t.bid, serde=hg.json(BidderTime)).columns().repartition("bidder")
    bids.window(hg.tumbling("10s", time="processing")).agg(bid_count=hg.count()).map(with_times).to(t.out)


def with_times(row: dict[str, Any]) -> dict[str, Any]:
    """A result with the published names."""
    return {"bid_count": row["bid_count"], "starttime": row["window_start"], "endtime": row["window_end"]}
