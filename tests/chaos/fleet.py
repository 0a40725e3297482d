"""Three brokers, three workers, and a network between them: windows and a join over inputs of which some partitions are quiet.

    python -m tests.chaos.fleet [FAULTS] [SECONDS] [SEED]      60 faults by default, for at most so many seconds

Workers are killed, stopped and ended, brokers are killed and stopped, and each worker has a network of its own, which is cut, loses
answers, delays requests, and lets them overtake each other. Of both inputs one partition is always quiet, and one speaks in bursts.

In the end each order stands in one result of its window and each pair has come out once, nothing was late, and time has gone on: after the
last fault, and some times in between, every window that was over when the fault happened is out within `idle-timeout` + `session.timeout` +
10 s, while the load goes on.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import orjson
import psutil
from confluent_kafka import OFFSET_BEGINNING, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from headgate.agents.broker.broker import Broker
from headgate.agents.kafka.settings import ClientSettings
from headgate.agents.process.requests import Request, ask
from headgate.core.names import JobName, Topics
from tests.proxy import ADD_PARTITIONS, END_TXN, FETCH, PRODUCE, Proxy

from . import pairs
from .load import record
from .pairs import Id
from .reader import consumer, read_all

HERE = Path(__file__).parent
PARTITIONS = 6
STEADY, BURSTING = range(4), 4
"""The partitions that have records all the time, and the one that has some now and then; the last one has none."""
KEYS = 200
SIZE_MS = 2000
"""As `fleet_job` declares it."""
IDLE_S, SESSION_S, MORE_S = 3.0, 3.0, 10.0
BOUND_S = IDLE_S + SESSION_S + MORE_S
START_S = 240.0
CALM_EVERY = 15
"""After so many faults there is none until time has gone on."""
BURST_S, REST_S = 4.0, 11.0
QUICK = {
    "session.timeout": f"{SESSION_S:g}s",
    "heartbeat.interval": "300ms",
    "watermark.idle-timeout": f"{IDLE_S:g}s",
    "placement.debounce": "100ms",
    "placement.rejoin-grace": "1s",
}
TOPICS = ("orders", "payments", "windows", "pairs", "late", "late_rows")


class Flow(threading.Thread):
    """Writes numbered records of each key, at a steady rate; those of the bursting partition only now and then."""

    def __init__(self, bootstrap: str, topic: str, per_second: int) -> None:
        super().__init__(name=f"load of {topic}", daemon=True)
        self.topic, self.per_second = topic, per_second
        self.made = 0
        self._lost: list[str] = []
        self._ended = threading.Event()
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "linger.ms": 5,
                "message.timeout.ms": 600_000,
                "reconnect.backoff.max.ms": 500,
                "log_level": 0,
            }
        )

    def run(self) -> None:
        """Write until `end()`."""
        seqs, due, began = [0] * KEYS, 0.0, time.monotonic()
        while not self._ended.wait(0.01):
            passed = time.monotonic() - began
            bursts = passed % (BURST_S + REST_S) < BURST_S
            while due < passed:
                due += 1.0 / self.per_second
                key = (int(due * self.per_second) * 7919) % KEYS
                partition = BURSTING if key % 5 == 4 else key % 5
                if partition == BURSTING and not bursts:
                    continue
                value = record(key, seqs[key])
                self._producer.produce(self.topic, value, partition=partition, on_delivery=self._delivered)
                seqs[key] += 1
                self.made += 1
            self._producer.poll(0)

    def _delivered(self, error: object, _: object) -> None:
        if error is not None:
            self._lost.append(str(error))

    def end(self) -> int:
        """Stop, wait until all is written, and say how many records that is."""
        self._ended.set()
        self.join(120)
        left = self._producer.flush(120)
        if left or self._lost:
            raise AssertionError(f"the load itself failed: {left} records not written, {self._lost[:3]}")
        return self.made


class Results(threading.Thread):
    """Follows the results of the windows: how far each task has closed them."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        super().__init__(name="results", daemon=True)
        self.ends = [0] * PARTITIONS
        self._ended = threading.Event()
        self._reader = consumer(bootstrap)
        self._reader.assign([TopicPartition(topic, p, OFFSET_BEGINNING) for p in range(PARTITIONS)])

    def run(self) -> None:
        """Read until `end()`."""
        while not self._ended.is_set():
            for one in self._reader.consume(5000, timeout=0.1):
                if one.error() is None:
                    at = one.partition() or 0
                    self.ends[at] = max(self.ends[at], orjson.loads(one.value() or b"")["window_end"])

    def end(self) -> None:
        """Stop reading."""
        self._ended.set()
        self.join(60)
        self._reader.close()


class Worker:
    """One worker, which is started again whenever it has ended, and its network."""

    def __init__(self, fleet: Fleet, name: str) -> None:
        self.fleet, self.name = fleet, name
        self.proxy = Proxy(fleet.broker.bootstrap)
        self.proxy.__enter__()
        self.log = fleet.directory / f"{name}.log"
        self.process: subprocess.Popen[bytes] | None = None
        self._starts = 0

    @property
    def up(self) -> bool:
        """Whether its last start has come to headgate's own work."""
        return self.log.read_bytes().count(b'"event": "worker started"') == self._starts

    def start(self) -> None:
        """Start it, unless it runs."""
        if self.process is not None and self.process.poll() is None:
            return
        command = [sys.executable, "-m", "headgate.agents.cli", "run", "fleet_job:app", "--app-dir", str(HERE)]
        command += ["-b", self.proxy.bootstrap, "--state-dir", str(self.fleet.directory / f"disk-of-{self.name}")]
        command += ["--processor-id", self.name, "--run-id", "r", "--no-wait", "--log-format", "json"]
        command += [word for name, value in QUICK.items() for word in ("--set", f"{name}={value}")]
        self._starts += self.process is None or self.up
        with self.log.open("ab") as out:
            names = {**os.environ, **self.fleet.names}
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=names, cwd=self.fleet.directory
            )

    def send(self, number: int) -> None:
        """A signal."""
        assert self.process is not None
        self.process.send_signal(number)

    def tail(self, lines: int = 12) -> str:
        """The end of its log."""
        return "\n".join(line[:400] for line in self.log.read_text(errors="replace").splitlines()[-lines:])


class Fleet:
    """Everything that takes part."""

    def __init__(self, broker: Broker, directory: Path, seed: int, per_second: int = 600) -> None:
        self.broker, self.directory = broker, directory
        self.chance = random.Random(seed)
        self.job = f"fleet{seed}"
        self.topics = {kind: f"{self.job}-{kind.replace('_', '-')}" for kind in TOPICS}
        self.names = {"CHAOS_JOB": self.job} | {f"CHAOS_{kind.upper()}": name for kind, name in self.topics.items()}
        self._create()
        self.happened: Counter[str] = Counter()
        self.took: list[float] = []
        self._later: list[tuple[float, Callable[[], None]]] = []
        """What ends a fault, and when."""
        self.results = Results(broker.bootstrap, self.topics["windows"])
        self.results.start()
        self.loads = [
            Flow(broker.bootstrap, self.topics[kind], rate)
            for kind, rate in (("orders", per_second), ("payments", per_second // 2))
        ]
        self.workers = [Worker(self, f"w{n + 1}") for n in range(3)]
        for one in (*self.loads, *self.workers):
            one.start()

    def _create(self) -> None:
        """A partition of an input has one replica, so that what is appended is visible at once; the outputs have three.

        With more replicas a record is visible when the others have it. One that waits for a replica that stands still is older than what
        another partition shows meanwhile, and no reader can know of it.
        """
        admin = AdminClient({"bootstrap.servers": self.broker.bootstrap})
        stamped = {"message.timestamp.type": "LogAppendTime"}
        made = [NewTopic(self.topics[kind], PARTITIONS, 1, config=stamped) for kind in ("orders", "payments")]
        made += [NewTopic(self.topics[kind], PARTITIONS, 3) for kind in TOPICS[2:]]
        for future in admin.create_topics(made).values():
            future.result(60)

    # -------------------------------------------------------------------------------------------------------------- faults

    def fault(self) -> None:
        """One of the faults, which ends by itself."""
        kind = self.chance.choice(tuple(FAULTS))
        if FAULTS[kind](self):
            self.happened[kind] += 1

    def after(self, seconds: float, does: Callable[[], None]) -> None:
        """Do something later."""
        self._later.append((time.monotonic() + seconds, does))

    def turn(self, everything: bool = False) -> None:
        """End the faults that are over, and start the workers that have ended."""
        due = [one for one in self._later if everything or one[0] <= time.monotonic()]
        self._later = [one for one in self._later if one not in due]
        for _, does in due:
            does()
        for worker in self.workers:
            worker.start()

    def _worker(self) -> Worker | None:
        """A worker that runs, and is not stopped."""
        running = [one for one in self.workers if one.process is not None and one.process.poll() is None]
        awake = [one for one in running if psutil.Process(one.process.pid).status() != psutil.STATUS_STOPPED]  # pyright: ignore[reportOptionalMemberAccess]
        return self.chance.choice(awake) if awake else None

    def killed(self) -> bool:
        worker = self._worker()
        if worker is None or worker.process is None:
            return False
        worker.send(signal.SIGKILL)
        return worker.process.wait(60) == -signal.SIGKILL

    def ended(self) -> bool:
        worker = self._worker()
        if worker is not None:
            worker.send(signal.SIGTERM)
        return worker is not None

    def stopped(self) -> bool:
        worker = self._worker()
        if worker is None:
            return False
        process = worker.process
        worker.send(signal.SIGSTOP)

        def goes_on() -> None:
            if process is not None and process.poll() is None:
                process.send_signal(signal.SIGCONT)

        self.after(self.chance.uniform(0.5, 9.0), goes_on)
        return True

    def _node(self) -> int | None:
        """A broker that serves; one at most is away at a time, for two of three are a quorum."""
        if len(self.broker.pids()) < 3 or "broker" in {getattr(does, "what", "") for _, does in self._later}:
            return None
        return self.chance.choice((1, 2, 3))

    def _broker_back(self, seconds: float, does: Callable[[], None]) -> None:
        does.what = "broker"  # type: ignore[attr-defined]
        self.after(seconds, does)

    def broker_killed(self) -> bool:
        node = self._node()
        if node is None:
            return False
        self.broker.kill(node)
        gone = self.broker.daemon(node).pid() is None
        self._broker_back(self.chance.uniform(0.0, 4.0), lambda: self.broker.restart(node, timeout_s=START_S))
        return gone

    def broker_stopped(self) -> bool:
        node = self._node()
        if node is None:
            return False
        self.broker.pause(node)
        self._broker_back(self.chance.uniform(1.0, 7.0), lambda: self.broker.resume(node))
        return True

    def cut(self) -> bool:
        proxy = self.chance.choice(self.workers).proxy
        proxy.away()
        self.after(self.chance.uniform(0.2, 8.0), proxy.back)
        return True

    def severed(self) -> bool:
        self.chance.choice(self.workers).proxy.sever()
        return True

    def delayed(self) -> bool:
        proxy = self.chance.choice(self.workers).proxy
        rule = proxy.delay(self.chance.choice((PRODUCE, FETCH, -1)), self.chance.uniform(0.1, 1.0))
        self.after(self.chance.uniform(1.0, 5.0), lambda: setattr(rule, "left", 0))
        return rule.left > 0

    def lost(self) -> bool:
        rule = self.chance.choice(self.workers).proxy.lose(self.chance.choice((END_TXN, PRODUCE, ADD_PARTITIONS)))
        return rule.caught(10.0)

    def reordered(self) -> bool:
        """The end of a transaction is held back, the client gives up its connection, and then it arrives."""
        proxy = self.chance.choice(self.workers).proxy
        rule = proxy.hold(END_TXN)
        if not rule.caught(10.0):
            rule.left = 0
            return False
        if self.chance.random() < 0.5:
            proxy.sever()

        def released() -> None:
            with contextlib.suppress(Exception):  # its broker may be away; then the request is lost for good
                rule.release(5.0)

        self.after(self.chance.uniform(0.1, 3.0), released)
        return True

    # ------------------------------------------------------------------------------------------------------------- waiting

    def calm(self, bound_s: float) -> float:
        """End all faults, and wait until each window is out that was over by then; how long that took.

        How long a busy machine takes to start Python is no matter of headgate, so the last fault is over when all workers are up.
        """
        self.turn(everything=True)
        give_up = time.monotonic() + START_S
        while not all(one.up for one in self.workers):
            assert time.monotonic() < give_up, "\n".join(one.tail() for one in self.workers)
            self.turn()
            time.sleep(0.05)
        over = int(time.time() * 1000)
        over -= over % SIZE_MS
        began = time.monotonic()
        while min(self.results.ends) < over:
            self.turn()
            if time.monotonic() - began > bound_s:
                tails = "\n".join(f"--- {one.log}\n{one.tail()}" for one in self.workers)
                raise AssertionError(
                    f"{bound_s:g} s after the last fault windows are open that ended at {over}: {self.results.ends}\n{tails}"
                )
            time.sleep(0.05)
        return time.monotonic() - began

    def torment(self, faults: int, until_s: float) -> None:
        """So many faults, and the calm behind them."""
        self.calm(START_S)
        calm_at = CALM_EVERY
        while (count := self.happened.total()) < faults and time.monotonic() < until_s:
            if count >= calm_at:
                calm_at += CALM_EVERY
                self.took.append(self.calm(BOUND_S))
                print(f"{count} faults: {dict(self.happened)}; time goes on after {self.took[-1]:.1f} s", flush=True)
            self.fault()
            end = time.monotonic() + self.chance.uniform(0.2, 2.5)
            while time.monotonic() < end:
                self.turn()
                time.sleep(0.05)
        self.took.append(self.calm(BOUND_S))

    def settle(self) -> int:
        """End the load and drain the job; how many records there were."""
        made = sum(load.end() for load in self.loads)
        client = ClientSettings(self.broker.bootstrap)
        answer = asyncio.run(ask(client, Topics(JobName(self.job)), Request("drain"), timeout_s=START_S))
        assert getattr(answer, "state", answer) == "done", answer
        for worker in self.workers:
            assert worker.process is not None
            assert worker.process.wait(START_S) == 0, worker.tail()
        return made

    def close(self) -> None:
        """End what still runs."""
        for worker in self.workers:
            if worker.process is not None and worker.process.poll() is None:
                worker.process.kill()
                worker.process.wait(60)
            worker.proxy.__exit__()
        for load in self.loads:
            if load.is_alive():
                with contextlib.suppress(AssertionError):
                    load.end()
        self.results.end()

    # ------------------------------------------------------------------------------------------------------------- account

    def account(self) -> list[str]:
        """What is wrong: nothing is late, each window has one result as recounted, and each pair has come out once."""
        bootstrap, wrong = self.broker.bootstrap, list[str]()
        rows: dict[str, list[pairs.Row]] = {}
        wanted: dict[tuple[str, int], list[int]] = {}
        for kind in ("orders", "payments"):
            rows[kind], seen = [], set[Id]()
            for message in read_all(bootstrap, self.topics[kind]):
                value, ms = orjson.loads(message.value() or b""), message.timestamp()[1]
                assert (value["key"], value["seq"]) not in seen, "the load itself wrote it twice"
                seen.add((value["key"], value["seq"]))
                rows[kind].append(pairs.Row(value["key"], value["seq"], ms, "r"))
                if kind == "orders":
                    sums = wanted.setdefault((value["key"], ms - ms % SIZE_MS), [0, 0])
                    sums[0], sums[1] = sums[0] + 1, sums[1] + value["amount"]
        for kind in ("late", "late_rows"):
            late = [
                (one.partition(), one.timestamp()[1], one.value()) for one in read_all(bootstrap, self.topics[kind])
            ]
            wrong += [f"{kind}: {len(late)} rows, {late[:3]}"] if late else []
        found = Counter[tuple[str, int]]()
        for message in read_all(bootstrap, self.topics["windows"]):
            value = orjson.loads(message.value() or b"")
            at = (message.key() or b"").decode(), value["window_start"]
            found[at] += 1
            if [value["n"], value["total"]] != wanted.get(at) or found[at] > 1:
                wrong.append(f"window {at}: {value}, {found[at]} times, recounted {wanted.get(at)}")
        wrong += [f"window {at} has no result, recounted {sums}" for at, sums in wanted.items() if at not in found]
        values = (orjson.loads(one.value() or b"") for one in read_all(bootstrap, self.topics["pairs"]))
        joined = Counter((value["key"], value["left"], value["right"]) for value in values)
        return wrong + pairs.differences(joined, pairs.wanted(rows["orders"], rows["payments"]))


FAULTS: dict[str, Callable[[Fleet], bool]] = {
    "worker kill -9": Fleet.killed,
    "worker SIGTERM": Fleet.ended,
    "worker SIGSTOP": Fleet.stopped,
    "broker kill -9": Fleet.broker_killed,
    "broker SIGSTOP": Fleet.broker_stopped,
    "network cut": Fleet.cut,
    "connections broken": Fleet.severed,
    "requests delayed": Fleet.delayed,
    "answers lost": Fleet.lost,
    "requests reordered": Fleet.reordered,
}


def main(faults: int = 60, seconds: float = 1800.0, seed: int = 1) -> int:
    """Torment, and account."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that everything is ended by `timeout`, too
    directory = Path(tempfile.mkdtemp(prefix="headgate-fleet-"))
    print(f"seed {seed}, in {directory}", flush=True)
    with Broker.start(directory / "kafka", nodes=3, timeout_s=START_S) as broker:
        fleet = Fleet(broker, directory, seed)
        try:
            fleet.torment(faults, time.monotonic() + seconds)
            made = fleet.settle()
        finally:
            fleet.close()
        wrong = fleet.account()
    happened = fleet.happened.total()
    print(f"{happened} faults: {dict(fleet.happened)}")
    took = fleet.took
    print(
        f"time goes on after {statistics.median(took):.1f} s (median), {max(took):.1f} s (longest, {BOUND_S:g} are allowed)"
    )
    print(
        f"{made} records: {f'{len(wrong)} differences' if wrong else 'none lost, none doubled, none late'}",
        *wrong[:20],
        sep="\n  ",
    )
    if not wrong and happened >= faults:
        shutil.rmtree(directory, ignore_errors=True)
        return 0
    return 1


if __name__ == "__main__":
    sys.exit(main(*(int(word) for word in sys.argv[1:])))
