"""Work P: windows in event time, counted and summed by key, on Spark: as stages of headgate, as Structured Streaming, as a bare loop.

    python -m bench spark [--quick] [--rows 1000,50000,100000] [--peers inline,ranges,streaming,now,window] [--only rates|delays|first]
        [--mixed] [--cores 2] [--files]

`batch_windows.py` describes the input, and which results are compared: each result of each program, with a recount.

- Rates and memory: everything is in the topic before the program starts; the broker's append times of the committed results tell when each
  window was complete. `batch` is the time of one batch at that rate. The bare loop has its table in memory, and neither reads nor writes
  nor commits: **batch** must be at most 1.3 of its time, and two commits. A commit is measured, too: that of a transaction of one record.
- The delay: at 5,000 records a second, event time five times as fast as the clock. Counted is the time from the moment at which event time
  passes the end of a window and the watermark's lag until a reader, read committed, has a result of it.
- The first result: from the start of the program until the first result is in the topic, with an input of 1,000 rows a batch; for the bare
  loop until the first result is in its memory.

With `--mixed` each key is in all partitions. Structured Streaming shuffles in any case; headgate shuffles through Kafka then. `--cores` is
the parallelism of Spark, for both. With `--files` results are Parquet files instead of records, published exactly once by both.

Prints a line for each figure; writes `bench/out/spark.json`.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from headgate.agents.broker.broker import Broker
from headgate.agents.worker.spark_jvm import prepare

from . import report, spark_streaming, tumbling
from .batch_windows import BASE_MS, LAG_MS, PARTITIONS, WINDOW_MS, Windows, amount, completed, rate, user
from .inputs import fill
from .paced import Reader, percentile
from .rig import HERE, PAD, Program, drop_topics, loads, make_topic, partitions_of, read_all, scratch, topics
from .spark_files import Published

PATIENCE_S = 900.0
HEAP = "3g"
"""Of each JVM of Spark."""
SPEED = 5
PER_SECOND = 5_000
WARM_S = 40.0
"""Of the delays: every program warms up for so long."""
LABELS = {
    "inline": "headgate, columns to Spark, exactly once",
    "batch": "headgate, columns to Spark by number of rows, exactly once",
    "ranges": "headgate, Spark reads ranges of Kafka, exactly once",
    "window": "headgate, its own window, exactly once",
    "streaming": "Structured Streaming, as fast as possible, at least once",
    "now": "Structured Streaming, available now, at least once",
    "bare": "bare loop over an Arrow table",
}
MOST = "400000"
"""How many records a trigger of Structured Streaming takes."""

#            warm, measured windows         and in a quick run
SIZES = {1_000: ((300, 200), (60, 60)), 50_000: ((20, 20), (6, 6)), 100_000: ((12, 20), (4, 5))}


@dataclass
class Bench:
    """The broker, and what was measured on it."""

    bootstrap: str
    directory: Path
    quick: bool
    settings: Sequence[str]
    mixed: bool = False
    cores: int = 2
    files: bool = False

    def program(self, peer: str, source: str, target: str, rows: int, **more: str) -> Program:
        """A program, not started."""
        name = f"p-{peer}-{uuid.uuid4().hex[:6]}"
        state = self.directory / name
        state.mkdir()
        peers = HERE / "peers"
        env = {"BENCH_FORM": peer, "BENCH_SOURCE": source, "BENCH_TARGET": target, "BENCH_BOOTSTRAP": self.bootstrap,
               "BENCH_JOB": name, "BENCH_STATE": str(state), "BENCH_LAG_MS": str(LAG_MS), "BENCH_ROWS": str(rows),
               "BENCH_HEAP": HEAP, "BENCH_MIXED": "1" * self.mixed, "BENCH_CORES": str(self.cores), "PYTHONUNBUFFERED": "1",
               "BENCH_FILES": str(self.files_of(target)) if self.files else "", **more}  # fmt: skip
        match peer:
            case "streaming" | "now":
                words = [spark_streaming.python(), str(peers / "streaming_work.py")]
                env |= {"BENCH_JARS": spark_streaming.jars(), "BENCH_MOST": MOST, **more}
            case "bare":
                words = [sys.executable, str(peers / "bare_spark.py")]
            case _:
                words = [sys.executable, "-m", "headgate.agents.cli", "run", "spark_work:app", "--app-dir", str(peers)]
                words += ["-b", self.bootstrap, "--state-dir", str(state), "--log-format", "json"]
                for pair in (f"spark.master=local[{self.cores}]", *self.settings):
                    words += ["--set", pair]
        return Program(words, env, self.directory / f"{name}.log")

    def source(self, given: Windows) -> str:
        """The topic of an input."""
        name = f"p-in-{given.rows}-{given.records}-{uuid.uuid4().hex[:6]}"
        began = time.monotonic()
        fill(self.bootstrap, name, given.records, given.row, partitions=PARTITIONS)
        print(f"# input written in {time.monotonic() - began:.0f} s: {given}", flush=True)
        return name

    def target(self) -> str:
        """A new topic for results."""
        name = f"p-out-{uuid.uuid4().hex[:6]}"
        make_topic(self.bootstrap, name, {"message.timestamp.type": "LogAppendTime"})
        return name

    def files_of(self, target: str) -> Path:
        """Where files are written instead of to this topic."""
        return self.directory / "files" / target

    def forget(self) -> None:
        """Delete what programs have made; inputs are dropped by their users."""
        drop_topics(self.bootstrap, *(one for one in topics(self.bootstrap) if not one.startswith(("__", "p-in-"))))


def wait_for(program: Program, enough: Callable[[], bool], what: str, patience_s: float = PATIENCE_S) -> None:
    """Wait until something holds while a program runs."""
    deadline = time.monotonic() + patience_s
    while not enough():
        if program.popen.poll() is not None:
            raise AssertionError(f"{what}: it ended with {program.popen.returncode}:\n{program.told()}")
        if time.monotonic() > deadline:
            raise AssertionError(f"{what}: not within {patience_s:.0f} s:\n{program.told()}")
        time.sleep(0.2)


def ends_of(bench: Bench, topic: str) -> int:
    """How many offsets a topic has; 0 while a partition has no leader yet."""
    reader = Consumer({"bootstrap.servers": bench.bootstrap, "group.id": "p-ends", "log_level": 0})
    try:
        count = partitions_of(reader, topic)
        return sum(reader.get_watermark_offsets(TopicPartition(topic, p), timeout=20)[1] for p in range(count))
    except KafkaException:
        return 0
    finally:
        reader.close()


# -------------------------------------------------------------------------------------------------------------- rates


def throughput(bench: Bench, peer: str, given: Windows, source: str, warm: str) -> dict[str, Any]:
    """Measure the rate of one program."""
    target = bench.target()
    wanted = given.wanted()
    make_topic(bench.bootstrap, f"{target}-warm")
    program = bench.program(peer, source, target, given.rows, BENCH_WARM=warm).start()
    files = Published(bench.files_of(target)) if bench.files else None
    try:
        if peer == "now":
            wait_for(program, lambda: len(program.marks) > 1, LABELS[peer])
        else:
            there = files.look if files is not None else partial(ends_of, bench, target)
            wait_for(program, lambda: there() >= len(wanted), LABELS[peer])
            time.sleep(3)  # wrong results may follow
            there()
    finally:
        program.stop()
    if files is not None:
        results = files.results()
    else:
        results = [tumbling.result(one) for one in read_all(bench.bootstrap, target)]
    if peer == "now":  # it closes one more window than the others
        (begin, _, _), (end, records, _) = program.marks
        per_s = records / (end - begin)
        results = [one for one in results if (one.end, one.key) in wanted]
    else:
        per_s, begin, end = rate(given, completed(results))
    cause = tumbling.wrong(results, wanted)
    found = {
        "peer": LABELS[peer], "rows": given.rows, "records_per_s": per_s,
        "records_per_cpu_s": per_s * (end - begin) / max(1e-3, program.cpu_between(begin, end)),
        "batch_ms": 1000 * given.rows / per_s, "rss_mb": program.rss / 1e6, "outputs_are": cause or "equal",
        "results": len(results), "load": os.getloadavg()[0],
    }  # fmt: skip
    print(
        f"rate   {found['peer']:60} {given.rows:>7,} rows  {per_s / 1e3:7.1f} k/s  {found['records_per_cpu_s'] / 1e3:7.1f} k/CPU-s  "
        f"batch {found['batch_ms']:6.0f} ms  {found['rss_mb']:5.0f} MB  {len(results):,} results {found['outputs_are']}  "
        f"load {found['load']:.1f}",
        flush=True,
    )
    bench.forget()
    return found


def bare(bench: Bench, rows: int, seconds: float) -> dict[str, Any]:
    """Measure the bare loop."""
    program = bench.program("bare", "", "", rows, BENCH_SECONDS=str(seconds)).start()
    began = time.time()
    if program.popen.wait(PATIENCE_S):
        raise AssertionError(f"{LABELS['bare']}: it ended with {program.popen.returncode}:\n{program.told()}")
    program.stop()
    last = program.marks[len(program.marks) // 2 :]
    times = sorted(one[2] / 1000 for one in last)
    found = {
        "peer": LABELS["bare"], "rows": rows, "batch_ms": median(times), "p99_ms": percentile(times, 99),
        "records_per_s": rows * 1000 / median(times), "first_s": program.marks[0][0] - began, "batches": len(program.marks),
        "rss_mb": program.rss / 1e6, "load": os.getloadavg()[0],
    }  # fmt: skip
    print(
        f"rate   {found['peer']:60} {rows:>7,} rows  {found['records_per_s'] / 1e3:7.1f} k/s  batch {found['batch_ms']:6.0f} ms  "
        f"{found['rss_mb']:5.0f} MB  first {found['first_s']:.1f} s  {len(program.marks)} batches  load {found['load']:.1f}",
        flush=True,
    )
    return found


def commit_ms(bench: Bench) -> float:
    """How long a transaction of one record takes."""
    target = bench.target()
    producer = Producer(
        {"bootstrap.servers": bench.bootstrap, "transactional.id": "p-commit", "linger.ms": 0, "log_level": 0}
    )
    producer.init_transactions(30)
    times: list[float] = []
    for _ in range(40):
        began = time.monotonic()
        producer.begin_transaction()
        producer.produce(target, b"x")
        producer.commit_transaction(30)
        times.append((time.monotonic() - began) * 1000)
        time.sleep(0.05)
    found = median(times)
    print(f"commit of a transaction of one record: {found:.0f} ms", flush=True)
    return found


# -------------------------------------------------------------------------------------------------------------- delays


class Produced:
    """A steady stream of events, and its recount."""

    def __init__(self, bootstrap: str, topic: str, *, mixed: bool) -> None:
        self.topic = topic
        self.mixed = mixed
        self.producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0, "acks": "1", "log_level": 0})
        self.recount: dict[tumbling.Window, list[int]] = {}
        self.began = time.time()
        self.made = 0

    def now_ms(self) -> int:
        """Event time."""
        return BASE_MS + int((time.time() - self.began) * 1000 * SPEED)

    def closes_at(self, end: int) -> float:
        """When event time passes the end of a window and the lag."""
        return self.began + (end + LAG_MS - BASE_MS) / 1000 / SPEED

    def up_to(self, last_ms: int) -> None:
        """Write until event time is there."""
        while self.now_ms() <= last_ms:
            while self.made < (time.time() - self.began) * PER_SECOND:
                self._write(*divmod(self.made, PARTITIONS), self.now_ms())
            self.producer.poll(0.002)
        if left := self.producer.flush(20):
            raise AssertionError(f"{left} records of the input were not written")

    def _write(self, i: int, p: int, ts: int) -> None:
        name, much = f"user{user(p, i, mixed=self.mixed)}", amount(p, i)
        value = f'{{"user":"{name}","amount":{much},"ts":{ts},"city":"Leuven","pad":"{PAD}"}}'
        self.producer.produce(self.topic, value, partition=p)
        self.made += 1
        pair = self.recount.setdefault((ts - ts % WINDOW_MS + WINDOW_MS, name), [0, 0])
        pair[0] += 1
        pair[1] += much


def delay(bench: Bench, peer: str, seconds: float) -> dict[str, Any]:
    """Measure the delay of one program."""
    source, target = f"p-{uuid.uuid4().hex[:6]}", bench.target()
    make_topic(bench.bootstrap, source, partitions=PARTITIONS)
    reader = Reader(bench.bootstrap, target)
    reader.start()
    program = bench.program(peer, source, target, 0, BENCH_MOST="").start()
    try:
        rows = Produced(bench.bootstrap, source, mixed=bench.mixed)
        warm_s = WARM_S / 2 if bench.quick else WARM_S
        first, last = (BASE_MS + int(s * 1000 * SPEED) // WINDOW_MS * WINDOW_MS for s in (warm_s, warm_s + seconds))
        rows.up_to(last + LAG_MS + 1000 * SPEED)
        wanted = {window: pair for window, pair in rows.recount.items() if first < window[0] <= last}
        patience = time.monotonic() + 60
        results: list[tumbling.Result] = []
        while len(results) < len(wanted) and time.monotonic() < patience:
            time.sleep(0.2)
            heard = (tumbling.parsed(1000 * at, key or b"", loads(value)) for at, key, value in list(reader.heard))
            results = [one for one in heard if first < one.end <= last]
        if not results:
            raise AssertionError(f"{LABELS[peer]} gives no results:\n{program.told()}")
    finally:
        program.stop()
        reader.ended.set()
        reader.join(10)
    begin, end = rows.closes_at(first), rows.closes_at(last)
    delays = sorted(one.at - 1000 * rows.closes_at(one.end) for one in results)
    found = {
        "peer": LABELS[peer], "p50_ms": percentile(delays, 50), "p90_ms": percentile(delays, 90), "p99_ms": percentile(delays, 99),
        "max_ms": delays[-1], "windows": len({one.end for one in results}), "results": len(results),
        "outputs_are": tumbling.wrong(results, wanted) or "equal", "cpu_per_s": program.cpu_between(begin, end) / (end - begin),
        "rss_mb": program.rss / 1e6, "load": os.getloadavg()[0],
    }  # fmt: skip
    print(
        f"delay  {found['peer']:60} p50 {found['p50_ms']:6.0f}  p90 {found['p90_ms']:6.0f}  p99 {found['p99_ms']:6.0f}  "
        f"max {found['max_ms']:6.0f} ms  cpu {found['cpu_per_s']:.2f}  {found['rss_mb']:.0f} MB  {len(results):,} results of "
        f"{found['windows']} windows {found['outputs_are']}  load {found['load']:.1f}",
        flush=True,
    )
    bench.forget()
    return found


# -------------------------------------------------------------------------------------------------------- first results


STATIONS = {
    "Spark is starting": "Spark begins",
    "Spark is ready": "Spark is ready",
    "worker started": "worker started",
    "a batch is done": "first batch is done",
    "batches are done": "first batch is done",
}
"""What headgate logs on its way to the first result."""


def timeline(program: Program, began: float) -> str:
    """When headgate was where, in seconds since its start, and the CPU time that it had taken by then."""
    told: dict[str, str] = {}
    for line in program.log.read_bytes().splitlines():
        event = loads(line) if line.startswith(b"{") else {}
        if (station := STATIONS.get(event.get("event", ""))) and station not in told:
            at = datetime.fromisoformat(event["timestamp"]).timestamp() - began
            more = [f"{name} {event[name]}" for name in ("jvm_s", "spark_s") if name in event]
            more.append(f"cpu {program.cpu_between(began, began + at):.1f}")
            told[station] = f"{station} {at:.1f} ({', '.join(more)})"
    return ", ".join(told.values())


def first_result(bench: Bench, peer: str, source: str, rounds: int) -> dict[str, Any]:
    """How long a program needs from its start to its first result."""
    times: list[float] = []
    cpu: list[float] = []
    for _ in range(rounds):
        if peer == "bare":
            program = bench.program(peer, "", "", 1_000, BENCH_SECONDS="0").start()
            began = time.time()
            wait_for(program, lambda program=program: len(program.marks) > 0, LABELS[peer])
            times.append(program.marks[0][0] - began)
            cpu.append(program.cpu_between(began, began + times[-1]))
            program.stop()
            continue
        target = bench.target()
        program = bench.program(peer, source, target, 1_000).start()
        began = time.time()
        wait_for(program, lambda target=target: ends_of(bench, target) > 0, LABELS[peer])
        program.stop()
        results = [tumbling.result(one) for one in read_all(bench.bootstrap, target)]
        times.append(min(one.at for one in results) / 1000 - began)
        cpu.append(program.cpu_between(began, began + times[-1]))
        print(f"       {timeline(program, began)}", flush=True)
        bench.forget()
    found = {
        "peer": LABELS[peer], "first_s": median(times), "cpu_s": median(cpu), "rounds": times, "load": os.getloadavg()[0],
    }  # fmt: skip
    print(
        f"first  {found['peer']:60} {found['first_s']:6.1f} s  ({', '.join(f'{one:.1f}' for one in times)})  cpu {found['cpu_s']:.1f} s  "
        f"load {found['load']:.1f}",
        flush=True,
    )
    return found


# ---------------------------------------------------------------------------------------------------------------- all


def judged(figures: Mapping[str, Any]) -> None:
    """Print what must hold."""
    rates = {(one["peer"], one["rows"]): one for one in figures["rates"]}
    late = {one["peer"]: one for one in figures["delays"]}
    first = {one["peer"]: one["first_s"] for one in figures["first"]}
    for peer in ("inline", "ranges"):
        ours = LABELS[peer]
        for name, rows in rates:
            if name != ours:
                continue
            mine = rates[name, rows]
            if loop := rates.get((LABELS["bare"], rows)):
                allowed = 1.3 * loop["batch_ms"] + 2 * figures["commit_ms"]
                print(f"must: {ours}, {rows:,} rows: batch {mine['batch_ms']:.0f} ms of {allowed:.0f} ms allowed")
            for other in ("streaming", "now"):
                if theirs := rates.get((LABELS[other], rows)):
                    ratio = mine["records_per_s"] / theirs["records_per_s"]
                    print(f"must: {ours}, {rows:,} rows: {ratio:.2f} times as fast as {LABELS[other]}")
        if (mine := late.get(ours)) and (theirs := late.get(LABELS["streaming"])):
            print(
                f"must: {ours}: p50 {mine['p50_ms'] / theirs['p50_ms']:.2f}, p99 {mine['p99_ms'] / theirs['p99_ms']:.2f} of its delay"
            )
        if ours in first and LABELS["bare"] in first:
            print(f"must: {ours}: first result after {first[ours] / first[LABELS['bare']]:.2f} of the bare loop's time")


def main() -> int:
    """Measure, print and keep the figures."""
    words = argparse.ArgumentParser(prog="python -m bench spark", description=(__doc__ or "").partition("\n")[0])
    words.add_argument("--quick", action="store_true", help="small inputs, and delays of 10 seconds; no JVM is warm")
    words.add_argument("--peers", default="inline,ranges,window,streaming,now,bare")
    words.add_argument("--rows", default="1000,50000,100000")
    words.add_argument("--only", default="rates,delays,first")
    words.add_argument("--mixed", action="store_true", help="each key is in all partitions")
    words.add_argument("--files", action="store_true", help="results are files; rates only, without `now` and `window`")
    words.add_argument("--cores", type=int, default=2, help="of Spark")
    words.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="a setting of headgate")
    given = words.parse_args()
    peers, only = given.peers.split(","), given.only.split(",")
    if given.files:
        peers, only = [peer for peer in peers if peer not in ("bare", "now", "window")], ["rates"]
        LABELS["streaming"] = LABELS["streaming"].replace("at least once", "exactly once")
    left_out: dict[str, str] = {}
    if {"streaming", "now"} & set(peers) and (why := spark_streaming.absent()):
        left_out["streaming"] = why
        peers = [peer for peer in peers if peer not in ("streaming", "now")]
    figures: dict[str, Any] = {
        "quick": given.quick,
        "mixed": given.mixed,
        "cores": given.cores,
        "files": given.files,
        "rates": [],
        "delays": [],
        "first": [],
        "left_out": left_out,
    }

    def tried(kind: str, what: str, measure: Callable[[], dict[str, Any]]) -> None:
        try:
            figures[kind].append(measure())
        except (
            AssertionError,
            KafkaException,
            OSError,
            KeyError,
        ) as error:  # a failed program does not prevent the others
            left_out[what] = str(error) or repr(error)
            print(f"left out: {what}: {left_out[what][:1000]}", flush=True)

    prepare()
    with scratch() as directory, Broker.start(directory / "kafka") as broker:
        bench = Bench(broker.bootstrap, directory, given.quick, given.set, given.mixed, given.cores, given.files)
        figures["commit_ms"] = commit_ms(bench)
        for rows in map(int, given.rows.split(",")) if "rates" in only else ():
            size = Windows(rows, *SIZES[rows][given.quick], given.mixed)
            inputs = size, bench.source(size), bench.source(replace(size, warm=size.warm // 2, measured=size.warm // 2))
            for peer in peers:
                if peer == "bare":
                    tried("rates", f"bare, {rows} rows", partial(bare, bench, rows, 30 if given.quick else 60))
                else:
                    tried("rates", f"{peer}, {rows} rows", partial(throughput, bench, peer, *inputs))
            drop_topics(bench.bootstrap, *inputs[1:])
        for peer in peers if "delays" in only else ():
            if peer not in ("bare", "now", "ranges"):
                tried("delays", f"delay of {peer}", partial(delay, bench, peer, 10.0 if given.quick else 40.0))
        if "first" in only:
            source = bench.source(Windows(1_000, 2, 2, given.mixed))
            for peer in peers:
                if peer != "now":
                    tried(
                        "first", f"first of {peer}", partial(first_result, bench, peer, source, 1 if given.quick else 3)
                    )
    judged(figures)
    report.keep("spark", figures)
    proven = [
        one["outputs_are"] for one in (*figures["rates"], *figures["delays"]) if one["peer"].startswith("headgate")
    ]
    return 0 if proven and all(word == "equal" for word in proven) else 1


if __name__ == "__main__":
    sys.exit(main())
