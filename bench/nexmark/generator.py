"""The events of Nexmark: persons, auctions and bids, with the distributions of the published generator, made again by a seed.

What it decides: the fields of the event with a number, as `nexmark/nexmark` (Apache-2.0, its generator of Beam's descent)
decides them with its default configuration. Of 50 events one is a person, three are auctions, 46 are bids. Half of the
bids go to the hot auction, the first of each hundred auctions; three in four bids come from the hot bidder, and three in
four auctions from the hot seller, of each hundred persons. The others are drawn from the last 100 auctions or 1,000
persons, and from ten that do not exist yet. Prices are log-uniform between 1 and 1,000,000, in hundredths. `extra` fills
each record up to 100 (bids), 200 (persons) and 500 (auctions) bytes on average, as the published generator counts them.
What differs is the random generator, and times are milliseconds since 1970 instead of text.

Promises: the events of a seed are always the same, and each kind has a random generator of its own, so persons and
auctions are the same whether or not bids are made.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar, NamedTuple, get_type_hints

PERSONS, AUCTIONS, BIDS = 1, 3, 46
EPOCH = PERSONS + AUCTIONS + BIDS
FIRST_ID = 1_000
FIRST_CATEGORY, CATEGORIES = 10, 5
HOT = 100
"""The hot auction, bidder and seller change after so many."""
HOT_AUCTIONS, HOT_BIDDERS, HOT_SELLERS = 2, 4, 4
"""All but one of so many are for, or by, the hot one."""
IN_FLIGHT, ACTIVE, LEAD = 100, 1_000, 10
CHANNELS = 10_000
STATES = ["AZ", "CA", "ID", "OR", "WA", "WY"]
CITIES = [
    "Phoenix",
    "Los Angeles",
    "San Francisco",
    "Boise",
    "Portland",
    "Bend",
    "Redmond",
    "Seattle",
    "Kent",
    "Cheyenne",
]
FIRST_NAMES = ["Peter", "Paul", "Luke", "John", "Saul", "Vicky", "Kate", "Julie", "Sarah", "Deiter", "Walter"]
LAST_NAMES = ["Shultz", "Abrams", "Spencer", "White", "Bartels", "Walton", "Smith", "Jones", "Noris"]
HOT_CHANNELS = ("Google", "Facebook", "Baidu", "Apple")
LETTERS = "abcdefghijklmnopqrstuvwxyz"
BASE_MS = 1_767_225_600_000
"""2026-01-01T00:00:00Z, a whole multiple of all windows."""
PER_SECOND = 10_000
"""Events in a second of event time, as published."""
TAIL_MS = 3_600_000
TAIL_EACH = 16
"""How many events of each kind are in the tail for each partition: so many keys that each partition of a shuffle gets one."""
TAIL_ID = 1_000_000_000
"""The ids in the tail; no other event has them."""
SIDE_ROWS = 10_000


class Person(NamedTuple):
    """Somebody who sells and bids."""

    id: int
    name: str
    emailAddress: str
    creditCard: str
    city: str
    state: str
    dateTime: int
    extra: str


class Auction(NamedTuple):
    """What is sold."""

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


class Bid(NamedTuple):
    """What somebody offers for an auction."""

    auction: int
    bidder: int
    price: int
    channel: str
    url: str
    dateTime: int
    extra: str


Event = Person | Auction | Bid
KINDS: tuple[type[Event], ...] = (Person, Auction, Bid)


def form_of(kind: type[Any]) -> str:
    """A pattern that makes JSON of a named tuple of whole numbers and texts that need no escape."""
    types = get_type_hints(kind)
    return "{" + ",".join(f'"{name}":' + ("%d" if types[name] is int else '"%s"') for name in kind._fields) + "}"


_FORMS: dict[type, str] = {kind: form_of(kind) for kind in KINDS}


def encoded(event: Event) -> bytes:
    """An event as JSON. None of its texts needs an escape."""
    return (_FORMS[type(event)] % event).encode()


@dataclass(frozen=True)
class Generator:
    """All events of one seed, by their numbers."""

    kinds: ClassVar[tuple[type[Event], ...]] = KINDS
    tables: ClassVar[tuple[type[Event], ...]] = ()
    value_format: ClassVar[str] = "json"
    declarations: ClassVar[str] = "tables.sql"

    seed: int = 1
    base_ms: int = BASE_MS
    per_second: int = PER_SECOND

    def events(self, count: int, kinds: Collection[type[Event]] = KINDS) -> Iterator[tuple[int, Event]]:
        """The first `count` events with their numbers, without those of other kinds."""
        made = {Person: self._persons(), Auction: self._auctions(), Bid: self._bids()}
        places = [(place, made[kind_of(place)]) for place in range(EPOCH) if kind_of(place) in kinds]
        for begin in range(0, count, EPOCH):
            for place, make in places:
                if begin + place < count:
                    yield begin + place, make(begin + place)

    def tail(self, count: int, partitions: int) -> list[Event]:
        """Events of each kind for each partition, an hour later. No other event matches one of them."""
        at = self.time_of(count) + TAIL_MS
        made: list[Event] = []
        size = partitions * TAIL_EACH
        for number in range(TAIL_ID, TAIL_ID + size):
            made.append(Person(number, "Nobody Else", "a@b.com", "0000", "Leuven", "AZ", at, ""))
            made.append(Auction(number, "nothing", "nothing", 1, 2, at, at + 1, number, 14, ""))
            made.append(Bid(number + size, number, 1, "none", "https://nowhere/", at, ""))
        return made

    def record(self, event: Event) -> tuple[bytes | None, bytes]:
        """An event as a record: without a key."""
        return None, encoded(event)

    def side(self) -> Iterable[tuple[str, str]]:
        """The rows of q13, as published: each number names itself."""
        return ((str(number), str(number)) for number in range(SIDE_ROWS))

    def time_of(self, number: int) -> int:
        """The event time of an event, in ms."""
        return self.base_ms + number * 1_000 // self.per_second

    def _persons(self) -> Callable[[int], Event]:
        drawn = random.Random(f"persons {self.seed}")

        def person(number: int) -> Event:
            name = f"{drawn.choice(FIRST_NAMES)} {drawn.choice(LAST_NAMES)}"
            email = f"{_text(drawn, 7)}@{_text(drawn, 5)}.com"
            card = " ".join(f"{drawn.randrange(10_000):04d}" for _ in range(4))
            city, state = drawn.choice(CITIES), drawn.choice(STATES)
            size = 8 + len(name) + len(email) + len(card) + len(city) + len(state)
            made = last_person(number) + FIRST_ID, name, email, card, city, state, self.time_of(number)
            return Person(*made, _extra(drawn, 200 - size))

        return person

    def _auctions(self) -> Callable[[int], Event]:
        drawn = random.Random(f"auctions {self.seed}")
        ahead = IN_FLIGHT * EPOCH // AUCTIONS

        def auction(number: int) -> Event:
            at = self.time_of(number)
            seller = last_person(number) // HOT * HOT if drawn.randrange(HOT_SELLERS) else _some_person(number, drawn)
            category, initial = FIRST_CATEGORY + drawn.randrange(CATEGORIES), _price(drawn)
            expires = at + 1 + drawn.randrange(max(1, 2 * (self.time_of(number + ahead) - at)))
            name, description = _text(drawn, 20), _text(drawn, 100)
            extra = _extra(drawn, 500 - 48 - len(name) - len(description))
            made = last_auction(number) + FIRST_ID, name, description, initial, initial + _price(drawn), at, expires
            return Auction(*made, seller + FIRST_ID, category, extra)

        return auction

    def _bids(self) -> Callable[[int], Event]:
        drawn = random.Random(f"bids {self.seed}")
        channels, below = _channels(self.seed), drawn.random

        def bid(number: int) -> Event:
            auction = last_auction(number)
            if below() * HOT_AUCTIONS >= 1:
                auction = auction // HOT * HOT
            else:
                least = max(auction - IN_FLIGHT, 0)
                auction = least + int(below() * (auction - least + 1 + LEAD))
            bidder = last_person(number) // HOT * HOT + 1 if below() * HOT_BIDDERS >= 1 else _some_person(number, drawn)
            hot = below() >= 0.5
            channel, url = channels[int(below() * 4) if hot else 4 + int(below() * CHANNELS)]
            # The published generator adds the first id twice; no query asks who a bidder is.
            auction, bidder, price = auction + FIRST_ID, bidder + 2 * FIRST_ID, _price(drawn)
            return Bid(auction, bidder, price, channel, url, self.time_of(number), _extra(drawn, 68))

        return bid


def kind_of(number: int) -> type[Event]:
    """What an event is, by its number."""
    place = number % EPOCH
    return Person if place < PERSONS else Auction if place < PERSONS + AUCTIONS else Bid


def last_person(number: int) -> int:
    """The newest person when an event is made; the person itself, if it is one."""
    return number // EPOCH * PERSONS + min(number % EPOCH, PERSONS - 1)


def last_auction(number: int) -> int:
    """The newest auction when an event is made; -1 before the first one."""
    epoch, place = divmod(number, EPOCH)
    if place < PERSONS:
        return epoch * AUCTIONS - 1
    return epoch * AUCTIONS + min(place - PERSONS, AUCTIONS - 1)


def _some_person(number: int, drawn: random.Random) -> int:
    people = last_person(number) + 1
    active = min(people, ACTIVE)
    return people - active + int(drawn.random() * (active + LEAD))


def _price(drawn: random.Random) -> int:
    return round(10.0 ** (drawn.random() * 6.0) * 100.0)


def _text(drawn: random.Random, longest: int, special: str = " ") -> str:
    length = 3 + drawn.randrange(longest - 3)
    return "".join(drawn.choice(LETTERS) if drawn.randrange(13) else special for _ in range(length)).strip()


@cache
def _noise() -> str:
    return "".join(random.Random("extra").choices(LETTERS, k=1 << 20))


def _extra(drawn: random.Random, average: int) -> str:
    if average <= 0:
        return ""
    delta = round(average * 0.2)
    length = average - delta + (int(drawn.random() * 2 * delta) if delta else 0)
    start = int(drawn.random() * ((1 << 20) - length))
    return _noise()[start : start + length]


@cache
def _channels(seed: int) -> list[tuple[str, str]]:
    """The four hot channels and all others, with their addresses. Nine in ten of the others name the channel in it."""
    drawn = random.Random(f"channels {seed}")

    def url() -> str:
        return f"https://www.nexmark.com/{'/'.join(_text(drawn, 5, '_') for _ in range(3))}/item.htm?query=1"

    found = [(name, url()) for name in HOT_CHANNELS]
    for number in range(CHANNELS):
        tail = f"&channel_id={_reversed(number)}" if drawn.randrange(10) else ""
        found.append((f"channel-{number}", url() + tail))
    return found


def _reversed(number: int) -> int:
    """Java's `Math.abs(Integer.reverse(number))`."""
    bits = int(f"{number:032b}"[::-1], 2)
    return abs(bits - (1 << 32) if bits >> 31 else bits)
