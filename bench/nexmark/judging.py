"""What a program has written, compared row by row with what must come out.

The same judge reads both programs. What they write in different forms is brought into one: keys that headgate writes as
the key of a record and Flink into the value, times as milliseconds or as text, decimals and floats, and several updates
of a key, of which the last one counts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import orjson

from . import oracle
from .generator import Auction, Bid
from .shufflebench import wrapped

Row = Mapping[str, Any]
Read = Callable[[Any], Any]


def whole(value: Any) -> int:
    """A whole number, rounded down."""
    return int(value // 1)


def ms_of(value: Any) -> int:
    """A time in ms."""
    if isinstance(value, int):
        return value
    return round(datetime.fromisoformat(value).replace(tzinfo=UTC).timestamp() * 1000)


def money(value: Any) -> float:
    """A price to three digits."""
    return round(float(value), 3)


SPECIAL: dict[str, dict[str, Read]] = {
    "q1": {"price": money},
    "q14": {"price": money},
    "q4": {"final": whole},
    "q5": {"window_end": ms_of},
    "q7": {"window_end": ms_of},
    "q8": {"starttime": ms_of},
    "q11": {"starttime": ms_of, "endtime": ms_of},
    "ysb": {"window_end": ms_of},
    "q17": {"avg_price": whole},
}
BID = Bid._fields
RANKED = [f"{rank}_{what}" for what in ("bids", "bidders", "auctions") for rank in ("total", "rank1", "rank2", "rank3")]


@dataclass(frozen=True)
class Form:
    """Which fields of the output of a query are compared. Without a key, each row counts; with one, the last of each key."""

    fields: tuple[str, ...]
    key: tuple[str, ...] = ()
    compare: Callable[[Any, Any], bool] = lambda found, wanted: found == wanted


FORMS = {
    "q0": Form(("auction", "bidder", "price", "dateTime", "extra")),
    "q1": Form(("auction", "bidder", "price", "dateTime", "extra")),
    "q2": Form(("auction", "price")),
    "q3": Form(("name", "city", "state", "id")),
    "q4": Form(("final",), ("category",), lambda found, wanted: found == (wanted,)),
    "q5": Form(("auction", "num", "window_end")),
    "q6": Form(("avg_price",), ("seller",), lambda found, wanted: abs(found[0] - wanted) < 1e-6 * wanted),
    "q7": Form(("auction", "bidder", "price", "dateTime", "extra", "window_end")),
    "q8": Form(("id", "name", "starttime")),
    "q9": Form((*Auction._fields, "auction", "price", "bid_dateTime"), ("id",)),
    "q10": Form(("auction", "bidder", "price", "dateTime", "extra", "dt", "hm")),
    "q11": Form(("bidder", "bid_count", "starttime", "endtime")),
    "q13": Form(("auction", "bidder", "price", "dateTime", "value")),
    "q14": Form(("auction", "bidder", "price", "bidTimeType", "dateTime", "extra", "c_counts")),
    "q15": Form(tuple(RANKED), ("day",)),
    "q16": Form(("minute", *RANKED), ("channel", "day")),
    "q17": Form((*RANKED[:4], "min_price", "max_price", "avg_price", "sum_price"), ("auction", "day")),
    "q18": Form(BID, ("bidder", "auction"), lambda found, wanted: found in wanted),
    "q20": Form((*BID[:5], "bid_dateTime", "bid_extra", *(name if name not in BID else f"auction_{name}" for name in Auction._fields[1:]))),
    "q21": Form(("auction", "bidder", "price", "channel", "channel_id")),
    "q22": Form(("auction", "bidder", "price", "channel", "dir1", "dir2", "dir3")),
    "ysb": Form(("campaign_id", "views", "window_end")),
}  # fmt: skip
KEYS = {"q11": ("bidder",), "q12": ("bidder",), "ysb": ("campaign_id",)}
"""What headgate writes as the key of a record, and the form has among the fields."""
TEXTS = ("day", "channel", "campaign_id")


def keyed(query: str, key: bytes | None, value: dict[str, Any]) -> dict[str, Any]:
    """An output with the fields of its key that are not in its value."""
    names = KEYS.get(query) or (FORMS[query].key if query in FORMS else ())
    if key is None or all(name in value for name in names):
        return value
    parts = key.decode().strip('"').split("|")
    return value | {name: part if name in TEXTS else int(part) for name, part in zip(names, parts, strict=True)}


def found(query: str, outputs: Iterable[tuple[bytes | None, bytes | None]]) -> dict[Any, Any]:
    """Outputs in the form of the oracle."""
    if query == "q12":
        total: Counter[int] = Counter()
        for key, value in outputs:
            row = keyed(query, key, orjson.loads(value or b""))
            total[row["bidder"]] += row["bid_count"]
        return total
    if query == "q19":
        return _ranks(outputs)
    if query == "shuffle":
        return _batches(outputs)
    form, special = FORMS[query], SPECIAL.get(query, {})
    rows: dict[Any, Any] = {}
    counted: Counter[Any] = Counter()
    for key, value in outputs:
        if value is None:
            rows.pop(tuple(orjson.loads(key or b"").values()), None)
            continue
        row = keyed(query, key, orjson.loads(value))
        made = tuple(special[name](row[name]) if name in special else row[name] for name in form.fields)
        if form.key:
            rows[tuple(row[name] for name in form.key)] = made
        else:
            counted[made] += 1
    if not form.key:
        return counted
    return {key[0] if len(key) == 1 else key: row for key, row in rows.items()}


def _ranks(outputs: Iterable[tuple[bytes | None, bytes | None]]) -> dict[Any, Any]:
    """q19: the last prices of each auction. headgate writes all ten in a record, Flink one in a record."""
    prices: dict[int, dict[int, int]] = {}
    for key, value in outputs:
        if value is None:
            gone = orjson.loads(key or b"")
            prices.get(gone["auction"], {}).pop(gone["rank_number"], None)
            continue
        row = orjson.loads(value)
        if "top" in row:
            prices[int((key or b"").strip(b'"'))] = {rank: bid["price"] for rank, bid in enumerate(row["top"], 1)}
        else:
            prices.setdefault(row["auction"], {})[row["rank_number"]] = row["price"]
    return {auction: [of[rank] for rank in sorted(of)] for auction, of in prices.items()}


def _batches(outputs: Iterable[tuple[bytes | None, bytes | None]]) -> dict[Any, Any]:
    """shuffle: which records are in which batch depends on the order of partitions, so all batches of a consumer are added up."""
    made: dict[str, tuple[int, int, int]] = {}
    for _, value in outputs:
        row = orjson.loads(value or b"")
        events, count, total = made.get(row["consumer"], (0, 0, 0))
        made[row["consumer"]] = (events + 1, count + row["count"], wrapped(total + row["total"]))
    return made


def truth(query: str, events: list[Any]) -> Mapping[Any, Any]:
    """What a query must give of these events."""
    wanted: dict[Any, Any] = getattr(oracle, query)(events)
    return wanted


def wrong(query: str, wanted: Mapping[Any, Any], outputs: Iterable[tuple[bytes | None, bytes | None]]) -> str:
    """What is wrong with the outputs of a query; empty if nothing is."""
    got = found(query, outputs)
    compare = FORMS[query].compare if query in FORMS and FORMS[query].key else (lambda a, b: a == b)
    lost = [key for key in wanted if key not in got]
    more = [key for key in got if key not in wanted]
    bad = [key for key in wanted if key in got and not compare(got[key], wanted[key])]
    if not (lost or more or bad):
        return "" if wanted else "nothing was to come out: there are too few events"
    shown = [(key, got.get(key), wanted.get(key)) for key in (*lost[:1], *more[:1], *bad[:1])]
    return f"of {len(wanted)} rows {len(lost)} lost, {len(more)} too many, {len(bad)} wrong: {shown}"[:600]
