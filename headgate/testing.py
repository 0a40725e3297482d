"""Tests of jobs: a whole job in one process, without Kafka and in virtual time, or on a real Kafka that a test starts.

with hg.testing.Driver(app) as d:
    d.send("orders", {"country": "DE", "amount": 3})
    assert d.read("totals") == [hg.Record("DE", {"n": 1, "total": 3})]
"""

from __future__ import annotations

from headgate.agents.stories.replaying import ReplayDifference, Replayed, replay
from headgate.agents.testing.driver import Driver
from headgate.agents.testing.embedded import Kafka, kafka
from headgate.agents.testing.reads import DeadLetter, TableReader
from headgate.agents.testing.state import DriverError

__all__ = [
    "DeadLetter",
    "Driver",
    "DriverError",
    "Kafka",
    "ReplayDifference",
    "Replayed",
    "TableReader",
    "kafka",
    "replay",
]
