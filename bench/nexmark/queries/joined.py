"""Queries that join.

SQL's joins are without bounds, and keep all of both sides for good. These join within a distance in event time that no pair of these data
exceeds, so they give the same rows and their state is bounded: a bid comes within a second of its auction, an auction within seconds of
its seller.
"""

from __future__ import annotations

from typing import Any, TypedDict

import headgate as hg

from .records import Topics, WholeBid, timed

NEAR = "10s"
"""Bids and their auctions."""
FAR = "1m"
"""Auctions and their sellers."""
QUIET = "1s"
"""An auction without a bid for so long has ended: all are shorter."""


class SellerState(TypedDict):
    """What q3 reads of a person."""

    id: int
    name: str
    city: str
    state: str
    dateTime: int


class Offered(TypedDict):
    """What q3 reads of an auction."""

    id: int
    seller: int
    category: int
    dateTime: int


class Timed(TypedDict):
    """What q4 and q6 read of an auction."""

    id: int
    dateTime: int
    expires: int
    seller: int
    category: int


class Offer(TypedDict):
    """What q4 and q6 read of a bid."""

    auction: int
    price: int
    dateTime: int


class WholeAuction(TypedDict):
    """All of an auction."""

    id: int
    itemName: str
    description: str
    initialBid: int
    reserve: int
    dateTime: int
    expires: int
    seller: int
    category: int
    extra: str


def q3(app: hg.App, t: Topics) -> None:
    """Who sells in some states, of one category."""
    people = timed(app, t.person, SellerState).columns().filter(hg.col("state").is_in(["OR", "ID", "CA"]))
    auctions = timed(app, t.auction, Offered).columns().filter(hg.col("category") == 10)
    sellers, sold = people.repartition("id", name="by-id"), auctions.repartition("seller", name="by-seller")
    sales = sold.join(sellers, on=("seller", "id"), within=FAR, take=["name", "city", "state"])
    sales.select("name", "city", "state", "id").to(t.out)


def valid(app: hg.App, t: Topics, auction_type: type[Any], bid_type: type[Any]) -> hg.ColumnStream[Any, Any]:
    """Pairs of an auction and a bid that came before it expired, by the auction. Columns of the bid begin with `bid_`."""
    auctions = timed(app, t.auction, auction_type).columns().repartition("id", name="by-id")
    bids = timed(app, t.bid, bid_type).columns().repartition("auction", name="by-auction")
    taken = {f"bid_{name}": name for name in bid_type.__annotations__ if name != "auction"}
    joined = auctions.join(bids, on=("id", "auction"), within=("0s", NEAR), take=taken)
    return joined.filter(hg.col("bid_dateTime") <= hg.col("expires"))


def q4(app: hg.App, t: Topics) -> None:
    """The average closing price of each category. An auction counts once, when it has ended, not with each of its bids."""
    ended = valid(app, t, Timed, Offer).window(hg.session(QUIET))
    finals = ended.agg(final=hg.max("bid_price"), category=hg.max("category"))
    finals.repartition("category", name="by-category").agg(name="means", final=hg.mean("final")).to(t.out)


def q6(app: hg.App, t: Topics) -> None:
    """The average of the last eleven closing prices of each seller, in the order of the winning bids."""
    ended = valid(app, t, Timed, Offer).window(hg.session(QUIET))
    won = ended.agg(price=hg.max("bid_price"), at=hg.arg_max("bid_dateTime", by="bid_price"), seller=hg.max("seller"))
    last = won.repartition("seller", name="by-seller").agg(name="last", prices=hg.top(11, "price", by="at"))
    last.map(lambda row: {"avg_price": sum(row["prices"]) / len(row["prices"])}).to(t.out)


WON = ["bid_dateTime", "bid_price", "bid_bidder", "bid_extra", *WholeAuction.__annotations__]


def q9(app: hg.App, t: Topics) -> None:
    """The winning bid of each auction: the newest update is the final one."""
    # Of equal prices the first bid wins: of equals, an aggregate takes the row whose first field is the least.
    won = valid(app, t, WholeAuction, WholeBid).agg(name="won", best=hg.arg_max(WON, by="bid_price"))
    won.map(winner).to(t.out)


def winner(row: dict[str, Any]) -> dict[str, Any]:
    """An auction with its best bid."""
    best = row["best"]
    own = {name: best[name] for name in WholeAuction.__annotations__}
    bid = {"auction": best["id"], "bidder": best["bid_bidder"], "price": best["bid_price"]}
    return {**own, **bid, "bid_dateTime": best["bid_dateTime"], "bid_extra": best["bid_extra"]}


def q20(app: hg.App, t: Topics) -> None:
    """Bids of one category with their auctions, also of those that began after the bid."""
    auctions = timed(app, t.auction, WholeAuction).columns().filter(hg.col("category") == 10)
    bids = timed(app, t.bid, WholeBid).columns().repartition("auction", name="by-auction")
    renamed = {"auction_dateTime": "dateTime", "auction_extra": "extra"}
    taken = {name: name for name in WholeAuction.__annotations__ if name not in ("id", *renamed.values())}
    offered = auctions.repartition("id", name="by-id")
    pairs = bids.join(offered, on=("auction", "id"), within=NEAR, take={**taken, **renamed})
    first = ("auction", "bidder", "price", "channel", "url", *taken, "auction_dateTime", "auction_extra")
    pairs.select(*first, bid_dateTime=hg.col("dateTime"), bid_extra=hg.col("extra")).to(t.out)
