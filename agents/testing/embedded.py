"""A real Kafka for a test, on this machine and without Docker: `hg.testing.kafka()`, and the pytest fixture `kafka`.

    with hg.testing.kafka() as kafka:
        kafka.headgate("topics", "create", "orders")
        kafka.headgate("run", "job:app", "--bounded")

It decides where such a broker and the state of its jobs lie: in a temporary directory. It promises that both are gone after the block, also
if this process is killed in it: a guard waits for that. Nothing of the user's own brokers is read or changed.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from .state import DriverError

READY_S = 240.0
"""A broker starts in seconds on an idle machine, and was seen to take more than a minute on a busy one."""


@dataclass(frozen=True, slots=True)
class Kafka:
    """A running Kafka, as `hg.testing.kafka` and the fixture `kafka` give it."""

    bootstrap: str
    """The address for clients: `127.0.0.1:41873`."""
    directory: Path
    """A directory that goes with the broker; the state of jobs that `headgate` runs is kept in it."""

    @property
    def variables(self) -> Mapping[str, str]:
        """The environment variables by which a command of headgate, in a process of your own, uses this broker."""
        return {
            "HEADGATE_BOOTSTRAP": self.bootstrap,
            "HEADGATE_STATE_DIR": str(self.directory / "state"),
            "HEADGATE_TOPIC_CREATE_OUTPUTS": "true",
        }

    def headgate(self, *words: str, given: str = "") -> str:
        """Run a command of headgate on this broker, in the current directory, and return what it prints.

        `given` is its standard input. A command that does not exit with 0 raises an error with what it said.
        """
        ended = subprocess.run(
            [sys.executable, "-m", "headgate.agents.cli", *words],
            env=os.environ | self.variables,
            input=given,
            capture_output=True,
            encoding="utf-8",
            check=False,
        )
        if ended.returncode:
            raise DriverError(
                f"`headgate {' '.join(words)}` exited with {ended.returncode}:\n{ended.stdout}{ended.stderr}".rstrip()
            )
        return ended.stdout


def _nothing(_: str) -> None:
    pass


@contextlib.contextmanager
def kafka(*, nodes: int = 1, say: Callable[[str], None] = _nothing) -> Iterator[Kafka]:
    """A real Apache Kafka for this block, empty, on free ports of the loopback address. `nodes`: 1 broker, or 3. `say` is called with what
    is done meanwhile, such as a download.

    The first start on a machine downloads Kafka, as `headgate kafka up` does. A start takes a few seconds, so a suite shares one: in
    pytest, the fixture `kafka` starts it at its first use, and tests take topics and jobs of their own.
    """
    from ..broker.broker import Broker
    from ..broker.guard import Lease

    directory = Path(tempfile.mkdtemp(prefix="headgate-kafka-"))
    lease = Lease(directory)
    with Lease.guard(directory) as guard:
        try:
            with Broker.start(directory / "kafka", nodes=nodes, timeout_s=READY_S, say=say) as broker:
                yield Kafka(broker.bootstrap, directory)
        finally:
            lease.release()
            guard.wait()
