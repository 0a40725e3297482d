"""The events of the Yahoo streaming benchmark: what users saw and did with ads, made again by a seed.

What it decides: as `yahoo/streaming-benchmarks` (Apache-2.0) makes them with `--run` and without skew, there are 100 campaigns of ten ads
each, and 100 users and pages, all named by UUIDs. Each event draws a user, a page, an ad, one of five types of ads, and whether it is a
view, a click or a purchase. The address is the same in all of them. The published text of a time is a number here, in ms.

The table of ads is a topic, keyed by the ad. Published, it lies in Redis, and each program keeps what it has looked up.
"""

from __future__ import annotations

import random
import uuid
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, NamedTuple

from .generator import BASE_MS, PER_SECOND, TAIL_MS, form_of
from .source import Kind

CAMPAIGNS, ADS_OF_EACH, USERS, PAGES = 100, 10, 100, 100
AD_TYPES = ("banner", "modal", "sponsored-search", "mail", "mobile")
EVENT_TYPES = ("view", "click", "purchase")
ADDRESS = "1.2.3.4"


class Ad(NamedTuple):
    """An ad, and the campaign that it belongs to."""

    ad_id: str
    campaign_id: str

    @property
    def dateTime(self) -> int:
        """The beginning."""
        return BASE_MS


class AdEvent(NamedTuple):
    """What a user saw or did."""

    user_id: str
    page_id: str
    ad_id: str
    ad_type: str
    event_type: str
    event_time: int
    ip_address: str

    @property
    def dateTime(self) -> int:
        """When."""
        return self.event_time


_FORMS = {kind: form_of(kind) for kind in (Ad, AdEvent)}


@dataclass(frozen=True)
class AdEvents:
    """All events of one seed, by their numbers, with the table of ads before them."""

    kinds: ClassVar[tuple[Kind, ...]] = (Ad, AdEvent)
    tables: ClassVar[tuple[Kind, ...]] = (Ad,)
    value_format: ClassVar[str] = "json"
    declarations: ClassVar[str] = ""

    seed: int = 1
    base_ms: int = BASE_MS
    per_second: int = PER_SECOND

    @cached_property
    def ads(self) -> list[Ad]:
        """The table."""
        drawn = random.Random(f"ads {self.seed}")
        campaigns = _names(drawn, CAMPAIGNS)
        return [
            Ad(name, campaigns[number // ADS_OF_EACH])
            for number, name in enumerate(_names(drawn, CAMPAIGNS * ADS_OF_EACH))
        ]

    def events(self, count: int, kinds: Collection[Kind] = kinds) -> Iterator[tuple[int, Ad | AdEvent]]:
        """The first `count` events with their numbers, after the ads."""
        if Ad in kinds:
            yield from ((-1, ad) for ad in self.ads)
        if AdEvent not in kinds:
            return
        drawn = random.Random(f"events {self.seed}")
        users, pages, ads = _names(drawn, USERS), _names(drawn, PAGES), [ad.ad_id for ad in self.ads]
        choice = drawn.choice
        for number in range(count):
            what = choice(users), choice(pages), choice(ads), choice(AD_TYPES), choice(EVENT_TYPES)
            yield number, AdEvent(*what, self.time_of(number), ADDRESS)

    def tail(self, count: int, partitions: int) -> list[AdEvent]:
        """A view of each campaign, an hour later. They let event time pass all windows, in all partitions of a shuffle, too."""
        at = self.time_of(count) + TAIL_MS
        return [
            AdEvent("u-none", "p-none", ad.ad_id, AD_TYPES[0], "view", at, ADDRESS) for ad in self.ads[::ADS_OF_EACH]
        ]

    def record(self, event: Ad | AdEvent) -> tuple[bytes | None, bytes]:
        """An event as a record. Ads have keys, events have none."""
        return event.ad_id.encode() if isinstance(event, Ad) else None, (_FORMS[type(event)] % event).encode()

    def side(self) -> Iterable[tuple[str, str]]:
        """The ads and their campaigns."""
        return self.ads

    def time_of(self, number: int) -> int:
        """The event time of an event, in ms."""
        return self.base_ms + number * 1_000 // self.per_second


def _names(drawn: random.Random, count: int) -> list[str]:
    """So many UUIDs."""
    return [str(uuid.UUID(int=drawn.getrandbits(128), version=4)) for _ in range(count)]
