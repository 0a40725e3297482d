"""Examples of the page about `hg.testing`: each function is one, and its first line says of what."""

from __future__ import annotations

import json

import headgate as hg


def counting() -> hg.App:
    """The job of these examples: it counts the orders of each country."""
    app = hg.App("sales", on_bad_data="dead_letter")
    orders = app.input("orders", key="country", timestamp="ts")
    orders.agg(name="totals", n=hg.count()).to("counts")
    orders.window(hg.tumbling("1m"), name="minutes").agg(n=hg.count()).to("minutes")
    return app


def driver() -> None:
    """testing, testing.Driver, testing.Driver.send, testing.Driver.read"""
    with hg.testing.Driver(counting(), partitions={"orders": 2}) as driver:
        driver.send("orders", {"country": "DE", "ts": 1_000}, partition=1)
        assert driver.read("counts") == [hg.Record("DE", {"n": 1}, 1_000)]
        assert driver.read("counts") == []  # what came since the last call


def send_all() -> None:
    """testing.Driver.send_all"""
    with hg.testing.Driver(counting()) as driver:
        driver.send_all("orders", [{"country": "DE", "ts": 1}, hg.Record(None, {"country": "DE", "ts": 2})])
        assert driver.read("counts")[-1].value == {"n": 2}


def table() -> None:
    """testing.Driver.table"""
    with hg.testing.Driver(counting()) as driver:
        driver.send("orders", {"country": "DE", "ts": 61_000})
        assert dict(driver.table("totals")) == {"DE": {"n": 1}}
        assert driver.table("minutes")["DE", 60_000]["n"] == 1  # a window that is still open


def dead_letters() -> None:
    """testing.Driver.dead_letters"""
    with hg.testing.Driver(counting()) as driver:
        driver.send("orders", b"no json")
        (letter,) = driver.dead_letters()
        assert (letter.topic, letter.offset, letter.value) == ("orders", 0, b"no json")


def advance() -> None:
    """testing.Driver.advance, testing.Driver.wall_ms"""
    with hg.testing.Driver(counting(), now=1_700_000_000_000) as driver:
        driver.advance("90s")
        assert driver.wall_ms == 1_700_000_090_000


def end() -> None:
    """testing.Driver.end"""
    with hg.testing.Driver(counting()) as driver:
        driver.send("orders", {"country": "DE", "ts": 1_000})
        driver.end("orders")
        assert driver.read("minutes")[0].value["closed_by"] == "end"


def drain() -> None:
    """testing.Driver.drain"""
    with hg.testing.Driver(counting()) as driver:
        driver.send("orders", {"country": "DE", "ts": 1_000})
        driver.drain()
        assert driver.read("minutes")[0].value["closed_by"] == "drain"


def restart() -> None:
    """testing.Driver.restart"""
    with hg.testing.Driver(counting()) as driver:
        driver.send("orders", {"country": "DE", "ts": 1_000})
        driver.restart()  # as after a kill: what was committed is there again
        driver.send("orders", {"country": "DE", "ts": 2_000})
        assert driver.read("counts")[-1].value == {"n": 2}


def recreate() -> None:
    """testing.Driver.recreate"""
    app = hg.App("copies")
    app.input("orders", on_lost="oldest").to("copies")
    with hg.testing.Driver(app) as driver:
        driver.send_all("orders", [1, 2, 3])
        driver.recreate("orders")
        driver.send("orders", 4)
        assert [record.value for record in driver.read("copies")] == [1, 2, 3, 4]


def follow() -> None:
    """testing.Driver.follow"""
    first, second = hg.App("first"), hg.App("second")
    first.input("numbers").share("shared")
    second.input("shared", producers=["first"]).to("seen")
    with hg.testing.Driver(first) as one, hg.testing.Driver(second) as other:
        one.send("numbers", 7)
        other.follow("shared", one)
        assert other.read("seen")[0].value == 7


def counters() -> None:
    """testing.Driver.counters"""
    with hg.testing.Driver(counting()) as driver:
        driver.send("orders", b"no json")
        assert driver.counters["dead_letters"] == 1


def states() -> None:
    """testing.Driver.states, testing.Driver.tasks"""
    with hg.testing.Driver(counting()) as driver:
        assert driver.states == {"Partition 0": "running"}
        assert list(driver.tasks) == ["Partition 0"]


def watermarks() -> None:
    """testing.Driver.watermarks"""
    with hg.testing.Driver(counting()) as driver:
        driver.send("orders", {"country": "DE", "ts": 5_000})
        assert driver.watermarks["Partition 0"]["orders"] == 5_000


def metadata() -> None:
    """testing.Driver.metadata"""
    with hg.testing.Driver(counting()) as driver:
        driver.metadata.put("config", "commit.interval", "1s")
        assert driver.metadata.get("config", "commit.interval") == "1s"


def close() -> None:
    """testing.Driver.close"""
    driver = hg.testing.Driver(counting())
    driver.send("orders", {"country": "DE", "ts": 1})
    driver.close()  # or `with`; in pytest the fixture `driver` makes drivers and closes them


def kafka() -> None:
    """testing.kafka, testing.Kafka, testing.Kafka.headgate, testing.Kafka.variables"""
    with hg.testing.kafka() as kafka:
        assert kafka.variables["HEADGATE_BOOTSTRAP"] == kafka.bootstrap
        kafka.headgate("topics", "create", "orders")
        kafka.headgate("send", "orders", "--key", "country", given='{"country": "DE"}\n')
        assert json.loads(kafka.headgate("tail", "orders"))["value"] == {"country": "DE"}
    assert not kafka.directory.exists()  # the broker, its data and the state of jobs are gone
