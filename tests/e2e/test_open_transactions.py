"""Who keeps a transaction open is named: what a failing test of chaos says of a partition that cannot be read to its end."""

from __future__ import annotations

import pytest
from confluent_kafka import Producer

from tests.open_transactions import explained, held

pytestmark = pytest.mark.kafka


def test_the_producer_of_an_open_transaction_is_named_until_it_ends(kafka, topic):
    name = topic("open", 1)
    writer = Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": "who-holds-it", "log_level": 0})
    writer.init_transactions(60)
    writer.begin_transaction()
    writer.produce(name, b"not yet", partition=0)
    assert writer.flush(60) == 0
    (one,) = held(kafka.bootstrap, name, 0)
    assert one.first == 0
    assert explained(kafka.bootstrap, name, 0).endswith("who-holds-it: Ongoing")
    writer.commit_transaction(60)
    assert explained(kafka.bootstrap, name, 0) == ""
