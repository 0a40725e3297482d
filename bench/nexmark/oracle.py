"""What each query must give, by a few lines of plain Python over all events at once.

A result is a dict from a key to a row. Where a query has no keys of its own, the row is the key, and the value is how often it must come.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

from .generator import Auction, Bid, Event, Person
from .shufflebench import OUTPUT_RATE, Blob, consumer, long_of, matching, wrapped
from .source import Kind
from .ysb import Ad, AdEvent

Rows = dict[Any, Any]
LATE_MS = 4_000
"""How far the watermark stays behind."""


def bids_of(events: Iterable[Event]) -> Iterator[Bid]:
    """The bids."""
    return (event for event in events if isinstance(event, Bid))


def euros(price: int) -> float:
    """A price in euros, to three digits."""
    return round(price * 0.908, 3)


def text_of(ms: int, form: str) -> str:
    """A time as text."""
    return datetime.fromtimestamp(ms // 1000, UTC).strftime(form)


def q0(events: Iterable[Event]) -> Rows:
    """Pass through."""
    return Counter((b.auction, b.bidder, b.price, b.dateTime, b.extra) for b in bids_of(events))


def q1(events: Iterable[Event]) -> Rows:
    """Prices in euros."""
    return Counter((b.auction, b.bidder, euros(b.price), b.dateTime, b.extra) for b in bids_of(events))


def q2(events: Iterable[Event]) -> Rows:
    """Bids of some auctions."""
    return Counter((b.auction, b.price) for b in bids_of(events) if b.auction % 123 == 0)


def q10(events: Iterable[Event]) -> Rows:
    """Days and minutes."""
    return Counter(
        (
            b.auction,
            b.bidder,
            b.price,
            b.dateTime,
            b.extra,
            text_of(b.dateTime, "%Y-%m-%d"),
            text_of(b.dateTime, "%H:%M"),
        )
        for b in bids_of(events)
    )


def q13(events: Iterable[Event]) -> Rows:
    """A value for each bid."""
    return Counter((b.auction, b.bidder, b.price, b.dateTime, str(b.auction % 10_000)) for b in bids_of(events))


def q14(events: Iterable[Event]) -> Rows:
    """The time of day, and a count of letters."""

    def kind(hour: int) -> str:
        return "dayTime" if 8 <= hour <= 18 else "nightTime" if hour <= 6 or hour >= 20 else "otherTime"

    return Counter(
        (
            b.auction,
            b.bidder,
            euros(b.price),
            kind(b.dateTime // 3_600_000 % 24),
            b.dateTime,
            b.extra,
            b.extra.count("c"),
        )
        for b in bids_of(events)
        if 1_000_000 < b.price * 0.908 < 50_000_000
    )


def q21(events: Iterable[Event]) -> Rows:
    """The id of each channel."""
    known = {"apple": "0", "google": "1", "facebook": "2", "baidu": "3"}

    def channel_id(b: Bid) -> str | None:
        _, found, rest = b.url.partition("&channel_id=")
        return known.get(b.channel.lower(), rest.partition("&")[0] if found else None)

    return Counter(
        (b.auction, b.bidder, b.price, b.channel, given)
        for b in bids_of(events)
        if (given := channel_id(b)) is not None
    )


def q22(events: Iterable[Event]) -> Rows:
    """The directories of each address."""
    split = ((b, b.url.split("/") + [None] * 6) for b in bids_of(events))
    return Counter((b.auction, b.bidder, b.price, b.channel, *parts[3:6]) for b, parts in split)


def windows_of(at: int, size: int, every: int) -> range:
    """The starts of the windows of a time."""
    return range(at - at % every - size + every, at + 1, every)


def closed(events: list[Any], kind: Kind) -> int:
    """Windows that end by then are closed, when all events of a kind have come."""
    return max(event.dateTime for event in events if isinstance(event, kind)) - LATE_MS


def final_prices(events: list[Event]) -> dict[int, Bid]:
    """The winning bid of each auction: the highest one, and of equal ones the first."""
    auctions = {event.id: event for event in events if isinstance(event, Auction)}
    best: dict[int, Bid] = {}
    for b in bids_of(events):
        auction = auctions.get(b.auction)
        if auction is None or not auction.dateTime <= b.dateTime <= auction.expires:
            continue
        former = best.get(b.auction)
        if former is None or (-b.price, b.dateTime) < (-former.price, former.dateTime):
            best[b.auction] = b
    return best


def q3(events: list[Event]) -> Rows:
    """Who sells in some states."""
    people = {event.id: event for event in events if isinstance(event, Person) and event.state in ("OR", "ID", "CA")}
    found = (
        event for event in events if isinstance(event, Auction) and event.category == 10 and event.seller in people
    )
    return Counter((people[a.seller].name, people[a.seller].city, people[a.seller].state, a.id) for a in found)


def q4(events: list[Event]) -> Rows:
    """The average closing price of each category, rounded down."""
    auctions = {event.id: event for event in events if isinstance(event, Auction)}
    prices: dict[int, list[int]] = defaultdict(list)
    for auction, bid in final_prices(events).items():
        prices[auctions[auction].category].append(bid.price)
    return {category: sum(found) // len(found) for category, found in prices.items()}


def q5(events: list[Event]) -> Rows:
    """The auctions with most bids in each window."""
    counts: dict[int, Counter[int]] = defaultdict(Counter)
    for b in bids_of(events):
        for start in windows_of(b.dateTime, 10_000, 2_000):
            counts[start + 10_000][b.auction] += 1
    last = closed(events, Bid)
    found = ((end, max(of.values()), of) for end, of in counts.items() if end <= last)
    return Counter((auction, n, end) for end, most, of in found for auction, n in of.items() if n == most)


def q6(events: list[Event]) -> Rows:
    """The average of the last eleven closing prices of each seller, by the times of the winning bids."""
    auctions = {event.id: event for event in events if isinstance(event, Auction)}
    prices: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for auction, bid in final_prices(events).items():
        prices[auctions[auction].seller].append((-bid.dateTime, bid.price))
    lasts = {seller: [price for _, price in sorted(found)[:11]] for seller, found in prices.items()}
    return {seller: sum(last) / len(last) for seller, last in lasts.items()}


def q7(events: list[Event]) -> Rows:
    """The highest bids of each 10 s."""
    best: dict[int, list[Bid]] = {}
    for b in bids_of(events):
        end = b.dateTime - b.dateTime % 10_000 + 10_000
        former = best.get(end)
        if former is None or b.price > former[0].price:
            best[end] = [b]
        elif b.price == former[0].price:
            former.append(b)
    last = closed(events, Bid)
    return Counter(
        (b.auction, b.bidder, b.price, b.dateTime, b.extra, end)
        for end, found in best.items()
        if end <= last
        for b in found
    )


def q8(events: list[Event]) -> Rows:
    """Who has come and sells within the same 10 s."""
    sellers = {(e.seller, e.dateTime // 10_000) for e in events if isinstance(e, Auction)}
    last = min(closed(events, Auction), closed(events, Person))
    come = ((e, e.dateTime // 10_000) for e in events if isinstance(e, Person))
    return Counter(
        (e.id, e.name, ten * 10_000) for e, ten in come if (e.id, ten) in sellers and ten * 10_000 + 10_000 <= last
    )


def q9(events: list[Event]) -> Rows:
    """The winning bid of each auction, with all of both. Of equal ones any may win, so these are not told apart."""
    auctions = {event.id: event for event in events if isinstance(event, Auction)}
    return {key: (*auctions[key][:10], b.auction, b.price, b.dateTime) for key, b in final_prices(events).items()}


def q11(events: list[Event]) -> Rows:
    """Bids in sessions of 10 s."""
    times: dict[int, list[int]] = defaultdict(list)
    for b in bids_of(events):
        times[b.bidder].append(b.dateTime)
    last, found = closed(events, Bid), Counter[tuple[int, int, int, int]]()
    for bidder, of in times.items():
        of.sort()
        breaks = [0, *(n for n, (a, b) in enumerate(pairwise(of), 1) if b - a > 10_000), len(of)]
        for first, beyond in pairwise(breaks):
            found[bidder, beyond - first, of[first], of[beyond - 1] + 10_000] += 1
    return {row: n for row, n in found.items() if row[3] <= last}


def q12(events: Iterable[Event]) -> Rows:
    """Bids of each bidder, in whichever windows."""
    return Counter(b.bidder for b in bids_of(events))


RANKS: tuple[tuple[str, Callable[[int], bool]], ...] = (
    ("total", lambda price: True),
    ("rank1", lambda price: price < 10_000),
    ("rank2", lambda price: 10_000 <= price < 1_000_000),
    ("rank3", lambda price: price >= 1_000_000),
)


def ranked(bids: Iterable[Bid]) -> list[int]:
    """Bids, bidders and auctions, by ranks of prices: the twelve numbers of q15 and q16."""
    of = [[b for b in bids if keep(b.price)] for _, keep in RANKS]
    return [
        *map(len, of),
        *(len({b.bidder for b in some}) for some in of),
        *(len({b.auction for b in some}) for some in of),
    ]


def grouped(events: Iterable[Event], key: Callable[[Bid], Any]) -> dict[Any, list[Bid]]:
    """Bids by a key."""
    groups: dict[Any, list[Bid]] = defaultdict(list)
    for b in bids_of(events):
        groups[key(b)].append(b)
    return groups


def q15(events: Iterable[Event]) -> Rows:
    """By day."""
    return {day: tuple(ranked(of)) for day, of in grouped(events, lambda b: text_of(b.dateTime, "%Y-%m-%d")).items()}


def q16(events: Iterable[Event]) -> Rows:
    """By channel and day."""
    groups = grouped(events, lambda b: (b.channel, text_of(b.dateTime, "%Y-%m-%d")))
    return {key: (max(text_of(b.dateTime, "%H:%M") for b in of), *ranked(of)) for key, of in groups.items()}


def q17(events: Iterable[Event]) -> Rows:
    """By auction and day. The mean is rounded down, as SQL's of whole numbers is."""
    found: Rows = {}
    for key, of in grouped(events, lambda b: (b.auction, text_of(b.dateTime, "%Y-%m-%d"))).items():
        prices = [b.price for b in of]
        counts = [sum(map(keep, prices)) for _, keep in RANKS]
        found[key] = (*counts, min(prices), max(prices), sum(prices) // len(prices), sum(prices))
    return found


def q18(events: Iterable[Event]) -> Rows:
    """The newest bids of each bidder for each auction: one of several that have the same time."""
    found: dict[tuple[int, int], set[Bid]] = {}
    for key, of in grouped(events, lambda b: (b.bidder, b.auction)).items():
        newest = max(b.dateTime for b in of)
        found[key] = {b for b in of if b.dateTime == newest}
    return found


def q19(events: Iterable[Event]) -> Rows:
    """The ten highest prices for each auction."""
    return {
        key: sorted((b.price for b in of), reverse=True)[:10]
        for key, of in grouped(events, lambda b: b.auction).items()
    }


def q20(events: list[Event]) -> Rows:
    """Bids of one category with their auctions."""
    auctions = {event.id: event for event in events if isinstance(event, Auction) and event.category == 10}
    found = ((b, auctions[b.auction]) for b in bids_of(events) if b.auction in auctions)
    return Counter((*b, *a[1:]) for b, a in found)


def ysb(events: list[Ad | AdEvent]) -> Rows:
    """Views of each campaign in 10 s."""
    campaigns = {event.ad_id: event.campaign_id for event in events if isinstance(event, Ad)}
    seen = (event for event in events if isinstance(event, AdEvent) and event.event_type == "view")
    views = Counter((campaigns[e.ad_id], e.event_time - e.event_time % 10_000 + 10_000) for e in seen)
    last = closed(events, AdEvent)
    return Counter((campaign, n, end) for (campaign, end), n in views.items() if end <= last)


def shuffle(events: list[Blob]) -> Rows:
    """How many events each consumer sends, of how many records, and the sum of all of these."""
    numbers: dict[str, list[int]] = defaultdict(list)
    for blob in events:
        for rule in matching(blob.data):
            numbers[consumer(rule)].append(long_of(blob.data))
    return {name: (len(of) // OUTPUT_RATE, len(of), wrapped(sum(of))) for name, of in numbers.items()}
