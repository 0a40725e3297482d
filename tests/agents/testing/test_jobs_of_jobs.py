"""Two jobs and the stream between them, each in a driver of its own."""

from __future__ import annotations

import pytest

import headgate as hg
from headgate.agents.testing.driver import Driver
from headgate.agents.testing.state import DriverError


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
