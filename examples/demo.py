"""Orders go through a join, one-minute windows and Spark on two workers; one worker is killed on the way, and a count shows that nothing
was lost or duplicated.

    make demo

Starts an Apache Kafka in a temporary directory, sends a steady flow of orders whose time runs twenty times as fast as the clock, and runs
the job in `sales.py` with `headgate run --workers 2`. It shows the batches, kills one of the workers, drains the job with
`headgate drain --wait`, and compares each minute in the topic `revenue` with what was sent. Everything is shut down at the end, also after
Ctrl-C.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from types import FrameType

import orjson
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

import headgate as hg

HERE = Path(__file__).resolve().parent
RATES = {"EUR": 1.0, "USD": 0.75, "CHF": 1.25}
COUNTRIES = {"CH": "CHF", "DE": "EUR", "ES": "EUR", "FR": "EUR", "IT": "EUR", "US": "USD"}
WORKERS = 2
SPEED = 20
"""A minute of the orders' time takes three seconds."""
MINUTE_MS = 60_000
JITTER_MS = 4_000
"""Orders are out of order by up to this much of their own time."""
AHEAD = 12
"""The shop waits when this many minutes have no result yet: on a slow machine the demo takes longer, but not more."""
PATIENCE_S = 240.0
began = time.monotonic()
phases: list[tuple[str, float]] = [("", began)]
"""What was going on, and when it was over."""
Cell = tuple[int, str]
"""The start of a minute, and a country."""


def say(text: str) -> None:
    """Print what happens, with the seconds since the start."""
    print(f"{time.monotonic() - began:5.1f} s  {text}", file=sys.stderr, flush=True)


def over(phase: str) -> None:
    """What went on since the last call is over."""
    phases.append((phase, time.monotonic()))


def show_phases() -> None:
    """Print where the seconds went."""
    table = Table("where the seconds went", "s", box=SIMPLE, padding=(0, 1, 0, 0))
    table.columns[1].justify = "right"
    for (_, begin), (phase, end) in itertools.pairwise(phases):
        table.add_row(phase, f"{end - begin:.1f}")
    table.add_row("all", f"{phases[-1][1] - began:.1f}")
    Console().print(table)


class Shop:
    """Sends numbered orders until told to stop, and keeps the totals of each minute that the job must match."""

    def __init__(self, producer: AIOKafkaProducer, admin: AIOKafkaAdminClient) -> None:
        self.producer = producer
        self.admin = admin
        self.sent = 0
        self.orders: Counter[Cell] = Counter()
        self.revenue: Counter[Cell] = Counter()
        self.open = True
        self.minute = 0
        """The start of the minute that it sells in."""

    async def rates(self) -> None:
        """Send today's rates."""
        for currency, rate in RATES.items():
            body = orjson.dumps({"currency": currency, "rate": rate})
            await self.producer.send_and_wait("rates", body, key=currency.encode())

    async def sell(self, finished: Callable[[], int]) -> None:
        """Send about 2,000 orders a second. Every fiftieth is a refund, which the job filters out. `finished`: how many minutes have their
        results.
        """
        countries = list(COUNTRIES.items())
        start_ms = (int(time.time() * 1000) // MINUTE_MS - 120) * MINUTE_MS
        now_ms, last = start_ms, time.monotonic()
        while self.open:
            passed, last = time.monotonic() - last, time.monotonic()
            if self.minute - start_ms > (finished() + AHEAD) * MINUTE_MS:
                await asyncio.sleep(0.1)
                continue
            now_ms += min(int(passed * 1000), 500) * SPEED
            self.minute = now_ms // MINUTE_MS * MINUTE_MS
            for number in range(self.sent, self.sent + 200):
                country, currency = countries[number // 2 * 5 % len(countries)]
                amount = -10 if number % 50 == 0 else 1 + number % 90
                ts = now_ms + JITTER_MS - number * 37 % JITTER_MS
                order = {"id": number, "country": country, "currency": currency, "amount": amount, "ts": ts}
                await self.producer.send("orders", orjson.dumps(order), partition=number % 2)
                if amount > 0:
                    cell = (ts // MINUTE_MS * MINUTE_MS, country)
                    self.orders[cell] += 1
                    self.revenue[cell] += amount * RATES[currency]
            self.sent += 200
            await self.producer.flush()
            await asyncio.sleep(0.1)

    async def lag(self) -> int:
        """How many orders the job has not read yet, from its consumer group, as any lag tool sees it."""
        done = await self.admin.list_consumer_group_offsets("sales-1")
        read = sum(at.offset for topic, at in done.items() if topic.topic == "orders" and at.offset > 0)
        return self.sent - read


class Reader:
    """Reads `revenue` with read committed isolation. The time of a result is the last millisecond of its minute."""

    def __init__(self, consumer: AIOKafkaConsumer) -> None:
        self.consumer = consumer
        self.results: Counter[Cell] = Counter()
        self.orders: Counter[Cell] = Counter()
        self.revenue: Counter[Cell] = Counter()

    def minutes(self) -> list[int]:
        """The minutes that have a result of each country."""
        found = Counter(minute for minute, _ in self.results)
        return sorted(minute for minute, countries in found.items() if countries == len(COUNTRIES))

    async def more(self) -> None:
        """Read what has arrived."""
        for records in (await self.consumer.getmany(timeout_ms=200)).values():
            for record in records:
                row = orjson.loads(record.value)
                cell = (record.timestamp // MINUTE_MS * MINUTE_MS, row["country"])
                self.results[cell] += 1
                self.orders[cell] += row["orders"]
                self.revenue[cell] += row["revenue"]

    async def until(self, enough: Callable[[], bool], workers: Workers) -> None:
        """Read until `enough()` is true, and fail if the workers exit or take too long."""
        give_up = time.monotonic() + PATIENCE_S
        while not enough():
            if workers.process.returncode is not None or time.monotonic() > give_up:
                raise hg.HeadgateError(f"the workers produced no results: {workers.last_words()}")
            await self.more()


class Workers:
    """One `headgate run --workers 2`: a supervisor, two workers, and the Spark that each of them starts."""

    def __init__(self, process: asyncio.subprocess.Process, log: Path) -> None:
        self.process = process
        self.log = log

    @classmethod
    async def start(cls, bootstrap: str, directory: Path) -> Workers:
        """Run the job of `sales.py`."""
        log = directory / "workers.log"
        with log.open("ab") as out:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "headgate", "run", "sales:app", "--app-dir", str(HERE)),
                *("--workers", str(WORKERS), "--processor-id", "shop"),
                *("-b", bootstrap, "--state-dir", str(directory / "state"), "--web-port", "0"),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                env=os.environ | {"SPARK_LOCAL_DIRS": str(directory / "spark"), "TMPDIR": str(directory)},
                start_new_session=True,
            )
        return cls(process, log)

    def last_words(self) -> str:
        """The end of their log."""
        return self.log.read_text(errors="replace")[-2000:]

    async def end(self) -> None:
        """End the workers in whatever state they are. Those of a supervisor that is killed are told by the kernel."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, number)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(15):
                    await self.process.wait()


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
        sys.executable, "-m", "headgate", *words, stdout=asyncio.subprocess.PIPE
    )
    printed, _ = await process.communicate()
    if process.returncode:
        raise hg.HeadgateError(f"headgate {' '.join(words)} exited with {process.returncode}")
    return printed.decode().strip()


async def story(bootstrap: str, directory: Path) -> bool:
    """Run the whole demo; true if what was counted equals what was sent."""
    async with connected(bootstrap) as (shop, reader), contextlib.AsyncExitStack() as ends:
        await shop.rates()
        workers = await Workers.start(bootstrap, directory)
        ends.push_async_callback(workers.end)
        over("start of Kafka, topics and clients")
        say(
            "headgate run sales:app --workers 2: filter, join with the rates, repartition, one-minute windows, Spark, revenue"
        )
        selling = asyncio.get_running_loop().create_task(shop.sell(lambda: len(reader.minutes())))
        ends.callback(selling.cancel)
        say(f"a shop sends about 2,000 orders a second, whose time runs {SPEED} times as fast as the clock")
        await reader.until(lambda: len(reader.minutes()) >= 1, workers)
        say(counted(shop, reader))
        over("from headgate run to the first minute of revenue: workers, Spark, a minute and its grace")
        await reader.until(lambda: len(reader.minutes()) >= 4, workers)
        say(counted(shop, reader))
        over("three minutes more")
        say("headgate batches sales")
        print(await command("batches", "sales", "--done", "4", "-b", bootstrap), file=sys.stderr, flush=True)

        pid, name = await victim(bootstrap)
        os.kill(pid, signal.SIGKILL)
        say(f"kill -9 of {name} (process {pid}), with windows open and Spark at work; its supervisor starts it again")
        over("headgate batches and headgate status")
        killed = shop.minute
        await reader.until(lambda: killed in reader.minutes(), workers)
        say(counted(shop, reader))
        over("from the kill to the revenue of the minute that was open")

        shop.open = False
        await selling
        say(f"the shop closes after {shop.sent:,} orders")
        while (behind := await shop.lag()) and workers.process.returncode is None:  # a drain reads no further
            say(f"{behind:,} orders are still unread")
            for _ in range(10):
                await reader.more()
        over("until the last orders are read")
        say(await command("drain", "sales", "--wait", "--timeout", f"{PATIENCE_S:.0f}s", "-b", bootstrap))
        async with asyncio.timeout(60):
            code = await workers.process.wait()
        if code:
            raise hg.HeadgateError(f"the workers exited with {code}: {workers.last_words()}")
        over("drain: the open minutes go through Spark, and the workers end")
        end = (await reader.consumer.end_offsets([TopicPartition("revenue", 0)]))[TopicPartition("revenue", 0)]
        while await reader.consumer.position(TopicPartition("revenue", 0)) < end:
            await reader.more()
        return show(shop, reader)


async def victim(bootstrap: str) -> tuple[int, str]:
    """A worker that is not the leader, by `headgate status`."""
    found = orjson.loads(await command("status", "sales", "-o", "json", "-b", bootstrap))
    leader = (found["leader"] or {}).get("processor")
    one = min(found["workers"], key=lambda worker: worker["processor"] == leader)
    return one["pid"], one["processor"]


def counted(shop: Shop, reader: Reader) -> str:
    """How far the job is."""
    counts = sum(reader.orders.values()), sum(shop.orders.values())
    return f"revenue has {len(reader.minutes())} minutes, with {counts[0]:,} of {counts[1]:,} paid orders"


def show(shop: Shop, reader: Reader) -> bool:
    """Print the revenue of each minute, and compare what was sent with what was counted. Returns whether they are equal."""
    minutes = sorted({minute for minute, _ in shop.orders})
    totals = {minute: sum(reader.revenue[minute, country] for country in COUNTRIES) for minute in minutes}
    table = Table("minute", *COUNTRIES, "all", "", title="revenue in thousand €", box=SIMPLE, padding=(0, 1, 0, 0))
    for column in table.columns[1:-1]:
        column.justify = "right"
    for minute in minutes:
        amounts = [*(reader.revenue[minute, country] for country in COUNTRIES), totals[minute]]
        bar = "█" * round(24 * totals[minute] / max(1.0, *totals.values()))
        table.add_row(
            time.strftime("%H:%M", time.gmtime(minute / 1000)), *(f"{one / 1000:.1f}" for one in amounts), bar
        )
    everywhere = sorted({*shop.orders, *reader.orders})
    lost = sum(max(0, shop.orders[cell] - reader.orders[cell]) for cell in everywhere)
    duplicated = sum(max(0, reader.orders[cell] - shop.orders[cell]) for cell in everywhere)
    twice = sum(1 for cell in everywhere if reader.results[cell] > 1)
    console = Console()
    console.print(table)
    console.print(
        f"{sum(shop.orders.values()):,} paid orders, one kill -9: [bold]{lost} lost, {duplicated} duplicated[/bold]; "
        f"{len(everywhere)} results, {twice} twice"
    )
    return not lost and not duplicated and not twice and shop.revenue == reader.revenue


def main() -> int:
    """Run the demo; 0 if the totals match."""
    signal.signal(signal.SIGTERM, _leave)
    say("start a real Kafka")
    with hg.testing.kafka(say=lambda text: say(f"  {text}")) as kafka:
        try:
            agree = asyncio.run(story(kafka.bootstrap, kafka.directory))
        finally:
            say("stop Kafka")
    over("stop of Kafka")
    show_phases()
    return 0 if agree else 1


def _leave(number: int, frame: FrameType | None) -> None:
    """SIGTERM ends the demo like Ctrl-C, so that everything is stopped."""
    signal.raise_signal(signal.SIGINT)  # what is raised here would be lost in a `__del__`


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
    except hg.HeadgateError as error:
        print(error, file=sys.stderr)
        sys.exit(1)
