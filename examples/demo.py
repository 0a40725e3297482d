"""Orders go through a join and Spark, the worker is killed on the way, and a count shows that nothing was lost or duplicated.

    make demo

Starts an Apache Kafka in a temporary directory, sends a steady flow of orders, runs the job in `sales.py` with `headgate run`, kills
that process, starts it again, drains the job with `headgate drain --wait`, and compares the contents of the topic `revenue` with what
was sent. Everything is shut down at the end, also after Ctrl-C.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from types import FrameType

import orjson
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from rich.console import Console
from rich.table import Table

from headgate.agents.broker.broker import Broker
from headgate.core.errors import HeadgateError

HERE = Path(__file__).resolve().parent
RATES = {"EUR": 1.0, "USD": 0.75, "CHF": 1.25}
COUNTRIES = {"DE": "EUR", "FR": "EUR", "US": "USD", "CH": "CHF"}
PATIENCE_S = 120.0
began = time.monotonic()


def say(text: str) -> None:
    """Print what happens, with the seconds since the start."""
    print(f"{time.monotonic() - began:5.1f} s  {text}", file=sys.stderr, flush=True)


class Shop:
    """Sends numbered orders until told to stop, and keeps the totals that the job must match."""

    def __init__(self, producer: AIOKafkaProducer, admin: AIOKafkaAdminClient) -> None:
        self.producer = producer
        self.admin = admin
        self.sent = 0
        self.orders: Counter[str] = Counter()
        self.revenue: Counter[str] = Counter()
        self.open = True

    async def rates(self) -> None:
        """Send today's rates."""
        for currency, rate in RATES.items():
            body = orjson.dumps({"currency": currency, "rate": rate})
            await self.producer.send_and_wait("rates", body, key=currency.encode())

    async def sell(self) -> None:
        """Send about 2,000 orders a second. Every fiftieth is a refund, which the job filters out."""
        countries = list(COUNTRIES.items())
        while self.open:
            for number in range(self.sent, self.sent + 200):
                country, currency = countries[number * 7 % len(countries)]
                amount = -10 if number % 50 == 0 else 1 + number % 90
                order = {"id": number, "country": country, "currency": currency, "amount": amount}
                await self.producer.send("orders", orjson.dumps(order | {"ts": int(time.time() * 1000)}))
                if amount > 0:
                    self.orders[country] += 1
                    self.revenue[country] += amount * RATES[currency]
            self.sent += 200
            await self.producer.flush()
            await asyncio.sleep(0.1)

    async def lag(self) -> int:
        """How many orders the job has not read yet, from its consumer group, as any lag tool sees it."""
        done = await self.admin.list_consumer_group_offsets("sales-1")
        read = sum(at.offset for topic, at in done.items() if topic.topic == "orders" and at.offset > 0)
        return self.sent - read


class Reader:
    """Reads `revenue` with read committed isolation."""

    def __init__(self, consumer: AIOKafkaConsumer) -> None:
        self.consumer = consumer
        self.results = 0
        self.orders: Counter[str] = Counter()
        self.revenue: Counter[str] = Counter()

    async def more(self) -> None:
        """Read what has arrived."""
        for records in (await self.consumer.getmany(timeout_ms=200)).values():
            for record in records:
                row = orjson.loads(record.value)
                self.results += 1
                self.orders[row["country"]] += row["orders"]
                self.revenue[row["country"]] += row["revenue"]

    async def until(self, enough: Callable[[], bool], worker: Worker) -> None:
        """Read until `enough()` is true, and fail if the worker exits or takes too long."""
        give_up = time.monotonic() + PATIENCE_S
        while not enough():
            if worker.process.returncode is not None or time.monotonic() > give_up:
                raise HeadgateError(f"the worker produced no results: {worker.last_words()}")
            await self.more()


class Worker:
    """One `headgate run` in its own process group: the worker and the Spark that it starts."""

    def __init__(self, process: asyncio.subprocess.Process, log: Path) -> None:
        self.process = process
        self.log = log

    @classmethod
    async def start(cls, bootstrap: str, directory: Path) -> Worker:
        """Run the job of `sales.py`."""
        log = directory / "worker.log"
        with log.open("ab") as out:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "headgate.agents.cli", "run", "sales:app", "--app-dir", str(HERE)),
                *("-b", bootstrap, "--state-dir", str(directory / "state"), "--web-port", "0"),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                env=os.environ | {"SPARK_LOCAL_DIRS": str(directory / "spark"), "TMPDIR": str(directory)},
                start_new_session=True,
            )
        return cls(process, log)

    def last_words(self) -> str:
        """The end of its log."""
        return self.log.read_text(errors="replace")[-2000:]

    async def kill(self) -> None:
        """kill -9, whatever it is doing."""
        self.process.kill()
        await self.process.wait()

    async def end(self) -> None:
        """End the worker in whatever state it is, with everything that it started."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, number)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.process.wait(), 15)


@contextlib.asynccontextmanager
async def connected(bootstrap: str) -> AsyncIterator[tuple[Shop, Reader]]:
    """Create the job's topics, a shop that sends orders, and a reader of the results."""
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap, enable_idempotence=True, linger_ms=5)
    consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, isolation_level="read_committed", enable_auto_commit=False)
    async with contextlib.AsyncExitStack() as stack:
        await admin.start()
        stack.push_async_callback(admin.close)
        await admin.create_topics([NewTopic("orders", 2, 1), NewTopic("rates", 1, 1), NewTopic("revenue", 1, 1)])
        for client in (producer, consumer):
            await client.start()
            stack.push_async_callback(client.stop)
        consumer.assign([TopicPartition("revenue", 0)])
        await consumer.seek_to_beginning()
        yield Shop(producer, admin), Reader(consumer)


async def command(*words: str) -> str:
    """Run a `headgate` command and return what it printed."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "headgate.agents.cli", *words, stdout=asyncio.subprocess.PIPE
    )
    printed, _ = await process.communicate()
    if process.returncode:
        raise HeadgateError(f"headgate {' '.join(words)} exited with {process.returncode}")
    return printed.decode().strip()


async def story(bootstrap: str, directory: Path) -> bool:
    """Run the whole demo; true if what was counted equals what was sent."""
    async with connected(bootstrap) as (shop, reader), contextlib.AsyncExitStack() as ends:
        await shop.rates()
        selling = asyncio.get_running_loop().create_task(shop.sell())
        ends.callback(selling.cancel)
        say("a shop sends about 2,000 orders a second, without a pause")

        worker = await Worker.start(bootstrap, directory)
        ends.push_async_callback(worker.end)
        say("headgate run sales:app: filter, join with the rates, batches of 2,000, Spark, revenue")
        await reader.until(lambda: reader.results >= 4, worker)
        say(f"{sum(reader.orders.values()):,} of {shop.sent:,} orders are counted in revenue")

        await worker.kill()
        say(f"kill -9 of the worker (process {worker.process.pid}), with batches open and Spark at work")
        again = await Worker.start(bootstrap, directory)
        ends.push_async_callback(again.end)
        say("headgate run sales:app, again: it resumes from the last commit")
        before = reader.results
        await reader.until(lambda: reader.results >= before + 4, again)
        say(f"{sum(reader.orders.values()):,} of {shop.sent:,} orders are counted in revenue")

        shop.open = False
        await selling
        say(f"the shop closes after {shop.sent:,} orders")
        while (behind := await shop.lag()) and again.process.returncode is None:  # a drain reads no further
            say(f"{behind:,} orders are still unread")
            for _ in range(10):
                await reader.more()
        say(await command("drain", "sales", "--wait", "--timeout", f"{PATIENCE_S:.0f}s", "-b", bootstrap))
        if code := await asyncio.wait_for(again.process.wait(), 60):
            raise HeadgateError(f"the worker exited with {code}: {again.last_words()}")
        end = (await reader.consumer.end_offsets([TopicPartition("revenue", 0)]))[TopicPartition("revenue", 0)]
        while await reader.consumer.position(TopicPartition("revenue", 0)) < end:
            await reader.more()
        show(shop, reader)
        return shop.orders == reader.orders and shop.revenue == reader.revenue


def show(shop: Shop, reader: Reader) -> None:
    """Print what was sent, what was counted, and the difference."""
    table = Table("country", *(f"{what}, {who}" for what in ("orders", "revenue") for who in ("sent", "counted")))
    for column in table.columns[1:]:
        column.justify = "right"
    rows = [(name, shop.orders[name], reader.orders[name]) for name in sorted(COUNTRIES)]
    for name, sent, counted in rows:
        table.add_row(name, f"{sent:,}", f"{counted:,}", f"{shop.revenue[name]:,.2f}", f"{reader.revenue[name]:,.2f}")
    lost = sum(max(0, sent - counted) for _, sent, counted in rows)
    duplicated = sum(max(0, counted - sent) for _, sent, counted in rows)
    console = Console()
    console.print(table)
    console.print(
        f"{sum(shop.orders.values()):,} paid orders, one kill -9: [bold]{lost} lost, {duplicated} duplicated[/bold]"
    )


def main() -> int:
    """Run the demo; 0 if the totals match."""
    signal.signal(signal.SIGTERM, _leave)
    with tempfile.TemporaryDirectory(prefix="headgate-demo-", ignore_cleanup_errors=True) as directory:
        say("start a real Kafka")
        broker = Broker.start(Path(directory) / "kafka", say=lambda text: say(f"  {text}"))
        try:
            agree = asyncio.run(story(broker.bootstrap, Path(directory)))
        finally:
            say("stop Kafka")
            broker.stop()
    return 0 if agree else 1


def _leave(number: int, frame: FrameType | None) -> None:
    """SIGTERM ends the demo like Ctrl-C, so that everything is stopped."""
    raise KeyboardInterrupt


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
    except HeadgateError as error:
        print(error, file=sys.stderr)
        sys.exit(1)
