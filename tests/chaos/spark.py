"""Faults around Spark: `python -m tests.chaos.spark [FAULTS] [SECONDS] [SEED]`; 30 faults by default, at most so many seconds. The variable
`CHAOS_FAULTS` names their kinds, `CHAOS_SPARK_CLUSTER=1` adds a standalone cluster.

A job passes numbered orders in batches to Spark and writes how many there were, and their sum. Faults: kill -9 of the worker, of a Python
worker, of the executor (a thread of the JVM on a local master, hence a JVM of the standalone cluster with `cluster`), of the JVM and of the
broker; the JVM is stopped until the worker notices that it hangs.

Prints one line a fault, and at the end how many of each kind really happened, how often batches ran again for them, and how soon. Exit
code 0 only if every order counts once, and all the faults happened, in three kinds or more.
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median

import orjson
import psutil
from confluent_kafka import OFFSET_BEGINNING, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from headgate.agents.broker.broker import Broker

from .reader import consumer, read_all
from .spark_processes import CONF, Standalone

PARTITIONS = 2
BATCH = 500
MOST_S = 400.0
AGAIN = '"a batch is run again"'
FAULTS = ("jvm", "python", "worker", "python", "hang", "broker", "jvm", "executor")
SOURCE = f"""
import os
from typing import TypedDict
import headgate as hg

class Order(TypedDict):
    n: int

def totals(df, batch):
    from pyspark.sql import functions as F
    same = F.udf(lambda n: n, "long")
    found = df.select(same("n").alias("n")).agg(F.count("*").alias("n"), F.sum("n").alias("total"))
    return found.select(F.lit(batch.id).alias("batch"), "n", "total")

app = hg.App("sparkchaos", serde=hg.json())
(app.input("orders").batch(max_rows={BATCH}, max_age="2s", name="lot")
    .spark(totals, rows=Order, schema="batch string, n long, total long").to("totals"))
"""


class Follower(threading.Thread):
    """Adds up how many orders the results speak for, as they come."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__(name="follower", daemon=True)
        self.counted = 0
        self._ended = threading.Event()
        self._reader = consumer(bootstrap)
        self._reader.assign([TopicPartition("totals", 0, OFFSET_BEGINNING)])

    def run(self) -> None:
        """Read until `end`. While the broker does not answer, nothing comes."""
        while not self._ended.is_set():
            for message in self._reader.consume(1000, timeout=0.2):
                if message.error() is None:
                    self.counted += orjson.loads(message.value() or b"{}")["n"]

    def end(self) -> None:
        """Stop reading."""
        self._ended.set()
        self.join(60)
        self._reader.close()


class Torment:
    """A broker, one worker, its Spark, and what is done to them."""

    def __init__(self, broker: Broker, directory: Path, cluster: Standalone | None = None) -> None:
        self.broker, self.directory, self.cluster = broker, directory, cluster
        self.happened: Counter[str] = Counter()
        self.written = 0
        self.logs = 0
        self._began = time.monotonic()
        (directory / "chaos_job.py").write_text(SOURCE)
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        made = admin.create_topics([NewTopic("orders", PARTITIONS, 1), NewTopic("totals", 1, 1)])
        for future in made.values():
            future.result(60)
        self.producer = Producer(
            {
                "bootstrap.servers": broker.bootstrap,
                "enable.idempotence": True,
                "message.timeout.ms": 600_000,
                "log_level": 0,
            }
        )
        self.follower = Follower(broker.bootstrap)
        self.follower.start()
        self.worker = self.start()

    def start(self) -> psutil.Popen:
        """A worker."""
        self.logs += 1
        settings = {"spark.probe-timeout": "4s", "session.timeout": "3s", "heartbeat.interval": "500ms"}
        settings |= {"placement.rejoin-grace": "0s", "spark.executors-timeout": "60s", "commit.interval": "50ms"}
        settings |= {"spark.master": "local[2]"} if self.cluster is None else {"spark.master": self.cluster.url, **CONF}
        command = [
            sys.executable,
            "-m",
            "headgate.agents.cli",
            "run",
            "chaos_job:app",
            "--app-dir",
            str(self.directory),
        ]
        command += ["-b", self.broker.bootstrap, "--state-dir", str(self.directory / "state"), "--processor-id", "w1"]
        command += ["--log-format", "json", "--no-wait"]
        for name, value in settings.items():
            command += ["--set", f"{name}={value}"]
        with (self.directory / f"worker-{self.logs:03d}.log").open("wb") as log:
            return psutil.Popen(command, stdin=-3, stdout=log, stderr=log, cwd=self.directory)

    # ------------------------------------------------------------------------------------------------------------------ orders

    def write(self, count: int) -> None:
        """Orders, numbered."""
        for n in range(self.written, self.written + count):
            self.producer.produce("orders", orjson.dumps({"n": n}), partition=n % PARTITIONS)
            self.producer.poll(0)
        self.written += count

    def caught_up(self, seconds: float = MOST_S) -> None:
        """Every order that was written is counted."""
        assert self.producer.flush(120) == 0
        give_up = time.monotonic() + seconds
        while (counted := self.follower.counted) < self.written:
            assert self.worker.poll() is None, f"the worker ended with {self.worker.poll()}:\n{self.tail()}"
            assert time.monotonic() < give_up, f"{counted} of {self.written} after {seconds:g} s:\n{self.tail()}"
            time.sleep(0.05)
        assert counted == self.written, f"{counted} orders are counted, and {self.written} were written"

    def tail(self) -> str:
        """The end of the worker's log."""
        text = (self.directory / f"worker-{self.logs:03d}.log").read_text(errors="replace")
        return "\n".join(line[:400] for line in text.splitlines()[-25:])

    # ------------------------------------------------------------------------------------------------------------------ faults

    def _below(self, fits: Callable[[str], bool]) -> Iterator[psutil.Process]:
        roots = [self.worker, *(one.popen for one in self.cluster.workers)] if self.cluster else [self.worker]
        for root in roots:
            with contextlib.suppress(psutil.NoSuchProcess):
                for one in psutil.Process(root.pid).children(recursive=True):
                    with contextlib.suppress(psutil.Error):
                        if fits(" ".join(one.cmdline())) and one.status() != psutil.STATUS_ZOMBIE:
                            yield one

    def _jvms(self) -> Iterator[psutil.Process]:
        """The JVM beside the worker, when it is there; not one that only creates an archive of classes."""
        for one in self._below(lambda line: "deploy.SparkSubmit" in line and "pyspark-shell" in line):
            with contextlib.suppress(psutil.Error):
                if one.ppid() == self.worker.pid:
                    yield one

    def _executors(self) -> Iterator[psutil.Process]:
        yield from self._below(lambda line: "CoarseGrainedExecutorBackend" in line)

    def _pythons(self) -> Iterator[psutil.Process]:
        """Python workers of Spark, and the daemons that fork them. A worker may outlive its daemon, and then is below nobody of ours."""
        for one in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                ours = "python" in one.name() and Path(one.cwd()).is_relative_to(self.directory)
                if ours and "daemon" in " ".join(one.cmdline()) and one.status() != psutil.STATUS_ZOMBIE:
                    yield one

    def _strike(
        self, there: Callable[[], Iterator[psutil.Process]], what: signal.Signals, chance: random.Random | None = None
    ) -> psutil.Process:
        """Send a signal to one of these processes, as soon as there is one. Meanwhile batches go on."""
        give_up, more = time.monotonic() + MOST_S, time.monotonic() + 1.0
        while True:
            if found := sorted(there(), key=lambda one: one.pid):
                struck = found[0] if chance is None else chance.choice(found)
                with contextlib.suppress(psutil.NoSuchProcess):  # it has just ended by itself
                    struck.send_signal(what)
                    return struck
            assert self.worker.poll() is None, f"the worker ended:\n{self.tail()}"
            assert time.monotonic() < give_up, f"nothing to kill:\n{self.tail()}"
            if time.monotonic() > more:
                self.write(BATCH)
                more = time.monotonic() + 1.0
            time.sleep(0.05)

    def fault(self, kind: str, chance: random.Random) -> None:
        """Let it happen while batches are at work, and wait until everything is counted again."""
        self.write(BATCH * 4)
        time.sleep(chance.uniform(0.0, 1.5))
        began = time.monotonic()
        if kind == "worker":
            self.worker.kill()
            self.worker.wait()
            self.worker = self.start()
        elif kind == "broker":
            self.broker.kill()
            time.sleep(chance.uniform(0.0, 2.0))
            self.broker.restart(timeout_s=MOST_S)
        elif kind == "jvm":
            self._strike(self._jvms, signal.SIGKILL)
        elif kind == "hang":
            hung = self._strike(self._jvms, signal.SIGSTOP)
            psutil.wait_procs([hung], timeout=MOST_S)
            assert not hung.is_running() or hung.status() == psutil.STATUS_ZOMBIE, "the hung JVM was not replaced"
        elif kind == "executor":
            self._strike(self._executors, signal.SIGKILL)
        else:
            self._strike(self._pythons, signal.SIGKILL, chance)
        happened = time.monotonic()
        self.write(BATCH * 2)
        self.caught_up()
        self.happened[kind] += 1
        now = time.monotonic()
        print(
            f"{now - self._began:7.1f} s  {self.happened.total():3} {kind}: happened in {happened - began:.1f} s, all {self.written} "
            f"orders counted {now - happened:.1f} s later",
            flush=True,
        )

    def again(self) -> int:
        """How often a batch ran again, by the logs of all workers."""
        return sum(path.read_text(errors="replace").count(AGAIN) for path in self.directory.glob("worker-*.log"))

    def waits(self) -> list[float]:
        """How many seconds after each failure Spark had the batch again, by the logs of all workers."""
        lines = (line for path in self.directory.glob("worker-*.log") for line in path.read_bytes().splitlines())
        return sorted(orjson.loads(line)["after_s"] for line in lines if b'"Spark has the batch again"' in line)

    def check(self) -> None:
        """Every order is in exactly one result, as a reader that is not ours finds them."""
        rows = [orjson.loads(message.value() or b"{}") for message in read_all(self.broker.bootstrap, "totals")]
        assert sum(int(str(one["n"])) for one in rows) == self.written
        assert sum(int(str(one["total"])) for one in rows) == sum(range(self.written))
        assert len({one["batch"] for one in rows}) == len(rows), "a batch has two results"

    def close(self) -> None:
        """End the worker."""
        self.follower.end()
        if self.worker.poll() is None:
            self.worker.terminate()
            try:
                self.worker.wait(60)
            except psutil.TimeoutExpired:
                self.worker.kill()
                self.worker.wait(60)


def torment(broker: Broker, directory: Path, faults: list[str], seed: int, seconds: float, *, cluster: bool) -> Torment:
    """All these faults, in this order."""
    chance, until = random.Random(seed), time.monotonic() + seconds
    directory.mkdir(parents=True, exist_ok=True)
    there = Standalone(directory / "cluster").up() if cluster else None
    scene = Torment(broker, directory, there)
    try:
        scene.write(BATCH)
        scene.caught_up()
        for kind in faults:
            if time.monotonic() > until:
                break
            scene.fault(kind, chance)
        scene.check()
        return scene
    finally:
        scene.close()
        if there is not None:
            there.close()


def main(faults: int = 30, seconds: float = 1800.0, seed: int = 1) -> int:
    """Torment, count, report."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    cluster = bool(os.environ.get("CHAOS_SPARK_CLUSTER"))
    given = tuple(os.environ.get("CHAOS_FAULTS", "").split()) or FAULTS
    kinds = [kind for kind in given if cluster or kind != "executor"]
    order = [kinds[n % len(kinds)] for n in range(faults)]
    random.Random(seed).shuffle(order)
    directory = Path(tempfile.mkdtemp(prefix="headgate-chaos-spark-"))
    print(f"seed {seed}, in {directory}")
    with Broker.start(directory / "kafka") as broker:
        scene = torment(broker, directory / "scene", order, seed, seconds, cluster=cluster)
    print(
        f"\n{scene.happened.total()} faults: {dict(scene.happened)}; {scene.again()} times a batch ran again; "
        f"{scene.written} orders, each counted once"
    )
    if waits := scene.waits():
        print(
            f"Spark had a batch again {median(waits):.1f} s after its failure (median of {len(waits)}), {waits[-1]:.1f} s at most"
        )
    if scene.happened.total() < faults or len(scene.happened) < min(3, len(set(order))):
        print(f"too few: {faults} faults of {len(set(order))} kinds were asked for")
        return 1
    shutil.rmtree(directory, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(*(int(word) for word in sys.argv[1:])))
