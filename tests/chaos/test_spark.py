"""Faults around Spark, the short form. The long one is `python -m tests.chaos.spark`."""

from __future__ import annotations

from pathlib import Path

import pytest

from headgate.agents.broker.broker import Broker

from .spark import torment
from .spark_processes import ON_REQUEST

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(1200)]


@ON_REQUEST
def test_every_order_counts_once_whatever_dies_around_spark(private_kafka: Broker, tmp_path: Path) -> None:
    """A Python worker, the JVM, the worker with its JVM."""
    scene = torment(private_kafka, tmp_path, ["python", "jvm", "worker"], 1, 500, cluster=False)
    assert scene.happened == {"python": 1, "jvm": 1, "worker": 1}
