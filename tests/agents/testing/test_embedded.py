"""A real Kafka for users' tests: what a command that fails says. That it starts and leaves nothing, the example of the reference shows."""

from __future__ import annotations

from pathlib import Path

import pytest

from headgate.agents.broker.broker import Broker
from headgate.agents.testing.embedded import Kafka
from headgate.agents.testing.state import DriverError

pytestmark = pytest.mark.kafka


def test_a_command_that_fails_raises_what_it_said(kafka: Broker, tmp_path: Path) -> None:
    """A test that goes on with half of its topics would fail somewhere else."""
    running = Kafka(kafka.bootstrap, tmp_path)
    with pytest.raises(DriverError, match=r"(?s)`headgate status nobody` exited with 4:.*nobody"):
        running.headgate("status", "nobody")
