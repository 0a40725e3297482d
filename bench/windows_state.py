"""What seven days of windows leave in the task log, and how long restoring takes from it.

    python -m bench windows_state [--days 7] [--rows 20] [--keys 10000]

Windows of 10 s with a grace of two hours, four tasks: `rows` rows a window, whose keys take turns, and at the end three windows with a row
of every key. Event time runs as fast as the worker commits: each commit is given fewer windows than the grace keeps open. So the blocks of
each window are written to the log before it closes, and deleted or overwritten later.

The log has segments of 1 MiB in place of 64: it is smaller than at full rate by as much. All of its tombstones are younger than
`delete.retention.ms` (a day), as they are in a job that has run for so long. Measured twice: when the cleaner has come to rest, and
when it has also compacted the active segments, which Kafka closes only after an hour (`max.compaction.lag.ms`). Each time: bytes of the log
on the broker's disk, those of transaction markers, records and bytes of the table, and the time that tasks restore on an empty disk.
Beside it, a job that was given only the last two hours: its open state is the same.

Prints a table; writes `bench/out/windows_state.json`.
"""

from __future__ import annotations

import argparse
import os
import shutil
import struct
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgpack
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource

from headgate.agents.broker.broker import Broker
from headgate.agents.kafka.topics import TASK_LOG
from headgate.core.task.stored.checkpoint import table_prefix
from headgate.core.windows.slots import holds_window

from . import report
from .filling import Record, write
from .restart import restoring_s, wait_ready
from .rig import HERE, PARTITIONS, Program, admin, make_topic, read_all, scratch

WINDOW_MS, GRACE_MS = 10_000, 7_200_000
DAY_MS = 86_400_000
SEGMENT = 1 << 20
STEP = 600
"""The windows that come between two commits, at most."""
PATIENCE_S = 1800.0
REST_S = 12.0
"""The cleaner is at rest when the log has had one size for so long."""
PREFIX = table_prefix("windows")
HEAD = struct.Struct(">8xi9xh")
"""The length and the attributes of a record batch."""
LENGTH_FROM, CONTROL = 12, 0x20
"""Where the length counts from, and the attribute of a batch that is a transaction marker."""


def fill(bootstrap: str, topic: str, first: int, upto: int, last: int, rows: int, keys: int) -> None:
    """Write the rows of windows number `first` up to `upto`; those of the last three windows have all keys."""

    def made() -> Iterator[Record]:
        for window in range(first, upto):
            count = keys if window >= last - 3 else rows
            for i in range(count):
                user = (window * rows + i) * 7919 % keys if count == rows else i
                ts = window * WINDOW_MS + i * WINDOW_MS // count
                yield Record(b'{"user":"u%05d","ts":%d,"amount":%d}' % (user, ts, user % 100), user % PARTITIONS)

    write(bootstrap, topic, made(), patience_s=300, compression_type="lz4")


class Job:
    """One job: its worker, its task log, its disk."""

    def __init__(self, broker: Broker, directory: Path, source: str, last: int) -> None:
        self.source, self.last = source, last
        self.name = f"windows-{uuid.uuid4().hex[:6]}"
        self.broker = broker
        self.directory = directory
        self.disk = directory / self.name
        self.log = f"__headgate_log_{self.name}_1"
        self.target = f"{self.name}-out"
        self.env = {
            "BENCH_JOB": self.name,
            "BENCH_SOURCE": source,
            "BENCH_TARGET": self.target,
            "BENCH_GRACE": f"{GRACE_MS}ms",
        }
        self.starts = 0
        make_topic(broker.bootstrap, self.target)
        make_topic(broker.bootstrap, self.log, {**TASK_LOG, "segment.bytes": str(SEGMENT)})

    def start(self) -> Program:
        """Its worker, once more."""
        self.starts += 1
        words = [
            sys.executable,
            "-m",
            "headgate.agents.cli",
            "run",
            "windows_work:app",
            "--app-dir",
            str(HERE / "peers"),
        ]
        words += ["-b", self.broker.bootstrap, "--state-dir", str(self.disk), "--log-format", "json"]
        program = Program(words, self.env, self.directory / f"{self.name}-{self.starts}.log").start()
        wait_ready(program, 300)
        return program

    def bytes_on_disk(self) -> int:
        """Of all segments of the task log at the broker."""
        return sum(path.stat().st_size for path in self.directory.rglob(f"{self.log}-*/*.log"))

    def markers(self) -> int:
        """The bytes of transaction markers in the task log."""
        found = 0
        for path in self.directory.rglob(f"{self.log}-*/*.log"):
            data, at = path.read_bytes(), 0
            while len(data) - at >= HEAD.size:
                length, attributes = HEAD.unpack_from(data, at)
                if not length:  # the rest of the file is not written yet
                    break
                at += LENGTH_FROM + length
                found += (LENGTH_FROM + length) * bool(attributes & CONTROL)
        return found

    def in_log(self) -> dict[str, int]:
        """Records of the window table in the log, as a restore reads them, and what is live of them."""
        last: dict[tuple[int, bytes], int] = {}
        found = {"records": 0, "tombstones": 0}
        for message in read_all(self.broker.bootstrap, self.log):
            key, value = message.key(), message.value()
            if not key.startswith(PREFIX):
                continue
            found["records"] += 1
            found["tombstones"] += value is None
            last[message.partition(), key] = 0 if value is None else len(key) + len(value)
        return {**found, "blocks": sum(size > 0 for size in last.values()), "live_bytes": sum(last.values())}

    def settled(self, size: Any, rest_s: float) -> int:
        """A size that has not changed for so long."""
        deadline, since, known = time.monotonic() + PATIENCE_S, time.monotonic(), size()
        while time.monotonic() - since < rest_s:
            if time.monotonic() > deadline:
                raise AssertionError(f"{self.name} does not come to rest: {known}")
            time.sleep(0.5)
            if (now := size()) != known:
                since, known = time.monotonic(), now
        return known

    def entries(self) -> int:
        """Keys in the windows that the log has open."""
        blocks: dict[tuple[int, bytes], int] = {}
        for message in read_all(self.broker.bootstrap, self.log):
            key, value = message.key(), message.value()
            if key.startswith(PREFIX) and holds_window(key[len(PREFIX) :]):
                blocks[message.partition(), key] = 0 if value is None else len(msgpack.unpackb(value[1:])[2])
        return sum(blocks.values())

    def end(self) -> int:
        """The end of the task log: it grows with each commit."""
        reader = Consumer({"bootstrap.servers": self.broker.bootstrap, "group.id": "bench-end", "log_level": 0})
        try:
            return sum(
                reader.get_watermark_offsets(TopicPartition(self.log, p), timeout=30)[1] for p in range(PARTITIONS)
            )
        finally:
            reader.close()

    def measure(self, first: int, rows: int, keys: int) -> dict[str, Any]:
        """Run until windows with so many keys are open, which come last; then measure before and behind the last compaction."""
        began = time.monotonic()
        program = self.start()
        for window in range(first, self.last, STEP):
            before = self.end()
            fill(self.broker.bootstrap, self.source, window, min(window + STEP, self.last), self.last, rows, keys)
            while self.end() == before:
                if program.popen.poll() is not None or time.monotonic() - began > PATIENCE_S:
                    raise AssertionError(program.told())
                time.sleep(0.05)
        entries = 3 * keys
        while True:
            self.settled(self.bytes_on_disk, 8.0)
            if (found := self.entries()) >= entries:
                break
            if program.popen.poll() is not None or time.monotonic() - began > PATIENCE_S:
                raise AssertionError(f"{found} of {entries} entries\n{program.told()}")
        row: dict[str, Any] = {"ran_s": time.monotonic() - began, "entries": found}
        program.stop()
        row["at_rest"] = self.restored()
        self.compact()
        return {**row, "compacted": self.restored(), "load": os.getloadavg()[0]}

    def compact(self) -> None:
        """Let the broker close and compact the active segments. It closes them with the next record, so the job gets some more rows."""
        settings = {"segment.ms": "1000", "max.compaction.lag.ms": "1000", "min.cleanable.dirty.ratio": "0.01"}
        entries = [
            ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET) for name, value in settings.items()
        ]
        resource = ConfigResource(ConfigResource.Type.TOPIC, self.log, incremental_configs=entries)
        client = admin(self.broker.bootstrap)
        for future in client.incremental_alter_configs([resource]).values():
            future.result(30)
        program = self.start()
        fill(self.broker.bootstrap, self.source, self.last - 1, self.last, self.last, 0, PARTITIONS)
        self.settled(self.bytes_on_disk, REST_S)
        program.stop()

    def restored(self) -> dict[str, Any]:
        """Look at the log when the cleaner is at rest, and restore on an empty disk."""
        row: dict[str, Any] = {"log_bytes": self.settled(self.bytes_on_disk, REST_S), "markers": self.markers()}
        row |= self.in_log()
        for place in self.disk.iterdir():
            if place.name != "location":
                shutil.rmtree(place, ignore_errors=True)
        program = self.start()
        row["restoring_s"] = restoring_s(program)
        program.stop()
        return row


def main() -> int:
    """Measure, print, keep."""
    words = argparse.ArgumentParser(
        prog="python -m bench windows_state", description=(__doc__ or "").partition("\n")[0]
    )
    words.add_argument("--days", type=float, default=7.0)
    words.add_argument("--rows", type=int, default=20, help="rows of a window, before the last three")
    words.add_argument("--keys", type=int, default=10_000)
    given = words.parse_args()
    last = int(given.days * DAY_MS) // WINDOW_MS
    found: dict[str, Any] = {}
    with scratch() as directory, Broker.start(directory / "kafka") as broker:
        for what, first in (("all of it", 0), ("its end only", last - GRACE_MS // WINDOW_MS)):
            source = f"events-{uuid.uuid4().hex[:6]}"
            make_topic(broker.bootstrap, source)
            whole = last - first
            row = found[what] = Job(broker, directory, source, last).measure(first, given.rows, given.keys)
            print(
                f"{what}: {whole:,} windows in {row['ran_s']:.0f} s, {row['entries']:,} entries open, load {row['load']:.1f}"
            )
            for when in ("at_rest", "compacted"):
                one = row[when]
                print(
                    f"  {when:9} log {one['log_bytes'] / 1e6:6.2f} MB (markers {one['markers'] / 1e6:.2f}), {one['records']:>7,} "
                    f"records ({one['tombstones']:,} tombstones), live {one['live_bytes'] / 1e6:.2f} MB in {one['blocks']:,} "
                    f"blocks: {one['log_bytes'] / one['live_bytes']:.1f} times; restored from empty in {one['restoring_s']:.2f} s",
                    flush=True,
                )
    report.keep("windows_state", {"days": given.days, "rows": given.rows, "keys": given.keys, "found": found})
    return 0


if __name__ == "__main__":
    sys.exit(main())
