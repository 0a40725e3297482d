"""How long partitions stand still when workers come and go: headgate beside its peers, in one run.

    python -m bench rebalance [--quick] [--works MK] [--peers headgate,streams] [--rounds 3] [--keys 10000] [--rate 800]

Three workers of a program, each a process with a disk of its own, share the eight partitions of a topic, to which records come at a steady
rate. Work M writes each record with the worker's name (no state); work K counts by key (state), without a repartitioning, so that outputs
stand in the partition of their inputs. A read-committed reader notes for each partition when outputs come, and who wrote them. In each
round a fourth worker joins; a task is moved (headgate only); a worker gets SIGTERM and stays away; another gets SIGTERM and is started
again; one is killed (`kill -9`); and so is the leader, where a program says which worker leads. Between these a worker joins again. With
`--workers 3` of headgate, one supervisor starts the three, and only children are killed, the leader too. The figure is the longest gap
between outputs of a partition, of those that moved and of the others apart (see `gaps`).

All programs have a session timeout of 6 s, heartbeats each second and commits each 200 ms. Prints a table; writes
`bench/out/rebalance.json`, or `rebalance-K.json` with one work only.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import psutil
from confluent_kafka import OFFSET_END, Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from headgate.agents.broker.broker import Broker
from headgate.agents.records.kafka.partitioner import partition_of

from . import report
from .filling import Record, write
from .gaps import Output, gaps, owners, settled
from .peers.kafka_streams import VERSION, that_tells
from .programs import Job, program, without
from .rig import Program, admin, command, drop_topics, loads, make_topic, scratch, topics

PARTITIONS = 8
WORKERS = 3
SESSION_S = 6
FRESH_S = 0.6
"""Three commit intervals: a partition that has given no output for so long stands still."""
CALM_S = 2.0
JOIN_S = 10.0
"""If a worker that joined has got nothing after so long, nothing moved."""
PATIENCE_S = 45.0
MOST_FALLEN = 10
LOADED_S = 0.8
"""A spare that has taken so much of a core has nearly loaded."""
WORKS = {"M": "without state", "K": "with state"}
EVENTS = {
    "join": "a worker joins", "move": "a task is moved", "away": "SIGTERM, stays away", "back": "SIGTERM, comes back",
    "kill": "kill -9", "leader": "kill -9 of the leader", "child": "kill -9 of a child",
}  # fmt: skip
ROUND = ("join", "move", "away", "back", "join", "kill")
THEN = ("join", "leader")
"""Of a program that says who leads."""
SUPERVISED = ("child", "child")
"""Of children of one supervisor, the only event."""
LEADS = re.compile(r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d[.,]\d{3}).*(Finished assignment for group|Elected group leader)")
"""What the leader of a group says when it has spread partitions: Kafka Streams, Faust."""
QUICK_JAVA = ("-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
"""A Java that starts soon and leaves the cores to the others: the rate is low, and what is measured is who waits for whom."""
CLASSIC = (f"session.timeout.ms={SESSION_S * 1000}", "heartbeat.interval.ms=1000")
STREAMS = ("group.protocol=streams",)
STANDBY = ("num.standby.replicas=1", f"producer.transaction.timeout.ms={SESSION_S * 1000}")


@dataclass(frozen=True)
class Variant:
    """A program with settings of its own."""

    peer: str
    label: str
    settings: tuple[str, ...] = ()
    static: bool = False
    """Whether each worker has a `group.instance.id`."""
    leaves: bool = False
    """Whether a worker that ends leaves the group."""
    works: str = "MK"
    supervised: bool = False
    """Whether the workers are children of one supervisor."""


VARIANTS = {
    "headgate": Variant("headgate", "headgate, as shipped"),
    "headgate-supervised": Variant("headgate", "headgate, --workers 3", supervised=True),
    "headgate-standby": Variant("headgate", "headgate, standby=1", ("standby=1",), works="K"),
    "headgate-waits": Variant("headgate", "headgate, stop.prepare=0s", ("stop.prepare=0s",), works="K"),
    "streams": Variant("streams", "Kafka Streams, classic, dynamic members", CLASSIC),
    "streams-static": Variant("streams", "Kafka Streams, classic, static members", CLASSIC, static=True),
    "streams-short": Variant(
        "streams", "Kafka Streams, classic, dynamic, leaves the group, a standby, transactions of 6 s", (*CLASSIC, *STANDBY), leaves=True
    ),
    "streams-new": Variant("streams", "Kafka Streams, streams protocol, dynamic members", STREAMS),
    "streams-new-static": Variant("streams", "Kafka Streams, streams protocol, static members", STREAMS, static=True),
    "faust": Variant("faust", "Faust, at least once"),
    "quix": Variant("quix", "Quix Streams, at least once"),
}  # fmt: skip


class Feed:
    """Writes records at a rate, and notes when outputs come, in two threads. The keys of each partition are those that Kafka's own
    partitioner sends there, so that outputs with the same key stand in the partition of the same number."""

    def __init__(self, bootstrap: str, source: str, target: str, keys: int, rate: int) -> None:
        self._bootstrap, self._source, self._target, self._rate = bootstrap, source, target, rate
        self._users: list[list[str]] = [[] for _ in range(PARTITIONS)]
        for number in range(keys):
            user = f"user{number}"
            self._users[partition_of(user.encode(), PARTITIONS)].append(user)
        self.came: dict[int, list[Output]] = {p: [] for p in range(PARTITIONS)}
        self.strayed = 0
        """Outputs that stood in another partition than their inputs."""
        self.behind_s = 0.0
        self._over = threading.Event()
        self._threads = [threading.Thread(target=one, daemon=True) for one in (self._write, self._read)]

    def start(self) -> None:
        """Write a record of each key; begin."""
        every = [self._record(p, n) for p in range(PARTITIONS) for n in range(len(self._users[p]))]
        write(self._bootstrap, self._source, every)
        for thread in self._threads:
            thread.start()

    def _record(self, p: int, n: int) -> Record:
        user = self._users[p][n * 7919 % len(self._users[p])]
        return Record(b'{"user":"%s","amount":%d,"p":%d,"i":%d}' % (user.encode(), n % 100, p, n), p, user.encode())

    def _write(self) -> None:
        producer = Producer({"bootstrap.servers": self._bootstrap, "linger.ms": 0, "acks": "1", "log_level": 0})
        began, made = time.monotonic(), 0
        while not self._over.wait(0.005):
            due = (time.monotonic() - began) * self._rate
            self.behind_s = max(self.behind_s, (due - made) / self._rate)
            while made < due:
                value, p, key = self._record(made % PARTITIONS, made // PARTITIONS)
                producer.produce(self._source, value, key, partition=p)
                made += 1
            producer.poll(0)
        producer.flush(20)

    def _read(self) -> None:
        reader = Consumer({
            "bootstrap.servers": self._bootstrap, "group.id": f"bench-{self._target}", "isolation.level": "read_committed",
            "enable.auto.commit": False, "fetch.wait.max.ms": 10, "fetch.queue.backoff.ms": 1, "log_level": 0,
        })  # fmt: skip
        reader.assign([TopicPartition(self._target, p, OFFSET_END) for p in range(PARTITIONS)])
        while not self._over.is_set():
            found = [one for one in reader.consume(2000, timeout=0.01) if one.error() is None]
            now, fresh = time.time(), set[tuple[int, str]]()
            for one in found:
                value = loads(one.value() or b"")
                self.strayed += value["p"] != one.partition()
                fresh.add((value["p"], value["w"]))
            for p, worker in fresh:
                self.came[p].append(Output(now, worker))
        reader.close()

    def settled(self, since: float) -> bool:
        """Whether all partitions give outputs, and no longer change workers."""
        return settled(self.came, since, time.time(), fresh_s=FRESH_S, calm_s=CALM_S)

    def stop(self) -> None:
        """End both threads."""
        self._over.set()
        for thread in self._threads:
            if thread.is_alive():
                thread.join(30)


@dataclass
class Fleet:
    """The workers of one program."""

    variant: Variant
    work: str
    bootstrap: str
    directory: Path
    feed: Feed
    name: str
    live: dict[str, Program] = field(default_factory=dict)
    made: int = 0
    rows: list[dict[str, Any]] = field(default_factory=list)
    fell: list[str] = field(default_factory=list)
    """Who has ended by itself, and why."""

    def started(self, number: int = 0) -> str:
        """Start a worker; with `number`, that one once more. Returns its name."""
        if not number:
            self.made += 1
        number = number or self.made
        worker, one = f"worker-{number}", self.variant
        ours = [f"session.timeout={SESSION_S}s", *one.settings] if one.peer == "headgate" else []
        job = Job(self.work, self.name, f"{self.name}-in", f"{self.name}-out", worker=number)
        made = program(one.peer, job, self.bootstrap, self.directory, ours)
        made.log = self.directory / f"{self.name}-{number}-{uuid.uuid4().hex[:4]}.log"
        words = list(made.command)
        if one.peer == "streams":
            words = [*(word for word in words if not word.startswith("-Xmx")), *one.settings]
            words[1:1] = QUICK_JAVA
            words += [f"group.instance.id={worker}"] if one.static else []
            words = that_tells(words)
        made.command = ["info" if word == "warn" else word for word in words] if one.peer == "faust" else words
        words += ["--workers", str(WORKERS)] if one.supervised else []
        made.env = {**made.env, "BENCH_WORKER": "" if one.supervised else worker, "BENCH_PARTITIONS": str(PARTITIONS),
                    "BENCH_SESSION_S": str(SESSION_S), "BENCH_LEAVES": str(int(one.leaves))}  # fmt: skip
        self.live[worker] = made.start()
        return worker

    def begin(self) -> None:
        """Start the first workers, and wait until each has something to do."""
        for _ in range(1 if self.variant.supervised else WORKERS):
            self.started()
        began = time.time()
        self.until(lambda: len(set(owners(self.feed.came).values())) == WORKERS and self.feed.settled(began), 90)

    def until(self, true: Callable[[], bool], seconds: float) -> bool:
        """Wait until this is true. A worker that has ended by itself is started again, as a supervisor would."""
        deadline = time.monotonic() + seconds
        while not true():
            for worker in [worker for worker, one in self.live.items() if one.popen.poll() is not None]:
                fallen = self.live.pop(worker)
                self.fell.append(f"{worker} ended by itself ({fallen.popen.returncode}): {fallen.told()}")
                if len(self.fell) > MOST_FALLEN:
                    raise AssertionError("\n".join(self.fell))
                self.started(int(worker.removeprefix("worker-")))
            if time.monotonic() > deadline:
                return False
            time.sleep(0.05)
        return True

    def leader(self) -> str:
        """The worker that leads, if the program says it."""
        if self.variant.peer == "headgate":
            found = json.loads(command(self.bootstrap, "status", self.name, "-o", "json"))
            return (found["leader"] or {}).get("processor", "")
        said = [
            (match[1], worker)
            for worker, one in self.live.items()
            for match in LEADS.finditer(one.log.read_text(errors="replace"))
        ]
        return max(said)[1] if said else ""

    def busiest(self, spared: str = "") -> str:
        """The worker with the most partitions."""
        now = list(owners(self.feed.came).values())
        return max((worker for worker in set(now) if worker != spared), key=now.count)

    def end(self, worker: str, number: signal.Signals) -> Program:
        """Signal a worker, which is no longer one of those that must live."""
        one = self.live.pop(worker)
        os.killpg(one.popen.pid, number) if number == signal.SIGKILL else one.popen.terminate()
        return one

    def meets(self, event: str) -> None:
        """Let an event happen, wait until all is settled, and note the gaps."""
        leader = self.leader() if event in ("kill", "leader") else ""
        if (event == "move" and self.variant.peer != "headgate") or (event == "leader" and not leader):
            return
        began, gone, told, fell = time.time(), "", True, len(self.fell)
        match event:
            case "join":
                new = self.started()
                told = self.until(lambda: new in owners(self.feed.came).values(), JOIN_S)
            case "move":
                now = owners(self.feed.came)
                target = min(set(now.values()) & set(self.live), key=list(now.values()).count)
                moves = next(p for p, worker in now.items() if worker != target)
                command(self.bootstrap, "move", self.name, f"Partition {moves}", "--to", target, "--wait")
                told = self.until(lambda: owners(self.feed.came)[moves] == target, PATIENCE_S)
            case "away" | "back":
                gone = self.busiest()
                old = self.end(gone, signal.SIGTERM)
                told = self.until(lambda: old.popen.poll() is not None, PATIENCE_S)
                old.stop()
                if event == "back":
                    again, left = self.started(int(gone.removeprefix("worker-"))), time.time()
                    told = self.until(
                        lambda: any(of[-1].worker == again and of[-1].at > left for of in self.feed.came.values()),
                        JOIN_S,
                    )
            case "child":
                (supervisor,) = self.live.values()
                told = self.until(
                    lambda: has_spare(supervisor.popen.pid, set(owners(self.feed.came).values())), PATIENCE_S
                )
                began, gone = time.time(), self.busiest()
                os.kill(int(gone), signal.SIGKILL)
            case _:
                gone = leader if event == "leader" else self.busiest(leader)
                self.end(gone, signal.SIGKILL).stop()
        acted = time.time()
        calm = self.until(lambda: self.feed.settled(acted), PATIENCE_S)
        found = gaps(self.feed.came, began, time.time(), gone)
        row = {"event": event, "moved_s": found.moved, "stayed_s": found.stayed, "moved": found.moved_partitions,
               "settled": calm, "as_expected": told, "fell": len(self.fell) - fell,
               "at": began, "ended": time.time(), "load": os.getloadavg()[0]}  # fmt: skip
        self.rows.append(row)
        print(
            f"  {EVENTS[event]:22} moved {shown(found.moved)} ({found.moved_partitions} partitions)   others {shown(found.stayed)}   "
            f"{'' if calm else 'NOT SETTLED   '}{'' if told else 'nothing came of it   '}"
            f"{len(self.fell) - fell or 'none'} ended by themselves   load {row['load']:.1f}",
            flush=True,
        )


def has_spare(supervisor: int, workers: set[str]) -> bool:
    """Whether it keeps a spare that has loaded: it waits for a line, and takes no more time. One that became a worker is none any more."""
    children = psutil.Process(supervisor).children()
    spares = [one for one in children if "--spare" in one.cmdline() and str(one.pid) not in workers]
    return any(sum(one.cpu_times()[:2]) > LOADED_S and one.status() == psutil.STATUS_SLEEPING for one in spares)


def shown(seconds: float | None) -> str:
    """A gap for people."""
    return "    –" if seconds is None else f"{seconds:5.2f}"


def shorten(bootstrap: str, group: str) -> None:
    """Give a group of the streams protocol, whose times the broker keeps, the same session and heartbeats as the others."""
    wanted = {"streams.session.timeout.ms": SESSION_S * 1000, "streams.heartbeat.interval.ms": 1000}
    entries = [ConfigEntry(k, str(v), incremental_operation=AlterConfigOpType.SET) for k, v in wanted.items()]
    resource = ConfigResource(ResourceType.GROUP, group, incremental_configs=entries)
    client = admin(bootstrap)
    for future in client.incremental_alter_configs([resource]).values():
        future.result(30)


def measure(variant: Variant, work: str, bootstrap: str, directory: Path, given: argparse.Namespace) -> dict[str, Any]:
    """All events of one program with one work."""
    name = f"rebalance-{uuid.uuid4().hex[:6]}"
    for topic in (f"{name}-in", f"{name}-out"):
        make_topic(bootstrap, topic, partitions=PARTITIONS)
    feed = Feed(bootstrap, f"{name}-in", f"{name}-out", given.keys, given.rate)
    fleet = Fleet(variant, work, bootstrap, directory, feed, name)
    failed = ""
    print(f"{work}, {WORKS[work]}: {variant.label}", flush=True)
    try:
        if variant.settings == STREAMS:
            shorten(bootstrap, name)
        feed.start()
        fleet.begin()
        for _ in range(given.rounds):
            for event in SUPERVISED if variant.supervised else (*ROUND, *(THEN if fleet.leader() else ())):
                fleet.meets(event)
    except (AssertionError, KafkaException, subprocess.TimeoutExpired) as error:
        failed = str(error)
        print(f"! {variant.label}: {failed}", flush=True)
    finally:
        for one in fleet.live.values():
            one.stop()
        feed.stop()
    if feed.strayed:
        print(f"! {feed.strayed} outputs stood in another partition than their inputs", flush=True)
    drop_topics(bootstrap, *(topic for topic in topics(bootstrap) if name in topic))
    return {
        "work": work,
        "label": variant.label,
        "rows": fleet.rows,
        "failed": failed,
        "strayed": feed.strayed,
        "behind_s": feed.behind_s,
    }


def cell(rows: Sequence[dict[str, Any]], event: str) -> str:
    """The medians of an event: moved and others."""
    of = [row for row in rows if row["event"] == event]
    if not of:
        return "–"
    two = [[row[what] for row in of if row[what] is not None] for what in ("moved_s", "stayed_s")]
    return " / ".join(f"{median(some):.2f}" if some else "–" for some in two)


def table(measured: Sequence[dict[str, Any]], left_out: dict[str, str]) -> None:
    """Print the medians."""
    for work, what in WORKS.items():
        of = [one for one in measured if one["work"] == work]
        if not of:
            continue
        print(f"\n{what}: longest gap in s, median, of partitions that moved / of the others")
        print(f"| {'':84} | " + " | ".join(f"{title:>21}" for title in EVENTS.values()) + " |")
        for one in of:
            print(f"| {one['label']:84} | " + " | ".join(f"{cell(one['rows'], event):>21}" for event in EVENTS) + " |")
    for name, why in left_out.items():
        print(f"left out: {name}: {why}")


def main() -> int:
    """Measure, print and keep the figures."""
    words = argparse.ArgumentParser(prog="python -m bench rebalance", description=(__doc__ or "").partition("\n")[0])
    words.add_argument("--quick", action="store_true", help="one round of headgate and Kafka Streams, with state")
    words.add_argument("--works", default="")
    words.add_argument("--peers", default="", help=f"of {','.join(VARIANTS)}")
    words.add_argument("--rounds", type=int, default=0)
    words.add_argument("--keys", type=int, default=10_000)
    words.add_argument("--rate", type=int, default=400, help="records a second, over all partitions")
    given = words.parse_args()
    given.rounds = given.rounds or (1 if given.quick else 3)
    peers = (given.peers or ("headgate,streams" if given.quick else ",".join(VARIANTS))).split(",")
    works = given.works or ("K" if given.quick else "KM")
    measured: list[dict[str, Any]] = []
    left_out: dict[str, str] = {}
    with scratch() as directory, Broker.start(directory / "kafka") as broker:
        for work in works:
            for name in peers:
                variant = VARIANTS[name]
                if work not in variant.works:
                    continue
                if why := without(variant.peer, work):
                    left_out[variant.label] = why
                    continue
                measured.append(measure(variant, work, broker.bootstrap, directory, given))
                report.keep("rebalance" if len(works) > 1 else f"rebalance-{works}", {
                    "partitions": PARTITIONS, "workers": WORKERS, "session_s": SESSION_S, "keys": given.keys, "rate": given.rate,
                    "rounds": given.rounds, "kafka_streams": VERSION, "measured": measured, "left_out": left_out,
                })  # fmt: skip
    table(measured, left_out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
