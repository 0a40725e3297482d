"""The scene: a broker of its own, a job in processes of their own, load, a watch, and what can be done to them.

Every fault says that it really happened (a process that is gone by SIGKILL, a process that the kernel shows as stopped, a broker
whose pid is gone) and waits until new counts come; how long that took is kept.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

import psutil
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from headgate.agents.broker.broker import Broker
from headgate.agents.kafka.settings import ClientSettings
from headgate.agents.kafka.topics import INTERMEDIATE, TopicsAdmin, TopicSpec
from tests import forked

from .account import differences
from .load import PARTITIONS, Load
from .outputs import Leaving, Named
from .reader import Watch, read_all
from .windows import KINDS, windowed

HERE = Path(__file__).parent
QUICK = {
    "session.timeout": "3s",
    "heartbeat.interval": "500ms",
    "placement.debounce": "100ms",
    "placement.rejoin-grace": "1s",
}
"""Settings of the short forms: a death is noticed, and its tasks are placed, within seconds."""
HUNG_S = 4.0
"""A single broker that hangs for longer than its session (6 s) is fenced when it wakes, and for a moment no partition has a leader. A
transaction that ends in that moment ends without its markers, as if the topics were deleted: Kafka says that it is committed, and
read-committed readers stop before it for good. Where partitions have replicas, another one leads at once."""
MOST_S = 60.0
"""Throughput must not stand still for longer."""
SUSPICION = ("a letter was under way when its process ended", "less is suspected")
"""What a worker says of letters that it suspects: one more, and what is left of them."""

LEFT = ('"state": "released"', '"state": "abandoned"')
"""What it says of a task that it has no more: the next owner suspects what this one has not run."""


class Process:
    """One `headgate run`."""

    def __init__(self, scene: Scene, number: int, processor: str, *, more: dict[str, str] | None = None) -> None:
        self.processor = processor
        self.log = scene.directory / f"worker-{number:03d}-{processor}.log"
        self._file: IO[bytes] = self.log.open("wb")
        command = ["run", "job:app", "--app-dir", str(HERE)]
        command += ["-b", scene.broker.bootstrap, "--state-dir", str(scene.directory / f"disk-of-{processor}")]
        # a worker that finds its run closed has nothing to wait for here
        command += ["--processor-id", processor, "--log-format", "json", "--no-wait"]
        # the stage between is looked at record by record, so it must all be there
        command += ["--set", "intermediate.trim=false"]
        for name, value in scene.settings.items():
            command += ["--set", f"{name}={value}"]
        self.popen = forked.popen(
            command,
            stdout=self._file,
            env={**os.environ, **scene.names, **(more or {})},
            cwd=scene.directory,
        )

    @property
    def alive(self) -> bool:
        """Whether it runs (or is stopped)."""
        return self.popen.poll() is None

    def send(self, number: int) -> None:
        """A signal."""
        self.popen.send_signal(number)

    def wait(self, timeout_s: float) -> int:
        """Its exit code."""
        code = self.popen.wait(timeout_s)
        self._file.close()
        return code

    def said(self) -> str:
        """Its whole log."""
        return self.log.read_text(errors="replace")

    def tail(self, lines: int = 25) -> str:
        """The end of its log, for a failure."""
        return "\n".join(line[:600] for line in self.said().splitlines()[-lines:])


class Scene:
    """Everything that takes part."""

    def __init__(
        self,
        broker: Broker,
        directory: Path,
        *,
        job: str = "chaos",
        settings: dict[str, str] | None = None,
        leaving: Leaving | None = None,
    ) -> None:
        self.broker = broker
        self.directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        self.job = job
        self.settings = settings or {}
        self.source, self.counts, self.groups = f"{job}-events", f"{job}-counts", f"{job}-groups"
        self.windows, self.late = f"{job}-windows", f"{job}-late"
        self.names = {
            "CHAOS_JOB": job,
            "CHAOS_INPUT": self.source,
            "CHAOS_COUNTS": self.counts,
            "CHAOS_GROUPS": self.groups,
            "CHAOS_WINDOWS": self.windows,
            "CHAOS_LATE": self.late,
        }
        self.leaving = leaving
        if leaving is not None:
            self.names |= leaving.names
        self.processes: list[Process] = []
        self.happened: Counter[str] = Counter()
        self.recoveries: list[tuple[str, float]] = []
        self.story: list[str] = []
        self._began = time.monotonic()
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        stamped = {"message.timestamp.type": "LogAppendTime"}
        names = (self.source, self.counts, self.groups)
        topics = [NewTopic(name, PARTITIONS, 1, config=stamped) for name in names]
        topics += [NewTopic(f"{name}-{kind}", PARTITIONS, 1) for name in (self.windows, self.late) for kind in KINDS]
        topics += [] if leaving is None else [NewTopic(leaving.topic, PARTITIONS, 1)]
        made = admin.create_topics(topics)
        for future in made.values():
            future.result(60)

    # -------------------------------------------------------------------------------------------------------------- acting

    def worker(self, processor: str = "w1", **more: str) -> Process:
        """Start a worker."""
        process = Process(self, len(self.processes), processor, more=more)
        self.processes.append(process)
        return process

    @contextlib.contextmanager
    def held(self, step: str) -> Iterator[None]:
        """Somebody's open transaction stands in every partition of the stream to this step: nobody reads it, so no run can end."""
        stream = f"{self.job}-1-{step}"
        asyncio.run(self._made(stream))
        blocker = Producer(
            {
                "bootstrap.servers": self.broker.bootstrap,
                "transactional.id": f"{self.job}-held",
                "transaction.timeout.ms": 600_000,
                "message.timeout.ms": 600_000,
            }
        )
        blocker.init_transactions(60)
        blocker.begin_transaction()
        for partition in range(PARTITIONS):
            blocker.produce(stream, b"never", partition=partition)
        assert blocker.flush(60) == 0
        yield
        blocker.abort_transaction(60)

    async def _made(self, stream: str) -> None:
        """The stream as the job makes it; it may be there."""
        topics = TopicsAdmin(ClientSettings(self.broker.bootstrap))
        await topics.start()
        await topics.ensure([TopicSpec(stream, PARTITIONS, INTERMEDIATE)])
        await topics.stop()

    def load(self, per_second: int, limit: int = 1 << 60) -> Load:
        """Start the load."""
        load = Load(self.broker.bootstrap, self.source, per_second=per_second, limit=limit)
        load.start()
        return load

    def watch(self) -> Watch:
        """Start watching the counts."""
        self.watching = Watch(self.broker.bootstrap, self.counts, PARTITIONS)
        self.watching.start()
        return self.watching

    def tell(self, what: str) -> None:
        """One line of the story."""
        line = f"{time.monotonic() - self._began:7.1f} s  {what}"
        self.story.append(line)
        print(line, flush=True)

    # -------------------------------------------------------------------------------------------------------------- faults

    def kill(self, process: Process) -> Process:
        """kill -9, and the same worker again; counts come again."""
        self._unsuspected(process)
        after = self.killed(process)
        self.happened["kill -9"] -= 1
        self._recovered("kill -9", after)
        return after

    def killed(self, process: Process, **more: str) -> Process:
        """kill -9, and the same worker again, without waiting for counts: there may be none to come."""
        process.send(signal.SIGKILL)
        assert process.wait(60) == -signal.SIGKILL, (
            "the worker had ended by itself: no fault happened\n" + process.tail()
        )
        self.happened["kill -9"] += 1
        return self.worker(process.processor, **more)

    def zombie(self, process: Process, successor: str) -> Process:
        """SIGSTOP; a successor under `successor` (the same name, or another) takes over; then the stopped one goes on, a zombie."""
        self._unsuspected(process)
        process.send(signal.SIGSTOP)
        self.until(
            lambda: psutil.Process(process.popen.pid).status() == psutil.STATUS_STOPPED, 60, "the worker to stop"
        )
        after = self.worker(successor)
        kind = "zombie, same name" if successor == process.processor else "zombie"
        self._recovered(kind, after)
        assert process.alive, "the stopped worker is gone: it was no zombie"
        process.send(signal.SIGCONT)
        self.flowing(2.0)
        if successor == process.processor:
            self.until(lambda: not process.alive, 4 * MOST_S, "the superseded worker to stop by itself", process)
        elif process.alive:
            self._unsuspected(process)  # it may have tasks again
            process.send(signal.SIGKILL)
        process.wait(60)
        self.advanced("the zombie's end", after)
        return after

    def broker_killed(self, process: Process, away_s: float) -> None:
        """The broker is killed and comes back."""
        before = self.broker.pids()
        self.broker.kill()
        assert before, "the broker was not there: no fault happened"
        assert not self.broker.is_running(), "the broker is still there: no fault happened"
        time.sleep(away_s)
        self.broker.restart(timeout_s=4 * MOST_S)
        self._recovered("broker kill -9", process)

    def broker_paused(self, process: Process, away_s: float) -> None:
        """The broker keeps its connections and answers no one, for less than `HUNG_S`."""
        assert away_s < HUNG_S, "Kafka itself would lose a commit"
        pid = self.broker.pids()[0]
        self.broker.pause()
        self.until(lambda: psutil.Process(pid).status() == psutil.STATUS_STOPPED, MOST_S, "the broker to stop")
        time.sleep(away_s)
        self.broker.resume()
        self._recovered("broker SIGSTOP", process)

    # ------------------------------------------------------------------------------------------------------------- waiting

    def until(
        self, done: Callable[[], bool], seconds: float, what: str | Callable[[], str], process: Process | None = None
    ) -> float:
        """Wait for something; what it waited for, as it is then, and the end of a log, if it does not come."""
        began = time.monotonic()
        while not done():
            if time.monotonic() - began > seconds:
                shown = process or (self.processes[-1] if self.processes else None)
                told, what = "\n".join(self.story[-12:]), what if isinstance(what, str) else what()
                raise AssertionError(
                    f"{seconds:g} s are over, waiting for {what}\n{told}\n--- {shown and shown.log}\n{shown and shown.tail()}"
                )
            time.sleep(0.02)
        return time.monotonic() - began

    def advanced(self, what: str, process: Process) -> float:
        """Wait for a count that was written after this was called: what had been committed before does not tell."""
        before = time.time() * 1000
        return self.until(lambda: self.watching.newest_ms > before, 4 * MOST_S, f"new counts after {what}", process)

    def flowing(self, seconds: float) -> None:
        """Let it work for a while."""
        end = time.monotonic() + seconds
        self.until(lambda: time.monotonic() > end, seconds + 4 * MOST_S, "time to pass")

    def _unsuspected(self, process: Process) -> None:
        """Wait until it suspects no records: one that runs alone in two processes that end is judged, whoever ends them."""

        def none() -> bool:
            suspected: dict[str, bool] = {}
            for line in process.said().splitlines(keepends=True):
                if not line.endswith("\n"):
                    continue
                if any(state in line for state in LEFT):
                    suspected.pop(json.loads(line)["task"], None)
                elif any(event in line for event in SUSPICION):
                    told = json.loads(line)
                    records = "at=StreamPartition" in str((told.get("mark"), told.get("left")))
                    suspected[told["task"]] = records or ("mark" in told and suspected.get(told["task"], False))
            return not any(suspected.values())

        self.until(none, 4 * MOST_S, "the suspected letters to run", process)

    def _recovered(self, kind: str, process: Process) -> None:
        took = self.advanced(kind, process)
        self.happened[kind] += 1
        self.recoveries.append((kind, took))
        self.tell(f"{kind}: counts grow again after {took:.1f} s ({self.watching.counted} records counted)")

    def settle(self, load: Load, seconds: float = 4 * MOST_S) -> int:
        """End the load and wait until everything is counted, in the combined counts, too: they come by a way of their own."""
        made = load.end()
        combined = Watch(self.broker.bootstrap, self.groups, PARTITIONS)
        combined.start()
        try:
            for name, watch in (("counted", self.watching), ("combined", combined)):
                self.until(
                    lambda watch=watch: watch.counted >= made,
                    seconds,
                    lambda name=name, watch=watch: (
                        f"the last of {made} records to be {name} ({watch.counted} are; {watch.open()})"
                    ),
                )
        finally:
            combined.end()
        if (leaving := self.leaving) is not None:
            self.until(
                lambda: leaving.complete(load.leaving),
                seconds,
                f"the last of {load.leaving} rows to be in the table and in files",
            )
        return made

    def close(self) -> None:
        """End what still runs, in good order where it listens."""
        for process in self.processes:
            if process.alive:
                process.send(signal.SIGCONT)
                process.send(signal.SIGTERM)
        for process in self.processes:
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.send(signal.SIGKILL)
                process.wait(60)
        if hasattr(self, "watching"):
            self.watching.end()

    def check(self, *, closed: bool = False) -> int:
        """Every record counts once, at every stage; how many there are. `closed`: the run is, and with it all windows."""
        truth, wrong = differences(
            self.broker.bootstrap, job=self.job, source=self.source, counts=self.counts, groups=self.groups
        )
        wrong += windowed(self.broker.bootstrap, self.windows, self.late, truth.timed, closed=closed)
        if self.leaving is not None:
            wrong += self.leaving.wrong({key: len(known) for key, known in truth.amounts.items()}, self._named())
        assert not wrong, f"{len(wrong)} differences, the first:\n" + "\n".join([*wrong[:15], *self.story])
        return truth.records

    def _named(self) -> Iterator[Named]:
        """What is in the topic of those that leave."""
        assert self.leaving is not None, "someone asked for it"
        for message in read_all(self.broker.bootstrap, self.leaving.topic):
            yield json.loads(message.value() or b"")
