"""Drains and stops of a loaded job with three workers, at random moments, every second one with a kill -9 in between.

    python -m tests.chaos.drains [DRAINS] [STOPS] [SECONDS] [SEED]      100 of each by default, for at most so many seconds

After each drain another run begins, after each stop the same one goes on. In the end each record of both inputs must have come through its
shuffle once, the results of each window, over all runs in which it was open, must add up to a plain recount of the input, and each pair and
each row without a partner must have come out of the join once (`pairs`).
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
import uuid
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import orjson
import psutil
from confluent_kafka import OFFSET_BEGINNING, KafkaException, Message, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from headgate.agents.broker.broker import Broker
from headgate.agents.kafka.settings import ClientSettings
from headgate.agents.process.requests import Request, ask
from headgate.core.names import JobName, Topics
from tests import forked

from . import pairs
from .load import PARTITIONS, Load
from .pairs import Id
from .reader import consumer, read_all

HERE = Path(__file__).parent
INPUTS = ("orders", "payments")
COPIES = {"orders": "orders_read", "payments": "payments_read"}
OUTPUTS = (*COPIES.values(), "windows", "late", "pairs", "late_rows")
SIZE_MS = 2000
"""As `drain_job` declares it."""
MOST_S = 300.0
QUICK = {
    "session.timeout": "3s",
    "heartbeat.interval": "300ms",
    "commit.interval": "100ms",
    "placement.debounce": "100ms",
    "placement.rejoin-grace": "1s",
}


class Copies(threading.Thread):
    """Counts the copies as they come."""

    def __init__(self, bootstrap: str, topics: Collection[str]) -> None:
        super().__init__(name="copies", daemon=True)
        self.count = 0
        self._ended = threading.Event()
        self._broker = bootstrap
        self._read = {(topic, p): 0 for topic in topics for p in range(PARTITIONS)}
        """The position in each partition."""
        self._reader = consumer(bootstrap)
        self._reader.assign([TopicPartition(*at, OFFSET_BEGINNING) for at in self._read])

    def run(self) -> None:
        """Read until `end()`."""
        while not self._ended.is_set():
            for one in self._reader.consume(5000, timeout=0.1):
                if one.error() is None:
                    self.count += 1
                    self._read[one.topic() or "", one.partition() or 0] = (one.offset() or 0) + 1

    def written(self) -> dict[tuple[str, int], int]:
        """How far each partition is written."""
        asked, give_up = consumer(self._broker, committed=False), time.monotonic() + MOST_S
        try:
            while True:
                try:
                    return {at: asked.get_watermark_offsets(TopicPartition(*at), timeout=240)[1] for at in self._read}
                except KafkaException:  # the broker hears of new topics a moment later than their controller
                    if time.monotonic() > give_up:
                        raise
                    time.sleep(0.05)
        finally:
            asked.close()

    def behind(self, ends: dict[tuple[str, int], int]) -> bool:
        """Whether a copy was read that stands behind these ends."""
        return any(self._read[at] > end for at, end in ends.items())

    def end(self) -> None:
        """Stop reading."""
        self._ended.set()
        self.join(60)
        self._reader.close()


class Lives:
    """The lives of one job."""

    def __init__(self, bootstrap: str, directory: Path, seed: int, *, per_second: int, workers: int = 3) -> None:
        self.bootstrap, self.directory, self.workers = bootstrap, directory, workers
        self.chance = random.Random(seed)
        self.job = f"drains-{uuid.uuid4().hex[:8]}"
        self.topics = {kind: f"{self.job}-{kind.replace('_', '-')}" for kind in (*INPUTS, *OUTPUTS)}
        admin = AdminClient({"bootstrap.servers": bootstrap})
        for future in admin.create_topics([NewTopic(name, PARTITIONS, 1) for name in self.topics.values()]).values():
            future.result(60)
        self.happened: Counter[str] = Counter()
        self.took: dict[str, list[float]] = defaultdict(list)
        self.joined: Counter[str] = Counter()
        """What must have come out of the join, by kind; known once it is accounted for."""
        self.run = 1
        self.process: subprocess.Popen[bytes] | None = None
        self.copies = Copies(bootstrap, [self.topics[kind] for kind in COPIES.values()])
        self.copies.start()
        self.loads = [
            Load(bootstrap, self.topics[kind], per_second=rate)
            for kind, rate in zip(INPUTS, (per_second, per_second // 2), strict=True)
        ]
        for load in self.loads:
            load.start()

    @property
    def log(self) -> Path:
        return self.directory / "workers.log"

    def _start(self) -> forked.Forked:
        command = ["run", "drain_job:app", "--app-dir", str(HERE)]
        command += ["-b", self.bootstrap, "--state-dir", str(self.directory / "state"), "--processor-id", "w"]
        command += ["--workers", str(self.workers), "--run-id", f"r{self.run}", "--log-format", "json"]
        command += [word for name, value in QUICK.items() for word in ("--set", f"{name}={value}")]
        names = {f"CHAOS_{kind.upper()}": name for kind, name in self.topics.items()}
        names |= {"CHAOS_JOB": self.job, "CHAOS_RUN": f"r{self.run}"}
        with self.log.open("ab") as out:
            self.process = forked.popen(command, stdout=out, env={**os.environ, **names}, cwd=self.directory)
        return self.process

    def until(self, true: Any, what: str) -> None:
        """Wait for something; the end of the log if it does not come."""
        give_up = time.monotonic() + MOST_S
        while not true():
            if time.monotonic() > give_up:
                raise AssertionError(f"{what}: not after {MOST_S:g} s\n{self._tail()}")
            time.sleep(0.02)

    def _tail(self) -> str:
        return "\n".join(line[:500] for line in self.log.read_text(errors="replace").splitlines()[-60:])

    def life(self, verb: str, *, dies: bool) -> None:
        """Start, work for a while, and end by this verb, with a kill -9 in between if asked for."""
        kill, most_s = f"kill -9 in a {verb}", 0.6
        while True:
            before, ends = self.happened[kill], self.copies.written()  # those of the last life may not have been read
            process = self._start()
            self.until(lambda: self.copies.behind(ends) or process.poll() is not None, "records come through")  # noqa: B023
            assert process.poll() is None, f"the job ended by itself\n{self._tail()}"
            time.sleep(self.chance.uniform(0.0, 1.0))
            self.end(verb, self.chance.uniform(0.0, most_s) if dies else None)
            if not dies or self.happened[kill] > before:
                return
            most_s /= 2  # all workers had ended before the kill: there is one more life, whose kill comes sooner

    def end(self, verb: str, dies_after_s: float | None = None) -> None:
        """End the current life by this verb; a worker dies so long after the request."""
        process = self.process
        assert process is not None
        began = time.monotonic()
        answers: list[Any] = []
        asking = threading.Thread(target=lambda: answers.append(self._asked(verb)), daemon=True)
        asking.start()
        if dies_after_s is not None:
            time.sleep(dies_after_s)
            if self._killed(process):
                self.happened[f"kill -9 in a {verb}"] += 1
        asking.join(MOST_S)
        answered_s = time.monotonic() - began
        assert answers, f"no answer to {verb}\n{self._tail()}"
        assert getattr(answers[0], "state", answers[0]) == "done", f"{answers}\n{self._tail()}"
        try:
            code = process.wait(MOST_S)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"the supervisor does not end after {verb}\n{self._tail()}") from None
        assert code == 0, f"exit code {code} after {verb}\n{self._tail()}"
        self.happened[verb] += 1
        self.took[verb if dies_after_s is None else f"{verb}, kill -9"].append(answered_s)
        self.run += verb == "drain"

    def _killed(self, supervisor: subprocess.Popen[bytes]) -> bool:
        """kill -9 of a worker; false if one has just ended by itself."""
        with contextlib.suppress(psutil.NoSuchProcess):
            children = psutil.Process(supervisor.pid).children()
            if workers := [one for one in children if one.status() != psutil.STATUS_ZOMBIE]:
                self.chance.choice(workers).send_signal(signal.SIGKILL)
                return True
        return False

    def _asked(self, verb: str) -> Any:
        client = ClientSettings(self.bootstrap)
        try:
            return asyncio.run(ask(client, Topics(JobName(self.job)), Request(verb), timeout_s=MOST_S - 5))
        except Exception as error:  # noqa: BLE001 - the account shows it
            return repr(error)

    def settle(self) -> int:
        """End the load, let everything through, and drain: all windows are closed then, and no row waits for a partner."""
        made = sum(load.end() for load in self.loads)
        self._start()
        self.until(lambda: self.copies.count >= made, f"all of {made} records come through")
        self.end("drain")
        return made

    def close(self) -> None:
        """End what still runs."""
        if self.process is not None and self.process.poll() is None:
            for one in [psutil.Process(self.process.pid), *psutil.Process(self.process.pid).children(recursive=True)]:
                one.kill()
            self.process.wait(60)
        for load in self.loads:
            if load.is_alive():
                load.end()
        self.copies.end()

    def account(self) -> list[str]:
        """What is wrong: each record is copied once, each window adds up to the recount, and so does the join."""
        times: dict[str, dict[Id, int]] = {kind: {} for kind in INPUTS}
        runs: dict[str, dict[Id, str]] = {kind: {} for kind in INPUTS}
        wrong: list[str] = []
        windows: dict[tuple[str, int], list[int]] = defaultdict(lambda: [0, 0])
        late = Counter((value["key"], value["seq"]) for _, value in self._values("late"))
        for kind in INPUTS:
            for message, value in self._values(kind):
                one, ms = (value["key"], value["seq"]), message.timestamp()[1]
                times[kind][one] = ms
                if kind == "orders" and one not in late:
                    sums = windows[one[0], ms - ms % SIZE_MS]
                    sums[0], sums[1] = sums[0] + 1, sums[1] + value["amount"]
            for message, value in self._values(COPIES[kind]):
                one = (value["key"], value["seq"])
                if one in runs[kind] or times[kind].get(one) != message.timestamp()[1]:
                    wrong.append(f"{kind}: once too often, or with another time: {one}")
                runs[kind][one] = value["run"]
            wrong += [f"{kind}: lost: {one}" for one in times[kind] if one not in runs[kind]]
        wrong += [
            f"late twice, or never there: {one}" for one, n in late.items() if n > 1 or one not in times["orders"]
        ]
        return wrong + self._windows(windows) + self._pairs(times, runs)

    def _windows(self, wanted: dict[tuple[str, int], list[int]]) -> list[str]:
        found: dict[tuple[str, int], list[int]] = defaultdict(lambda: [0, 0])
        for message, value in self._values("windows"):
            sums = found[(message.key() or b"").decode(), value["window_start"]]
            sums[0], sums[1] = sums[0] + value["n"], sums[1] + value["total"]
        places = sorted({*wanted, *found})
        return [f"window {at}: {found[at]}, recounted {wanted[at]}" for at in places if found[at] != wanted[at]]

    def _pairs(self, times: dict[str, dict[Id, int]], runs: dict[str, dict[Id, str]]) -> list[str]:
        late: dict[str, Counter[Id]] = {kind: Counter() for kind in INPUTS}
        for _, value in self._values("late_rows"):
            late[INPUTS["payment" in value]][value["key"], value["seq"]] += 1
        wrong = [f"late twice, or never there: {one}" for kind, ones in late.items() for one, n in ones.items()
                 if n > 1 or one not in times[kind]]  # fmt: skip
        lefts, rights = (pairs.in_time(times[kind], runs[kind], late[kind]) for kind in INPUTS)
        wanted = pairs.wanted(lefts, rights)
        found = Counter((value["key"], value["left"], value["right"]) for _, value in self._values("pairs"))
        both = sum(left is not None and right is not None for _, left, right in wanted)
        self.joined = Counter(pairs=both, alone=len(wanted) - both, late=sum(map(len, late.values())))
        return wrong + pairs.differences(found, wanted)

    def _values(self, kind: str) -> Iterator[tuple[Message, Any]]:
        for message in read_all(self.bootstrap, self.topics[kind]):
            yield message, orjson.loads(message.value() or b"")


def torment(lives: Lives, drains: int, stops: int, until_s: float) -> int:
    """So many drains and stops in a drawn order, every second of each with a kill -9, then the end; how many records there were."""
    order = ["drain"] * drains + ["stop"] * stops
    lives.chance.shuffle(order)
    done: Counter[str] = Counter()
    for verb in order:
        if time.monotonic() > until_s:
            break
        lives.life(verb, dies=done[verb] % 2 == 0)
        done[verb] += 1
        print(f"{sum(done.values())}: {dict(lives.happened)}", flush=True)
    return lives.settle()


def main(drains: int = 100, stops: int = 100, seconds: float = 3600.0, seed: int = 1) -> int:
    """Torment, and account."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that everything is ended by `timeout`, too
    directory = Path(tempfile.mkdtemp(prefix="headgate-drains-"))
    print(f"seed {seed}, in {directory}", flush=True)
    with Broker.start(directory / "kafka") as broker:
        lives = Lives(broker.bootstrap, directory, seed, per_second=1000)
        try:
            made = torment(lives, drains, stops, time.monotonic() + seconds)
        finally:
            lives.close()
        wrong = lives.account()
    print(f"{dict(lives.happened)}")
    for kind, took in sorted(lives.took.items()):
        print(f"  {kind:16} answered after {statistics.median(took):.2f} s (median), {max(took):.2f} s (longest)")
    print(f"{made} records, {dict(lives.joined)}, {len(wrong)} differences", *wrong[:20], sep="\n  ")
    if not wrong:
        shutil.rmtree(directory, ignore_errors=True)
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main(*(int(word) for word in sys.argv[1:])))
