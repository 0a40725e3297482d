"""The network of the tests does what its rules say, for requests of any client."""

from __future__ import annotations

import asyncio
import struct
import time

import pytest
from aiokafka import AIOKafkaProducer

from .proxy import END_TXN, METADATA, PRODUCE, Frame, Proxy

pytestmark = pytest.mark.kafka


@pytest.mark.asyncio
async def test_clients_find_no_way_around_the_network_and_each_rule_disturbs_what_it_names(kafka, topic):
    """Cut requests and lost answers are repeated by the client, a delayed one is late, and the rest passes."""
    name = topic()
    with Proxy(kafka.bootstrap) as network:
        producer = AIOKafkaProducer(bootstrap_servers=network.bootstrap, enable_idempotence=True)
        await producer.start()
        try:
            assert {node.port for node in producer.client.cluster.brokers()} == {int(network.bootstrap.split(":")[1])}
            assert (await producer.send_and_wait(name, b"a", partition=0)).offset == 0
            cut = network.cut(PRODUCE)
            assert (await producer.send_and_wait(name, b"b", partition=0)).offset == 1
            lost = network.lose(PRODUCE)
            await producer.send_and_wait(name, b"c", partition=0)  # the broker knows the repetition
            assert cut.caught(0)
            assert lost.caught(0)
            network.delay(PRODUCE, 0.2, times=1)
            began = time.monotonic()
            assert (await producer.send_and_wait(name, b"d", partition=0)).offset == 3
            assert time.monotonic() - began >= 0.2
            assert network.away() > 0
            late = asyncio.ensure_future(producer.send_and_wait(name, b"e", partition=0))  # noqa: TID251 - awaited below
            assert await asyncio.to_thread(network.refused.wait, 60)
            assert not late.done()
            network.back()
            assert (await late).offset == 4
            assert METADATA in network.seen
        finally:
            await producer.stop()


@pytest.mark.asyncio
async def test_a_request_that_is_held_back_knows_what_has_overtaken_it(kafka, topic):
    """Chaos counts a fault by its effect: only a commit that another request of its transaction overtakes has been reordered."""
    name = topic("held")
    with Proxy(kafka.bootstrap) as network:
        producer = AIOKafkaProducer(bootstrap_servers=network.bootstrap, transactional_id=name)
        await producer.start()
        try:
            await producer.begin_transaction()
            await producer.send_and_wait(name, b"a", partition=0)
            held = network.hold(END_TXN)
            commit = asyncio.ensure_future(producer.commit_transaction())  # noqa: TID251 - awaited below
            assert await asyncio.to_thread(held.caught)
            before = [one for one in held.passed if one.transaction]
            assert network.sever() > 0
            await asyncio.wait_for(commit, 60)
            assert not held.answered
            held.deliver()
            await asyncio.wait_for(asyncio.wrap_future(asyncio.run_coroutine_threadsafe(_wait(held), held.loop)), 60)
        finally:
            await producer.stop()
    assert held.frame is not None
    assert (held.frame.transaction, before, held.count) == (name, [], 1)
    assert END_TXN in {one.api for one in held.passed if one.transaction == name}


async def _wait(held):
    await held.answer


def test_transactional_ids_are_found_in_requests_of_all_forms():
    """The strings of a request are compact since some version, and other requests have no transactional id."""

    def request(api, version, rest):
        return Frame(struct.pack(">hhih", api, version, 1, 2) + b"me" + rest, ("127.0.0.1", 1))

    assert request(END_TXN, 1, b"\0\3job").transaction == "job"
    assert request(END_TXN, 3, b"\0\4job").transaction == "job"
    assert request(PRODUCE, 7, b"\xff\xff").transaction == ""
    assert request(PRODUCE, 9, b"\0\4job").transaction == "job"
    assert request(PRODUCE, 2, b"\0\1").transaction == ""
    assert request(METADATA, 9, b"").transaction == ""
