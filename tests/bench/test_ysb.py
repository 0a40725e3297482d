"""The events of the Yahoo streaming benchmark have the published distributions, and a judge sees a wrong count."""

from __future__ import annotations

from collections import Counter

import orjson
import pytest

from bench.nexmark import judging
from bench.nexmark.feed import PARTITIONS, Load
from bench.nexmark.generator import TAIL_MS
from bench.nexmark.oracle import ysb
from bench.nexmark.ysb import AD_TYPES, ADS_OF_EACH, CAMPAIGNS, EVENT_TYPES, PAGES, USERS, Ad, AdEvent, AdEvents

COUNT = 20_000


def test_each_campaign_has_ten_ads() -> None:
    ads = AdEvents(seed=3).ads
    assert len({ad.ad_id for ad in ads}) == CAMPAIGNS * ADS_OF_EACH == 1_000
    assert set(Counter(ad.campaign_id for ad in ads).values()) == {ADS_OF_EACH}


def test_events_are_drawn_evenly_and_one_in_three_is_a_view() -> None:
    source = AdEvents(seed=3)
    events = [event for _, event in source.events(COUNT) if isinstance(event, AdEvent)]
    assert len(events) == COUNT
    kinds = Counter(event.event_type for event in events)
    assert all(kinds[kind] / COUNT == pytest.approx(1 / 3, abs=0.02) for kind in EVENT_TYPES)
    assert {event.ad_type for event in events} == set(AD_TYPES)
    assert {event.ad_id for event in events} == {ad.ad_id for ad in source.ads}
    assert (len({event.user_id for event in events}), len({event.page_id for event in events})) == (USERS, PAGES)
    assert events[-1].event_time - events[0].event_time == pytest.approx(COUNT / 10, abs=1)


def test_ads_come_first_with_keys_and_events_in_all_partitions_without() -> None:
    source = AdEvents(seed=3)
    events, phases = Load([100, 50], source.kinds, source).made()
    assert list(map(len, phases)) == [1_100, 50, CAMPAIGNS]
    ads = phases[0][:1_000]
    assert {one.kind for one in ads} == {"ad"}
    assert [one.key for one in ads] == [ad.ad_id.encode() for ad in source.ads]
    assert {(one.kind, one.key) for phase in phases for one in phase if one not in ads} == {("adevent", None)}
    assert {one.partition for one in phases[-1]} == set(range(PARTITIONS))
    written = [orjson.loads(one.value) for phase in phases for one in phase]
    assert written == [event._asdict() for event in events]


def test_the_tail_has_a_view_of_each_campaign() -> None:
    source = AdEvents(seed=3)
    campaigns = dict(source.ads)
    tail = source.tail(1_000, PARTITIONS)
    assert {campaigns[event.ad_id] for event in tail} == set(campaigns.values())
    assert {(event.event_type, event.dateTime) for event in tail} == {("view", source.time_of(1_000) + TAIL_MS)}


def test_a_seed_gives_the_same_events_again_and_another_one_others() -> None:
    assert list(AdEvents(seed=3).events(50)) == list(AdEvents(seed=3).events(50))
    assert list(AdEvents(seed=4).events(50)) != list(AdEvents(seed=3).events(50))


def test_only_views_in_windows_that_have_closed_count() -> None:
    ad = Ad("a", "spring")

    def event(at: int, what: str) -> AdEvent:
        return AdEvent("u", "p", "a", "mail", what, at, "1.2.3.4")

    events = [
        ad,
        event(1, "view"),
        event(9_999, "view"),
        event(5, "click"),
        event(10_000, "view"),
        event(20_000, "view"),
    ]
    assert ysb(events) == {("spring", 2, 10_000): 1}


def test_the_judge_reads_both_programs_and_tells_a_wrong_count() -> None:
    wanted = {("c-1", 2, 10_000): 1}
    ours = (b"c-1", b'{"views":2,"window_start":0,"window_end":10000,"closed_by":"watermark"}')
    theirs = (None, b'{"campaign_id":"c-1","views":2,"window_end":"1970-01-01 00:00:10"}')
    assert judging.wrong("ysb", wanted, [ours]) == judging.wrong("ysb", wanted, [theirs]) == ""
    assert "1 wrong" in judging.wrong("ysb", wanted, [ours, ours])
    assert "1 lost, 1 too many" in judging.wrong("ysb", wanted, [(b"c-2", ours[1])])
