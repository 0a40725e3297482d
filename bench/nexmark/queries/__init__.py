"""The queries on headgate, as a user would write them, and the topics that each of them reads: Nexmark's, `ysb` and `shuffle`.

In columns wherever columns can say it; otherwise in rows. None of them needs an actor.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import headgate as hg

from ..generator import Auction, Bid, Generator, Person
from ..shufflebench import Blob, Blobs
from ..source import Kind, Source
from ..ysb import Ad, AdEvent, AdEvents
from . import ads, grouped, joined, shuffled, stateless, windowed
from .records import Topics


@dataclass(frozen=True)
class Input:
    """What a query reads."""

    kinds: tuple[Kind, ...] = (Bid,)
    times: int = 1
    """How many times as many events it gets, of which it reads few."""
    source: Callable[..., Source] = Generator
    """What makes the events of a seed, so many `per_second`."""


BIDS, SALES = Input(), Input((Auction, Bid))
PEOPLE = Input((Person, Auction), times=10)
ADS = Input((Ad, AdEvent), source=AdEvents)
BLOBS = Input((Blob,), source=Blobs)


@dataclass(frozen=True)
class Query:
    """One query."""

    build: Callable[[hg.App, Topics], None]
    input: Input = BIDS


QUERIES = {
    "q0": Query(stateless.q0),
    "q1": Query(stateless.q1),
    "q2": Query(stateless.q2),
    "q3": Query(joined.q3, PEOPLE),
    "q4": Query(joined.q4, SALES),
    "q5": Query(windowed.q5),
    "q6": Query(joined.q6, SALES),
    "q7": Query(windowed.q7),
    "q8": Query(windowed.q8, PEOPLE),
    "q9": Query(joined.q9, SALES),
    "q10": Query(stateless.q10),
    "q11": Query(windowed.q11),
    "q12": Query(windowed.q12),
    "q13": Query(stateless.q13),
    "q14": Query(stateless.q14),
    "q15": Query(grouped.q15),
    "q16": Query(grouped.q16),
    "q17": Query(grouped.q17),
    "q18": Query(grouped.q18),
    "q19": Query(grouped.q19),
    "q20": Query(joined.q20, SALES),
    "q21": Query(stateless.q21),
    "q22": Query(stateless.q22),
    "ysb": Query(ads.ysb, ADS),
    "shuffle": Query(shuffled.shuffle, BLOBS),
}
