"""The generator of Nexmark has the published distributions, and a judge that compares sees what is wrong."""

from __future__ import annotations

from collections import Counter
from functools import cache
from statistics import mean
from typing import TypeVar

import orjson
import pytest

from bench.nexmark import judging
from bench.nexmark.feed import PARTITIONS, Load
from bench.nexmark.generator import (
    ACTIVE,
    HOT_CHANNELS,
    IN_FLIGHT,
    LEAD,
    TAIL_EACH,
    Auction,
    Bid,
    Event,
    Generator,
    Person,
    encoded,
    last_auction,
    last_person,
)
from headgate.agents.records.kafka.partitioner import partition_of

COUNT = 60_000


@cache
def made() -> list[tuple[int, Event]]:
    """Events with their numbers."""
    return list(Generator(seed=3).events(COUNT))


K = TypeVar("K")


def of(kind: type[K]) -> list[tuple[int, K]]:
    """Those of one kind."""
    return [(number, event) for number, event in made() if isinstance(event, kind)]


def test_of_fifty_events_one_is_a_person_three_are_auctions_and_the_others_bids() -> None:
    kinds = [type(event) for _, event in made()]
    assert kinds[:5] == [Person, Auction, Auction, Auction, Bid]
    assert Counter(kinds) == {Person: COUNT // 50, Auction: COUNT // 50 * 3, Bid: COUNT // 50 * 46}


def test_ids_go_up_by_one() -> None:
    for kind in (Person, Auction):
        assert [event.id for _, event in of(kind)] == list(range(1_000, 1_000 + len(of(kind))))


def test_times_go_with_the_rate() -> None:
    times = [event.dateTime for _, event in made()]
    assert times == sorted(times)
    assert times[-1] - times[0] == pytest.approx(COUNT / 10, abs=1)


def test_half_of_the_bids_go_to_the_hot_auction_and_the_others_to_the_last_hundred() -> None:
    hot, others = 0, []
    for number, bid in of(Bid):
        newest = last_auction(number)
        if bid.auction - 1_000 == newest // 100 * 100:
            hot += 1
        else:
            others.append(bid.auction - 1_000 - newest)
    assert hot / len(of(Bid)) == pytest.approx(0.5, abs=0.02)
    assert (min(others), max(others)) == (-IN_FLIGHT, LEAD)


def test_three_in_four_bids_come_from_the_hot_bidder_and_auctions_from_the_hot_seller() -> None:
    bids = sum(bid.bidder - 2_000 == last_person(number) // 100 * 100 + 1 for number, bid in of(Bid))
    sales = sum(auction.seller - 1_000 == last_person(number) // 100 * 100 for number, auction in of(Auction))
    assert bids / len(of(Bid)) == pytest.approx(0.75, abs=0.02)
    assert sales / len(of(Auction)) == pytest.approx(0.75, abs=0.03)
    for number, bid in of(Bid):
        assert -ACTIVE <= bid.bidder - 2_000 - last_person(number) <= LEAD


def test_prices_are_log_uniform() -> None:
    ranks = Counter(len(str(bid.price)) for _, bid in of(Bid))
    assert all(ranks[digits] / len(of(Bid)) == pytest.approx(1 / 6, abs=0.02) for digits in range(3, 9))


def test_half_of_the_bids_have_a_hot_channel_and_nine_in_ten_of_the_others_name_it() -> None:
    hot = [bid.channel in HOT_CHANNELS for _, bid in of(Bid)]
    assert mean(hot) == pytest.approx(0.5, abs=0.02)
    named = ["&channel_id=" in bid.url for _, bid in of(Bid) if bid.channel not in HOT_CHANNELS]
    assert mean(named) == pytest.approx(0.9, abs=0.02)
    assert all(bid.url.startswith("https://www.nexmark.com/") for _, bid in of(Bid))


def test_auctions_last_for_as_long_as_the_next_hundred_take_on_average() -> None:
    lasted = [auction.expires - auction.dateTime for _, auction in of(Auction)]
    assert min(lasted) >= 1
    assert max(lasted) <= 2 * 167
    assert mean(lasted) == pytest.approx(167, rel=0.06)
    assert Counter(auction.category for _, auction in of(Auction)).keys() == {10, 11, 12, 13, 14}


def test_records_have_the_published_sizes() -> None:
    # What the published generator counts: eight bytes a number, and the texts; of a bid, 32 bytes and `extra`.
    assert mean(32 + len(bid.extra) for _, bid in of(Bid)) == pytest.approx(100, rel=0.02)
    people = [event for _, event in of(Person)]
    assert mean(8 + sum(map(len, (*person[1:6], person.extra))) for person in people) == pytest.approx(200, rel=0.02)
    auctions = [event for _, event in of(Auction)]
    assert mean(48 + len(a.itemName) + len(a.description) + len(a.extra) for a in auctions) == pytest.approx(
        500, rel=0.02
    )


def test_a_seed_gives_the_same_events_again_and_another_one_others() -> None:
    assert list(Generator(seed=3).events(500)) == made()[:500]
    assert list(Generator(seed=4).events(500)) != made()[:500]


def test_persons_and_auctions_do_not_depend_on_bids() -> None:
    assert list(Generator(seed=3).events(5_000, (Person, Auction))) == [
        (number, event) for number, event in made()[:5_000] if not isinstance(event, Bid)
    ]


def test_events_are_json() -> None:
    for _, event in made()[:200]:
        assert orjson.loads(encoded(event)) == event._asdict()


def test_a_load_writes_each_event_once_each_kind_to_each_partition_and_ends_with_some_of_each() -> None:
    load = Load([200, 50], source=Generator(seed=3))
    events, phases = load.made()
    assert [record.value for phase in phases for record in phase] == [encoded(event) for event in events]
    assert list(map(len, phases)) == [200, 50, 3 * TAIL_EACH * PARTITIONS]
    kinds = ("person", "auction", "bid")
    assert {record[:2] for record in phases[0]} == {record[:2] for record in phases[-1]}
    assert {record[:2] for record in phases[-1]} == {(kind, p) for kind in kinds for p in range(PARTITIONS)}


def test_the_tail_gets_into_each_partition_of_a_shuffle() -> None:
    tail = Generator(seed=3).tail(1_000, PARTITIONS)
    for keys in (
        [event.id for event in tail if isinstance(event, Person)],
        [event.seller for event in tail if isinstance(event, Auction)],
        [event.auction for event in tail if isinstance(event, Bid)],
    ):
        longs_of_java = [key.to_bytes(8, "big") for key in keys]
        assert {partition_of(key, PARTITIONS) for key in longs_of_java} == set(range(PARTITIONS))


def written(bids: list[Bid]) -> list[tuple[bytes | None, bytes | None]]:
    """As q0 writes them."""
    return [(None, orjson.dumps(bid._asdict())) for bid in bids]


def test_the_judge_tells_what_is_lost_doubled_and_changed() -> None:
    bids = [bid for _, bid in of(Bid)[:10]]
    wanted = judging.truth("q0", list(bids))
    assert judging.wrong("q0", wanted, written(bids)) == ""
    assert "1 lost" in judging.wrong("q0", wanted, written(bids[1:]))
    assert "1 wrong" in judging.wrong("q0", wanted, written([*bids, bids[0]]))
    assert "1 lost, 1 too many" in judging.wrong("q0", wanted, written([bids[0]._replace(price=-1), *bids[1:]]))


def test_the_judge_takes_the_last_update_of_a_key_and_none_that_was_deleted() -> None:
    auction = Auction(1, "a", "b", 1, 2, 0, 100, 5, 10, "")
    events: list[Event] = [auction, Bid(1, 7, 50, "c", "u", 10, ""), Bid(1, 8, 70, "c", "u", 20, "")]
    wanted = judging.truth("q4", events)
    key, first, last = b'{"category":10}', b'{"category":10,"final":50}', b'{"category":10,"final":70}'
    assert judging.wrong("q4", wanted, [(key, first), (key, last)]) == ""
    assert "1 wrong" in judging.wrong("q4", wanted, [(key, last), (key, first)])
    assert "1 lost" in judging.wrong("q4", wanted, [(key, last), (key, None)])
