"""Faults around Spark: `python -m tests.chaos.spark [FAULTS] [SECONDS] [SEED]`; 30 faults by default, at most so many seconds. The variable
`CHAOS_FAULTS` names their kinds, `CHAOS_SPARK_CLUSTER=1` adds a standalone cluster.

A job passes numbered orders in batches to Spark and writes how many there were, and their sum. Faults: kill -9 of the worker, of a Python
worker, of the executor (a thread of the JVM on a local master, hence a JVM of the standalone cluster with `cluster`), of the JVM and of the
broker; the JVM is stopped until the worker notices that it hangs.

Prints one line a fault, and at the end how many of each kind really happened. Exit code 0 only if every order counts once, and all the
faults happened, in three kinds or more.
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import orjson
import psutil
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from headgate.agents.broker.broker import Broker

from .reader import read_all
from .spark_processes import CONF, Standalone

PARTITIONS = 2
BATCH = 500
MOST_S = 400.0
FAULTS = ("jvm", "python", "worker", "python", "hang", "broker", "jvm", "executor")
SOURCE = f"""
import os
import headgate as hg

def totals(df, batch):
    from pyspark.sql import functions as F
    same = F.udf(lambda n: n, "long")
    found = df.select(same("n").alias("n")).agg(F.count("*").alias("n"), F.sum("n").alias("total"))
    return found.select(F.lit(batch.id).alias("batch"), "n", "total")

app = hg.App("sparkchaos", serde=hg.json())
(app.input("orders").batch(max_rows={BATCH}, max_age="2s", name="lot")
    .spark(totals, schema="batch string, n long, total long").to("totals"))
"""


class Torment:
    """A broker, one worker, its Spark, and what is done to them."""

    def __init__(self, broker: Broker, directory: Path, cluster: Standalone | None = None) -> None:
        self.broker, self.directory, self.cluster = broker, directory, cluster
        self.happened: Counter[str] = Counter()
        self.written = 0
        self.counted = 0
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

    def results(self) -> list[dict[str, object]]:
        """All results so far, as a reader that is not ours finds them."""
        return [orjson.loads(message.value()) for message in read_all(self.broker.bootstrap, "totals")]

    def caught_up(self, seconds: float = MOST_S) -> None:
        """Every order that was written is counted."""
        assert self.producer.flush(120) == 0
        give_up = time.monotonic() + seconds
        while (counted := sum(int(str(one["n"])) for one in self.results())) < self.written:
            assert self.worker.poll() is None, f"the worker ended with {self.worker.poll()}:\n{self.tail()}"
            assert time.monotonic() < give_up, f"{counted} of {self.written} after {seconds:g} s:\n{self.tail()}"
            time.sleep(0.1)
        self.counted = counted

    def tail(self) -> str:
        """The end of the worker's log."""
        text = (self.directory / f"worker-{self.logs:03d}.log").read_text(errors="replace")
        return "\n".join(line[:400] for line in text.splitlines()[-25:])

    # ------------------------------------------------------------------------------------------------------------------ faults

    def _below(self, fits: Callable[[str], bool]) -> Iterator[psutil.Process]:
        roots = [self.worker, *(one.popen for one in self.cluster.workers)] if self.cluster else [self.worker]
        for root in roots:
            for one in psutil.Process(root.pid).children(recursive=True):
                try:
                    if fits(" ".join(one.cmdline())) and one.status() != psutil.STATUS_ZOMBIE:
                        yield one
                except psutil.Error:
                    continue

    def jvm(self) -> psutil.Process:
        """The JVM beside the worker, when it is there."""
        return self._first(lambda line: "deploy.SparkSubmit" in line and "pyspark-shell" in line)

    def _pythons(self) -> Iterator[psutil.Process]:
        """Python workers of Spark, and the daemons that fork them. A worker may outlive its daemon, and then is below nobody of ours."""
        for one in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                ours = "python" in one.name() and Path(one.cwd()).is_relative_to(self.directory)
                if ours and "daemon" in " ".join(one.cmdline()) and one.status() != psutil.STATUS_ZOMBIE:
                    yield one

    def _first(self, fits: Callable[[str], bool]) -> psutil.Process:
        return self._one_of(lambda: self._below(fits), None)

    def _one_of(self, there: Callable[[], Iterator[psutil.Process]], chance: random.Random | None) -> psutil.Process:
        """One of these processes, as soon as there is one. Meanwhile batches go on."""
        give_up, more = time.monotonic() + MOST_S, time.monotonic() + 1.0
        while True:
            found = sorted(there(), key=lambda one: one.pid)
            if found:
                return found[0] if chance is None else chance.choice(found)
            assert self.worker.poll() is None, f"the worker ended:\n{self.tail()}"
            assert time.monotonic() < give_up, f"nothing to kill:\n{self.tail()}"
            if time.monotonic() > more:
                self.write(BATCH)
                more = time.monotonic() + 1.0
            time.sleep(0.02)

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
            self.jvm().kill()
        elif kind == "hang":
            hung = self.jvm()
            hung.send_signal(signal.SIGSTOP)
            psutil.wait_procs([hung], timeout=MOST_S)
            assert not hung.is_running() or hung.status() == psutil.STATUS_ZOMBIE, "the hung JVM was not replaced"
        elif kind == "executor":
            self._first(lambda line: "CoarseGrainedExecutorBackend" in line).kill()
        else:
            self._one_of(self._pythons, chance).kill()
        self.write(BATCH * 2)
        self.caught_up()
        self.happened[kind] += 1
        print(
            f"{time.monotonic() - self._began:7.1f} s  {kind}: all {self.written} orders counted after "
            f"{time.monotonic() - began:.1f} s",
            flush=True,
        )

    def check(self) -> None:
        """Every order is in exactly one result."""
        rows = self.results()
        assert sum(int(str(one["n"])) for one in rows) == self.written
        assert sum(int(str(one["total"])) for one in rows) == sum(range(self.written))
        assert len({one["batch"] for one in rows}) == len(rows), "a batch has two results"

    def close(self) -> None:
        """End the worker."""
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
    print(f"\n{scene.happened.total()} faults: {dict(scene.happened)}; {scene.written} orders, each counted once")
    if scene.happened.total() < faults or len(scene.happened) < min(3, len(set(order))):
        print(f"too few: {faults} faults of {len(set(order))} kinds were asked for")
        return 1
    shutil.rmtree(directory, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(*(int(word) for word in sys.argv[1:])))
