"""Two jobs and the stream between them, each in a driver of its own."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

import headgate as hg
from headgate.agents.records.frames import arrow_frames
from headgate.agents.testing.driver import Driver
from headgate.agents.testing.state import DriverError
from headgate.core.names import StreamPartition
from headgate.core.progress.frames import ArrowFrame, BatchFrame, decode


def rows(count):
    return [{"country": "DE" if n % 3 else "FR", "amount": n, "ts": n * 1_000} for n in range(count)]


def enriched(row):
    return {**row, "total": row["amount"] * 2}


def revenue(stream):
    stream.window(hg.tumbling("10s")).agg(total=hg.sum("total")).to("revenue")


def orders(app, **options):
    return app.input("orders", timestamp="ts", **options).map(enriched).repartition("country", partitions=2)


def pricing(**options):
    app = hg.App("pricing")
    orders(app, **options).share("priced")
    return app


def reading(*producers, **options):
    app = hg.App("revenue")
    revenue(app.input("priced", producers=producers or ["pricing"], **options))
    return app


def found(driver):
    """The results by key and window, each once, and what has closed them."""
    values = [
        (one.key, one.value["window_start"], one.value["total"], one.value["closed_by"])
        for one in driver.read("revenue")
    ]
    assert len(set(values)) == len(values)
    return set(values)


@pytest.fixture
def drivers():
    made = []

    def make(app, **partitions):
        made.append(Driver(app, partitions=partitions))
        return made[-1]

    yield make
    for one in made:
        one.close()


def feed(driver, values):
    for number, value in enumerate(values):
        driver.send("orders", value, partition=number % 2)


@pytest.mark.parametrize("at", [0, 10, 25], ids=["before", "during", "after"])
def test_two_jobs_give_what_one_job_gives(drivers, at):
    """Also the time that has closed a window, and the end; the second job begins before, during or after the first."""
    whole = hg.App("whole")
    revenue(orders(whole))
    one = drivers(whole, orders=2)
    first, second = drivers(pricing(), orders=2), None
    got, wanted = set(), set()
    for number, value in enumerate(rows(25)):
        if number == at:
            second = drivers(reading(until="producers"), priced=2)
        for driver in (one, first):
            driver.send("orders", value, partition=number % 2)
        wanted |= found(one)
        if second is not None:
            second.follow("priced", first)
            got |= found(second)
            assert got == wanted
    second = second or drivers(reading(until="producers"), priced=2)
    for driver in (one, first):
        driver.end()
    second.follow("priced", first)
    assert got | found(second) == wanted | found(one)
    assert set(second.states.values()) == {"ended"}


def test_a_drain_of_the_first_closes_no_window_of_the_second_and_its_next_run_goes_on(drivers):
    first, second = drivers(pricing(), orders=2), drivers(reading(), priced=2)
    feed(first, rows(15))
    first.drain()
    second.follow("priced", first)
    assert {closed for *_, closed in found(second)} == {"watermark"}
    first.restart()
    feed(first, rows(40)[15:])
    second.follow("priced", first)
    got = found(second)
    assert {start for _, start, *_ in got} == {10_000, 20_000}
    assert {closed for *_, closed in got} == {"watermark"}


def test_two_jobs_feed_one_stream_and_the_slower_one_holds_its_time(drivers):
    side = hg.App("side")
    side.input("extras", timestamp="ts").map(enriched).share("priced", key="country", partitions=2)
    first, other = drivers(pricing(), orders=1), drivers(side)
    second = drivers(reading("pricing", "side", until="producers"), priced=2)
    first.send_all("orders", rows(30))
    second.follow("priced", first)
    assert found(second) == set()
    other.send("extras", {"country": "DE", "amount": 100, "ts": 12_000})
    second.follow("priced", other)
    assert {start for _, start, *_ in found(second)} == {0}
    first.end()
    second.follow("priced", first)
    assert found(second) == set()
    other.end()
    second.follow("priced", other)
    assert {(key, start): total for key, start, total, _ in found(second)}["DE", 10_000] == 2 * (
        100 + 10 + 11 + 13 + 14 + 16 + 17 + 19
    )
    assert set(second.states.values()) == {"ended"}


def test_a_job_between_two_others_is_away_as_a_whole_or_not_at_all(drivers):
    """Its task that hears first that the job before it has begun again goes on, and its readers wait for the other tasks."""
    middle = hg.App("middle")
    middle.input("orders", producers=["first"]).share("priced", key="country", partitions=1)
    shares = hg.App("first")
    shares.input("raw", timestamp="ts").map(enriched).share("orders", key="country", partitions=2)
    first, second = drivers(shares, raw=1), drivers(middle, orders=2)
    third = drivers(reading("middle"), priced=1)
    first.send_all("raw", rows(15))
    first.drain()
    second.follow("orders", first)
    third.follow("priced", second)
    assert {start for _, start, *_ in found(third)} == {0}
    places = [StreamPartition("orders", partition) for partition in (0, 1)]
    before = [len(first.topics.records(at)) for at in places]
    first.restart()
    first.send_all("raw", rows(45)[15:])
    closed = []
    for at, known in zip(places, before, strict=True):
        for one in first.topics.records(at)[known:]:
            second.topics.write(at, [one.key], [one.value], [one.timestamp], [one.headers])
        second.advance("1s")
        third.follow("priced", second)
        closed.append({start for _, start, *_ in found(third)})
    assert closed == [set(), {10_000, 20_000, 30_000}]


@pytest.mark.parametrize(("shuffles", "closed"), [(False, {10_000, 20_000}), (True, set())])
def test_a_job_between_two_others_that_shuffles_holds_its_reader_until_it_is_drained_too(drivers, shuffles, closed):
    """The reader's other input is ahead. What the middle one owes may still lie between its stages, so nobody goes on without it."""
    shares, middle, last = hg.App("first"), hg.App("middle"), hg.App("revenue")
    shares.input("raw", timestamp="ts").map(enriched).share("orders", key="country", partitions=2)
    passed = middle.input("orders", producers=["first"])
    (passed.repartition("country", partitions=2) if shuffles else passed).share("priced", key="country", partitions=1)
    priced = last.input("priced", producers=["middle"], key="country")
    revenue(priced.merge(last.input("ahead", timestamp="ts", key="country")))
    first, second, third = drivers(shares, raw=1), drivers(middle, orders=2), drivers(last, priced=1)
    first.send_all("raw", rows(15))
    second.follow("orders", first)
    third.follow("priced", second)
    third.send_all("ahead", [hg.Record("XX", {"country": "XX", "total": 1, "ts": n * 1_000}) for n in range(35)])
    assert {start for _, start, *_ in found(third)} == {0}
    first.drain()
    second.follow("orders", first)
    second.advance("1s")
    third.follow("priced", second)
    assert {start for _, start, *_ in found(third)} == closed
    second.drain()
    third.follow("priced", second)
    assert {start for _, start, *_ in found(third)} == {10_000, 20_000} - closed


def test_records_for_a_reading_job_alone_travel_as_its_producers_would_send_them(drivers):
    driver = drivers(reading(until="producers"), priced=2)
    driver.send("priced", {"total": 1}, key="DE", at=1_000)
    assert found(driver) == set()
    driver.send("priced", {"total": 2}, key="FR", at=11_000)
    assert found(driver) == {("DE", 0, 1, "watermark")}
    driver.end()
    assert found(driver) == {("FR", 10_000, 2, "end")}


def test_a_job_without_until_outlives_its_producers(drivers):
    driver, first = drivers(reading(), priced=2), drivers(pricing(), orders=1)
    first.send_all("orders", rows(15))
    first.end()
    driver.follow("priced", first)
    assert set(driver.states.values()) == {"running"}
    driver.drain()
    assert {(start, closed) for _, start, _, closed in found(driver)} == {(0, "watermark"), (10_000, "drain")}


def test_what_is_shared_can_be_read_with_its_keys_times_and_headers(drivers):
    app = hg.App("pricing")
    app.input("orders", timestamp="ts").share("priced", key="country")
    driver = drivers(app)
    driver.send("orders", {"country": "DE", "ts": 7}, headers={"trace": b"a"})
    assert driver.read("priced") == [hg.Record("DE", {"country": "DE", "ts": 7}, 7, (("trace", b"a"),))]


def test_a_shared_stream_can_be_joined_as_a_table(drivers):
    app = hg.App("pricing")
    rates = app.input("rates", producers=["treasury"]).table("rates")
    app.input("orders", key="currency").join(rates, on="currency", into=lambda o, r: o["n"] * r).to("out")
    driver = drivers(app)
    driver.send("rates", 3, key="EUR", at=0)
    driver.send("orders", {"currency": "EUR", "n": 2}, key="EUR")
    assert [one.value for one in driver.read("out")] == [6]


def test_what_a_driver_cannot_follow(drivers):
    first, second = drivers(pricing(), orders=2), drivers(reading())
    for act, says in [
        (lambda: second.follow("priced", second), "does not share"),
        (lambda: first.follow("orders", second), "no stream of another job"),
        (lambda: second.follow("priced", first), "2 partitions there"),
    ]:
        with pytest.raises(DriverError, match=says):
            act()


@dataclass
class Order:
    country: str
    amount: int
    ts: int


@dataclass
class Priced:
    country: str
    total: int


GOLDEN = (
    "05ffffffffd0020000100000000c00180004000600080010000c00000004000100200000000000000000000000000000000000000000000a00100004"
    "0008000c000a0000000000000008000000cc010000060000002c00000068000000b4000000f000000034010000780100000000000010001400040008"
    "0009000c00000010001000000010000000010400001c0000001c000000050000005f5f6b657900000000000000040004000400000000000000100014"
    "000400080009000c0000001000100000001000000000020000240000002c0000000b0000005f5f74696d657374616d70000000000008000900040008"
    "0008000000400000000100000000000000100014000400080009000c00000010001000000010000000010500001c0000001c00000007000000636f75"
    "6e7472790000000000040004000400000000000000100014000400080009000c00000010001000000010000000010200001c00000024000000060000"
    "00616d6f756e740000080009000400080008000000400000000100000000000000100014000400080009000c00000010001000000010000000010200"
    "001c00000024000000020000007473000000000000080009000400080008000000400000000100000000000000100014000400080009000c00000010"
    "001000000010000000010200001c0000002400000005000000746f74616c000000080009000400080008000000400000000100000000000000030000"
    "0014000000380000005c00000008000c00040008000800000008000000100000000400000068672e7600000000010000003100000008000c00040008"
    "000800000008000000100000000700000068672e6b696e6400010000003000000008000c00040008000800000008000000140000000900000068672e"
    "736368656d6100000035000000636f756e7472793a20746578742c20616d6f756e743a20696e7436342c2074733a20696e7436342c20746f74616c3a"
    "20696e743634000000ffffffffa0010000100000000c00180004000600080010000c0000000400030020000000000000007000000000000000000000"
    "0000000a0018000800100014000a0000000000000002000000000000000c000000700000000000000006000000020000000000000000000000000000"
    "000200000000000000000000000000000002000000000000000000000000000000020000000000000000000000000000000200000000000000000000"
    "000000000002000000000000000000000000000000000000000e0000000000000000000000000000000000000000000000000000000c000000000000"
    "001000000000000000040000000000000018000000000000000000000000000000180000000000000010000000000000002800000000000000000000"
    "000000000028000000000000000c00000000000000380000000000000004000000000000004000000000000000000000000000000040000000000000"
    "001000000000000000500000000000000000000000000000005000000000000000100000000000000060000000000000000000000000000000600000"
    "000000000010000000000000000000000002000000040000000000000046524445000000000000000000000000e80300000000000000000000020000"
    "0004000000000000004652444500000000000000000000000001000000000000000000000000000000e8030000000000000000000000000000020000"
    "0000000000ffffffff00000000"
)
"""FR and DE, times 0 and 1000."""


def shared_in_columns(drivers, count, **options):
    """A job that shares columns, and the frames that hold its records."""
    app = hg.App("pricing", **options)
    stream = app.input("orders", serde=hg.json(Order), timestamp="ts").columns().filter(hg.col("amount") % 5 != 3)
    stream.with_columns(total=hg.col("amount") * 2).share("priced", key="country", partitions=1)
    driver = drivers(app, orders=1)
    driver.send_all("orders", rows(count))
    found = [decode(one.value) for one in driver.topics.records(StreamPartition("priced", 0))]
    return driver, [frame for frame in found if isinstance(frame, ArrowFrame | BatchFrame)]


def test_columns_are_shared_in_columns_and_read_as_rows_or_as_columns(drivers):
    """A frame of few rows is a batch of JSON; both kinds are read in any mix, and give what rows give."""
    driver, frames = shared_in_columns(drivers, 300)
    assert [type(frame) for frame in frames] == [ArrowFrame]
    assert [field.name for field in frames[0].fields] == ["__key", "__timestamp", "country", "amount", "ts", "total"]
    driver.send_all("orders", rows(310)[300:])
    assert len(driver.read("priced")) == 248
    by_rows, by_columns = drivers(reading("pricing"), priced=1), hg.App("revenue")
    revenue(by_columns.input("priced", producers=["pricing"], serde=hg.json(Priced)).columns())
    by_columns = drivers(by_columns, priced=1)
    whole = hg.App("whole")
    kept = whole.input("orders", timestamp="ts").filter(lambda row: row["amount"] % 5 != 3).map(enriched)
    revenue(kept.repartition("country", partitions=1))
    whole = drivers(whole, orders=1)
    whole.send_all("orders", rows(310))
    expected = found(whole)
    assert len(expected) > 50
    for one in (by_rows, by_columns):
        one.follow("priced", driver)
        assert found(one) == expected


def test_golden_bytes_of_a_stream_that_is_shared_in_columns(drivers, monkeypatch):
    """These bytes stand in people's topics, and jobs of other versions read them."""
    monkeypatch.setattr(arrow_frames, "FEWEST", 1)
    driver, _ = shared_in_columns(drivers, 2)
    [frame] = [one.value for one in driver.topics.records(StreamPartition("priced", 0)) if one.value[0] == 5]
    assert frame.hex() == GOLDEN
    reader = drivers(reading("pricing"), priced=1)
    reader.follow("priced", driver)
    reader.drain()
    assert {(key, start, total) for key, start, total, _ in found(reader)} == {("FR", 0, 0), ("DE", 0, 2)}


def test_few_columns_and_columns_of_a_job_that_writes_no_json_are_shared_as_rows(drivers):
    _, frames = shared_in_columns(drivers, 30)
    assert [type(frame) for frame in frames] == [BatchFrame]
    driver, frames = shared_in_columns(drivers, 300, serde=hg.msgpack())
    assert {type(frame) for frame in frames} == {BatchFrame}
    assert driver.read("priced")[0].value == {"country": "FR", "amount": 0, "ts": 0, "total": 0}


def test_a_key_that_columns_cannot_be_shared_by_is_refused_where_it_is_declared():
    columns = hg.App("pricing").input("orders", serde=hg.json(Order)).columns()
    with pytest.raises(hg.DeclarationError, match="currency"):
        columns.share("priced", key="currency")
    with pytest.raises(hg.DeclarationError, match="float64 makes no key"):
        columns.with_columns(price=hg.col("amount") * 1.5).share("priced", key="price")


def test_columns_made_by_expressions_can_go_through_a_stream_as_rows(drivers):
    app = hg.App("totals", serde=hg.msgpack())
    columns = (
        app.input("orders", serde=hg.json(Order), timestamp="ts").columns().with_columns(total=hg.col("amount") * 2)
    )
    columns.rows().repartition("country").agg(total=hg.sum("total")).to("totals")
    driver = drivers(app)
    driver.send_all("orders", rows(2))
    assert [one.value for one in driver.read("totals")] == [{"total": 0}, {"total": 2}]


def test_the_key_of_a_record_is_shared_with_its_columns(drivers):
    app = hg.App("pricing")
    app.input("orders", serde=hg.json(Order)).columns().share("priced")
    driver = drivers(app)
    driver.send("orders", {"country": "DE", "amount": 3, "ts": 1}, key="k7", at=5, headers={"trace": b"a"})
    assert driver.read("priced") == [hg.Record("k7", {"country": "DE", "amount": 3, "ts": 1}, 5, (("trace", b"a"),))]
