"""Tables of which each worker keeps one copy, on the real broker: joins, restarts, topics that are made again, records that fail."""

from __future__ import annotations

import asyncio
import itertools
import json
import re

import aiohttp
import pytest
from aiokafka import TopicPartition
from aiokafka.admin import NewPartitions, NewTopic
from aiokafka.admin.records_to_delete import RecordsToDelete

import headgate as hg
from headgate.agents.cli.data.tables import read_tables
from headgate.agents.cli.options import Target
from headgate.agents.cli.see.status import read as read_status
from headgate.agents.job.derive import declaration
from headgate.agents.process.configuration import CommandLine, configure
from headgate.agents.process.exporting import export
from headgate.core.errors import HeadgateError
from headgate.core.names import JobName

from .schemas import schema, wrong
from .test_queries import paged

pytestmark = [pytest.mark.kafka, pytest.mark.asyncio]

SOURCE = """
import headgate as hg

app = hg.App("JOB")
rates = app.input("RATES", serde=hg.json(), key_serde=hg.text()).table("rates", broadcast=True)
orders = app.input("ORDERS", serde=hg.json())
orders.join(rates, on="c", into=lambda order, rate: {"n": order["n"], "rate": rate["rate"]}).to("OUT")
"""


def joining(job, rates, orders, out, **policies):
    """A job that joins each order with the rate of its country."""
    app = hg.App(job.name, settings={"error.retries": 0})
    table = app.input(rates, serde=hg.json(), key_serde=hg.text(), **policies).table("rates", broadcast=True)
    app.input(orders, serde=hg.json()).join(
        table, on="c", into=lambda order, rate: {"n": order["n"], "rate": rate["rate"]}
    ).to(out)
    return app


def copy_of(running):
    return running.worker.runtime.copies.all.get("rates")


def facts(running):
    copy = copy_of(running)
    return None if copy is None else copy.facts()


async def rate(job, topic, country, value, partition=None):
    body = value if isinstance(value, bytes) or value is None else {"rate": value}
    await job.write(topic, [body], key=country.encode(), partition=partition)


async def live(running, lag=0):
    def is_live():
        found = facts(running)
        return found is not None and found.state == "live" and found.lag == lag

    await running.until(is_live, "a copy that is live")


async def test_two_workers_keep_a_copy_each_and_their_tasks_read_it(job, topic):
    rates, orders, out = topic("rates", 3), topic("orders", 4), topic("out")
    for n in range(30):
        await rate(job, rates, f"c{n}", n)
    app = joining(job, rates, orders, out)
    one = await job.start(app, "w1")
    two = await job.start(app, "w2")
    await one.until(lambda: len(one.worker.actors) == 2 == len(two.worker.actors), "two tasks on each worker")
    await live(one)
    await live(two)
    await job.write(orders, [{"c": f"c{n % 30}", "n": n} for n in range(120)])
    found = await job.values(out, 120)
    assert sorted((row["n"], row["rate"]) for row in found) == [(n, n % 30) for n in range(120)]
    # it follows live, and the tasks read what it has by then
    await rate(job, rates, "c0", 1000)
    await one.until(lambda: facts(one).read == 31 and facts(two).read == 31, "what has changed is read")
    await job.write(orders, [{"c": "c0", "n": 200 + n} for n in range(8)])
    found = await job.values(out, 128)
    assert {row["rate"] for row in found if row["n"] >= 200} == {1000}
    assert facts(one).rows == facts(two).rows == 30
    stores = {copy_of(running).store.path for running in (one, two)}
    assert len(stores) == 2, "each has a store of its own on the same disk"
    # no task reads the topic, and none has a position there
    for running in (one, two):
        for actor in running.worker.actors.values():
            assert {at.stream for at in actor.machine.inputs.partitions} == {orders}
            assert "rates" not in [spec.name for spec in actor.state.declared.tables()]


async def test_after_kill_9_a_copy_reads_only_the_difference(job, topic):
    rates, orders, out = topic("rates", 2), topic("orders"), topic("out")
    for n in range(200):
        await rate(job, rates, f"c{n}", n)
    source = SOURCE.replace("RATES", rates).replace("ORDERS", orders).replace("OUT", out)
    process = await job.process(source)
    await job.write(orders, [{"c": "c7", "n": 1}])
    assert await job.values(out, 1) == [{"n": 1, "rate": 7}]
    process.kill()
    await process.ended()
    for n in range(5):
        await rate(job, rates, f"c{n}", 500 + n)
    process = await job.process(source, "w1")
    await job.write(orders, [{"c": "c4", "n": 2}, {"c": "c199", "n": 3}])
    found = await job.values(out, 3)
    assert {(row["n"], row["rate"]) for row in found} == {(1, 7), (2, 504), (3, 199)}
    ready = [json.loads(line) for line in process.text().splitlines() if "a copy of a table is ready" in line]
    assert [(line["read"], line["rows"]) for line in ready] == [(5, 200)], process.text()[-3000:]
    assert "built anew" not in process.text()


async def test_a_topic_that_is_made_again_is_read_anew(job, topic):
    rates, orders, out = topic("rates", 2), topic("orders"), topic("out")
    await rate(job, rates, "a", 1)
    await rate(job, rates, "b", 2)
    running = await job.start(joining(job, rates, orders, out))
    await job.write(orders, [{"c": "a", "n": 1}])
    assert await job.values(out, 1) == [{"n": 1, "rate": 1}]
    async with job.admin() as admin:
        await admin.delete_topics([rates])
        await running.until(
            lambda: facts(running).state == "stale", "the copy is no longer fed, and is not called live"
        )
        assert "UnknownTopic" in facts(running).why
        await _made(admin, rates, 1)  # with fewer partitions: no position of a task depends on it
    await job.renew_producer()
    await rate(job, rates, "a", 10)
    await running.until(lambda: facts(running).built_anew >= 1 and facts(running).rows == 1, "the copy is built anew")
    await live(running)
    await job.write(orders, [{"c": "b", "n": 2}, {"c": "a", "n": 3}])
    found = await job.values(out, 2)
    assert found == [{"n": 1, "rate": 1}, {"n": 3, "rate": 10}]
    await running.until_running(1)


async def _made(admin, name, partitions):
    """Kafka deletes in the background: until then, the name is taken."""
    while True:
        try:
            await admin.create_topics([NewTopic(name, partitions, 1)])
            return
        except Exception as error:
            if "exists" not in repr(error).lower():
                raise
            await asyncio.sleep(0.1)


async def test_records_that_were_deleted_before_they_were_read_cost_the_store(job, topic):
    rates, orders, out = topic("rates"), topic("orders"), topic("out")
    for n in range(10):
        await rate(job, rates, f"c{n}", n)
    app = joining(job, rates, orders, out)
    running = await job.start(app)
    await running.until_running(1)
    assert facts(running).rows == 10
    assert await running.stop() == 0
    for n in range(10):
        await rate(job, rates, f"d{n}", n)
    async with job.admin() as admin:
        await admin.delete_records({TopicPartition(rates, 0): RecordsToDelete(before_offset=15)})
    running = await job.start(app, job_uuid=job.uuid)
    await running.until_running(1)
    found = facts(running)
    assert (found.built_anew, found.rows, found.read) == (1, 5, 5)
    await job.write(orders, [{"c": "c0", "n": 1}, {"c": "d9", "n": 2}])
    assert await job.values(out, 1) == [{"n": 2, "rate": 9}]


async def test_new_partitions_of_the_topic_are_taken_up(job, topic, monkeypatch):
    monkeypatch.setattr("headgate.agents.runtime.copies.copy.WIDER_S", 0.2)
    rates, orders, out = topic("rates"), topic("orders"), topic("out")
    await rate(job, rates, "a", 1)
    running = await job.start(joining(job, rates, orders, out))
    await live(running)
    async with job.admin() as admin:
        await admin.create_partitions({rates: NewPartitions(3)})
    await job.renew_producer()
    await running.until(lambda: len(facts(running).positions) == 3, "the copy reads all partitions")
    await rate(job, rates, "b", 2, partition=2)
    await running.until(lambda: facts(running).rows == 2, "what stands in a new one is read")
    await running.until_running(1)
    await job.write(orders, [{"c": "a", "n": 1}, {"c": "b", "n": 2}])
    assert await job.values(out, 2) == [{"n": 1, "rate": 1}, {"n": 2, "rate": 2}]
    assert (facts(running).read, facts(running).built_anew) == (2, 0)


async def test_a_record_that_fails_stops_the_copy_and_its_tasks_until_it_is_corrected(job, topic):
    rates, orders, out = topic("rates"), topic("orders"), topic("out")
    await rate(job, rates, "a", 1)
    running = await job.start(joining(job, rates, orders, out))
    await running.until_running(1)
    await rate(job, rates, "b", b"no json")
    await rate(job, rates, "c", 3)
    await running.until(lambda: facts(running).state == "stopped", "a copy that has stopped")
    why = facts(running).why
    assert f"record at {rates}[0] offset 1" in why
    assert "on_bad_data" in why
    state = running.worker.coordination.member.view
    await running.until(lambda: f"{rates}[0] offset 1" in str(state.job.failed()), "all know why the task has failed")
    assert await running.stop() == 0
    # with code that leaves it out, the copy goes on where it stopped
    running = await job.start(joining(job, rates, orders, out, on_bad_data="skip"))
    await running.until_running(1)
    assert (facts(running).read, facts(running).rows, facts(running).left_out) == (2, 2, 1)
    await job.write(orders, [{"c": "c", "n": 2}])
    assert await job.values(out, 1) == [{"n": 2, "rate": 3}]


async def test_a_job_that_kept_the_table_in_its_tasks_goes_on_without_a_reset(job, topic, monkeypatch):
    rates, orders, out = topic("rates", 2), topic("orders", 2), topic("out")
    for n in range(10):
        await rate(job, rates, f"c{n}", n)
    with monkeypatch.context() as before:
        before.setattr(declaration, "copied_tables", lambda steps: {})
        running = await job.start(joining(job, rates, orders, out))
    await running.until_running(2)
    await job.write(orders, [{"c": "c1", "n": 1}, {"c": "c2", "n": 2}])
    assert len(await job.values(out, 2)) == 2
    assert all(len(actor.state.table("rates")) == 10 for actor in running.worker.actors.values())
    assert await running.stop() == 0
    await rate(job, rates, "c1", 100)
    # the run is live: nothing that it covers has changed, so this version may take part in it
    running = await job.start(joining(job, rates, orders, out))
    await running.until_running(2)
    await job.write(orders, [{"c": "c1", "n": 3}, {"c": "c2", "n": 4}])
    found = await job.values(out, 4)
    assert sorted((row["n"], row["rate"]) for row in found) == [(1, 1), (2, 2), (3, 100), (4, 2)]
    assert facts(running).read == 11
    assert all(not actor.state.unowned for actor in running.worker.actors.values())
    await job.ask("drain")
    assert await running.ended() == 0
    # and back: the earlier version goes on where its tasks had read to
    with monkeypatch.context() as before:
        before.setattr(declaration, "copied_tables", lambda steps: {})
        running = await job.start(joining(job, rates, orders, out), run_id="again")
    await running.until_running(2)
    await job.write(orders, [{"c": "c1", "n": 5}])
    found = await job.values(out, 5)
    assert {row["rate"] for row in found if row["n"] == 5} == {100}


async def test_any_worker_answers_for_a_copy_and_shows_it(job, topic, tmp_path):
    rates, orders, out = topic("rates", 2), topic("orders", 2), topic("out")
    for n in range(10):
        await rate(job, rates, f"c{n}", n)
    app = joining(job, rates, orders, out)
    async with paged(job, app, "w1") as (one, first), paged(job, app, "w2") as (two, second):
        for running in (one, two):
            await running.until_running(1)
            await live(running)
        async with aiohttp.ClientSession() as session:
            for url, worker in ((first, "w1"), (second, "w2")):
                async with session.get(f"{url}/api/query/rates/c7") as answer:
                    found = await answer.json()
                assert (answer.status, found["value"], found["worker"]) == (200, {"rate": 7}, worker)
                assert found["age_ms"] < 60_000
                async with session.post(f"{url}/api/query/rates", json={"scan": {"limit": 100}}) as answer:
                    found = await answer.json()
                assert [key for key, _ in found["rows"]] == sorted(f"c{n}" for n in range(10))
                assert found["next"] is None
                async with session.get(f"{url}/api/status") as answer:
                    found = await answer.json()
                (copy,) = found["worker"]["copies"]
                assert (copy["table"], copy["topic"], copy["state"], copy["rows"]) == ("rates", rates, "live", 10)
                assert (copy["lag"], copy["why"], sum(copy["positions"].values())) == (0, "", 10)
                async with session.get(f"{url}/metrics") as answer:
                    metrics = await answer.text()
                assert re.search(r'headgate_copy_rows{.*table="rates".*} 10', metrics)
                assert re.search(r'headgate_copy_stopped{.*table="rates".*} 0', metrics)
        async with aiohttp.ClientSession() as session:  # page by page, of whichever worker is asked next
            keys, after, urls = [], {}, itertools.cycle([first, second])
            while after is not None:
                body = {"scan": {"limit": 3, **after}}
                async with session.post(f"{next(urls)}/api/query/rates", json=body) as answer:
                    found = await answer.json()
                    assert answer.status == 200, found
                keys += [key for key, _ in found["rows"]]
                after = None if found["next"] is None else {"after": found["next"]}
            assert keys == sorted(f"c{n}" for n in range(10))
        async with hg.query(job.name, "rates", bootstrap=job.bootstrap) as table:
            assert (await table.get("c3")).value == {"rate": 3}
            assert (await table.get("zz")).value is None
        to = Target(JobName(job.name), job.topics, configure(CommandLine(job.bootstrap)))
        shown = await read_tables(to, "rates", "", "", 100, False)
        assert sorted(row["key"] for row in shown["rows"]) == sorted(f"c{n}" for n in range(10))
        shown = await read_tables(to, "rates", "c4", "", 100, False)
        assert [row["value"] for row in shown["rows"]] == [{"rate": 4}]
        said = await export(job.client, job.topics, "rates", tmp_path / "rates", form="jsonl")
        assert said["rows"] == 10
        status = await read_status(to)
        give_up = asyncio.get_running_loop().time() + 60
        while [len(worker["copies"]) for worker in status["workers"]] != [1, 1] or status["lag"] is None:
            assert asyncio.get_running_loop().time() < give_up, status  # a heartbeat of each, and a look at the ends
            status = await read_status(to)
        assert wrong(status, schema("status")) == []
        assert {copy["table"] for worker in status["workers"] for copy in worker["copies"]} == {"rates"}
        assert status["lag"] == 0
        with pytest.raises(HeadgateError, match="no task reads"):
            await job.ask("seek", stream=rates, to="oldest")
