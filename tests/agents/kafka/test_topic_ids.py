"""The ids of topics: read from the brokers' answers, and none where a broker has none."""

from __future__ import annotations

import asyncio
from io import BytesIO
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.cluster import ClusterMetadata
from aiokafka.protocol.metadata import MetadataRequest, MetadataResponse_v5

from headgate.agents.kafka import private, topic_ids  # noqa: F401 - with `private`, every client asks for ids
from headgate.agents.kafka.topic_ids import IdentifyingRequest, ask_ids, topic_id

OLD, NEW = {3: (0, 5)}, {3: (0, 12)}


def test_a_broker_is_asked_for_ids_where_it_has_them():
    """An older one gets aiokafka's own request."""
    assert IdentifyingRequest(["t"]).prepare(NEW).encode() == (
        b"\x02" + bytes(16) + b"\x02t\x00" + b"\x01\x00\x00" + b"\x00"
    )
    assert IdentifyingRequest(None, False).prepare(NEW).encode() == b"\x00" + b"\x00\x00\x00" + b"\x00"
    assert IdentifyingRequest(["t"]).prepare(OLD).encode() == MetadataRequest(["t"]).prepare(OLD).encode()


def test_a_broker_without_ids_is_named_once(monkeypatch, capsys):
    """An unknown id equals any, and an operator must know it."""
    monkeypatch.setattr(topic_ids, "_logged", False)
    cluster = ClusterMetadata()
    answer = MetadataResponse_v5(0, [(1, "h", 9, None)], "c", 1, [(0, "t", False, [(0, 0, 1, [1], [1], [])])])
    cluster.update_metadata(answer)
    assert "no ids" not in capsys.readouterr().err, "a client that does not ask for ids knows nothing of the brokers'"
    client: Any = SimpleNamespace(cluster=cluster)
    assert [topic_ids.topic_id(client, topic) for topic in ("t", "t", "gone")] == ["", "", ""]
    assert capsys.readouterr().err.count("no topic ids") == 1
    assert cluster.partitions_for_topic("t") == {0}


def test_the_answer_with_ids_is_read_as_the_one_without():
    """The same partitions and brokers; an id of zeros is none, and a topic that does not exist has none."""
    one = b"\x00" * 4 + b"\x02" + b"\x00\x00\x00\x01\x02h\x00\x00\x00\x09\x00\x00" + b"\x02c" + b"\x00\x00\x00\x01"
    partition = b"\x02" + b"\x00\x00" + b"\x00" * 4 + b"\x00\x00\x00\x01" + b"\x00" * 4 + (b"\x02\x00\x00\x00\x01" * 2)
    topics = b"\x04"
    topics += b"\x00\x00\x02t" + bytes(range(16)) + b"\x00" + partition + b"\x01\x00" + b"\x00" * 4 + b"\x00"
    topics += b"\x00\x00\x02o" + bytes(16) + b"\x00" + partition + b"\x01\x00" + b"\x00" * 4 + b"\x00"
    topics += b"\x00\x03\x02g" + bytes(16) + b"\x00" + b"\x01" + b"\x00" * 4 + b"\x00"
    request = IdentifyingRequest(["t"]).prepare(NEW)
    answer = request.RESPONSE_TYPE.decode(BytesIO(one + topics + b"\x00" * 4 + b"\x00"))
    assert answer.headgate_ids == {"t": "AAECAwQFBgcICQoLDA0ODw", "o": ""}
    assert answer.brokers == [(1, "h", 9, None)]
    assert answer.topics[0] == (0, "t", False, [(0, 0, 1, [1], [1], [])])
    cluster = ClusterMetadata()
    cluster.update_metadata(answer)
    assert cluster.partitions_for_topic("t") == {0}


@pytest.mark.kafka
@pytest.mark.asyncio
async def test_a_topic_that_is_made_again_has_another_id(kafka, topic):
    """Asked for by itself, and in the metadata of a client."""
    name = topic("one")
    consumer = AIOKafkaConsumer(name, bootstrap_servers=kafka.bootstrap)
    admin = AIOKafkaAdminClient(bootstrap_servers=kafka.bootstrap)
    await consumer.start()
    await admin.start()
    try:
        first = await ask_ids(consumer._client, [name, "nowhere-to-be-found"])
        assert list(first) == [name]
        assert len(first[name]) == 22
        assert topic_id(consumer._client, name) == first[name]
        await admin.delete_topics([name])
        async with asyncio.timeout(60):
            while (await admin.create_topics([NewTopic(name, 1, 1)])).topic_errors[0][1]:
                pass  # the deletion is under way
            while (await ask_ids(consumer._client, [name])).get(name, first[name]) == first[name]:
                pass
        await consumer._client.force_metadata_update()
        assert topic_id(consumer._client, name) not in ("", first[name])
    finally:
        await consumer.stop()
        await admin.close()
