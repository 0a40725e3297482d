"""What headgate builds on, in one minute: a local Kafka, a committed and an aborted transaction, and what readers see of each.

    python examples/ground.py

Starts an Apache Kafka in a temporary directory, writes orders in a transaction that commits (followed by a watermark and an end of
stream in the same partition), and writes more orders in one that aborts. Then it reads the topic twice, with `read_uncommitted` and
with `read_committed`, shows the difference, and shuts everything down, also after Ctrl-C.
"""

from __future__ import annotations

import asyncio
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from types import FrameType

import orjson
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from rich.console import Console
from rich.table import Table

import headgate as hg
from headgate import frames

TOPIC = "demo-1-orders"
PARTITION = TopicPartition(TOPIC, 0)
JOB, RUN, TASK = "demo/1", "first", "Partition 0"
GOOD = [("DE", 120), ("FR", 80), ("DE", 45)]
BAD = [("DE", 9_999_999), ("FR", -1)]


@dataclass(slots=True)
class Log:
    """What was done, and how long it took."""

    rows: list[tuple[str, str, float]] = field(default_factory=list)

    @contextmanager
    def step(self, what: str) -> Iterator[list[str]]:
        """Time a step. The step appends its result to the list that it is given."""
        print(f"{what} …", file=sys.stderr, flush=True)
        said: list[str] = []
        begin = time.monotonic()
        yield said
        self.rows.append((what, " ".join(said), time.monotonic() - begin))


def order(country: str, amount: int) -> bytes:
    """One user record, encoded as in an intermediate stream."""
    return frames.encode(frames.UserFrame(orjson.dumps({"country": country, "amount": amount})))


class ChangedMyMind(Exception):
    """Raised inside a transaction to abort it."""


async def write(bootstrap: str, log: Log) -> None:
    """Create the topic, commit one transaction, and abort another."""
    with log.step("create a topic") as said:
        admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
        await admin.start()
        try:
            await admin.create_topics([NewTopic(TOPIC, num_partitions=1, replication_factor=1)])
        finally:
            await admin.close()
        said.append(TOPIC)
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id="headgate.demo.1.ground")
    await producer.start()
    try:
        with log.step("commit a transaction") as said:
            async with producer.transaction():
                for country, amount in GOOD:
                    await producer.send(TOPIC, order(country, amount), partition=0)
                for control in (
                    frames.Watermark(JOB, RUN, TASK, 1, 1, 1_700_000_000_000, False),
                    frames.EndOfStream(JOB, RUN, TASK, 1, 1),
                ):
                    await producer.send(TOPIC, frames.encode(control), partition=0)
            said.append(f"{len(GOOD)} orders, a watermark, an end of stream")
        with log.step("abort a transaction") as said:
            try:
                async with producer.transaction():
                    for country, amount in BAD:
                        await (await producer.send(TOPIC, order(country, amount), partition=0))
                    raise ChangedMyMind
            except ChangedMyMind:
                said.append(f"{len(BAD)} orders were already in the log")
    finally:
        await producer.stop()


async def read(bootstrap: str, isolation: str) -> list[object]:
    """Read the topic to its end and decode it."""
    consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, isolation_level=isolation, enable_auto_commit=False)
    await consumer.start()
    try:
        consumer.assign([PARTITION])
        await consumer.seek_to_beginning(PARTITION)
        end = (await consumer.end_offsets([PARTITION]))[PARTITION]
        seen: list[object] = []
        while await consumer.position(PARTITION) < end:
            for records in (await consumer.getmany(timeout_ms=500)).values():
                seen += [frames.decode(record.value) for record in records]
        return seen
    finally:
        await consumer.stop()


def total(seen: list[object]) -> int:
    """The sum that a reader would report."""
    return sum(orjson.loads(frame.body)["amount"] for frame in seen if isinstance(frame, frames.UserFrame))


def kinds(seen: list[object]) -> str:
    """Count the frames that a reader saw, by type."""
    names = [type(frame).__name__ for frame in seen]
    return ", ".join(f"{names.count(name)} {name}" for name in dict.fromkeys(names))


def show(log: Log, careless: list[object], careful: list[object]) -> None:
    """Print two small tables."""
    console = Console()
    steps = Table("step", "what", "seconds", title="What was done")
    for what, said, seconds in log.rows:
        steps.add_row(what, said, f"{seconds:.2f}")
    seen = Table("reader", "saw", "sum of amounts", title="What was read")
    seen.add_row("read uncommitted", kinds(careless), f"{total(careless):,}")
    seen.add_row("read committed", kinds(careful), f"{total(careful):,}")
    console.print(steps, seen, sep="\n")


def main() -> int:
    """Run the demo; 0 if the read committed reader saw exactly the committed orders."""
    signal.signal(signal.SIGTERM, _leave)
    log = Log()
    with ExitStack() as ends:
        with log.step("start a real Kafka") as said:
            kafka = ends.enter_context(
                hg.testing.kafka(say=lambda text: print(f"  {text}", file=sys.stderr, flush=True))
            )
            said.append(f"at {kafka.bootstrap}")
        asyncio.run(write(kafka.bootstrap, log))
        with log.step("read it back, twice") as said:
            careless = asyncio.run(read(kafka.bootstrap, "read_uncommitted"))
            careful = asyncio.run(read(kafka.bootstrap, "read_committed"))
            said.append("to the end of the topic")
        with log.step("stop Kafka"):
            ends.close()
    show(log, careless, careful)
    wanted = sum(amount for _, amount in GOOD)
    if total(careful) != wanted or total(careless) == wanted:
        print(f"wrong: the read committed reader should have seen {wanted}", file=sys.stderr)
        return 1
    return 0


def _leave(number: int, frame: FrameType | None) -> None:
    """SIGTERM ends the demo like Ctrl-C, so that Kafka is stopped. It becomes one: what is raised here would be lost in a `__del__`."""
    signal.raise_signal(signal.SIGINT)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
    except hg.HeadgateError as error:
        print(error, file=sys.stderr)
        sys.exit(1)
