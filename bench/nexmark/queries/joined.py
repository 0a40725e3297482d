"""Queries that join: columns up to the shuffle, and rows from the join on.

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
    sellers, sold = (
        people.repartition("id", name="by-id").rows(),
        auctions.repartition("seller", name="by-seller").rows(),
    )

    def sale(auction: Any, person: Any) -> dict[str, Any]:
        return {"name": person["name"], "city": person["city"], "state": person["state"], "id": auction["id"]}

    sold.join(sellers, on=("seller", "id"), within=FAR, into=sale).to(t.out)


def valid(app: hg.App, t: Topics, auction_type: type[Any], bid_type: type[Any], into: Any) -> hg.Stream[Any, Any]:
    """Pairs of an auction and a bid that came before it expired, by the auction."""
    auctions = timed(app, t.auction, auction_type).columns().repartition("id", name="by-id").rows()
    bids = timed(app, t.bid, bid_type).columns().repartition("auction", name="by-auction").rows()

    def pair(auction: Any, bid: Any) -> Any:
        return into(auction, bid) if bid["dateTime"] <= auction["expires"] else None

    joined = auctions.join(bids, on=("id", "auction"), within=("0s", NEAR), into=pair)
    return joined.filter(lambda found: found is not None)


def q4(app: hg.App, t: Topics) -> None:
    """The average closing price of each category. An auction counts once, when it has ended, not with each of its bids."""

    def priced(auction: Any, bid: Any) -> dict[str, Any]:
        return {"category": auction["category"], "price": bid["price"]}

    ended = valid(app, t, Timed, Offer, priced).window(hg.session(QUIET))
    finals = ended.agg(final=hg.max("price"), category=hg.max("category"))
    finals.repartition("category", name="by-category").agg(name="means", final=hg.mean("final")).to(t.out)


def q6(app: hg.App, t: Topics) -> None:
    """The average of the last eleven closing prices of each seller, in the order of the winning bids."""

    def priced(auction: Any, bid: Any) -> dict[str, Any]:
        return {"at": bid["dateTime"], "price": bid["price"], "seller": auction["seller"]}

    ended = valid(app, t, Timed, Offer, priced).window(hg.session(QUIET))
    finals = ended.agg(won=hg.arg_max(lambda found: found, by="price")).map(lambda row: row["won"])
    last = finals.repartition("seller", name="by-seller").agg(name="last", prices=hg.top(11, "price", by="at"))
    last.map(lambda row: {"avg_price": sum(row["prices"]) / len(row["prices"])}).to(t.out)


def q9(app: hg.App, t: Topics) -> None:
    """The winning bid of each auction: the newest update is the final one."""

    def pair(auction: Any, bid: Any) -> list[Any]:
        # Of equal prices the first bid wins: where rows are equal, those that begin with the least number.
        return [bid["dateTime"], bid["price"], bid["bidder"], bid["extra"], auction]

    pairs = valid(app, t, WholeAuction, WholeBid, pair)
    won = pairs.agg(name="won", best=hg.arg_max(lambda found: found, by=lambda found: found[1]))
    won.map(winner).to(t.out)


def winner(row: dict[str, Any]) -> dict[str, Any]:
    """An auction with its best bid."""
    at, price, bidder, extra, auction = row["best"]
    return {
        **auction,
        "auction": auction["id"],
        "bidder": bidder,
        "price": price,
        "bid_dateTime": at,
        "bid_extra": extra,
    }


def q20(app: hg.App, t: Topics) -> None:
    """Bids of one category with their auctions, also of those that began after the bid."""
    auctions = timed(app, t.auction, WholeAuction).columns().filter(hg.col("category") == 10)
    bids = timed(app, t.bid, WholeBid).columns().repartition("auction", name="by-auction").rows()

    def pair(bid: Any, auction: Any) -> dict[str, Any]:
        rest = {name: value for name, value in auction.items() if name not in ("id", "dateTime", "extra")}
        times = {"bid_dateTime": bid["dateTime"], "auction_dateTime": auction["dateTime"]}
        extras = {"bid_extra": bid["extra"], "auction_extra": auction["extra"]}
        first = {name: bid[name] for name in ("auction", "bidder", "price", "channel", "url")}
        return {**first, **rest, **times, **extras}

    offered = auctions.repartition("id", name="by-id").rows()
    bids.join(offered, on=("auction", "id"), within=NEAR, into=pair).to(t.out)
